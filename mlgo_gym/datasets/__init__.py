"""Datasets of decisions: folders of Parquet files; see ``docs/datasets.md``.

Nothing here needs TensorFlow but `mlgo_gym.datasets.sequence_examples`; what reads or writes
Parquet needs pyarrow. Both are in the extra ``train``.
"""
