"""``mlgo-gym explain-features``: what an inlining model's decisions rest on."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from corpus_tools.command_line import whole
from mlgo_gym.cli._options import (
    add_compilation_options,
    add_corpus_options,
    add_model_options,
    add_seed_option,
    make_problem,
    packages_of,
)
from mlgo_gym.cli._writing import make_folder, save_figure
from mlgo_gym.cli.show._grid import Grid, Row, change
from mlgo_gym.cli.show._output import Output
from mlgo_gym.cli.show._warnings import warn_of
from mlgo_gym.evaluation._evaluate import Setting
from mlgo_gym.evaluation._explain import (
    FEATURES,
    Importance,
    PermutedText,
    Recorded,
    joined,
    most_asking,
    permutation_importance,
    record_observations,
    text_when_permuted,
)
from mlgo_gym.evaluation._explain_plots import COST, boundary_plot, importance_plot
from mlgo_gym.evaluation._figure import check_can_plot
from mlgo_gym.policies._models import native_runner
from mlgo_gym.problems._inlining_for_size import DEFAULT_ADVICE, InliningForSize
from mlgo_gym.runners._base import MLModelRunner
from mlgo_gym.runners._policy import RunnerPolicy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DESCRIPTION = (
    "Record what LLVM asks an inlining model, permute one feature after the other and count the "
    "decisions that change; plot where the answer turns over cost_estimate."
)
EXAMPLE = "mlgo-gym explain-features --model inlining-for-size --plots plots"

_DECISIONS: Final = 20_000
_REPEATS: Final = 3


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_model_options(parser, "what is explained", modes=(), required=True)
    add_corpus_options(parser)
    parser.add_argument(
        "--decisions",
        type=whole(1),
        default=_DECISIONS,
        metavar="N",
        help=f"take N of the recorded decisions, by chance (default: {_DECISIONS:,})",
    )
    parser.add_argument(
        "--repeats",
        type=whole(1),
        default=_REPEATS,
        metavar="N",
        help=f"permute each feature N times (default: {_REPEATS})",
    )
    parser.add_argument(
        "--bytes",
        type=whole(0),
        default=0,
        metavar="N",
        help="compile N modules with each feature permuted, too: those that ask most (default: 0)",
    )
    add_seed_option(parser, "all that is drawn by chance")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write plots, as PNG files")
    add_compilation_options(parser)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the command."""
    packages = packages_of(options)
    if options.plots:
        check_can_plot()
        make_folder(options.plots)
    problem = make_problem(InliningForSize, options)
    setting = Setting(problem, options.opt_level, options.jobs, options.timeout)
    with contextlib.ExitStack() as stack:
        factory = native_runner(Path(options.model), problem, stack)
        policy = stack.enter_context(RunnerPolicy(factory, keep=True))
        runner = stack.enter_context(factory(problem.sent(), problem.advice))
        parts = record_observations(packages, policy, setting)
        recorded = joined(list(output.track(parts, "recording", len(packages))))
        sample = recorded.sample(options.decisions, options.seed)
        permuted = permutation_importance(
            runner, sample, seed=options.seed, repeats=options.repeats
        )
        found = list(output.track(permuted, "permuting", len(FEATURES)))
        found.sort(key=lambda each: -each.changed)
        code = None
        if options.bytes:
            chosen = most_asking(recorded, packages, options.bytes)
            features = [each.feature for each in found if each.changed]
            reports = text_when_permuted(
                chosen, features, policy, sample, setting, seed=options.seed
            )
            code = PermutedText.of(list(output.track(reports, "compiling", options.bytes)))
        if options.plots:
            for name, figure in _plots(runner, sample, found, options.seed).items():
                save_figure(options.plots / f"{name}.png", figure)
    output.print(_grid(found, code), _note(sample, recorded, found, code))
    output.json(_record(sample, recorded, found, code))
    return warn_of([*recorded.errors, *(code.errors if code else ())], output)


def _plots(
    runner: MLModelRunner, sample: Recorded, found: Sequence[Importance], seed: int
) -> dict[str, Figure]:
    other = next(each.feature for each in found if each.feature not in {COST, DEFAULT_ADVICE})
    return {
        "importance": importance_plot(found),
        "boundary": boundary_plot(runner, sample, other, seed),
    }


def _grid(found: Sequence[Importance], code: PermutedText | None) -> Grid:
    headings = ("feature", "changed", "+/-", "to inline", "to leave", *(["text"] if code else []))
    rows: list[Row] = []
    for each in found:
        if each.changed:
            shares = (each.changed, each.deviation, each.to_inline, each.changed - each.to_inline)
            cells = [f"{100 * share:.2f} %" for share in shares]
            rows.append(
                [each.feature, *cells, *([change(code.change(each.feature))] if code else [])]
            )
    return Grid(headings, rows, folds=True)


def _note(
    sample: Recorded, recorded: Recorded, found: Sequence[Importance], code: PermutedText | None
) -> str:
    note = (
        "Decisions that change when one feature's values are permuted among "
        f"{len(sample.values):,} of {len(recorded.values):,} recorded decisions."
    )
    if idle := ", ".join(each.feature for each in found if not each.changed):
        note += f"\nNo decision changes with: {idle}."
    if code:
        note += (
            f"\nText: change of {code.text_bytes['']:,} bytes in {len(code.modules)} modules when "
            "the model gets the feature from other decisions."
        )
    return note


def _record(
    sample: Recorded, recorded: Recorded, found: Sequence[Importance], code: PermutedText | None
) -> dict[str, Any]:
    return {
        "decisions": len(sample.values),
        "recorded_decisions": len(recorded.values),
        "inlined": float((sample.decisions != 0).mean()),
        "features": [asdict(each) for each in found],
        "text": code and {"modules": list(code.modules), "text_bytes": dict(code.text_bytes)},
        "errors": [*recorded.errors, *(code.errors if code else ())],
    }
