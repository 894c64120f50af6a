"""Replaying a module's recorded command with the real clang.

Clang compiles the bitcode of a corpus to the very code of the original object: the recorded
``-cc1`` command is run with ``-x ir``. The command is the corpus's, which may be anybody's: clang
is given what `corpus_tools.allowed.cc1` lists as pure, and what would load code into it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from corpus_tools.allowed.cc1 import replay_command
from corpus_tools.clang import DEADLINE_S, Clang, run_clang
from corpus_tools.errors import CompileError
from corpus_tools.scratch import scratch_folder


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
        command: its ``-cc1`` command, from anywhere: clang is given what `corpus_tools.allowed`
            lists.
        index: its ThinLTO index, where it has one: the imports have been done.
        deadline_s: seconds after which clang is killed.

    Returns:
        The object's bytes.

    Raises:
        LayoutError: the command would load code into clang.
        CompileError: clang failed, ran past the deadline or made nothing.
    """
    options = list(replay_command(command))
    if index is not None:
        options += [f"-fthinlto-index={index.absolute()}", "-mllvm", "-thinlto-assume-merged"]
    with scratch_folder() as folder:
        output = folder / "output.o"
        options += ["-emit-obj", "-o", str(output), "-x", "ir", str(bitcode.absolute())]
        said = run_clang(clang, options, source=module, root=folder, deadline_s=deadline_s).strip()
        if not output.exists():
            raise CompileError(module, "expected an object, found none", stderr_tail=said)
        if data := output.read_bytes():
            return data
    # Clang only prints what is wrong with a ThinLTO index, and exits with 0.
    raise CompileError(module, "expected an object, found an empty file", stderr_tail=said)
