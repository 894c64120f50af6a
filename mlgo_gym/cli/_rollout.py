"""``mlgo-gym rollout``: one policy over corpora, beside LLVM's default, and its training log."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from mlgo_gym.base import OptionsError, worked_folder
from mlgo_gym.cli import options as shared
from mlgo_gym.cli._writing import WriteError, writing
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus import Packages, check_not_final
from mlgo_gym.model import read_card
from mlgo_gym.problems import PolicyLike, Problem, option_name, problems

if TYPE_CHECKING:
    from mlgo_gym.rollout import ModuleReport

DESCRIPTION = (
    "Compile every module of corpora under a policy and under LLVM's default. Print the results, "
    "and write LLVM's training log with the rewards."
)
EXAMPLE = "mlgo-gym rollout --policy never --log never.log"


def add_options(add: shared.Options) -> None:
    add.corpus()
    add.problem()
    add.policy()
    add.model("a model that answers LLVM instead")
    add.seed()
    what = "answer another problem in the same compilations, such as regalloc-eviction=lowest-use"
    add("--also", "PROBLEM=POLICY", what, many=True)
    add.file("--log", "write a training log", files=_log_files)
    what = "write a trace of each module for 'replay' (inlining-for-size alone), also to s3://..."
    add.folder("--traces", what, may_be_remote=True)
    add("--observations", "", "keep LLVM's observations in traces")
    add(
        "--sites",
        "",
        "write the place of each decision into traces, and into FILE.sites beside the log",
    )
    add.compilation(executor=True)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.cli.show import _comparison as comparison
    from mlgo_gym.rollout import RolloutLog, measure_of

    problem = shared.problem_of(options)
    measure = measure_of(problem)
    if options.traces and (options.also or not measure.makes_objects):  # a trace is of one problem
        found = ", ".join(
            [option_name(type(problem)), *(f"--also {each}" for each in options.also)]
        )
        raise OptionsError(f"--traces: expected inlining-for-size alone, found {found}")
    if options.sites and not (options.log or options.traces):
        raise OptionsError("--sites: expected --log or --traces, found neither")
    packages = _packages(options)
    also = dict(_further(each, options) for each in options.also)
    reports: list[ModuleReport] = []
    logged = 0
    with output.keeping((WriteError,)), contextlib.ExitStack() as stack:
        name, policy = stack.enter_context(shared.policy_of(options, problem))
        log = None
        if options.log:
            paths = _log_files(options.log, options)
            file, *sites = (stack.enter_context(writing(path)) for path in paths)
            log = stack.enter_context(RolloutLog(file, problem, *sites))
        traces = stack.enter_context(worked_folder(options.traces)) if options.traces else None
        settings = {
            "also": also,
            "keep_decisions": bool(log or traces),
            "in_order": bool(log),
            "sites": options.sites,
        }
        for report in shared.rolled_out(
            packages, {name: policy}, problem, options, output, **settings
        ):
            logged += log.write(report) if log else 0
            if traces:
                _write_traces(traces.path, report, problem, keep_observations=options.observations)
            reports.append(report.without_decisions())
        if traces:
            traces.put()
    order = [packages.label(key) for key in packages]
    reports.sort(key=lambda report: order.index(report.module))
    for model in shared.models_of(options):
        _warn_of_another_llvm(Path(model), problem, reports, output)
    output.print(comparison.as_grid(reports, [name]))
    if measure.by_function:
        output.print(comparison.mean_note(reports, [name]))
    if options.log:
        output.print(f"{logged:,} decisions in {options.log}")
    output.json(comparison.as_json(reports, [name]))
    return output.warn_of_failures(reports)


def _log_files(log: Path, options: argparse.Namespace) -> list[Path]:
    """The training log and, if they are asked for, the sites beside it."""
    return [log, log.with_name(f"{log.name}.sites")] if options.sites else [log]


def _write_traces(
    folder: Path, report: ModuleReport, problem: Problem, *, keep_observations: bool
) -> None:
    from mlgo_gym.rollout import trace_path

    for attempt in report.attempts:
        if trace := attempt.trace(problem, keep_observations=keep_observations):
            trace.save(trace_path(folder, report.module))


def _packages(options: argparse.Namespace) -> Packages:
    """The modules, which are not of the split ``final`` where something is to be recorded."""
    packages = shared.packages_of(options)
    if options.log or options.traces:
        check_not_final(packages, "to record")
    return packages


def _warn_of_another_llvm(
    model: Path, problem: Problem, reports: list[ModuleReport], output: Output
) -> None:
    card = read_card(model)
    versions = {report.baseline.llvm_version for report in reports if report.baseline}
    if card and versions - {card.llvm_version}:
        new = card.differences(problem.layout.specs)
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
    problem = shared.make_problem(problems()[name], options)
    return problem, problem.policy(policy, options.seed)
