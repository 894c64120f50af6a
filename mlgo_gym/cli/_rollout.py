"""``mlgo-gym rollout``: one policy over corpora, beside LLVM's default, and its training log."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from mlgo_gym.cli._options import (
    add_compilation_options,
    add_corpus_options,
    add_model_options,
    add_policy_option,
    add_problem_option,
    add_seed_option,
    make_problem,
    models_of,
    packages_of,
    policy_of,
    problem_of,
)
from mlgo_gym.cli._packages import rolled_out
from mlgo_gym.cli._writing import writing
from mlgo_gym.cli.show import _comparison as comparison
from mlgo_gym.cli.show._output import Output
from mlgo_gym.cli.show._warnings import warn_of_failures
from mlgo_gym.errors import OptionsError
from mlgo_gym.model._card import read_card
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._registry import option_name, problems
from mlgo_gym.records._trace import trace_path
from mlgo_gym.rollout._rollout import ModuleReport, RolloutLog
from mlgo_gym.scoring._measures import measure_of

DESCRIPTION = (
    "Compile every module of corpora under a policy and under LLVM's default; print what comes "
    "out and write LLVM's training log with the rewards."
)
EXAMPLE = "mlgo-gym rollout --policy never --log never.log"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_corpus_options(parser)
    add_problem_option(parser)
    add_policy_option(parser)
    add_model_options(parser, "what answers LLVM instead")
    add_seed_option(parser)
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="PROBLEM=POLICY",
        help="one more problem of the same compilations, beside inlining-for-size",
    )
    parser.add_argument("--log", type=Path, metavar="FILE", help="write a training log")
    parser.add_argument(
        "--traces",
        type=Path,
        metavar="DIR",
        help="write a trace of each module for 'replay' (inlining-for-size alone)",
    )
    parser.add_argument(
        "--observations", action="store_true", help="traces hold what LLVM asked, too"
    )
    add_compilation_options(parser)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the command."""
    problem = problem_of(options)
    _check_traces(options, problem)
    packages = packages_of(options)
    also = dict(_further(each, options) for each in options.also)
    reports: list[ModuleReport] = []
    logged = 0
    with contextlib.ExitStack() as stack:
        name, policy = stack.enter_context(policy_of(options, problem))
        log = None
        if options.log:
            log = RolloutLog(stack.enter_context(writing(options.log)), problem)
        settings = {"also": also, "keep_decisions": bool(log or options.traces), "in_order": log}
        for report in rolled_out(packages, {name: policy}, problem, options, output, **settings):
            logged += log.write(report) if log else 0
            _save_traces(report, problem, options)
            reports.append(report.without_decisions())
    order = [packages.label(key) for key in packages]
    reports.sort(key=lambda report: order.index(report.module))
    for model in models_of(options):
        _warn_of_another_llvm(Path(model), problem, reports, output)
    output.print(comparison.as_grid(reports, [name]))
    if measure_of(problem).by_function:
        output.print(comparison.mean_note(reports, [name]))
    if options.log:
        output.print(f"{logged:,} decisions in {options.log}")
    output.json(comparison.as_json(reports, [name]))
    return warn_of_failures(reports, output)


def _check_traces(options: argparse.Namespace, problem: Problem) -> None:
    """A trace holds the answers to one problem, and the hash of an object."""
    if options.traces and (options.also or not measure_of(problem).makes_objects):
        name = option_name(type(problem))
        found = ", ".join([name, *(f"--also {each}" for each in options.also)])
        raise OptionsError(f"--traces: expected inlining-for-size alone, found {found}")


def _save_traces(report: ModuleReport, problem: Problem, options: argparse.Namespace) -> None:
    for attempt in report.attempts if options.traces else ():
        if trace := attempt.trace(problem, keep_observations=options.observations):
            trace.save(trace_path(options.traces, report.module))


def _warn_of_another_llvm(
    model: Path, problem: Problem, reports: list[ModuleReport], output: Output
) -> None:
    card = read_card(model)
    versions = {report.baseline.llvm_version for report in reports if report.baseline}
    if card and versions - {card.llvm_version}:
        new = card.differences(problem.sent())
        output.warn(
            f"model {str(model)!r} was trained on LLVM {card.llvm_version}, this is LLVM "
            f"{', '.join(versions)}; inputs that it does not know: {', '.join(new) or 'none'}"
        )


def _further(text: str, options: argparse.Namespace) -> tuple[Problem, PolicyLike]:
    """A problem and its policy, out of ``PROBLEM=POLICY``."""
    name, _, policy = text.partition("=")
    if name not in problems():
        raise OptionsError(
            f"--also: expected one of {', '.join(problems())} before '=', found {text!r}"
        )
    problem = make_problem(problems()[name], options)
    return problem, problem.policy(policy, options.seed)
