"""``mlgo-gym demo``: the main jobs in one command, on the sample corpus or on your own.

For the inliner: train a small policy and search, and compare both with LLVM and a shipped model on
modules that none of them has seen; freeze the policy, and compile with it. Without the extra
``train`` the shipped model stands alone. For register allocation: policies by name against LLVM's
own heuristic.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from mlgo_gym.base import EnvironmentSetupError
from mlgo_gym.cli import options as shared
from mlgo_gym.cli._writing import PLOT_ENDINGS, OutputFile, save_figure, writing
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus import Packages
from mlgo_gym.evaluation import NO_PLOTS, can_plot, check_can_plot
from mlgo_gym.model import find_model
from mlgo_gym.problems import PolicyLike

if TYPE_CHECKING:
    from mlgo_gym.corpus import Module
    from mlgo_gym.problems import InliningForSize
    from mlgo_gym.rollout import ModuleReport, Trace

DESCRIPTION = (
    "Compare LLVM's inliner with a shipped model, a policy that is trained right now and a search "
    "on modules that none of them has seen; then freeze the policy and compile with it. With "
    "another problem, compare a few policies with LLVM's own heuristic."
)
EXAMPLE = "mlgo-gym demo --corpus corpora/lupa --jobs 2 --plot lupa.png"

_CONTROL: Final = "default"
"""LLVM's own default as a policy; only the inliner says what it would be."""

_MODELS: Final = ("inlining-for-size", "inlining-for-size-derived")
"""Shipped models without and with features that are read from LLVM's module."""
_FEWEST: Final = 2
"""Modules to train on, of which one is chosen by."""

_SEARCH_STEPS: Final = 1500.0
"""How far each module is searched, some three seconds."""

_NEXT: Final = """
Next
  train an agent of yours      docs/tutorials/agent.md
  make your own build smaller  mlgo-gym project --build build --output project.txt
  compile bitcode of yours     mlgo-gym compile x.bc -o x.o --model inlining-for-size
  see where models differ      mlgo-gym explain --model inlining-for-size"""

_SETTINGS: Final = ("rounds=2", "batches=3", "teacher.least_leaf_rows=20", "hidden=[32, 32]")
"""For a corpus of a few thousand decisions, which alone are too few to learn from."""

_PLOT: Final = Path("mlgo-gym-demo.png")


def add_options(add: shared.Options) -> None:
    add.corpus()
    add.problem(of_model=False)
    add.seed()
    add.budget("how long to train", "2m")
    what = "where the training run, the frozen model and the object go"
    add.folder("--output", what, "mlgo-gym-demo")
    what = f"where the plot goes: {', '.join(PLOT_ENDINGS[:-1])} or {PLOT_ENDINGS[-1]}"
    what += f" (default: {_PLOT}, or no plot without the extra plot)"
    add.file("--plot", what, endings=PLOT_ENDINGS)
    add.compilation()


def run(options: argparse.Namespace, output: Output) -> int:
    _settle_plot(options, output)
    packages, problem = shared.packages_of(options), shared.problem_of(options)
    if problem.rule == _CONTROL:
        if options.derived is None:
            options.derived = True
        return _run_inlining(packages, options, output)
    output.print(
        "LLVM's register allocator asks about the live ranges of every function; the answers: "
        f"{', '.join(problem.compared)}.\n"
    )
    policies = {name: problem.policy(name, options.seed) for name in problem.compared}
    return output.warn_of_failures(_compared(packages, policies, options, output))


def _settle_plot(options: argparse.Namespace, output: Output) -> None:
    """See that the plot can be written, before the work that it is to show."""
    if options.plot is None and not can_plot():
        output.print(f"The plot is left out. {NO_PLOTS}.\n")
        return
    check_can_plot()
    options.plot = options.plot or _PLOT
    OutputFile().check("--plot", options.plot)


