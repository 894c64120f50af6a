"""``mlgo-gym freeze``: compile a model ahead of time, for compilers and other programs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from mlgo_gym.base import OptionsError
from mlgo_gym.cli import options as shared
from mlgo_gym.cli.show._output import Output

if TYPE_CHECKING:
    from mlgo_gym.cli.show._grid import Grid
    from mlgo_gym.model import OperatorCode

DESCRIPTION = (
    "Compile the TFLite graph of a model directory to native code: an object, a C header, a "
    "description for 'rollout --model', and, where the machine has a linker, a shared library; or, "
    "with --emit c, to one C file and its header, for any compiler and CPU. Neither TensorFlow nor "
    "TFLite is needed, here or to run the result."
)
EXAMPLE = "mlgo-gym freeze --model inlining-for-size --output frozen"


def add_options(add: shared.Options) -> None:
    add.model("the model to compile", modes=(), required=True)
    add.output("folder for the files")
    add("--name", "NAME", "the files' name and the C prefix", "model")
    add("--cpu", "CPU", "LLVM's name of a CPU (default: this machine's, or the target's generic)")
    add("--target", "TRIPLE", "compile for another machine, such as aarch64-linux-gnu")
    add("--profile", "", "print the code by operators, and name them in it to profilers (DWARF)")
    add("--emit", "WHAT", "object: machine code; c: C source", "object", choices=("object", "c"))


def run(options: argparse.Namespace, output: Output) -> int:
    code: tuple[OperatorCode, ...] = ()
    if options.emit == "c":
        written = _emit_c(options)
    else:
        written, code = _freeze(options, output)
    output.verbatim(*written)
    if code:
        output.print(_grid(code))
    output.json({"files": written, "code": [asdict(each) for each in code]} if code else written)
    return 0


def _grid(code: Sequence[OperatorCode]) -> Grid:
    from mlgo_gym.cli.show._grid import Cell, Grid, Row

    total, size = sum(each.instructions for each in code), sum(each.size_bytes for each in code)
    rows: list[Row] = [
        [
            " ".join([*([] if each.number is None else [str(each.number)]), each.name]),
            Cell("\n".join(each.origins), has_lines=True),
            f"{each.instructions:,}",
            f"{each.instructions / (total or 1):.1%}",
            f"{each.size_bytes:,}",
        ]
        for each in code
    ]
    headings = ("operator", "origins", "instructions", "share", "bytes of code")
    return Grid(headings, rows, ("all", "", f"{total:,}", "", f"{size:,}"), folds=True)


def _emit_c(options: argparse.Namespace) -> list[str]:
    from mlgo_gym.model import emit_c

    for name in ("cpu", "target", "profile"):
        if getattr(options, name):
            raise OptionsError(f"--emit c: expected no --{name}, the C compiler's options name it")
    files = emit_c(
        Path(options.model), options.output, name=options.name, trusted=options.trust_code
    )
    return [str(files.source), str(files.header)]


def _freeze(
    options: argparse.Namespace, output: Output
) -> tuple[list[str], tuple[OperatorCode, ...]]:
    from mlgo_gym.model import freeze

    files = freeze(
        Path(options.model),
        options.output,
        name=options.name,
        cpu=options.cpu,
        target=options.target,
        trusted=options.trust_code,
        profile=options.profile,
    )
    if files.shared_library is None and not options.target:
        output.warn("no linker found, so there is no shared library")
    if not files.is_sealed:
        output.warn("no key can be kept for this user, so loading it needs --trust-code")
    files_made = (files.description, files.object, files.header, files.shared_library)
    return [str(path) for path in files_made if path], files.code
