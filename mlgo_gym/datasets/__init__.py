"""Datasets of decisions: folders of Parquet files; see ``docs/datasets.md``.

Nothing here needs TensorFlow but `datasets._sequence_examples`; what reads or writes
Parquet needs pyarrow. Both are in the extra ``train``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