def _run_inlining(packages: Packages, options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.model import freeze
    from mlgo_gym.rollout import SMALLEST, RecordedPolicy
    from mlgo_gym.runners import model_policies

    start = Path(find_model(_MODELS[bool(options.derived)]))
    kept, unseen = packages.hold_out()
    minutes = f"{options.budget / 60:g} min at most"
    output.print(f"1. Train a policy on {len(kept)} modules, for {minutes}.")
    models = {"shipped": start} | _trained(kept, start, options, output)
    output.print(f"2. Search the answers of {len(unseen)} other modules.")
    traces = _searched(unseen, options, output)
    output.print(f"3. Compare on these {len(unseen)} modules, which no model has seen.")
    problem = shared.problem_of(options)
    with model_policies([*map(str, models.values())], "release", problem) as made:
        policies: dict[str, PolicyLike] = {_CONTROL: problem.policy(_CONTROL)}
        policies |= dict(zip(models, made.values(), strict=True))
        policies["search"] = RecordedPolicy(traces, problem.policy(_CONTROL))
        reports = _compared(unseen, policies, options, output, added=(SMALLEST,))
    name, model = [*models.items()][-1]
    frozen = options.output / "frozen"
    files = freeze(model, frozen, name="inliner")
    output.print(f"\n4. Freeze the {name} model: {files.object}, with a header and a library.")
    best = max(
        (each for each in reports if each.is_complete), key=partial(_saved, name), default=None
    )
    if best is not None:
        (key,) = (key for key in unseen if unseen.label(key) == best.module)
        _compile(unseen[key], frozen, options, output)
    output.verbatim(_NEXT)
    return output.warn_of_failures(reports)


def _trained(
    packages: Packages, start: Path, options: argparse.Namespace, output: Output
) -> dict[str, Path]:
    """The model that is trained here, by its name, or none where its packages are missing."""
    from mlgo_gym.cli._train import train_watched

    if len(packages) < _FEWEST:
        output.print("   These are too few. Only the shipped model is compared.")
        return {}
    run = options.output / "run"
    settings = (*_SETTINGS, f"start={start}")
    try:
        made = train_watched("advantage", packages, options, output, output=run, settings=settings)
    except EnvironmentSetupError as error:
        output.print(f"   {error}. Only the shipped model is compared.")
        return {}
    return {"trained": made.model}


class _Steps(threading.local):
    """A clock that counts how often it is asked, so that a search is the same on any machine."""

    count = 0

    def __call__(self) -> float:
        self.count += 1
        return float(self.count)


def _searched(packages: Packages, options: argparse.Namespace, output: Output) -> list[Trace]:
    from mlgo_gym.rollout import Trace, trace_paths
    from mlgo_gym.search import SearchSetting, search_corpus

    folder = options.output / "search"
    setting = SearchSetting(_SEARCH_STEPS, options.seed, clock=_Steps())
    how = shared.compilation_of(options)
    problem = cast("InliningForSize", shared.problem_of(options))
    searches = search_corpus(packages, folder, problem, setting, **how)
    for _ in output.track(searches, "searching", len(packages)):
        pass
    return list(map(Trace.load, trace_paths(folder)))


def _compared(
    packages: Packages,
    policies: Mapping[str, PolicyLike],
    options: argparse.Namespace,
    output: Output,
    added: Sequence[str] = (),
) -> list[ModuleReport]:
    """Compile under policies; print, answer in JSON, and plot."""
    from mlgo_gym.cli.show import _comparison as comparison

    how = (shared.problem_of(options), options, output)
    reports = list(shared.rolled_out(packages, policies, *how, keep_smaller=bool(added)))
    first, shown = next(iter(policies)), [each for each in policies if each != _CONTROL]
    shown += added
    control = comparison.control_note(reports, _CONTROL)
    note = control if first == _CONTROL else comparison.mean_note(reports, shown)
    output.print(comparison.as_grid(reports, shown), comparison.legend(reports, first), note)
    if added:
        output.print("", comparison.bars(reports, shown))
    output.json(comparison.as_json(reports, [*policies, *added]))
    if options.plot and (figure := comparison.plot(reports, shown)):
        save_figure(options.plot, figure)
        output.verbatim(f"Plot: {options.plot}")
    return reports


def _saved(policy: str, report: ModuleReport) -> float:
    attempt = report.attempt(policy)
    return report.reward(attempt) or 0.0 if attempt else 0.0


def _compile(module: Module, frozen: Path, options: argparse.Namespace, output: Output) -> None:
    """Compile a module with the frozen model, and keep the smaller object."""
    from mlgo_gym.rollout import deploy_modules
    from mlgo_gym.runners import model_policies

    problem = shared.problem_of(options)
    with model_policies([str(frozen)], "release", problem, trusted=True) as made:  # just now
        (done,) = deploy_modules(
            lambda _: module,
            [module.name],
            problem,
            made,
            opt_level=options.opt_level,
            timeout_s=options.timeout,
            keep_smaller=True,
        )
    target = options.output / f"{Path(module.name).name}.o"
    with writing(target) as file:
        file.write(done.value.output)
    report = done.value.report
    scores = [report.measure.score(each.result) for each in report.attempts if each.result]
    if report.baseline is not None and scores:
        baseline = report.measure.score(report.baseline)
        sizes = f"{min(baseline, *scores):,.0f} bytes of code instead of {baseline:,.0f}"
        output.print(f"5. Compile with it, and keep the smaller object: {target},\n   {sizes}.")
