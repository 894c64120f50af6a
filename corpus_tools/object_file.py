"""Reading sections of object files: ELF, Mach-O and COFF, by LIEF; no LLVM tools needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from corpus_tools.errors import ExtractionError
from corpus_tools.lief_library import lief
from corpus_tools.reading import read_regular

LARGEST_BYTES: Final = 1 << 31
"""The size in bytes above which a file is not read: 2 GiB, more than any compiler writes."""

_COMPILER_SECTION: Final = ".comment"
# ET_REL of <elf.h>, MH_OBJECT of <mach-o/loader.h>.
_ELF_RELOCATABLE: Final = 1
_ELF_LINKED: Final = (2, 3)
_MACHO_OBJECT: Final = 1
_LIBTOOL_NOTE: Final = b"a libtool object file"
_WINDOWS_RESOURCE: Final = bytes.fromhex("0000000020000000ffff0000ffff0000")

_ELF_MAGIC: Final = b"\x7fELF"
_MACHO_MAGICS: Final = frozenset(
    bytes.fromhex(magic) for magic in ("feedface", "cefaedfe", "feedfacf", "cffaedfe", "cafebabe")
)
# i386, x86-64, ARM, ARM64, and the anonymous header of objects with many sections.
_COFF_MACHINES: Final = frozenset(
    bytes.fromhex(machine) for machine in ("4c01", "6486", "c401", "64aa", "0000ffff")
)

Binary = lief.ELF.Binary | lief.MachO.Binary | lief.COFF.Binary
_FORMATS: Final = {
    lief.ELF.Binary: "ELF",
    lief.MachO.Binary: "Mach-O",
    lief.COFF.Binary: "COFF",
}

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
        binary = parse_binary(data)
        try:
            return cls(_FORMATS[type(binary)], data, tuple(_sections(binary)))
        except ValueError as error:  # a name that is no UTF-8
            problem = f"expected an object file, found one that LIEF cannot read: {error}"
            raise ExtractionError(problem) from error

    def contents(self, name: str) -> bytes | None:
        """The bytes of all sections of this name, one behind the other; None if there is none.

        Raises:
            ExtractionError: a section lies outside the file, or they are of more bytes than it has:
                many headers may name the same.
        """
        parts = [each for each in self.sections if each[0] == name]
        if (total := sum(size for _, _, size in parts)) > len(self.data):
            raise ExtractionError(
                f"sections {name!r}: expected at most {len(self.data)} bytes, found {total}"
            )
        return b"".join(self._part(*part) for part in parts) if parts else None

    def first(self, name: str) -> bytes | None:
        """The bytes of the first section of this name, as ``llvm-objcopy --dump-section`` has it.

        Raises:
            ExtractionError: the section lies outside the file.
        """
        return next((self._part(*each) for each in self.sections if each[0] == name), None)

    def compiler(self) -> str | None:
        """The compiler that made the object, as it says (ELF's ``.comment``)."""
        comment = (self.contents(_COMPILER_SECTION) or b"").strip(b"\0").split(b"\0")[0]
        return comment.decode("utf-8", "replace") or None

    def _part(self, name: str, offset: int, size: int) -> bytes:
        if offset + size > len(self.data):
            raise ExtractionError(
                f"truncated: section {name!r} ends at byte {offset + size} of {len(self.data)}"
            )
        return self.data[offset : offset + size]


def other_kind(data: bytes) -> str | None:
    """Return the kind of a file that looks like an object and is none; None if it may be one.

    >>> other_kind(b"CPCH"), other_kind(b"")
    ('a precompiled header or module', None)
    """
    if data.startswith((b"CPCH", b"gpch")):
        return "a precompiled header or module"
    if data.startswith(b"# ") and _LIBTOOL_NOTE in data[:256]:
        return "a note of libtool's about an object"
    if data.startswith(_WINDOWS_RESOURCE):
        return "a compiled resource"
    is_linked = data.startswith(_ELF_MAGIC) and _elf_type(data) in _ELF_LINKED
    return "a linked program or library" if is_linked or data.startswith(b"MZ") else None


def parse_binary(data: bytes, *, has_relocations: bool = False) -> Binary:
    """Parse an object file by LIEF.

    Args:
        data: the whole file.
        has_relocations: whether relocations and symbols are parsed too, which takes longer.

    Raises:
        ExtractionError: it is none, is a linked program, or LIEF cannot read it.
    """
    if not data:
        raise ExtractionError("expected an object file, found an empty file")
    if data.startswith(_ELF_MAGIC):
        return _elf(data, has_relocations=has_relocations)
    if data[:4] in _MACHO_MAGICS:
        return _macho(data)
    if data[:2] in _COFF_MACHINES or data[:4] in _COFF_MACHINES:
        return cast("lief.COFF.Binary", _parsed(lief.COFF.parse(data)))
    raise ExtractionError(f"expected an object file, found one that starts with {data[:4]!r}")


def _elf(data: bytes, *, has_relocations: bool) -> lief.ELF.Binary:
    # LIEF's enumerations warn about values that they do not have, so the type is read here.
    kind = _elf_type(data)
    if kind != _ELF_RELOCATABLE:
        raise ExtractionError(f"expected an object file, found another kind (ELF type {kind})")
    settings = lief.ELF.ParserConfig() if has_relocations else _elf_settings()
    binary: lief.ELF.Binary = _parsed(lief.ELF.parse(data, settings))
    expected = binary.header.numberof_sections  # 0 also where there are too many to count there
    if len(binary.sections) == 0 or expected not in {0, len(binary.sections)}:
        found = len(binary.sections)
        raise ExtractionError(f"truncated: expected {expected} sections, found {found}")
    return binary


def _elf_type(data: bytes) -> int:
    return int.from_bytes(data[16:18], "big" if data[5:6] == b"\x02" else "little")


def _macho(data: bytes) -> lief.MachO.Binary:
    fat = _parsed(lief.MachO.parse(data))
    if len(fat) != 1:
        raise ExtractionError(f"expected one architecture, found {len(fat)} in one Mach-O file")
    kind = int.from_bytes(data[12:16], "little" if data[:1] in {b"\xce", b"\xcf"} else "big")
    if kind != _MACHO_OBJECT:
        raise ExtractionError(f"expected an object file, found another kind (Mach-O type {kind})")
    return cast("lief.MachO.Binary", fat.at(0))


def _sections(binary: Binary) -> Iterator[tuple[str, int, int]]:
    for each in binary.sections:
        match each:
            case lief.MachO.Section():
                yield f"{each.segment_name},{each.name!s}", each.offset, each.size
            case lief.COFF.Section():
                if each.pointerto_raw_data:
                    yield str(each.name), each.pointerto_raw_data, each.sizeof_raw_data
            case _:
                yield str(each.name), each.offset, each.size


def _parsed(binary: Any) -> Any:
    if binary is None or isinstance(binary, lief.lief_errors):
        raise ExtractionError("expected an object file, found one that LIEF cannot read")
    return binary


def _elf_settings() -> lief.ELF.ParserConfig:
    settings = lief.ELF.ParserConfig()
    for name in ("relocations", "dyn_symbols", "symtab_symbols", "symbol_versions", "notes"):
        setattr(settings, f"parse_{name}", False)
    settings.parse_overlay = False
    return settings
