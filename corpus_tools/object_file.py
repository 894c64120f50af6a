"""Reading sections of object files: ELF, Mach-O and COFF, by LIEF; no LLVM tools needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import lief

from corpus_tools.errors import ExtractionError
from corpus_tools.reading import read_regular

__all__ = ["LARGEST_BYTES", "ObjectFile", "read_bounded"]

LARGEST_BYTES: Final = 1 << 31
"""The size in bytes above which a file is not read: 2 GiB, more than any compiler writes."""

_COMPILER_SECTION: Final = ".comment"
# ET_REL of <elf.h>, MH_OBJECT of <mach-o/loader.h>.
_ELF_RELOCATABLE: Final = 1
_MACHO_OBJECT: Final = 1

_Reader = Callable[[bytes], tuple[tuple[str, int, int], ...]]

lief.logging.disable()


def read_bounded(path: Path) -> bytes:
    """Read a file that should be an object.

    Args:
        path: the file.

    Raises:
        ExtractionError: it cannot be read, is no regular file, or exceeds `LARGEST_BYTES`.
    """
    try:
        return read_regular(path, LARGEST_BYTES)
    except OSError as error:
        raise ExtractionError(f"cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """An object file's sections.

    Attributes:
        format: ``ELF``, ``Mach-O`` or ``COFF``.
        data: the whole file.
        sections: name, offset and size in bytes of each section, in the file's order; of Mach-O
            the name is ``SEGMENT,SECTION``.
    """

    format: str
    data: bytes
    sections: tuple[tuple[str, int, int], ...]

    @classmethod
    def parse(cls, data: bytes) -> ObjectFile:
        """Parse an object file.

        Raises:
            ExtractionError: it is none, is a linked program, or LIEF cannot read it.
        """
        if not data:
            raise ExtractionError("expected an object file, found an empty file")
        for name, is_format, read in _FORMATS:
            if is_format(data):
                return cls(name, data, _sections(read, data))
        raise ExtractionError(f"expected an object file, found one that starts with {data[:4]!r}")

    def contents(self, name: str) -> bytes | None:
        """The bytes of all sections of this name, one behind the other; None if there is none.

        Raises:
            ExtractionError: a section lies outside the file.
        """
        parts = [each for each in self.sections if each[0] == name]
        return b"".join(self._part(*part) for part in parts) if parts else None

    def first(self, name: str) -> bytes | None:
        """The bytes of the first section of this name, as ``llvm-objcopy --dump-section`` has it.

        Raises:
            ExtractionError: the section lies outside the file.
        """
        return next((self._part(*each) for each in self.sections if each[0] == name), None)

    def compiler(self) -> str | None:
        """What compiler the object says that it was made by (ELF's ``.comment``)."""
        comment = (self.contents(_COMPILER_SECTION) or b"").strip(b"\0").split(b"\0")[0]
        return comment.decode("utf-8", "replace") or None

    def _part(self, name: str, offset: int, size: int) -> bytes:
        if offset + size > len(self.data):
            raise ExtractionError(
                f"truncated: section {name!r} ends at byte {offset + size} of {len(self.data)}"
            )
        return self.data[offset : offset + size]


def _sections(read: _Reader, data: bytes) -> tuple[tuple[str, int, int], ...]:
    try:
        return read(data)
    except ValueError as error:  # a name that is no UTF-8
        problem = f"expected an object file, found one that LIEF cannot read: {error}"
        raise ExtractionError(problem) from error


def _elf_sections(data: bytes) -> tuple[tuple[str, int, int], ...]:
    # LIEF's enumerations warn about values that they do not have, so the type is read here.
    kind = int.from_bytes(data[16:18], "big" if data[5:6] == b"\x02" else "little")
    if kind != _ELF_RELOCATABLE:
        raise ExtractionError(f"expected an object file, found another kind (ELF type {kind})")
    binary = _parsed(lief.ELF.parse(data, _elf_settings()))
    expected = binary.header.numberof_sections  # 0 also where there are too many to count there
    if len(binary.sections) == 0 or expected not in {0, len(binary.sections)}:
        found = len(binary.sections)
        raise ExtractionError(f"truncated: expected {expected} sections, found {found}")
    return tuple((str(s.name), s.offset, s.size) for s in binary.sections)


def _macho_sections(data: bytes) -> tuple[tuple[str, int, int], ...]:
    fat = _parsed(lief.MachO.parse(data))
    if len(fat) != 1:
        raise ExtractionError(f"expected one architecture, found {len(fat)} in one Mach-O file")
    kind = int.from_bytes(data[12:16], "little" if data[:1] in {b"\xce", b"\xcf"} else "big")
    if kind != _MACHO_OBJECT:
        raise ExtractionError(f"expected an object file, found another kind (Mach-O type {kind})")
    return tuple((f"{s.segment_name},{s.name}", s.offset, s.size) for s in fat.at(0).sections)


def _coff_sections(data: bytes) -> tuple[tuple[str, int, int], ...]:
    binary = _parsed(lief.COFF.parse(data))
    sections = ((s.name, s.pointerto_raw_data, s.sizeof_raw_data) for s in binary.sections)
    return tuple((str(name), offset, size) for name, offset, size in sections if offset)


def _parsed(binary: Any) -> Any:
    if binary is None or isinstance(binary, lief.lief_errors):
        raise ExtractionError("expected an object file, found one that LIEF cannot read")
    return binary


def _elf_settings() -> Any:
    settings = lief.ELF.ParserConfig()
    for name in ("relocations", "dyn_symbols", "symtab_symbols", "symbol_versions", "notes"):
        setattr(settings, f"parse_{name}", False)
    settings.parse_overlay = False
    return settings


_MACHO_MAGICS: Final = frozenset(
    bytes.fromhex(magic) for magic in ("feedface", "cefaedfe", "feedfacf", "cffaedfe", "cafebabe")
)
# i386, x86-64, ARM, ARM64, and the anonymous header of objects with many sections.
_COFF_MACHINES: Final = frozenset(
    bytes.fromhex(machine) for machine in ("4c01", "6486", "c401", "64aa", "0000ffff")
)

_FORMATS: Final = (
    ("ELF", lambda data: data[:4] == b"\x7fELF", _elf_sections),
    ("Mach-O", lambda data: data[:4] in _MACHO_MAGICS, _macho_sections),
    ("COFF", lambda data: data[:2] in _COFF_MACHINES or data[:4] in _COFF_MACHINES, _coff_sections),
)
