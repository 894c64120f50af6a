"""``mlgo-gym dataset import``: training logs, traces and data sets of Minari as a dataset."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING

from mlgo_gym.base import InputError, OptionsError
from mlgo_gym.cli import options as shared
from mlgo_gym.cli.show._output import Output

if TYPE_CHECKING:
    from mlgo_gym.datasets import DatasetWriter, LogFile, TraceFile

DESCRIPTION = (
    "Read LLVM's training logs, and traces with observations, or a dataset for Minari that "
    "'export' wrote. A file that cannot be used, or is from another LLVM, is reported and left "
    "out."
)
EXAMPLE = "mlgo-gym dataset import never.log --output sets/never"


def add_options(add: shared.Options) -> None:
    add("files", "FILE", "a log or a trace", nargs="*")
    add("--minari", "ID", "a dataset in Minari, in place of files")
    add.output("the dataset's folder", may_be_remote=True)
    add("--package", "NAME", "the package of their modules")
    what = "the LLVM that wrote the training logs, such as 22.1.0, which they do not name"
    add("--llvm-version", "VERSION", what)


def run(options: argparse.Namespace, output: Output) -> int:
    if bool(options.files) == bool(options.minari):
        both = "both" if options.minari else "neither"
        raise OptionsError(f"dataset import: expected files or --minari, found {both}")
    if options.minari:
        return _of_minari(options, output)
    from mlgo_gym.datasets import DatasetWriter, open_recording

    imported: dict[str, int] = {}
    skipped: dict[str, str] = {}
    with ExitStack() as stack:
        writer: DatasetWriter | None = None
        for path in options.files:
            try:
                recording = open_recording(path, options.package or "", options.llvm_version)
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


def _of_minari(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.datasets import DatasetWriter, MinariSet

    found = MinariSet.open(options.minari)
    with DatasetWriter(options.output, found.header) as writer:
        count = found.write(writer)
    also = f"; {there:,} were there already" if (there := found.decisions - count) else ""
    output.print(f"{count:,} decisions of {options.minari} in {options.output}{also}")
    output.json({"output": str(options.output), "decisions": count})
    return 0


def _reason_to_skip(recording: TraceFile | LogFile, writer: DatasetWriter) -> str:
    if differences := writer.differences(recording.header, of_decisions=recording.decisions > 0):
        return "; ".join(differences)
    return "it is there already" if recording.is_in(writer) else ""
