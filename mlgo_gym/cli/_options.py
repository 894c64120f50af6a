"""Command-line options that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from corpus_tools.command_line import whole
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S
from mlgo_gym.llvm.command._options import OPT_LEVELS
from mlgo_gym.problems._inlining_for_size import DEFAULT_SIZE_INCREASE_THRESHOLD, InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority

PROBLEMS_BY_NAME: Final[Mapping[str, type[Problem]]] = MappingProxyType(
    {
        "inlining-for-size": InliningForSize,
        "regalloc-eviction": RegallocEviction,
        "regalloc-priority": RegallocPriority,
    }
)
"""What the problems are called on the command line."""


def add_compilation_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is compiled, and how."""
    add_corpus_option(parser)
    add_opt_level_option(parser)
    add_size_threshold_option(parser)
    add_worker_options(parser)


def add_corpus_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--corpus``."""
    parser.add_argument(
        "--corpus",
        type=Path,
        metavar="DIR",
        default=SAMPLE_CORPUS,
        help="a corpus in mlgo-utils' layout (default: the sample in this package)",
    )


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how many workers there are, and how long they may take."""
    add_timeout_option(parser)
    parser.add_argument(
        "--jobs",
        type=whole(1),
        metavar="N",
        default=1,
        help="work on N modules at once (default: 1)",
    )


def add_timeout_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--timeout``."""
    parser.add_argument(
        "--timeout",
        type=above_zero,
        metavar="SECONDS",
        default=DEFAULT_TIMEOUT_S,
        help=f"for LLVM's part of one compilation (default: {DEFAULT_TIMEOUT_S:g})",
    )


def add_opt_level_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--opt-level``."""
    parser.add_argument(
        "--opt-level",
        choices=OPT_LEVELS[1:],
        metavar="LEVEL",
        help="O1, O2, O3, Os or Oz (default: each module's own)",
    )


def add_size_threshold_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--size-increase-threshold``."""
    parser.add_argument(
        "--size-increase-threshold",
        type=above_zero,
        metavar="FACTOR",
        default=DEFAULT_SIZE_INCREASE_THRESHOLD,
        help="growth at which LLVM's inline advisor stops asking; inf lifts it "
        f"(default: {DEFAULT_SIZE_INCREASE_THRESHOLD:g}, as in LLVM)",
    )


def add_problem_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--problem``."""
    parser.add_argument(
        "--problem",
        choices=tuple(PROBLEMS_BY_NAME),
        metavar="PROBLEM",
        default="inlining-for-size",
        help=f"what LLVM asks about: {', '.join(PROBLEMS_BY_NAME)} (default: inlining-for-size)",
    )


def make_problem(name: str, options: argparse.Namespace) -> Problem:
    """The problem of a name, with the settings of `add_compilation_options`."""
    kind = PROBLEMS_BY_NAME[name]
    return InliningForSize(options.size_increase_threshold) if kind is InliningForSize else kind()


def add_seed_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--seed``."""
    parser.add_argument(
        "--seed", type=whole(0), default=0, help="for the random policy (default: 0)"
    )


def above_zero(text: str) -> float:
    """An argparse type: numbers above 0, ``inf`` included."""
    with contextlib.suppress(ValueError):
        if (value := float(text)) > 0:
            return value
    raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
