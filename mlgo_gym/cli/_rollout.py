"""``mlgo-gym rollout``: one policy over a corpus, beside LLVM's default, and its training log."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from mlgo_gym.cli._options import (
    add_compilation_options,
    add_policy_option,
    add_problem_option,
    add_seed_option,
    make_problem,
)
from mlgo_gym.cli.show import _comparison as comparison
from mlgo_gym.cli.show._not_honoured import count_not_honoured, warn_of_not_honoured
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import OptionsError
from mlgo_gym.model._card import read_card
from mlgo_gym.model._shipped import find_model
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._registry import DEFAULT, problem_named, problems
from mlgo_gym.records._trace import trace_path
from mlgo_gym.rollout._rollout import ModuleReport, RolloutLog, rollout
from mlgo_gym.runners._load import MODES, runner_factory
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.scoring._measures import measure_of

DESCRIPTION = (
    "Compile every module of a corpus under a policy and under LLVM's default; print what comes "
    "out and write LLVM's training log with the rewards."
)
EXAMPLE = "mlgo-gym rollout --policy never --log never.log"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_compilation_options(parser)
    add_problem_option(parser)
    add_policy_option(parser)
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="PROBLEM=POLICY",
        help="one more problem of the same compilations, beside inlining-for-size",
    )
    parser.add_argument(
        "--model",
        type=find_model,
        metavar="DIR",
        help="a model that answers instead: a model directory, a frozen model, or a host's address",
    )
    parser.add_argument(
        "--mode",
        choices=MODES,
        default="release",
        help="how the model runs: as native code, in TFLite, or at a gRPC host (default: release)",
    )
    add_seed_option(parser)
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


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the subcommand."""
    kind = problem_named(options.problem)
    _check_traces(options, kind)
    name = options.policy or kind.default_policy
    policy = kind.policy(name, options.seed)
    if options.model is not None:
        name, policy = options.mode, RunnerPolicy(runner_factory(options.model, options.mode))
    reports: list[ModuleReport] = []
    logged = 0
    with contextlib.ExitStack() as stack:
        log = None
        if options.log:
            file = stack.enter_context(replacing(options.log))
            log = RolloutLog(file, make_problem(kind, options))
        keep = log is not None or options.traces is not None
        for report in run_policies(
            options, output, {name: policy}, keep_decisions=keep, in_order=log is not None
        ):
            logged += log.write(report) if log else 0
            _save_traces(report, options)
            reports.append(report.without_decisions())
    order = Corpus.load(options.corpus).names
    reports.sort(key=lambda report: order.index(report.module))
    if options.model is not None:
        _warn_of_another_llvm(Path(options.model), kind, reports, output)
    output.print(comparison.as_table(reports, [name], output.width))
    if measure_of(kind).by_function:
        output.print(comparison.mean_note(reports, [name]))
    if options.log:
        output.print(f"{logged:,} decisions in {options.log}")
    output.json(comparison.as_json(reports, [name]))
    return warn_of_failures(reports, output)


def _check_traces(options: argparse.Namespace, kind: type[Problem]) -> None:
    """A trace holds the answers to one problem, and the hash of an object."""
    if options.traces and (options.also or not measure_of(kind).makes_objects):
        found = ", ".join([options.problem, *(f"--also {each}" for each in options.also)])
        raise OptionsError(f"--traces: expected inlining-for-size alone, found {found}")


def _save_traces(report: ModuleReport, options: argparse.Namespace) -> None:
    problem = make_problem(problem_named(options.problem), options)
    for attempt in report.attempts if options.traces else ():
        if trace := attempt.trace(problem, keep_observations=options.observations):
            trace.save(trace_path(options.traces, report.module))


def _warn_of_another_llvm(
    model: Path, kind: type[Problem], reports: list[ModuleReport], output: Output
) -> None:
    card = read_card(model)
    versions = {report.baseline.llvm_version for report in reports if report.baseline}
    if card and versions - {card.llvm_version}:
        new = card.differences(kind.sent())
        output.warn(
            f"model {str(model)!r} was trained on LLVM {card.llvm_version}, this is LLVM "
            f"{', '.join(versions)}; inputs that it does not know: {', '.join(new) or 'none'}"
        )


def run_policies(
    options: argparse.Namespace,
    output: Output,
    policies: Mapping[str, PolicyLike],
    *,
    keep_decisions: bool = False,
    in_order: bool = True,
    corpus: Corpus | None = None,
) -> Iterator[ModuleReport]:
    """Roll policies out as the options of `add_compilation_options` say, behind a progress bar.

    What is wrong with the options is raised here, not when the first report is asked for. Another
    corpus than the options' may be given.
    """
    corpus = corpus or Corpus.load(options.corpus)
    also = dict(_further(each, options) for each in getattr(options, "also", ()))
    reports = rollout(
        corpus,
        policies,
        make_problem(problem_named(getattr(options, "problem", DEFAULT)), options),
        opt_level=options.opt_level,
        jobs=options.jobs,
        timeout_s=options.timeout,
        keep_decisions=keep_decisions,
        in_order=in_order,
        also=also,
    )
    return _tracked(reports, output, len(corpus))


def _further(text: str, options: argparse.Namespace) -> tuple[Problem, PolicyLike]:
    """A problem and its policy, out of ``PROBLEM=POLICY``."""
    name, _, policy = text.partition("=")
    if name not in problems():
        raise OptionsError(
            f"--also: expected one of {', '.join(problems())} before '=', found {text!r}"
        )
    problem = make_problem(problems()[name], options)
    return problem, problem.policy(policy, options.seed)


def _tracked(
    reports: Generator[ModuleReport], output: Output, total: int
) -> Iterator[ModuleReport]:
    with contextlib.closing(reports):
        yield from output.track(reports, "compiling", total)


def warn_of_failures(reports: list[ModuleReport], output: Output) -> int:
    """Name what is not honoured, and every module that failed; where one did, the status is 1."""
    warn_of_not_honoured(count_not_honoured(each.not_honoured for each in reports), output)
    for report in reports:
        if report.error:
            output.warn(report.error)
        for attempt in report.attempts:
            if attempt.error:
                output.warn(f"policy {attempt.policy}: {attempt.error}")
    return 0 if all(report.is_complete for report in reports) else 1


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its name only when all has been written.

    What is there and is no regular file, such as a FIFO or ``/dev/stdout``, is written to as it
    is; of a symbolic link, the target is replaced.

    Raises:
        OptionsError: it cannot be written there.
    """
    target = Path(os.path.realpath(path))
    in_place = target.exists() and not target.is_file()
    partial = target if in_place else Path(f"{target}.{os.getpid()}.partial")
    with _writing(path):
        file = partial.open("wb")
    try:
        with file:
            yield file
        with _writing(path):
            partial.replace(target)
    finally:
        if not in_place:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OptionsError(f"cannot write {str(path)!r}: {error.strerror}") from error
