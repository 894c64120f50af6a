"""Options that commands share, the types of their values, and what the values make.

An option is spelled alike and means the same wherever it is taken.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from corpus_tools.command_line import whole
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS
from mlgo_gym.corpus._packages import SPLITS, Packages, corpus_folders
from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm._compiler import DEFAULT_TIMEOUT_S
from mlgo_gym.llvm.command._options import OPT_LEVELS
from mlgo_gym.model._shipped import find_model
from mlgo_gym.policies._models import model_policies, problem_of_models
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._registry import DEFAULT, problem_named, problems
from mlgo_gym.runners._load import MODES

_P = TypeVar("_P", bound=Problem)

_UNITS_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0}
_DURATION: Final = re.compile("".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit in _UNITS_S))


def add_corpus_options(parser: argparse.ArgumentParser) -> None:
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


def add_compilation_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how modules are compiled, and how many at once."""
    add_opt_level_option(parser)
    add_setting_options(parser)
    add_worker_options(parser)


def add_opt_level_option(
    parser: argparse.ArgumentParser,
    levels: Sequence[str] = OPT_LEVELS[1:],
    default: str | None = None,
) -> None:
    """Add ``--opt-level``."""
    said = default or "each module's own"
    parser.add_argument(
        "--opt-level",
        choices=levels,
        metavar="LEVEL",
        default=default,
        help=f"{', '.join(levels[:-1])} or {levels[-1]} (default: {said})",
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


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how many workers there are, and how long they may take."""
    add_timeout_option(parser)
    add_jobs_option(parser)


def add_jobs_option(
    parser: argparse.ArgumentParser, default: int = 1, what: str = "work on N modules at once"
) -> None:
    """Add ``--jobs``."""
    parser.add_argument(
        "--jobs", type=whole(1), metavar="N", default=default, help=f"{what} (default: {default})"
    )


def add_timeout_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--timeout``."""
    parser.add_argument(
        "--timeout",
        type=duration,
        metavar="TIME",
        default=DEFAULT_TIMEOUT_S,
        help=f"for LLVM's part of one compilation (default: {DEFAULT_TIMEOUT_S:g}s)",
    )


def add_budget_option(parser: argparse.ArgumentParser, what: str, default: str = "") -> None:
    """Add ``--budget``; without a default there is no limit."""
    parser.add_argument(
        "--budget",
        type=duration,
        metavar="TIME",
        default=duration(default) if default else None,
        help=f"{what}, such as 90s, 30m or 1h30m (default: {default or 'no limit'})",
    )


def add_seed_option(parser: argparse.ArgumentParser, of: str = "the random policy") -> None:
    """Add ``--seed``."""
    parser.add_argument(
        "--seed", type=whole(0), metavar="N", default=0, help=f"of {of} (default: 0)"
    )


def add_output_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--output``, which must be given."""
    parser.add_argument("--output", type=Path, metavar="DIR", required=True, help=what)


def add_problem_option(parser: argparse.ArgumentParser, *, of_model: bool = True) -> None:
    """Add ``--problem``, which a model's card may say instead."""
    said = f"the first model's, else {DEFAULT}" if of_model else DEFAULT
    parser.add_argument(
        "--problem",
        choices=tuple(problems()),
        metavar="PROBLEM",
        help=f"what LLVM asks about: {', '.join(problems())} (default: {said})",
    )


def add_model_options(
    parser: argparse.ArgumentParser,
    what: str = "what answers LLVM",
    *,
    modes: Sequence[str] = MODES,
    many: bool = False,
    required: bool = False,
) -> None:
    """Add ``--model``, and ``--mode`` where there is more than one."""
    address = "; with --mode interactive, a host's address" if "interactive" in modes else ""
    parser.add_argument(
        "--model",
        type=find_model,
        action="append" if many else "store",
        default=[] if many else None,
        required=required,
        metavar="DIR",
        help=f"{what}: a model directory, a frozen model, or the name of one that ships{address}",
    )
    if len(modes) > 1:
        parser.add_argument(
            "--mode",
            choices=modes,
            default=modes[0],
            help=f"how it runs: {', '.join(modes)} (default: {modes[0]})",
        )


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


def folders_of(options: argparse.Namespace) -> list[Path]:
    """The corpora of `add_corpus_options`, the sample where none is given.

    Raises:
        CorpusError: a folder is no corpus and has none in it.
    """
    return corpus_folders(options.corpus or [SAMPLE_CORPUS], options.split)


def packages_of(options: argparse.Namespace, *, allow_thinlto: bool = False) -> Packages:
    """The modules of the corpora of `add_corpus_options`, of the sample where none is given.

    Args:
        options: of the command line.
        allow_thinlto: take corpora that were made for ThinLTO too.

    Raises:
        CorpusError: a folder is no corpus and has none in it.
        OptionsError: one is given twice.
    """
    folders = options.corpus or [SAMPLE_CORPUS]
    return Packages.load(folders, options.split, allow_thinlto=allow_thinlto)


def models_of(options: argparse.Namespace) -> list[str]:
    """The models of `add_model_options`, whether there may be many or not."""
    given = getattr(options, "model", None) or []
    return [given] if isinstance(given, str) else given


@contextlib.contextmanager
def policies_of(options: argparse.Namespace, problem: Problem) -> Iterator[dict[str, PolicyLike]]:
    """The models by the ends of their paths, and the policies of `add_policy_option` by name.

    Where neither is given, the problem's default policy.

    Raises:
        ModelError: a model cannot be used, or was made for another problem.
        OptionsError: the problem has no such policy, or a model is given twice.
    """
    models = models_of(options)
    names = [options.policy] if isinstance(options.policy, str) else options.policy or []
    if not models and not names:
        names = [problem.default_policy]
    named = {name: problem.policy(name, options.seed) for name in names}
    with model_policies(models, options.mode, problem, named) as made:
        yield {**made, **named}


@contextlib.contextmanager
def policy_of(options: argparse.Namespace, problem: Problem) -> Iterator[tuple[str, PolicyLike]]:
    """The one policy or model that is given, and its name.

    Raises:
        ModelError, OptionsError: as from `policies_of`, or there are both.
    """
    if options.policy and options.model:
        raise OptionsError("expected --policy or --model, found both")
    with policies_of(options, problem) as policies:
        ((name, policy),) = policies.items()
        yield name, policy


def problem_of(options: argparse.Namespace) -> Problem:
    """The problem of `add_problem_option`, with the settings of `add_setting_options`.

    Raises:
        ModelError: the first model's card cannot be read.
    """
    kind = problem_named(options.problem) if options.problem else None
    return make_problem(kind or problem_of_models(models_of(options)), options)


def make_problem(kind: type[_P], options: argparse.Namespace) -> _P:
    """A problem with the settings of `add_setting_options`."""
    given = {each.name: getattr(options, each.name, None) for each in _settings(kind)}
    return kind(**{name: value for name, value in given.items() if value is not None})


def duration(text: str) -> float:
    """An argparse type: a time with its units, in seconds.

    >>> duration("1h30m"), duration("2.5s")
    (5400.0, 2.5)
    """
    found = _DURATION.fullmatch(text)
    numbers = zip(found.groups(default="0"), _UNITS_S.values(), strict=True) if found else ()
    if seconds := sum(float(number) * unit_s for number, unit_s in numbers):
        return seconds
    raise argparse.ArgumentTypeError(
        f"expected a time above 0 with its unit, such as 90s, 30m or 1h30m, found {text!r}"
    )


def above_zero(text: str) -> float:
    """An argparse type: numbers above 0, ``inf`` included."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if value > 0:
        return value
    raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")


def _settings(kind: type[Problem]) -> tuple[Field[Any], ...]:
    return fields(kind)  # type: ignore[arg-type]
