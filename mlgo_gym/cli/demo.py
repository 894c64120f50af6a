"""``mlgo-gym demo``: the main job in one command, on the sample corpus or on your own."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from mlgo_gym.cli import comparison
from mlgo_gym.cli.options import (
    PROBLEMS_BY_NAME,
    add_compilation_options,
    add_problem_option,
    add_seed_option,
)
from mlgo_gym.cli.output import Output, add_json_option
from mlgo_gym.cli.rollout import run_policies, warn_of_failures
from mlgo_gym.errors import OptionsError
from mlgo_gym.policies import POLICIES_OF, make_policy
from mlgo_gym.rollout import ModuleReport

__all__ = ["add_parser", "run"]

_POLICIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "inlining-for-size": ("always", "never", "random"),
        "regalloc-eviction": ("random", "first", "lowest-density"),
        "regalloc-priority": ("random", "by-size"),
    }
)
_CONTROL: Final = "default"
"""LLVM's own default as a policy; only the inliner says what it would be."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "demo",
        help="let three policies answer LLVM's inliner, and compare the sizes",
        description="Let LLVM's inliner ask about every call of a corpus, or its register "
        "allocator about every live range; answer with a few policies; compare what comes out.",
    )
    add_compilation_options(parser)
    add_problem_option(parser)
    add_seed_option(parser)
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        default=Path("mlgo-gym-demo.png"),
        help="where the plot goes: .png, .svg or .pdf (default: mlgo-gym-demo.png)",
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the subcommand."""
    if problem := comparison.check_plot_path(options.plot):
        raise OptionsError(f"--plot: {problem}")
    shown = _POLICIES[options.problem]
    kind = PROBLEMS_BY_NAME[options.problem]
    control = (_CONTROL,) if _CONTROL in POLICIES_OF[kind.name] else ()
    names = (*control, *shown)
    running = run_policies(
        options, output, {name: make_policy(name, options.seed, kind) for name in names}
    )
    output.print(_introduction(shown, has_control=bool(control)))
    reports = list(running)
    asked_by = "LLVM's default" if control else shown[0]
    output.print(comparison.as_table(reports, shown, output.width), _legend(reports, asked_by))
    if control:
        output.print(_control_note(reports))
    else:
        output.print(comparison.mean_note(reports, shown))
    output.json(comparison.as_json(reports, names))
    try:
        comparison.save_plot(reports, shown, options.plot)
    except OSError as error:
        raise OptionsError(f"--plot: cannot write {str(options.plot)!r}: {error}") from error
    output.print(f"Plot: {options.plot}")
    return warn_of_failures(reports, output)


def _introduction(policies: Sequence[str], *, has_control: bool) -> str:
    if has_control:
        return (
            "LLVM's inliner asks about the calls of every module; the answers: "
            f"{', '.join(policies)}, and LLVM's own default as a control.\n"
        )
    return (
        "LLVM's register allocator asks about the live ranges of every function; the answers: "
        f"{', '.join(policies)}.\n"
    )


def _legend(reports: Sequence[ModuleReport], asked_by: str) -> str:
    meaning = reports[0].measure.meaning if reports else ""
    return (
        f"LLVM: {meaning} as LLVM's own heuristic leaves it. Policies: change against it; "
        f"negative is smaller. Decisions: asked under {asked_by}; other answers lead to more or "
        "fewer."
    )


def _control_note(reports: Sequence[ModuleReport]) -> str:
    complete = [report for report in reports if report.is_complete]
    equal = sum(
        report.baseline.digest == attempt.result.digest
        for report in complete
        if report.baseline and (attempt := report.attempt(_CONTROL)) and attempt.result
    )
    control = (
        f"Control: answered with LLVM's default, {equal} of {len(complete)} objects are equal "
        "byte for byte to those of LLVM left alone."
    )
    if equal < len(complete):
        control += (
            " Others grew to the limit at which LLVM's advisor stops asking; "
            "--size-increase-threshold inf lifts it."
        )
    return control
