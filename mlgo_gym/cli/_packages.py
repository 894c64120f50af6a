"""Options that say which packages a command works on."""

from __future__ import annotations

import argparse
from pathlib import Path

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.corpus._packages import SPLITS, corpus_folders, load_packages


def add_packages_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--corpus``, which may be repeated, and ``--split``."""
    parser.add_argument(
        "--corpus",
        type=Path,
        action="append",
        metavar="DIR",
        help="the corpus of a package, or a folder of corpora; repeat for more (default: the "
        "sample in this package)",
    )
    parser.add_argument(
        "--split", choices=SPLITS, help="only corpora whose recipes are of this split"
    )


def packages_of(options: argparse.Namespace) -> dict[str, Corpus]:
    """The corpora by the names of their packages.

    Raises:
        CorpusError: a folder is no corpus and has none in it.
        OptionsError: a corpus is given twice.
    """
    return load_packages(corpus_folders(options.corpus or [SAMPLE_CORPUS], options.split))
