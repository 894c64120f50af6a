"""The part of a module's recorded command that a real clang is given, to compile it again.

The rows of the table that are pure, those of LLVM's own options that are, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from corpus_tools.allowed.cc1_table import TABLE
from corpus_tools.allowed.llvm import refusal_of_llvm
from corpus_tools.allowed.spelling import Argument, Spellings
from corpus_tools.errors import LayoutError

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
