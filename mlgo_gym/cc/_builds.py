"""The code of two builds compared: by object, by linked binary and by function. ELF files.

Code is what the sections that are executable hold, in bytes. Functions are those that the symbol
table names; a stripped binary has none, and static functions of one name in one file are summed up.

The log of ``mlgo-cc --mlgo-keep-smaller`` has a line for each object that was made, with tabs: what
was kept, its bytes of code, those of clang's own object, and the object's path.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from mlgo_gym.base import InputError, open_regular, read_bounded
from mlgo_gym.corpus import function_symbols, read_elf

MAX_BYTES: Final = 1 << 32
"""The largest object, program or library that is read."""

_ELF_MAGIC: Final = b"\x7fELF"
_MAGIC_BYTES: Final = 8
_PROBES: Final = re.compile(
    r"(?:^|/)(?:CMakeFiles/(?:CMakeTmp|CMakeScratch|\d[\d.]+)|meson-private)/"
)
"""Where CMake and Meson build what they try a compiler with."""

MAX_LOG_BYTES: Final = 1 << 28
"""The longest log that is read."""

_FIELDS: Final = 4
_SIZE: Final = re.compile(r"\d{1,20}", re.ASCII)


class LeftOut(StrEnum):
    """Files of a build whose code is not counted."""

    ARCHIVE = "static libraries"
    BITCODE = "bitcode files"
    BROKEN = "ELF files that cannot be read"


_MAGICS: Final = MappingProxyType(
    {
        b"!<arch>\n": LeftOut.ARCHIVE,
        b"!<thin>\n": LeftOut.ARCHIVE,
        b"BC\xc0\xde": LeftOut.BITCODE,
        b"\xde\xc0\x17\x0b": LeftOut.BITCODE,
    }
)


@dataclass(frozen=True, slots=True)
class BinaryFile:
    """An object, or a program or shared library; functions are their bytes by their symbols."""

    is_linked: bool
    code_bytes: int
    functions: Mapping[str, int] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> BinaryFile | LeftOut | None:
        """Read a file; ``None`` where it holds no code, or has no table of sections."""
        from corpus_tools.lief_library import lief  # noqa: PLC0415 (half a second)

        with open_regular(path) as file:
            magic = file.read(_MAGIC_BYTES)
        if not magic.startswith(_ELF_MAGIC):
            kinds = (kind for each, kind in _MAGICS.items() if magic.startswith(each))
            return next(kinds, None)
        elf = read_elf(read_bounded(path, MAX_BYTES))
        is_whole = elf and elf.header.file_type != lief.ELF.Header.FILE_TYPE.NONE
        if elf is None or not is_whole or len(elf.sections) < elf.header.numberof_sections:
            return LeftOut.BROKEN
        if not elf.sections:
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
        left_out: of each build, the files that are not counted.
    """

    objects: tuple[Change, ...]
    linked: tuple[Change, ...]
    functions: tuple[Change, ...]
    left_out: tuple[Mapping[str, LeftOut], Mapping[str, LeftOut]] = field(default=({}, {}))

    def to_json(self) -> dict[str, Any]:
        """The comparison as a JSON value."""
        return {
            "objects": [each.to_json() for each in self.objects],
            "linked": [each.to_json() for each in self.linked],
            "functions": [each.to_json() for each in self.functions],
            "total": {
                kind: total(changes).to_json()
                | {"files": len(in_both(changes)), "in_one_build": lone(changes)}
                for kind, changes in (("objects", self.objects), ("linked", self.linked))
            },
            "left_out": {
                build: dict(files)
                for build, files in zip(("before", "after"), self.left_out, strict=True)
            },
        }


def total(changes: Sequence[Change]) -> Change:
    """The sum of what both builds have."""
    both = in_both(changes)
    name = f"total, {len(both):,} of {len(changes):,} files" if lone(changes) else "total"
    return Change(
        name, sum(each.before or 0 for each in both), sum(each.after or 0 for each in both)
    )


def in_both(changes: Sequence[Change]) -> list[Change]:
    """The files that both builds have."""
    return [each for each in changes if each.before is not None and each.after is not None]


