"""Where the members of a static archive are, by arpy, which the extra ``corpus`` brings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import arpy

from corpus_tools.budget import Budget
from corpus_tools.errors import ExtractionError
from corpus_tools.object_file import LARGEST_BYTES
from corpus_tools.reading import open_regular

LARGEST_NAMES = 1 << 26
"""How many bytes the names of an archive's members may have, all together: 64 MiB."""

_THIN_MAGIC = b"!<thin>\n"
# The index that BSD's and Darwin's ranlib put in front.
_SYMBOL_TABLE = "__.SYMDEF"


class Member(NamedTuple):
    """One member: its name, and where its bytes start and how many they are."""

    name: str
    offset: int
    size: int


class _Headers:
    """A file whose headers and names are read, of which each may claim to be of any length."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable
        self.name = file.name  # members of a thin archive are beside it

    def read(self, size: int) -> bytes:
        if size > LARGEST_NAMES:
            raise ExtractionError(f"names: expected at most {LARGEST_NAMES} bytes, found {size}")
        return self._file.read(size)


def read_members(path: Path) -> tuple[bool, list[Member]]:
    """Read where the members of an archive are.

    Returns:
        Whether the archive is thin, so that its members are files of their own, and its members.

    Raises:
        ExtractionError: it is broken.
        OSError: it cannot be read.
    """
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        is_thin = stream.read(len(_THIN_MAGIC)) == _THIN_MAGIC
        stream.seek(0)
        try:
            archive = arpy.Archive(fileobj=_Headers(stream))
            return is_thin, list(_members(archive, size, is_thin=is_thin))
        except arpy.ArchiveFormatError as error:
            raise ExtractionError(str(error)) from error


def _members(archive: arpy.Archive, file_size: int, *, is_thin: bool) -> Iterator[Member]:
    named = {arpy.HEADER_BSD, arpy.HEADER_GNU, arpy.HEADER_NORMAL}
    budget = Budget(ExtractionError, bytes_of_names=LARGEST_NAMES)
    position = -1
    while (header := archive.read_next_header()) is not None:
        if header.size < 0 or header.offset <= position:
            raise ExtractionError(f"member at byte {header.offset} has size {header.size}")
        position = header.offset
        if header.type not in named:
            continue
        if is_thin:  # the data are elsewhere, so the next header follows at once
            archive.next_header_offset = header.file_offset
        elif header.size > LARGEST_BYTES:
            problem = f"expected at most {LARGEST_BYTES} bytes, found {header.size}"
            raise ExtractionError(f"member at byte {position}: {problem}")
        elif header.file_offset + header.size > file_size:
            end = header.file_offset + header.size
            raise ExtractionError(f"member at byte {position} ends at byte {end} of {file_size}")
        budget.charge(bytes_of_names=len(header.name))  # many members may have one name
        name = header.name.rstrip(b"\0").decode("utf-8", "surrogateescape")
        if not name.startswith(_SYMBOL_TABLE):
            yield Member(name, header.file_offset, header.size)
