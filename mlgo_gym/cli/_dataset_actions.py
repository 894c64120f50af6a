"""What ``mlgo-gym dataset`` does. Importing this module needs the extra ``train``."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.table import Table

from mlgo_gym.cli._options import make_problem
from mlgo_gym.cli._rollout import warn_of_failures
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS
from mlgo_gym.corpus._packages import load_packages
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._episodes import LABELS
from mlgo_gym.datasets._files import staged
from mlgo_gym.datasets._imports import LogFile, TraceFile, open_recording
from mlgo_gym.datasets._logs import export_log
from mlgo_gym.datasets._record import header_of, remaining
from mlgo_gym.datasets._record import record as record_corpus
from mlgo_gym.datasets._sequence_examples import export_tfrecord
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import InputError, ModelError
from mlgo_gym.policies._models import model_policies
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._registry import problem_named
from mlgo_gym.rollout._rollout import ModuleReport

_HASH_DIGITS: Final = 12
_LOGGING: Final = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
"""Keeps TensorFlow from greeting; it computes nothing here."""


def record(options: argparse.Namespace, output: Output) -> int:
    """Run ``dataset record``."""
    problem = make_problem(problem_named(options.problem), options)
    packages = load_packages(options.corpus or [SAMPLE_CORPUS])
    with ExitStack() as stack:
        name, policy = stack.enter_context(_policy(options, problem))
        header = header_of(problem, options.opt_level)
        writer = stack.enter_context(DatasetWriter(options.output, header))
        left = {
            package: remaining(writer, corpus, name, package=package)
            for package, corpus in packages.items()
        }
        count = sum(map(len, left.values()))

        def recorded() -> Generator[ModuleReport]:
            for package, names in left.items():
                yield from record_corpus(
                    writer,
                    packages[package],
                    problem,
                    name,
                    policy,
                    package=package,
                    names=names,
                    jobs=options.jobs,
                    timeout_s=options.timeout,
                )

        found = stack.enter_context(contextlib.closing(recorded()))
        reports = list(output.track(found, "recording", count))
    there = sum(map(len, packages.values())) - count
    _print_recorded(reports, there, name, options, output)
    return warn_of_failures(reports, output)


def info(options: argparse.Namespace, output: Output) -> int:
    """Run ``dataset info``."""
    dataset = Dataset.open(*options.datasets, allow_mixed=True)
    record = _as_record(dataset)
    table = Table("what", "found")
    for key, value in record.items():
        if key not in {"packages", "differences"}:
            table.add_row(key.replace("_", " "), _shown(value))
    output.print(table, _packages_table(record["packages"]))
    output.json(record)
    for difference in dataset.differences:
        output.warn(f"mixed: {difference}")
    return 1 if dataset.differences else 0


def import_(options: argparse.Namespace, output: Output) -> int:
    """Run ``dataset import``."""
    imported: dict[str, int] = {}
    skipped: dict[str, str] = {}
    with ExitStack() as stack:
        writer: DatasetWriter | None = None
        for path in options.files:
            try:
                recording = open_recording(path, options.package, options.llvm_version)
                if writer is None:
                    writer = stack.enter_context(DatasetWriter(options.output, recording.header))
                reason = _reason_to_skip(recording, writer)
            except InputError as error:
                reason = str(error)
            if reason:
                skipped[str(path)] = reason
                output.warn(f"{path}: left out: {reason}")
            elif writer is not None:
                imported[str(path)] = recording.write(writer)
    count = sum(imported.values())
    output.print(f"{count:,} decisions of {len(imported):,} files in {options.output}")
    output.json({"output": str(options.output), "imported": imported, "skipped": skipped})
    return 1 if skipped else 0


def export(options: argparse.Namespace, output: Output) -> int:
    """Run ``dataset export``."""
    dataset = Dataset.open(*options.datasets, allow_mixed=options.allow_mixed)
    if options.log is not None:
        with staged(options.log) as file:
            count = export_log(dataset, file)
        text = f"{count:,} decisions in {options.log}"
        value = {"log": str(options.log), "decisions": count}
    else:
        for name, setting in _LOGGING.items():
            os.environ.setdefault(name, setting)
        count = export_tfrecord(dataset, options.tfrecord, missing_reward=options.missing_reward)
        text = f"{count:,} trajectories in {options.tfrecord}"
        value = {"tfrecord": str(options.tfrecord), "trajectories": count}
    output.print(text)
    output.json(value)
    return 0


@contextlib.contextmanager
def _policy(options: argparse.Namespace, problem: Problem) -> Iterator[tuple[str, PolicyLike]]:
    """The policy, and what it is called: another model, or another seed, is another policy."""
    if options.model is not None:
        with model_policies([options.model], options.mode, problem) as policies:
            ((name, policy),) = policies.items()
            yield f"{name}{_digest(Path(options.model))}", policy
        return
    name = options.policy or problem.default_policy
    label = f"{name} {options.seed}" if name == "random" else name
    yield label, problem.policy(name, options.seed)


def _digest(model: Path) -> str:
    """The start of the hash of a model's files; nothing for an address."""
    paths = [model] if model.is_file() else sorted(model.rglob("*"))
    digest = hashlib.sha256()
    try:
        for path in paths:
            if path.is_file():
                digest.update(os.fsencode(path.relative_to(model)))
                digest.update(hashlib.sha256(path.read_bytes()).digest())
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


def _reason_to_skip(recording: TraceFile | LogFile, writer: DatasetWriter) -> str:
    if differences := writer.header.differences(recording.header):
        return "; ".join(differences)
    return "it is there already" if recording.is_in(writer) else ""


def _as_record(dataset: Dataset) -> dict[str, Any]:
    header = dataset.header
    modules = [each for each in dataset.modules if each.module or each.decisions]
    packages: dict[str, dict[str, int]] = {}
    for entry in modules:
        counts = packages.setdefault(entry.package, {"modules": 0, "decisions": 0})
        counts["modules"] += 1
        counts["decisions"] += entry.decisions
    labelled: Counter[str] = Counter()
    for batch in dataset.batches(columns=LABELS):
        labelled.update({name: int(np.isfinite(batch[name]).sum()) for name in LABELS})
    return {
        "problem": header.problem.name,
        "settings": header.settings and dict(header.settings),
        "llvm_version": header.llvm_version,
        "llvmlite_version": header.llvmlite_version,
        "forced_level": header.opt_level or "none",
        "levels": sorted({entry.opt_level or "unknown" for entry in modules}),
        "policies": sorted({entry.policy for entry in modules}),
        "modules": len(modules),
        "decisions": dataset.row_count,
        "labelled": dict(labelled),
        "parts": len(dataset.parts),
        "size_bytes": sum(part.size_bytes for part in dataset.parts),
        "packages": packages,
        "differences": list(dataset.differences),
    }


def _packages_table(packages: dict[str, dict[str, int]]) -> Table:
    table = Table("package", "modules", "decisions")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, counts in packages.items():
        table.add_row(name, f"{counts['modules']:,}", f"{counts['decisions']:,}")
    return table


def _shown(value: Any) -> str:
    match value:
        case dict():
            return ", ".join(f"{key}: {_shown(each)}" for key, each in value.items())
        case list():
            return ", ".join(map(_shown, value))
        case int() | float():
            return f"{value:,}"
        case _:
            return "unknown" if value is None else str(value)
