"""Datasets of decisions: folders of Parquet files; see ``docs/guides/datasets.md``.

Parquet needs pyarrow, the extra ``datasets``. `datasets._sequence_examples` alone needs TensorFlow,
which is in the extra ``train``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
