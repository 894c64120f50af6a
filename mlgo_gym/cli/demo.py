"""``mlgo-gym demo``: the main job in one command, on the sample corpus or on your own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mlgo_gym.cli import comparison
from mlgo_gym.cli.options import add_compilation_options, add_seed_option
from mlgo_gym.cli.output import Output, add_json_option
from mlgo_gym.cli.rollout import run_policies, warn_of_failures
from mlgo_gym.errors import OptionsError
from mlgo_gym.policies import make_policy
from mlgo_gym.rollout import ModuleReport

__all__ = ["add_parser", "run"]

_POLICIES: Final = ("always", "never", "random")
_CONTROL: Final = "default"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "demo",
        help="let three policies answer LLVM's inliner, and compare the sizes",
        description="Let LLVM's inliner ask about every call of a corpus; answer with three "
        "policies, and as LLVM's default would; compare the sizes of the code.",
    )
    add_compilation_options(parser)
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
    policies = {name: make_policy(name, options.seed) for name in (_CONTROL, *_POLICIES)}
    running = run_policies(options, output, policies)
    output.print(
        "LLVM's inliner asks about the calls of every module; the answers: "
        f"{', '.join(_POLICIES)}, and LLVM's own default as a control.\n"
    )
    reports = list(running)
    table = comparison.as_table(reports, _POLICIES, output.width)
    output.print(table, *_notes(reports))
    output.json(comparison.as_json(reports, (_CONTROL, *_POLICIES)))
    try:
        comparison.save_plot(reports, _POLICIES, options.plot)
    except OSError as error:
        raise OptionsError(f"--plot: cannot write {str(options.plot)!r}: {error}") from error
    output.print(f"Plot: {options.plot}")
    return warn_of_failures(reports, output)


def _notes(reports: Sequence[ModuleReport]) -> list[str]:
    complete = [report for report in reports if report.is_complete]
    equal = sum(
        report.baseline.digest == attempt.result.digest
        for report in complete
        if report.baseline and (attempt := report.attempt(_CONTROL)) and attempt.result
    )
    legend = (
        "LLVM: bytes of code (.text*) as LLVM's own heuristic leaves it. Policies: change "
        "against it; negative is smaller. Decisions: asked under LLVM's default; other answers "
        "lead to more or fewer."
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
    return [legend, control]
