"""The language that a module was compiled from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from mlgo_gym.corpus._corpus import Module

OTHER_LANGUAGE: Final = "other"
"""What a language is called that is neither C nor C++, or not known."""

_BY_OPTION: Final[Mapping[str, str]] = MappingProxyType({"c": "C", "c++": "C++"})
_BY_SUFFIX: Final[Mapping[str, str]] = MappingProxyType(
    {".c": "C", ".cc": "C++", ".cpp": "C++", ".cxx": "C++"}
)


def language_of(module: Module) -> str:
    """``C``, ``C++`` or `OTHER_LANGUAGE`.

    By clang's ``-x``, else by the name of the module, else by that of the source
    (``-main-file-name``), which an extracted command has.

    >>> language_of(Module("a.o", b"", ("-cc1", "-main-file-name", "a.cc")))
    'C++'
    """
    command = module.command or ()
    if language := _BY_OPTION.get(_value(command, "-x")):
        return language
    for source in (module.name, _value(command, "-main-file-name")):
        if language := _BY_SUFFIX.get(PurePosixPath(source).suffix):
            return language
    return OTHER_LANGUAGE


def _value(command: Sequence[str], option: str) -> str:
    """What stands behind an option; empty where it is not there."""
    at = command.index(option) + 1 if option in command else len(command)
    return next(iter(command[at : at + 1]), "")
