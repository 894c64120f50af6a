"""Objects out of static archives (``.a``), GNU's, BSD's and thin ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from corpus_tools.errors import ExtractionError
from corpus_tools.extraction.inputs import Listed, ObjectInput, Outcome, Status, listed_object
from corpus_tools.manifest import name_problem
from corpus_tools.reading import open_regular, reason_of

if TYPE_CHECKING:
    from corpus_tools.extraction.archive_members import Member

_MAGICS = {b"!<arch>\n", b"!<thin>\n"}


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


def _read(path: Path) -> tuple[bool, list[Member]]:
    try:
        from corpus_tools.extraction.archive_members import (  # noqa: PLC0415 - an extra has arpy
            read_members,
        )
    except ModuleNotFoundError as error:
        raise ExtractionError(f"needs {error.name}; run: pip install 'mlgo-gym[corpus]'") from error
    return read_members(path)
