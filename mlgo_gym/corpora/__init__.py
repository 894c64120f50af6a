"""Work on whole corpora: what is in them, splits, one module a function."""
