"""Objects out of a folder, and out of static archives (``.a``): GNU's, BSD's and thin ones.

Archives are read by arpy, which the extra ``corpus`` brings.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from corpus_tools.budget import Budget
from corpus_tools.errors import BuildListError, ExtractionError
from corpus_tools.extraction.inputs import (
    OBJECT_SUFFIXES,
    Listed,
    ObjectInput,
    Outcome,
    Status,
    listed_object,
)
from corpus_tools.manifest import name_problem
from corpus_tools.object_file import LARGEST_BYTES
from corpus_tools.reading import open_regular, reason_of

if TYPE_CHECKING:
    import arpy

# Bazel calls archives that are linked as a whole .lo.
ARCHIVE_SUFFIXES = (".a", ".lo")

LARGEST_NAMES = 1 << 26
"""How many bytes the names of an archive's members may have, all together: 64 MiB."""

_THIN_MAGIC = b"!<thin>\n"
_MAGICS = {b"!<arch>\n", _THIN_MAGIC}
# The index that BSD's and Darwin's ranlib put in front.
_SYMBOL_TABLE = "__.SYMDEF"

IMPORTED_SUFFIX = ".3.import.bc"
"""The ending of lld's names of modules that it saves after importing (``LTOBackend.cpp``)."""


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
        ExtractionError: it is broken, or arpy is not installed.
        OSError: it cannot be read.
    """
    try:
        import arpy  # noqa: PLC0415 (of an extra)
    except ModuleNotFoundError as error:
        raise ExtractionError(f"needs {error.name}; run: pip install 'mlgo-gym[corpus]'") from error
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        is_thin = stream.read(len(_THIN_MAGIC)) == _THIN_MAGIC
        stream.seek(0)
        try:
            archive = arpy.Archive(fileobj=_Headers(stream))
            # Others are indices of symbols and names.
            named = {arpy.HEADER_BSD, arpy.HEADER_GNU, arpy.HEADER_NORMAL}
            return is_thin, list(_members(archive, named, size, is_thin=is_thin))
        except arpy.ArchiveFormatError as error:
            raise ExtractionError(str(error)) from error


def _members(
    archive: arpy.Archive, named: set[int], file_size: int, *, is_thin: bool
) -> Iterator[Member]:
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
        is_thin, members = read_members(archive.path)
    except (ExtractionError, OSError, ValueError) as error:
        reason = f"archive cannot be read: {reason_of(error)}"
        return [Outcome(given, Status.FAILED, reason=reason)]
    if is_thin:
        folder = archive.path.parent
        return [listed_object(str(folder / each.name), directory) for each in members]
    return list(_listed(archive, members))


def _listed(archive: ObjectInput, members: Iterable[Member]) -> Iterator[Listed]:
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
        return stream.read(8) in _MAGICS
    return False


def list_folder(
    folder: Path,
    objects: tuple[str, ...] = OBJECT_SUFFIXES,
    archives: tuple[str, ...] = ARCHIVE_SUFFIXES,
) -> list[Listed]:
    """List the objects and archives below a folder; objects come first.

    Args:
        folder: where to look.
        objects: how the names of objects end.
        archives: how the names of archives end.

    Raises:
        BuildListError: there is no such folder.
    """
    files, listed = _files_below(folder)
    listed += [listed_object(name, folder) for name in files if name.endswith(objects)]
    for name in files:
        if name.endswith(archives):
            listed += list_archive(name, folder)
    return listed


def list_thinlto_modules(folder: Path, parameters: Sequence[str] | None = None) -> list[Listed]:
    """List the modules that lld saved below a folder in a local ThinLTO build.

    Each is listed as the object that it came from; lld calls a member of an archive
    ``ARCHIVE(MEMBER at OFFSET)``.

    Args:
        folder: where the build is.
        parameters: of the link; modules of other links are then skipped. None takes all.

    Raises:
        BuildListError: there is no such folder.
    """
    files, listed = _files_below(folder)
    names = [name for name in files if name.endswith(IMPORTED_SUFFIX)]
    objects = [name.removesuffix(IMPORTED_SUFFIX) for name in names]
    if parameters is None:
        return listed + [listed_object(name, folder) for name in objects]
    linked = {os.path.normpath(folder.absolute() / parameter) for parameter in parameters}
    return listed + [_of_link(name, folder, linked) for name in objects]


def _of_link(name: str, folder: Path, linked: set[str]) -> Listed:
    file = name.rpartition("(")[0] if name.endswith(")") else name
    if os.path.normpath(folder.absolute() / file) in linked:
        return listed_object(name, folder)
    return Outcome(name, Status.SKIPPED, reason="of another link")


def _files_below(folder: Path) -> tuple[list[str], list[Listed]]:
    """Names of the files, sorted, and what became of folders that cannot be read."""
    if not folder.is_dir():
        raise BuildListError(folder, "expected a folder, found none")
    found: list[str] = []
    unreadable: list[OSError] = []
    for root, _, names in os.walk(folder, onerror=unreadable.append):
        found += [os.path.relpath(Path(root, name), folder) for name in names]
    return sorted(found), [_failed(error, folder) for error in unreadable]


def _failed(error: OSError, folder: Path) -> Outcome:
    name = os.path.relpath(error.filename, folder)
    return Outcome(f"{name}/", Status.FAILED, reason=f"cannot be read: {error.strerror}")
