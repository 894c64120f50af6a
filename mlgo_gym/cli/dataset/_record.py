"""``mlgo-gym dataset record``: a policy's decisions, recorded."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
from pathlib import Path
from typing import Final

from mlgo_gym.cli._options import (
    add_compilation_options,
    add_corpus_options,
    add_model_options,
    add_output_option,
    add_policy_option,
    add_problem_option,
    add_seed_option,
    packages_of,
    policy_of,
    problem_of,
)
from mlgo_gym.cli.show._output import Output
from mlgo_gym.cli.show._warnings import warn_of_failures
from mlgo_gym.errors import ModelError
from mlgo_gym.files import open_regular
from mlgo_gym.rollout._rollout import ModuleReport

DESCRIPTION = (
    "Compile every module under a policy and under LLVM's default, and write the decisions with "
    "their rewards. Started again, it goes on with the modules that are left."
)
EXAMPLE = "mlgo-gym dataset record --corpus corpora/lupa --output sets/lupa"

_HASH_DIGITS: Final = 12


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_corpus_options(parser)
    add_output_option(parser, "the dataset's folder")
    add_problem_option(parser)
    add_policy_option(parser)
    add_model_options(parser, "what answers LLVM instead")
    add_seed_option(parser)
    add_compilation_options(parser)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the command."""
    from mlgo_gym.datasets._record import header_of, record, remaining
    from mlgo_gym.datasets._writer import DatasetWriter

    problem = problem_of(options)
    packages = packages_of(options)
    with contextlib.ExitStack() as stack:
        name, policy = stack.enter_context(policy_of(options, problem))
        name += _further_name(options, name)
        header = header_of(problem, options.opt_level)
        writer = stack.enter_context(DatasetWriter(options.output, header))
        left = remaining(writer, packages, name)
        found = record(
            writer, left, problem, name, policy, jobs=options.jobs, timeout_s=options.timeout
        )
        reports = list(output.track(found, "recording", len(left)))
    _print_recorded(reports, len(packages) - len(left), name, options, output)
    return warn_of_failures(reports, output)


def _further_name(options: argparse.Namespace, name: str) -> str:
    """What tells it from others of the name: another model, or another seed, is another policy."""
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


def _print_recorded(
    reports: list[ModuleReport], there: int, name: str, options: argparse.Namespace, output: Output
) -> None:
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
