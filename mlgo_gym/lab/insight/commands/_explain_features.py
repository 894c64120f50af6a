"""``mlgo-gym explain-features``: what an inlining model's decisions rest on."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpus_tools.command_line import whole
from mlgo_gym.cli import Grid, Output, Row, change, save_figures
from mlgo_gym.cli import options as shared
from mlgo_gym.evaluation import check_can_plot
from mlgo_gym.problems import DEFAULT_ADVICE, InliningForSize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mlgo_gym.lab.insight._explain import Importance, PermutedText, Questions
    from mlgo_gym.runners import MLModelRunner

DESCRIPTION = (
    "Record what LLVM asks an inlining model, permute one feature after the other, and count the "
    "decisions that change. Plot the cost_estimate at which the answer turns."
)
EXAMPLE = "mlgo-gym explain-features --model inlining-for-size --plots plots"


def add_options(add: shared.Options) -> None:
    add.model("the model to explain", modes=(), required=True)
    add.corpus()
    add("--decisions", "N", "draw N of the recorded decisions at random", 20_000)
    add("--repeats", "N", "permute each feature N times", 3)
    what = "also compile the N modules that ask most with each feature permuted"
    add("--bytes", "N", what, 0, type=whole(0))
    add.seed("everything random")
    add.folder("--plots", "write plots, as PNG files")
    add.compilation()


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.evaluation import Setting
    from mlgo_gym.lab.insight import _explain as explain
    from mlgo_gym.runners import RunnerPolicy, native_runner

    packages = shared.packages_of(options)
    if options.plots:
        check_can_plot()
    problem = shared.make_problem(InliningForSize, options)
    setting = Setting(problem, **shared.compilation_of(options))
    with contextlib.ExitStack() as stack:
        path, trusted = Path(options.model), options.trust_code
        factory = native_runner(path, problem, stack, trusted=trusted)
        policy = stack.enter_context(RunnerPolicy(factory, keep=True))
        runner = stack.enter_context(factory(problem.layout.specs, problem.advice))
        parts = explain.record_observations(packages, policy, setting)
        recorded = explain.joined(list(output.track(parts, "recording", len(packages))))
        sample = recorded.sample(options.decisions, options.seed)
        permuted = explain.permutation_importance(
            runner, sample, seed=options.seed, repeats=options.repeats
        )
        found = list(output.track(permuted, "permuting", len(problem.layout.specs)))
        found.sort(key=lambda each: -each.changed)
        code = None
        if options.bytes:
            chosen = explain.most_asking(recorded, packages, options.bytes)
            features = [each.feature for each in found if each.changed]
            reports = explain.text_when_permuted(
                chosen, features, policy, sample, setting, seed=options.seed
            )
            tracked = output.track(reports, "compiling", options.bytes)
            code = explain.PermutedText.of(list(tracked))
        plots = _plots(runner, sample, found, options.seed) if options.plots else {}
    output.print(_grid(found, code), _note(sample, recorded, found, code))
    output.json(_record(sample, recorded, found, code))
    status = output.warn_of([*recorded.errors, *(code.errors if code else ())])
    if options.plots:
        save_figures(options.plots, plots)
    return status


def _plots(
    runner: MLModelRunner, sample: Questions, found: Sequence[Importance], seed: int
) -> dict[str, Figure]:
    from mlgo_gym.lab.insight._explain import COST, boundary_plot, importance_plot

    kept = {COST, DEFAULT_ADVICE}
    numbers = {name for name in sample.features if sample.values[name].ndim == 1}
    other = next(each.feature for each in found if each.feature in numbers - kept)
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
            cells = ["" if share is None else f"{100 * share:.2f} %" for share in shares]
            rows.append(
                [each.feature, *cells, *([change(code.change(each.feature))] if code else [])]
            )
    return Grid(headings, rows, folds=True)


def _note(
    sample: Questions, recorded: Questions, found: Sequence[Importance], code: PermutedText | None
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
    sample: Questions, recorded: Questions, found: Sequence[Importance], code: PermutedText | None
) -> dict[str, Any]:
    return {
        "decisions": len(sample.values),
        "recorded_decisions": len(recorded.values),
        "inlined": float((sample.decisions != 0).mean()),
        "features": [asdict(each) for each in found],
        "text": code and {"modules": list(code.modules), "text_bytes": dict(code.text_bytes)},
        "errors": [*map(str, (*recorded.errors, *(code.errors if code else ())))],
    }
