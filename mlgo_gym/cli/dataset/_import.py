"""``mlgo-gym dataset import``: training logs and traces as a dataset."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING

from mlgo_gym.base import InputError
from mlgo_gym.cli import options as shared
from mlgo_gym.cli.show._output import Output

if TYPE_CHECKING:
    from mlgo_gym.datasets import DatasetWriter, LogFile, TraceFile

DESCRIPTION = (
    "Read LLVM's training logs, and traces with observations. A file that cannot be used, or is "
    "one of another LLVM, is reported and left out."
)
EXAMPLE = "mlgo-gym dataset import never.log --output sets/never"


def add_options(add: shared.Options) -> None:
    add("files", "FILE", "a log or a trace", nargs="+")
    add.output("the dataset's folder", may_be_remote=True)
    add("--package", "NAME", "the corpus that they are of")
    what = "the LLVM that wrote the training logs, such as 22.1.0; they do not say it"
    add("--llvm-version", "VERSION", what)


def run(options: argparse.Namespace, output: Output) -> int:
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


def _reason_to_skip(recording: TraceFile | LogFile, writer: DatasetWriter) -> str:
    if differences := writer.differences(recording.header, of_decisions=recording.decisions > 0):
        return "; ".join(differences)
    return "it is there already" if recording.is_in(writer) else ""
