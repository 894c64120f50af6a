"""``mlgo-gym dataset record``: a policy's decisions, recorded."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlgo_gym.base import ModelError, ModuleError, OptionsError, open_regular
from mlgo_gym.cli import options as shared
from mlgo_gym.cli.show._output import Output

if TYPE_CHECKING:
    from mlgo_gym.corpus import ModuleKey, Packages
    from mlgo_gym.problems import PolicyLike, Problem

DESCRIPTION = (
    "Compile every module under a policy and under LLVM's default, and write the decisions with "
    "their rewards. Started again, it continues with the modules that are left."
)
EXAMPLE = "mlgo-gym dataset record --corpus corpora/lupa --output sets/lupa"

_HASH_DIGITS: Final = 12


def add_options(add: shared.Options) -> None:
    add.corpus()
    add.output("the dataset's folder", may_be_remote=True)
    add.problem()
    add.policy()
    add.model("a model that answers LLVM instead")
    what = "answer by traces of 'search' or 'rollout' instead, and by LLVM where there is none"
    add("--traces", "DIR", what, type=Path)
    add.seed()
    add("--sites", "", "write the place of each decision into the column 'site'")
    add.compilation(executor=True)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.datasets import DatasetWriter, header_of, record, remaining

    problem = shared.problem_of(options)
    packages = shared.packages_of(options)
    with contextlib.ExitStack() as stack:
        if options.traces:
            name, policy = _of_traces(options, problem, packages)
        else:
            name, policy = stack.enter_context(shared.policy_of(options, problem))
            name += _further_name(options, name)
        header = header_of(problem, options.opt_level)
        writer = stack.enter_context(DatasetWriter(options.output, header))
        left = remaining(writer, packages, name)
        how = {**shared.workers_of(options), "sites": options.sites}
        found = record(writer, left, problem, name, policy, **how)
        reports = list(output.track(found, "recording", len(left)))
    there = len(packages) - len(left)
    results = [each.result for report in reports for each in report.attempts if each.result]
    decisions = sum(each.decisions for each in results)
    also = f"; {there:,} modules were there already" if there else ""
    output.print(f"{decisions:,} decisions of {len(results):,} modules in {options.output}{also}")
    output.json(
        {
            "output": str(options.output),
            "policy": name,
            "modules": len(results),
            "decisions": decisions,
            "modules_there_already": there,
            "failed": [each.module for each in reports if not each.is_complete],
        }
    )
    return output.warn_of_failures(reports)


def _of_traces(
    options: argparse.Namespace, problem: Problem, packages: Packages
) -> tuple[str, PolicyLike]:
    """A folder of traces as a policy, and its name."""
    from mlgo_gym.rollout import RecordedPolicy, Trace, trace_paths

    if options.policy or options.model:
        other = "--policy" if options.policy else "--model"
        raise OptionsError(f"--traces: expected nothing else that answers, found {other}")
    traces = list(map(Trace.load, trace_paths(options.traces)))
    if not traces:
        raise OptionsError(f"--traces {str(options.traces)!r}: expected *.trace in it, found none")
    known = {each.module_sha256 for each in traces}
    if not any(_sha256(packages, key) in known for key in packages):
        raise OptionsError(
            f"--traces {str(options.traces)!r}: expected these modules, found others"
        )
    return f"traces{_digest(options.traces)}", RecordedPolicy(traces, problem.policy())


def _sha256(packages: Packages, key: ModuleKey) -> str | None:
    try:
        return packages[key].sha256
    except ModuleError:  # recording it says why
        return None


def _further_name(options: argparse.Namespace, name: str) -> str:
    """Return a suffix that tells a policy from others of its name: its model or seed."""
    if options.model is not None:
        return _digest(Path(options.model))
    return f" {options.seed}" if name == "random" else ""


def _digest(model: Path) -> str:
    """The start of the hash of a model's files; nothing for an address."""
    paths = [model] if model.is_file() else sorted(model.rglob("*"))
    digest = hashlib.sha256()
    try:
        for path in paths:
            if path.is_file():
                digest.update(os.fsencode(path.relative_to(model)))
                with open_regular(path) as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
    except OSError as error:
        raise ModelError(str(model), f"cannot be read: {error.strerror}") from error
    return f" {digest.hexdigest()[:_HASH_DIGITS]}" if paths else ""
