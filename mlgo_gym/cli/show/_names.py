"""Symbols as people know them."""

from __future__ import annotations

import re
from typing import Final

import cxxfilt

_STRING: Final = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
_DEFAULT: Final = re.compile(r", std::(?:allocator|less|hash|equal_to)<[^<>]*> ?(?=[,>])| (?=>)")
_PARAMETERS: Final = re.compile(r"\((?:[^()]|\([^()]*\))*\)$")
_LONGEST_NAME: Final = 100


def source_name(symbol: str) -> str:
    """A symbol as its source has it, without what C++'s library adds by itself.

    >>> source_name("_ZNSt6vectorIiSaIiEE9push_backERKi")
    'std::vector<int>::push_back(int const&)'
    """
    try:
        name = str(cxxfilt.demangle(symbol))
    except cxxfilt.Error:  # no such name, or no library that knows
        name = symbol
    name, found = name.replace(_STRING, "std::string"), 1
    while found:
        name, found = _DEFAULT.subn("", name)
    if len(name) > _LONGEST_NAME and name.endswith(")"):
        name = f"{_PARAMETERS.sub('', name)}(…)"
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
