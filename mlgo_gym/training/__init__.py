"""Training: corpora become model directories. Needs the extra ``train``."""
