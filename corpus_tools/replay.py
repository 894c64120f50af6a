"""Replaying a module's recorded command with the real clang.

Clang compiles the bitcode of a corpus to the very code of the original object: the recorded
``-cc1`` command is run with ``-x ir``. The command is the corpus's, which may be anybody's: clang
is given what `corpus_tools.allowed.cc1` lists as pure, and what would load code into it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from corpus_tools.clang import DEADLINE_S, Clang, compile_ir
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
        command: its ``-cc1`` command.
        index: its ThinLTO index, where it has one.
        deadline_s: seconds after which clang is killed.

    Returns:
        The object's bytes.

    Raises:
        LayoutError: the command would load code into clang.
        CompileError: clang failed or ran past the deadline.
    """
    with scratch_folder() as folder:
        return compile_ir(
            clang,
            command,
            bitcode,
            module=module,
            root=folder,
            index=index,
            deadline_s=deadline_s,
        )
