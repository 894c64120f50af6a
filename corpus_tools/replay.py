"""Replaying a module's recorded command with the real clang.

Clang compiles the bitcode of a corpus to the very code of the original object: the recorded
``-cc1`` command is run with ``-x ir``. The command is the corpus's, which may be anybody's: clang
is given what `corpus_tools.allowed.cc1_table` lists as pure, and what would load code into it is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from corpus_tools.allowed.cc1_table import TABLE
from corpus_tools.allowed.llvm import refusal_of_llvm
from corpus_tools.allowed.spelling import Argument, Spellings
from corpus_tools.clang import DEADLINE_S, Clang, run_clang
from corpus_tools.errors import CompileError, LayoutError
from corpus_tools.scratch import scratch_folder

_OPTIONS: Final = Spellings(row.option for row in TABLE)
# Whoever replays a command says what is read and what is made.
_PURE: Final = frozenset(row.option for row in TABLE if row.is_pure) - {"-x VALUE", "-emit-obj"}
_LOADING: Final = re.compile(
    r"-load(=.*)?|-(add-)?plugin(=.*)?|-fplugin=.*|-fpass-plugin=.*|@.*", re.DOTALL
)
# Clang writes coverage notes where the bitcode says; the data file is but a name in the code.
_NAME_IN_THE_CODE: Final = "-coverage-data-file=*"


def replay_command(command: Sequence[str]) -> tuple[str, ...]:
    """The arguments of a recorded command for a real clang: what may matter to the code, if pure.

    The rest is left out: input, output, language, what belongs to the sources, values that are
    paths, and whatever is not known.

    Raises:
        LayoutError: the command would load code into clang.

    >>> replay_command(["-cc1", "-Oz", "-I", "src", "-o", "a.o", "-target-cpu", "core2"])
    ('-cc1', '-Oz', '-target-cpu', 'core2')
    """
    for argument in command:
        if _LOADING.fullmatch(argument):
            raise LayoutError("command", f"expected no plugins, found {argument!r}")
    arguments = _OPTIONS.read(command[1:])
    return ("-cc1", *(word for each in arguments if _is_pure(each) for word in each.words))


def _is_pure(argument: Argument) -> bool:
    if argument.spelling == "-mllvm VALUE":
        return refusal_of_llvm(argument.value) is None
    is_path = "/" in argument.value and argument.spelling != _NAME_IN_THE_CODE
    return argument.spelling in _PURE and not is_path


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
