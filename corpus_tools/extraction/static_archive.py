"""Objects out of static archives (``.a``), GNU's, BSD's and thin ones, by arpy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import arpy

from corpus_tools.errors import ExtractionError
from corpus_tools.extraction.inputs import Listed, ObjectInput, Outcome, Status, listed_object
from corpus_tools.manifest import name_problem
from corpus_tools.object_file import LARGEST_BYTES
from corpus_tools.reading import open_regular, reason_of

__all__ = ["list_archive"]

_MAGIC = b"!<arch>\n"
_THIN_MAGIC = b"!<thin>\n"
# The index that BSD's and Darwin's ranlib put in front.
_SYMBOL_TABLE = "__.SYMDEF"


class _Member(NamedTuple):
    name: str
    offset: int
    size: int


def list_archive(given: str, directory: Path) -> list[Listed]:
    """List the members of an archive, as modules ``ARCHIVE/MEMBER``.

    The second member of a name gets ``.2`` behind it, and so on. The members of a thin archive are
    files of their own and are listed as such.

    Args:
        given: the archive's path, as the build names it.
        directory: where that path starts.

    Returns:
        One entry for each member; one that failed where the archive cannot be read.
    """
    directory = directory.absolute()
    archive = listed_object(given, directory)
    if isinstance(archive, Outcome):
        return [archive]
    if archive.path.suffix == ".lo" and not _is_archive(archive.path):
        return []  # what libtool writes beside an object
    try:
        is_thin, members = _read(archive.path)
    except (ExtractionError, arpy.ArchiveFormatError, OSError, ValueError) as error:
        reason = f"archive cannot be read: {reason_of(error)}"
        return [Outcome(given, Status.FAILED, reason=reason)]
    if is_thin:
        folder = archive.path.parent
        return [listed_object(str(folder / each.name), directory) for each in members]
    return list(_listed(archive, members))


def _listed(archive: ObjectInput, members: list[_Member]) -> Iterator[Listed]:
    counts: dict[str, int] = {}
    for member in members:
        label = f"{archive.label}({member.name})"
        counts[member.name] = counts.get(member.name, 0) + 1
        number = f".{counts[member.name]}" if counts[member.name] > 1 else ""
        if problem := name_problem(member.name):
            yield Outcome(label, Status.FAILED, reason=f"member refused: {problem}")
            continue
        yield ObjectInput(
            label,
            f"{archive.name}/{member.name}{number}",
            archive.path,
            archive.base_dir,
            member=(member.offset, member.size),
        )


def _is_archive(path: Path) -> bool:
    with suppress(OSError), open_regular(path) as stream:
        return stream.read(len(_MAGIC)) in {_MAGIC, _THIN_MAGIC}
    return False


def _read(path: Path) -> tuple[bool, list[_Member]]:
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        is_thin = stream.read(len(_THIN_MAGIC)) == _THIN_MAGIC
        stream.seek(0)
        return is_thin, list(_members(arpy.Archive(fileobj=stream), size, is_thin=is_thin))


def _members(archive: arpy.Archive, file_size: int, *, is_thin: bool) -> Iterator[_Member]:
    named = {arpy.HEADER_BSD, arpy.HEADER_GNU, arpy.HEADER_NORMAL}
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
        name = header.name.rstrip(b"\0").decode("utf-8", "surrogateescape")
        if not name.startswith(_SYMBOL_TABLE):
            yield _Member(name, header.file_offset, header.size)
