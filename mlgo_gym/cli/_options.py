"""Command-line options that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, TypeVar

from corpus_tools.command_line import whole
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S
from mlgo_gym.llvm.command._options import OPT_LEVELS
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._registry import DEFAULT, problems

_P = TypeVar("_P", bound=Problem)


def add_compilation_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is compiled, and how."""
    add_corpus_option(parser)
    add_opt_level_option(parser)
    add_setting_options(parser)
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


def add_setting_options(parser: argparse.ArgumentParser) -> None:
    """Add an option for each setting of each problem: the fields of its dataclass."""
    settings = {each.name: each for kind in problems().values() for each in _settings(kind)}
    for name, each in settings.items():
        default = each.default
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=whole(1) if isinstance(default, int) else above_zero,
            metavar=each.metadata.get("metavar", "NUMBER"),
            help=f"{each.metadata.get('help', 'a setting')} (default: {default:g})",
        )


def add_problem_option(parser: argparse.ArgumentParser, default: str = DEFAULT) -> None:
    """Add ``--problem``; an empty default is what the first model was made for."""
    said = default or f"what the first model was made for, else {DEFAULT}"
    parser.add_argument(
        "--problem",
        choices=tuple(problems()),
        metavar="PROBLEM",
        default=default,
        help=f"what LLVM asks about: {', '.join(problems())} (default: {said})",
    )


def make_problem(kind: type[_P], options: argparse.Namespace) -> _P:
    """A problem with the settings of `add_setting_options`."""
    given = {each.name: getattr(options, each.name, None) for each in _settings(kind)}
    return kind(**{name: value for name, value in given.items() if value is not None})


def add_policy_option(parser: argparse.ArgumentParser, *, many: bool = False) -> None:
    """Add ``--policy``, which may be given several times if there may be many."""
    known = problems()
    names = "; ".join(f"{name}: {', '.join(kind.policies)}" for name, kind in known.items())
    parser.add_argument(
        "--policy",
        action="append" if many else "store",
        default=[] if many else None,
        choices=tuple(dict.fromkeys(name for kind in known.values() for name in kind.policies)),
        metavar="NAME",
        help=f"what answers LLVM, by name{', once for each' if many else ''}. {names}",
    )


def _settings(kind: type[Problem]) -> tuple[Field[Any], ...]:
    return fields(kind)  # type: ignore[arg-type]


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
