"""``mlgo-gym demo``: the main job in one command, on the sample corpus or on your own.

For the inliner: train a small policy, evaluate it on modules that it has not seen, freeze it, and
compile with it. Without the extra ``train`` the model that ships with the package takes its place.
For register allocation: policies by name against LLVM's own heuristic.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mlgo_gym.base import EnvironmentSetupError, OptionsError
from mlgo_gym.cli import options as shared
from mlgo_gym.cli._writing import save_figure, writing
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus import Packages
from mlgo_gym.evaluation import NO_PLOTS, can_plot, check_can_plot
from mlgo_gym.model import find_model
from mlgo_gym.problems import PolicyLike

DESCRIPTION = (
    "Train a policy for LLVM's inliner on corpora for two minutes, evaluate it on modules that it"
    " has not seen, freeze it, and compile with it. With another problem, compare a few policies "
    "with LLVM's own heuristic."
)
EXAMPLE = "mlgo-gym demo --corpus corpora/lupa --jobs 2 --plot lupa.png"

_CONTROL: Final = "default"
"""LLVM's own default as a policy; only the inliner says what it would be."""

_SETTINGS: Final = ("rounds=2", "batches=3", "teacher.least_leaf_rows=20", "hidden=[32, 32]")
"""For a corpus of a few thousand decisions."""

_PLOT: Final = Path("mlgo-gym-demo.png")
_PLOT_SUFFIXES: Final = (".png", ".svg", ".pdf")


def add_options(add: shared.Options) -> None:
    add.corpus()
    add.problem(of_model=False)
    add.seed()
    add.budget("how long to train", "2m")
    what = "where the training run, the frozen model and the object go"
    add("--output", "DIR", what, "mlgo-gym-demo")
    what = f"where the plot goes: {', '.join(_PLOT_SUFFIXES[:-1])} or {_PLOT_SUFFIXES[-1]}"
    add("--plot", "FILE", f"{what} (default: {_PLOT}, or no plot without the extra plot)")
    add.compilation()


def run(options: argparse.Namespace, output: Output) -> int:
    _settle_plot(options, output)
    packages, problem = shared.packages_of(options), shared.problem_of(options)
    if problem.rule == _CONTROL:
        return _run_inlining(packages, options, output)
    output.print(
        "LLVM's register allocator asks about the live ranges of every function; the answers: "
        f"{', '.join(problem.compared)}.\n"
    )
    policies = {name: problem.policy(name, options.seed) for name in problem.compared}
    return _compare(packages, policies, options, output)


def _settle_plot(options: argparse.Namespace, output: Output) -> None:
    """See that the plot can be written, before the work that it is to show."""
    if options.plot is None and not can_plot():
        output.print(f"The plot is left out. {NO_PLOTS}.\n")
        return
    check_can_plot()
    options.plot = options.plot or _PLOT
    _check_plot(options.plot)


def _check_plot(path: Path) -> None:
    problem = None
    if path.suffix not in _PLOT_SUFFIXES:
        problem = f"a file name ending in {', '.join(_PLOT_SUFFIXES)}, found {str(path)!r}"
    elif not path.resolve().parent.is_dir():
        problem = f"an existing folder, found {str(path.parent)!r}"
    elif path.is_dir():
        problem = f"a file, found the folder {str(path)!r}"
    if problem:
        raise OptionsError(f"--plot: expected {problem}")


def _run_inlining(packages: Packages, options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.model import freeze
    from mlgo_gym.runners import model_policies

    kept, unseen = packages.hold_out()
    output.print(f"1. Train on {len(kept)} modules, for about {options.budget / 60:g} min.")
    name, model = _trained(packages, options, output)
    output.print(f"\n2. Evaluate on {len(unseen)} other modules.")
    problem = shared.problem_of(options)
    with model_policies([str(model)], "release", problem) as models:
        policies: dict[str, PolicyLike] = {_CONTROL: problem.policy(_CONTROL)}
        (policies[name],) = models.values()
        policies |= {each: problem.policy(each, options.seed) for each in problem.compared}
        status = _compare(unseen, policies, options, output)
    frozen = options.output / "frozen"
    files = freeze(model, frozen, name="inliner")
    output.print(f"\n3. Freeze: {files.object}, with a C header and a shared library.")
    _compile(unseen, frozen, options, output)
    return status


def _trained(packages: Packages, options: argparse.Namespace, output: Output) -> tuple[str, Path]:
    """A model and what it is called: one that is trained here, or the one that ships."""
    from mlgo_gym.cli._train import train_watched

    run = options.output / "run"
    try:
        made = train_watched("advantage", packages, options, output, output=run, settings=_SETTINGS)
    except EnvironmentSetupError as error:
        output.print(f"   {error}. The model that ships with mlgo_gym takes its place.")
        return "shipped", Path(find_model("inlining-for-size"))
    return "trained", made.model


def _compare(
    packages: Packages,
    policies: Mapping[str, PolicyLike],
    options: argparse.Namespace,
    output: Output,
) -> int:
    """Compile under policies; print, answer in JSON, and plot."""
    from mlgo_gym.cli.show import _comparison as comparison

    reports = list(
        shared.rolled_out(packages, policies, shared.problem_of(options), options, output)
    )
    first, shown = next(iter(policies)), [each for each in policies if each != _CONTROL]
    control = comparison.control_note(reports, _CONTROL)
    note = control if first == _CONTROL else comparison.mean_note(reports, shown)
    output.print(comparison.as_grid(reports, shown), comparison.legend(reports, first), note)
    output.json(comparison.as_json(reports, list(policies)))
    if options.plot and (figure := comparison.plot(reports, shown)):
        save_figure(options.plot, figure)
        output.print(f"Plot: {options.plot}")
    return output.warn_of_failures(reports)


def _compile(packages: Packages, frozen: Path, options: argparse.Namespace, output: Output) -> None:
    """Compile the largest of the modules with the frozen model."""
    from mlgo_gym.rollout import deploy_modules
    from mlgo_gym.runners import model_policies

    largest = max(packages, key=packages.size_bytes)
    problem = shared.problem_of(options)
    with model_policies([str(frozen)], "release", problem, trusted=True) as made:  # just now
        (done,) = deploy_modules(
            lambda _: packages[largest],
            [largest.name],
            problem,
            made,
            opt_level=options.opt_level,
            timeout_s=options.timeout,
        )
    target = options.output / f"{Path(largest.name).name}.o"
    with writing(target) as file:
        file.write(done.value.output)
    report = done.value.report
    result = report.attempts[0].result
    if report.baseline is not None and result is not None:
        score, baseline = (report.measure.score(each) for each in (result, report.baseline))
        output.print(
            f"\n4. Compile: {target}, {score:,.0f} bytes of code; LLVM's own heuristic makes "
            f"{baseline:,.0f}.\n"
            f"   The same for bitcode of yours: mlgo-gym compile x.bc -o x.o --model {frozen}"
        )
