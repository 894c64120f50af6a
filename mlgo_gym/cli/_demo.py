"""``mlgo-gym demo``: the main job in one command, on the sample corpus or on your own.

For the inliner: train a small policy, evaluate it on modules that it has not seen, freeze it, and
compile with it. Without the extra ``train`` the model that ships with the package takes its place.
For register allocation: policies by name against LLVM's own heuristic.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mlgo_gym.cli._options import (
    add_budget_option,
    add_compilation_options,
    add_corpus_options,
    add_problem_option,
    add_seed_option,
    packages_of,
    problem_of,
)
from mlgo_gym.cli._packages import rolled_out
from mlgo_gym.cli._train import watching
from mlgo_gym.cli._writing import writing
from mlgo_gym.cli.show import _comparison as comparison
from mlgo_gym.cli.show._output import Output
from mlgo_gym.cli.show._warnings import warn_of_failures
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import EnvironmentSetupError, OptionsError
from mlgo_gym.model._shipped import find_model
from mlgo_gym.native._freeze import freeze
from mlgo_gym.policies._models import Model
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.rollout._deployment import deploy_modules
from mlgo_gym.rollout._rollout import ModuleReport
from mlgo_gym.runners._load import runner_factory
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.training._train import train

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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_corpus_options(parser)
    add_problem_option(parser, of_model=False)
    add_seed_option(parser)
    add_budget_option(parser, "how long to train", "2m")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        default=Path("mlgo-gym-demo"),
        help="where the training run, the frozen model and the object go (default: mlgo-gym-demo)",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        default=Path("mlgo-gym-demo.png"),
        help="where the plot goes: .png, .svg or .pdf (default: mlgo-gym-demo.png)",
    )
    add_compilation_options(parser)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the command."""
    if problem := comparison.check_plot_path(options.plot):
        raise OptionsError(f"--plot: {problem}")
    packages = packages_of(options)
    if problem_of(options).rule == _CONTROL:
        return _run_inlining(packages, options, output)
    return _run_allocation(packages, options, output)


def _run_inlining(packages: Packages, options: argparse.Namespace, output: Output) -> int:
    _, unseen = packages.hold_out()
    name, model = _trained(packages, options, output)
    output.print(f"\n2. Evaluate on {len(unseen)} other modules.")
    reports = _compared(unseen, name, model, options, output)
    frozen = options.output / "frozen"
    files = freeze(model, frozen, name="inliner")
    output.print(f"\n3. Freeze: {files.object}, with a C header and a shared library.")
    _compile(unseen, name, frozen, options, output)
    return warn_of_failures(reports, output)


def _trained(packages: Packages, options: argparse.Namespace, output: Output) -> tuple[str, Path]:
    """A model and what it is called: one that is trained here, or the one that ships."""
    kept, _ = packages.hold_out()
    output.print(f"1. Train on {len(kept)} modules, for about {options.budget / 60:g} min.")
    try:
        with watching(output) as watcher:
            made = train(
                "advantage",
                packages,
                output=options.output / "run",
                problem=problem_of(options),
                budget_minutes=options.budget / 60,
                settings=_SETTINGS,
                seed=options.seed,
                jobs=options.jobs,
                timeout_s=options.timeout,
                watcher=watcher,
            )
    except EnvironmentSetupError as error:
        output.print(f"   {error}. The model that ships with mlgo_gym takes its place.")
        return "shipped", Path(find_model("inlining-for-size"))
    return "trained", made.model


def _compared(
    packages: Packages,
    name: str,
    model: Path,
    options: argparse.Namespace,
    output: Output,
) -> list[ModuleReport]:
    """Compile under a model and policies by name; print, plot, and answer in JSON."""
    problem = problem_of(options)
    shown = (name, *problem.compared)
    policies: dict[str, PolicyLike] = {_CONTROL: problem.policy(_CONTROL)}
    policies[name] = RunnerPolicy(runner_factory(str(model), "release"))
    policies |= {each: problem.policy(each, options.seed) for each in problem.compared}
    reports = list(rolled_out(packages, policies, problem, options, output))
    output.print(
        comparison.as_table(reports, shown, output.width),
        _legend(reports, "LLVM's default"),
        _control_note(reports),
    )
    output.json(comparison.as_json(reports, (_CONTROL, *shown)))
    _save_plot(options, output, reports, shown)
    return reports


def _compile(
    packages: Packages,
    name: str,
    frozen: Path,
    options: argparse.Namespace,
    output: Output,
) -> None:
    """Compile the largest of the modules with the frozen model."""
    largest = max(packages, key=packages.size_bytes)
    factory = runner_factory(str(frozen), "release")
    model = Model(name, frozen, problem_of(options), factory)
    (done,) = deploy_modules(
        lambda _: packages[largest],
        [largest.name],
        model,
        opt_level=options.opt_level,
        timeout_s=options.timeout,
    )
    target = options.output / f"{Path(largest.name).name}.o"
    with writing(target) as file:
        file.write(done.value.output)
    report = done.value.report
    result = report.attempts[0].result
    if report.baseline is not None and result is not None:
        output.print(
            f"\n4. Compile: {target}, {result.score:,.0f} bytes of code; LLVM's own heuristic "
            f"makes {report.baseline.score:,.0f}.\n"
            f"   The same for bitcode of yours: mlgo-gym compile x.bc -o x.o --model {frozen}"
        )


def _run_allocation(packages: Packages, options: argparse.Namespace, output: Output) -> int:
    problem = problem_of(options)
    shown = problem.compared
    policies = {name: problem.policy(name, options.seed) for name in shown}
    output.print(
        "LLVM's register allocator asks about the live ranges of every function; the answers: "
        f"{', '.join(shown)}.\n"
    )
    reports = list(rolled_out(packages, policies, problem, options, output))
    output.print(
        comparison.as_table(reports, shown, output.width),
        _legend(reports, shown[0]),
        comparison.mean_note(reports, shown),
    )
    output.json(comparison.as_json(reports, shown))
    _save_plot(options, output, reports, shown)
    return warn_of_failures(reports, output)


def _save_plot(
    options: argparse.Namespace,
    output: Output,
    reports: Sequence[ModuleReport],
    shown: Sequence[str],
) -> None:
    try:
        comparison.save_plot(reports, shown, options.plot)
    except OSError as error:
        raise OptionsError(f"--plot: cannot write {str(options.plot)!r}: {error}") from error
    output.print(f"Plot: {options.plot}")


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
