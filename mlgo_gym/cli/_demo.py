"""``mlgo-gym demo``: the main job in one command, on the sample corpus or on your own.

For the inliner: train a small policy, evaluate it on modules that it has not seen, freeze it, and
compile with it. Without the extra ``train`` the model that ships with the package takes its place.
For register allocation: policies by name against LLVM's own heuristic.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mlgo_gym.cli._options import (
    above_zero,
    add_compilation_options,
    add_problem_option,
    add_seed_option,
    make_problem,
)
from mlgo_gym.cli._rollout import run_policies, warn_of_failures
from mlgo_gym.cli._train import TrainingRequest, train_model
from mlgo_gym.cli.show import _comparison as comparison
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import hold_out
from mlgo_gym.errors import EnvironmentSetupError, OptionsError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.model._shipped import find_model
from mlgo_gym.native._freeze import freeze
from mlgo_gym.policies._models import Model
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._registry import problem_named
from mlgo_gym.rollout._deployment import deploy
from mlgo_gym.rollout._rollout import ModuleReport
from mlgo_gym.runners._load import runner_factory
from mlgo_gym.runners._policy import RunnerPolicy

DESCRIPTION = (
    "Train a policy for LLVM's inliner on a corpus for two minutes, evaluate it on modules that it"
    " has not seen, freeze it, and compile with it. With another problem, compare a few policies "
    "with LLVM's own heuristic."
)
EXAMPLE = "mlgo-gym demo --corpus corpora/lupa --jobs 2 --plot lupa.png"

_CONTROL: Final = "default"
"""LLVM's own default as a policy; only the inliner says what it would be."""

_TRAINED: Final = "trained"
_SHIPPED: Final = "shipped"
_SETTINGS: Final = ("rounds=2", "batches=3", "teacher.least_leaf_rows=20", "hidden=[32, 32]")
"""For a corpus of a few thousand decisions."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_compilation_options(parser)
    add_problem_option(parser)
    add_seed_option(parser)
    parser.add_argument(
        "--budget",
        type=above_zero,
        metavar="MINUTES",
        default=2.0,
        help="how long to train (default: 2)",
    )
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


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the subcommand."""
    if problem := comparison.check_plot_path(options.plot):
        raise OptionsError(f"--plot: {problem}")
    if problem_named(options.problem).rule == _CONTROL:
        return _run_inlining(options, output)
    return _run_allocation(options, output)


def _run_inlining(options: argparse.Namespace, output: Output) -> int:
    corpus = Corpus.load(options.corpus)
    packages, held_out = hold_out({"corpus": corpus}, ())
    unseen = held_out["corpus"]
    shown, model = _TRAINED, options.output / "run" / "model"
    try:
        output.print(
            f"1. Train on {len(packages['corpus'])} modules, for about {options.budget:g} min."
        )
        request = TrainingRequest(
            trainer="advantage",
            problem=make_problem(problem_named(options.problem), options),
            output=options.output / "run",
            settings=_SETTINGS,
            seed=options.seed,
            budget_s=60 * options.budget,
            jobs=options.jobs,
            timeout_s=options.timeout,
        )
        model = train_model(request, packages, held_out, output).model
    except EnvironmentSetupError as error:
        output.print(f"   {error}. The model that ships with mlgo_gym takes its place.")
        shown, model = _SHIPPED, Path(find_model("inlining-for-size"))
    output.print(f"\n2. Evaluate on {len(unseen)} other modules.")
    factory = RunnerPolicy(runner_factory(str(model), "release"))
    reports = _compared(options, output, unseen, {shown: factory}, shown)
    frozen = options.output / "frozen"
    files = freeze(model, frozen, name="inliner")
    output.print(f"\n3. Freeze: {files.object}, with a C header and a shared library.")
    _compile(options, output, unseen, frozen, shown)
    return warn_of_failures(reports, output)


def _compared(
    options: argparse.Namespace,
    output: Output,
    corpus: Corpus,
    models: Mapping[str, PolicyLike],
    first: str,
) -> list[ModuleReport]:
    """Compile under a model and policies by name; print, plot, and answer in JSON."""
    shown = (first, *problem_named(options.problem).compared)
    kind = problem_named(options.problem)
    names = (_CONTROL, *shown)
    policies = {name: models.get(name) or kind.policy(name, options.seed) for name in names}
    reports = list(run_policies(options, output, policies, corpus=corpus))
    output.print(
        comparison.as_table(reports, shown, output.width),
        _legend(reports, "LLVM's default"),
        _control_note(reports),
    )
    output.json(comparison.as_json(reports, names))
    _save_plot(options, output, reports, shown)
    return reports


def _compile(
    options: argparse.Namespace, output: Output, corpus: Corpus, frozen: Path, name: str
) -> None:
    """Compile the largest of the modules with the frozen model."""
    module = corpus[max(corpus, key=corpus.size_bytes)]
    target = options.output / f"{Path(module.name).name}.o"
    model = Model(
        name,
        frozen,
        make_problem(problem_named(options.problem), options),
        runner_factory(str(frozen), "release"),
    )
    with Compiler(timeout_s=options.timeout) as compiler:
        made = deploy(compiler, module, options_of(module, options.opt_level), model)
    target.write_bytes(made.output)
    result = made.report.attempts[0].result
    if made.report.baseline is not None and result is not None:
        output.print(
            f"\n4. Compile: {target}, {result.score:,.0f} bytes of code; LLVM's own heuristic "
            f"makes {made.report.baseline.score:,.0f}.\n"
            f"   The same for bitcode of yours: mlgo-gym compile x.bc -o x.o "
            f"--model {frozen}"
        )


def _run_allocation(options: argparse.Namespace, output: Output) -> int:
    shown = problem_named(options.problem).compared
    kind = problem_named(options.problem)
    running = run_policies(
        options, output, {name: kind.policy(name, options.seed) for name in shown}
    )
    output.print(
        "LLVM's register allocator asks about the live ranges of every function; the answers: "
        f"{', '.join(shown)}.\n"
    )
    reports = list(running)
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
