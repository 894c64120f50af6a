"""Objects out of a folder: every object and archive below it, sorted by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from corpus_tools.errors import BuildListError
from corpus_tools.extraction.inputs import OBJECT_SUFFIXES, Listed, Outcome, Status, listed_object
from corpus_tools.extraction.linker_parameters import ARCHIVE_SUFFIXES
from corpus_tools.extraction.static_archive import list_archive

IMPORTED_SUFFIX = ".3.import.bc"
"""The ending of lld's names of modules that it saves after importing (``LTOBackend.cpp``)."""


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
