"""Replaying a module's recorded command with the real clang.

Clang compiles the bitcode of a corpus to the very code of the original object: the recorded
``-cc1`` command is run with ``-x ir``. What names the sources' machine and cannot matter from IR is
left out (`corpus_tools.cc1`), and so are files that the command would write beside the object. The
command is the corpus's, and clang runs it as yours: a corpus must be trusted for this. What would
load code into clang is refused.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from corpus_tools.cc1 import embedded_command, portable_command
from corpus_tools.clang import DEADLINE_S, Clang, compile_ir
from corpus_tools.errors import LayoutError

_LOADING = ("-load", "-add-plugin", "-plugin", "-fplugin", "-fpass-plugin", "@")
_COVERAGE_DATA = "-coverage-data-file="
_THINLTO_INDEX = "-fthinlto-index="
# The modules of a ThinLTO corpus have had their imports done.
_ASSUME_MERGED = ("-mllvm", "-thinlto-assume-merged")


def replay(
    clang: Clang,
    module: str,
    bitcode: Path,
    command: Sequence[str],
    *,
    index: Path | None = None,
    deadline_s: float = DEADLINE_S,
) -> bytes:
    """Compile a module to an object as its command says.

    Args:
        clang: the compiler.
        module: its name, for errors.
        bitcode: its bitcode file.
        command: its ``-cc1`` command.
        index: its ThinLTO index, where it has one.
        deadline_s: seconds after which clang is killed.

    Returns:
        The object's bytes.

    Raises:
        LayoutError: the command would load code into clang.
        CompileError: clang failed or ran past the deadline.
    """
    arguments = replay_command(command, index)
    with tempfile.TemporaryDirectory(prefix="corpus_tools.") as folder:
        return compile_ir(
            clang, arguments, bitcode, module=module, root=Path(folder), deadline_s=deadline_s
        )


def replay_command(command: Sequence[str], index: Path | None = None) -> tuple[str, ...]:
    """What is run of a recorded command: all but input, output and what belongs to the sources.

    Raises:
        LayoutError: the command would load code into clang.

    >>> replay_command(["-cc1", "-Oz", "-I", "src", "-o", "a.o", "-target-cpu", "core2"])
    ('-cc1', '-Oz', '-target-cpu', 'core2')
    """
    for argument in command:
        if argument.startswith(_LOADING):
            raise LayoutError("command", f"expected no plugins, found {argument!r}")
    # Clang writes coverage notes where the bitcode says; the data file is but a name in the code.
    coverage = [argument for argument in command if argument.startswith(_COVERAGE_DATA)]
    kept = [*portable_command(embedded_command(command, "")), *coverage]
    kept = [argument for argument in kept if argument != "-emit-obj"]
    if index is not None:
        kept = [argument for argument in kept if not argument.startswith(_THINLTO_INDEX)]
        kept += [f"{_THINLTO_INDEX}{index.absolute()}", *_ASSUME_MERGED]
    return tuple(kept)
