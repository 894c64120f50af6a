"""The code of two builds compared: by object, by linked binary and by function. ELF files.

Code is what the sections that are executable hold, in bytes. Functions are those that the symbol
table names; a stripped binary has none, and static functions of one name in one file are summed up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mlgo_gym.base import InputError, open_regular, read_bounded
from mlgo_gym.corpus import function_symbols, read_elf

MAX_BYTES: Final = 1 << 32
"""The largest object, program or library that is read."""

_ELF_MAGIC: Final = b"\x7fELF"
_PROBES: Final = re.compile(
    r"(?:^|/)(?:CMakeFiles/(?:CMakeTmp|CMakeScratch|\d[\d.]+)|meson-private)/"
)
"""Where CMake and Meson build what they try a compiler with."""


@dataclass(frozen=True, slots=True)
class BinaryFile:
    """An object, or a program or shared library; functions are their bytes by their symbols."""

    is_linked: bool
    code_bytes: int
    functions: Mapping[str, int] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> BinaryFile | None:
        """Read a file; ``None`` where it is no ELF file with sections."""
        import lief  # noqa: PLC0415 (half a second)

        with open_regular(path) as file:
            if file.read(len(_ELF_MAGIC)) != _ELF_MAGIC:
                return None
        elf = read_elf(read_bounded(path, MAX_BYTES))
        if elf is None or not elf.sections:
            return None
        code = {
            number: int(section.size)
            for number, section in enumerate(elf.sections)
            if section.has(lief.ELF.Section.FLAGS.EXECINSTR)
        }
        functions: Counter[str] = Counter()
        for function in function_symbols(elf):
            if function.shndx in code:
                functions[str(function.name)] += int(function.size)
        is_linked = elf.header.file_type != lief.ELF.Header.FILE_TYPE.REL
        return cls(is_linked, sum(code.values()), dict(functions))


@dataclass(frozen=True, slots=True)
class Change:
    """A file or function that both builds have, or one of them: its bytes of code in each."""

    name: str
    before: int | None
    after: int | None

    @property
    def difference(self) -> int:
        """Bytes more in the second build."""
        return (self.after or 0) - (self.before or 0)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "before_bytes": self.before, "after_bytes": self.after}


@dataclass(frozen=True, slots=True)
class BuildComparison:
    """Two builds.

    Attributes:
        objects: by the files' relative names, in their order.
        linked: programs and shared libraries.
        functions: those whose size differs, the largest difference first, as ``FILE: FUNCTION``.

    >>> BuildComparison(objects=(), linked=(), functions=()).to_json()["objects"]
    []
    """

    objects: tuple[Change, ...]
    linked: tuple[Change, ...]
    functions: tuple[Change, ...]

    def to_json(self) -> dict[str, Any]:
        """The comparison as a JSON value."""
        return {
            "objects": [each.to_json() for each in self.objects],
            "linked": [each.to_json() for each in self.linked],
            "functions": [each.to_json() for each in self.functions],
            "total": {kind: total(getattr(self, kind)).to_json() for kind in ("objects", "linked")},
        }


def total(changes: Sequence[Change]) -> Change:
    """The sum of what both builds have."""
    both = [each for each in changes if each.before is not None and each.after is not None]
    return Change(
        "total", sum(each.before or 0 for each in both), sum(each.after or 0 for each in both)
    )


def read_build(path: Path) -> dict[str, BinaryFile]:
    """The ELF files of a build, by their names relative to its folder; a file's own is empty."""
    files: dict[str, BinaryFile] = {}
    try:
        for each in sorted(_regular_files(path)):
            if (binary := BinaryFile.read(each)) is not None:
                files["" if each == path else str(each.relative_to(path))] = binary
    except OSError as error:
        name = str(error.filename or path)
        raise InputError(f"build {name!r}: cannot be read: {error.strerror}") from error
    if not files:
        raise InputError(f"build {str(path)!r}: expected ELF objects or programs, found none")
    return files


def compare_builds(before: Path, after: Path) -> BuildComparison:
    """Compare the files of one name, and the functions in them.

    Raises:
        InputError: a build cannot be read, or has no ELF files.

    >>> import sys
    >>> python = Path(sys.executable)
    >>> [change.difference for change in compare_builds(python, python).linked]
    [0]
    """
    builds = read_build(before), read_build(after)
    names = sorted({name for files in builds for name in files})
    changes: dict[bool, list[Change]] = {False: [], True: []}
    functions: list[Change] = []
    for name in names:
        old, new = (files.get(name) for files in builds)
        known = old or new
        if known is None:
            continue
        label = name or after.name
        changes[known.is_linked].append(
            Change(label, old.code_bytes if old else None, new.code_bytes if new else None)
        )
        if old and new and not known.is_linked:
            functions += _changed_functions(label, old.functions, new.functions)
    functions.sort(key=lambda each: (-abs(each.difference), each.name))
    return BuildComparison(tuple(changes[False]), tuple(changes[True]), tuple(functions))


def _changed_functions(
    label: str, old: Mapping[str, int], new: Mapping[str, int]
) -> Iterator[Change]:
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield Change(f"{label}: {name}", old.get(name), new.get(name))


def _regular_files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for each in path.rglob("*"):
            is_probe = _PROBES.search(each.relative_to(path).as_posix())
            if not is_probe and each.is_file() and not each.is_symlink():
                yield each
    else:
        path.stat()
        yield path
