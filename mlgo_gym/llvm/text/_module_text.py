"""LLVM assembly as LLVM prints it, taken apart into its top-level entities.

LLVM's printer (``llvm/lib/IR/AsmWriter.cpp``) puts every type, global, declaration, attribute
group and metadata node on a line of its own; a function is a ``define`` line, its body and a
line that holds ``}`` alone. Nothing else starts in the first column, and quoted names and strings
hold neither line ends nor quotes, which are escaped: in a quoted name a backslash stands before a
backslash and before two hexadecimal digits, for any other byte that is not printable ASCII
(``printEscapedString``). Only what LLVM has printed is read here,
never what a user wrote; what is put together from it is parsed and verified by LLVM again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Final

NAME_PATTERN: Final = r'(?:"[^"]*"|[-a-zA-Z$._0-9]+)'
"""The regular expression of a name, quoted or not, without what marks its kind."""

STRING: Final = re.compile(r'"[^"]*"')
"""A string, or a quoted name."""

ATTRIBUTE_GROUP: Final = re.compile(r" (#\d+)")
"""A group of attributes in the header of a function, such as ``#0``."""

_REFERENCE: Final = re.compile(rf"@({NAME_PATTERN})|{STRING.pattern}")
_ESCAPE: Final = re.compile(r"\\(\\|[0-9A-Fa-f]{2})")
_DEFINED: Final = re.compile(rf"@({NAME_PATTERN})\(")
_GLOBAL: Final = re.compile(rf"@({NAME_PATTERN}) = ")
_METADATA: Final = re.compile(r"!(\d+) = ")
_LINKAGE: Final = re.compile(
    r"(?:external|private|internal|linkonce_odr|linkonce|weak_odr|weak|available_externally"
    r"|extern_weak|common|appending)(?= )"
)


def references(text: str) -> Iterator[str]:
    """The names of globals in a piece of assembly, as they are written; strings hold none.

    >>> list(references('call void @f(ptr @"a b", ptr @x) "like @this"'))
    ['f', '"a b"', 'x']
    """
    return (match[1] for match in _REFERENCE.finditer(text) if match[1])


def name_in_assembly(written: str) -> str:
    r"""The name that stands for, in quotes or not; bytes that are not UTF-8 are surrogates.

    >>> name_in_assembly(r'"a\20b\\c"'), name_in_assembly("main")
    ('a b\\c', 'main')
    """
    if not written.startswith('"'):
        return written
    text = _ESCAPE.sub(
        lambda match: "\\" if match[1] == "\\" else chr(int(match[1], 16)), written[1:-1]
    )
    return text.encode("latin-1").decode("utf-8", "surrogateescape")


def linkage_of(line: str) -> str:
    """The linkage that a ``define`` line or the line of a global names.

    >>> linkage_of("define internal i32 @f() {"), linkage_of("@x = global i32 0")
    ('internal', 'external')
    """
    start = 7 if line.startswith("define ") else line.find(" = ") + 3
    match = _LINKAGE.match(line, start)
    return match[0] if match else "external"


@dataclass(frozen=True, slots=True)
class Function:
    """A function definition; its name is as it is written after ``@``."""

    name: str
    header: str
    body: tuple[str, ...]

    def __str__(self) -> str:
        """All of it, as LLVM printed it."""
        return "\n".join((self.header, *self.body, "}"))

    @property
    def linkage(self) -> str:
        """The linkage, in LLVM's word."""
        return linkage_of(self.header)

    @property
    def instruction_count(self) -> int:
        """How many instructions it has; debug records are none."""
        # Instructions are indented by two; the cases of a switch, the clauses of a landing pad and
        # the destinations of an invoke by more, and a switch ends in a bracket of its own.
        return sum(
            line.startswith("  ") and not line.startswith(("   ", "  ]")) for line in self.body
        )


@dataclass(frozen=True)
class ModuleText:
    """A module's entities by the name in the text, in its order; aliases are variables."""

    preamble: list[str] = field(default_factory=list)
    comdats: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    declarations: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    epilogue: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, text: str) -> ModuleText:
        """Take apart what LLVM printed. Module-level assembly is left out."""
        module = cls()
        lines = iter(text.splitlines())
        for line in lines:
            module._add(line, lines)
        return module

    def __str__(self) -> str:
        """All of it, as LLVM reads it."""
        parts = [
            *(*self.preamble, *self.comdats, *self.variables.values()),
            *(*map(str, self.functions.values()), *self.declarations.values()),
            *(*self.epilogue, *self.metadata.values()),
        ]
        return "\n".join(parts) + "\n"

    @cached_property
    def attribute_groups(self) -> dict[str, str]:
        """The content of each attribute group, by its name, such as ``#0``."""
        groups = (line.split(" = ", 1) for line in self.epilogue if line.startswith("attributes "))
        return {name.removeprefix("attributes "): text for name, text in groups}

    def _add(self, line: str, rest: Iterator[str]) -> None:
        if match := _METADATA.match(line):
            self.metadata[match[1]] = line
        elif match := _GLOBAL.match(line):
            self.variables[match[1]] = line
        elif line.startswith("define "):
            name = _name_in(line)
            self.functions[name] = Function(name, line, tuple(takewhile("}".__ne__, rest)))
        elif line.startswith("declare "):
            self.declarations[_name_in(line)] = line
        elif line.startswith("$"):
            self.comdats.append(line)
        elif line.startswith(("!", "attributes ")):
            self.epilogue.append(line)
        elif line.startswith(("%", "target ", "source_filename ")):
            self.preamble.append(line)


def _name_in(line: str) -> str:
    # Attributes of the result may hold strings; the first name before a parenthesis is it.
    match = _DEFINED.search(line)
    return match[1] if match else ""