def lone(changes: Sequence[Change]) -> int:
    """How many one build alone has."""
    return len(changes) - len(in_both(changes))


def read_build(path: Path) -> dict[str, BinaryFile]:
    """The ELF files of a build, by their names relative to its folder; a file's own is empty."""
    return _read_build(path)[0]


def _read_build(path: Path) -> tuple[dict[str, BinaryFile], dict[str, LeftOut]]:
    files: dict[str, BinaryFile] = {}
    left_out: dict[str, LeftOut] = {}
    try:
        for each in sorted(_regular_files(path)):
            name = "" if each == path else str(each.relative_to(path))
            match BinaryFile.read(each):
                case BinaryFile() as binary:
                    files[name] = binary
                case LeftOut() as kind:
                    left_out[name] = kind
    except OSError as error:
        name = str(error.filename or path)
        raise InputError(f"build {name!r}: cannot be read: {error.strerror}") from error
    if not files:
        counts = (f"{kind}: {count:,}" for kind, count in Counter(left_out.values()).items())
        found = ", ".join(counts) or "none"
        raise InputError(f"build {str(path)!r}: expected ELF objects or programs, found {found}")
    return files, left_out


def compare_builds(before: Path, after: Path) -> BuildComparison:
    """Compare the files of one name, and the functions in them.

    >>> import sys
    >>> python = Path(sys.executable)
    >>> [change.difference for change in compare_builds(python, python).linked]
    [0]
    """
    builds, left_out = zip(*map(_read_build, (before, after)), strict=True)
    names = sorted({name for files in builds for name in files})
    if not set(builds[0]) & set(builds[1]):
        raise InputError(
            f"builds {str(before)!r} and {str(after)!r}: expected files of the same names, found "
            f"none among {len(builds[0]):,} and {len(builds[1]):,}"
        )
    changes: dict[bool, list[Change]] = {False: [], True: []}
    functions: list[Change] = []
    for name in names:
        old, new = (files.get(name) for files in builds)
        known = old or new
        if known is None:
            continue
        label = name or after.name
        if old and new and old.is_linked != new.is_linked:
            raise InputError(
                f"{label!r}: expected an object in both builds or a linked file in both, found one "
                "of each"
            )
        changes[known.is_linked].append(
            Change(label, old.code_bytes if old else None, new.code_bytes if new else None)
        )
        if old and new and not known.is_linked:
            functions += _changed_functions(label, old.functions, new.functions)
    functions.sort(key=lambda each: (-abs(each.difference), each.name))
    return BuildComparison(
        tuple(changes[False]), tuple(changes[True]), tuple(functions), (left_out[0], left_out[1])
    )


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


@dataclass(frozen=True, slots=True)
class KeptObjects:
    """The objects of which the same was kept; bytes are of their code."""

    kept: str
    objects: int
    clang_bytes: int
    kept_bytes: int


def read_kept_log(path: Path) -> list[KeptObjects]:
    """Count the kept objects by whose they are; an object made twice counts as the last time."""
    name = f"log of what was kept {str(path)!r}"
    try:
        lines = read_bounded(path, MAX_LOG_BYTES).decode("utf-8", "surrogateescape").split("\n")
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from error
    last: dict[str, tuple[str, int, int]] = {}
    for number, line in enumerate(lines[: None if lines[-1] else -1], 1):
        fields = line.split("\t", _FIELDS - 1)
        if len(fields) != _FIELDS or not all(map(_SIZE.fullmatch, fields[1:3])):
            expected = "what was kept, two sizes in bytes and a path, with tabs between them"
            raise InputError(f"{name}: line {number}: expected {expected}, found {line[:80]!r}")
        last[fields[3]] = fields[0], int(fields[1]), int(fields[2])
    sizes: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for kept, size, clangs in last.values():
        sizes[kept].append((size, clangs))
    return [
        KeptObjects(
            kept, len(found), sum(clangs for _, clangs in found), sum(size for size, _ in found)
        )
        for kept, found in sorted(sizes.items())
    ]
