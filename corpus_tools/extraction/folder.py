"""Objects out of a folder: every object and archive below it, sorted by name."""

from __future__ import annotations

import os
from pathlib import Path

from corpus_tools.errors import BuildListError
from corpus_tools.extraction.inputs import Listed, listed_object
from corpus_tools.extraction.linker_parameters import ARCHIVE_SUFFIX, OBJECT_SUFFIXES
from corpus_tools.extraction.static_archive import list_archive

__all__ = ["IMPORTED_SUFFIX", "list_folder", "list_thinlto_modules"]

IMPORTED_SUFFIX = ".3.import.bc"
"""What lld puts behind the names of modules that it saves after importing (``LTOBackend.cpp``)."""


def list_folder(folder: Path) -> list[Listed]:
    """List the objects and archives below a folder; objects come first.

    Raises:
        BuildListError: there is no such folder.
    """
    files = _files_below(folder)
    listed = [listed_object(name, folder) for name in files if name.endswith(OBJECT_SUFFIXES)]
    for name in files:
        if name.endswith(ARCHIVE_SUFFIX):
            listed += list_archive(name, folder)
    return listed


def list_thinlto_modules(folder: Path) -> list[Listed]:
    """List the modules that lld saved below a folder in a local ThinLTO build.

    Each is listed as the object that it came from.

    Raises:
        BuildListError: there is no such folder.
    """
    names = [name for name in _files_below(folder) if name.endswith(IMPORTED_SUFFIX)]
    return [listed_object(name.removesuffix(IMPORTED_SUFFIX), folder) for name in names]


def _files_below(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise BuildListError(folder, "expected a folder, found none")
    found = []
    for root, _, names in os.walk(folder, onerror=_refuse):
        found += [os.path.relpath(Path(root, name), folder) for name in names]
    return sorted(found)


def _refuse(error: OSError) -> None:
    raise BuildListError(Path(error.filename), f"cannot be read: {error.strerror}") from error
