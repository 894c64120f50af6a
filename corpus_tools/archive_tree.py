"""The files, folders and links of an archive, checked by their names alone before they are made."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Final

from corpus_tools.errors import SdistError
from corpus_tools.manifest import name_problem

__all__ = ["MAX_LEVELS", "MAX_MEMBERS", "MAX_UNPACKED_BYTES", "ArchiveTree"]

MAX_UNPACKED_BYTES: Final = 4 << 30
"""A small archive can ask for any amount of disk; the largest sdist of a recipe takes 60 MB."""
MAX_MEMBERS: Final = 1 << 17
MAX_LEVELS: Final = 100

_FILE, _FOLDER, _LINK = "a file", "a folder", "a link"
_LEADS_OUT: Final = "expected a link that stays inside the archive, found one that leads out"


class ArchiveTree:
    """What an archive holds, below a folder that is empty at first.

    What is refused is an `SdistError` with the member's name. Names are compared, never followed:
    where none of a path's folders is a link, what it says is where it leads.

    Args:
        archive: its name, for errors.
        root: where everything goes.
    """

    def __init__(self, archive: str, root: Path) -> None:
        self._archive, self._root = archive, root
        self._kinds: dict[PurePosixPath, str] = {}
        self._links: list[tuple[PurePosixPath, str]] = []
        self._left_bytes = MAX_UNPACKED_BYTES

    def add_folder(self, name: str) -> None:
        """Make a folder, which may be there, and those around it."""
        self._add(name, _FOLDER)

    def add_file(self, name: str, size_bytes: int) -> Path:
        """Make the folders of a file, whose size counts, and return where it belongs."""
        path = self._add(name, _FILE)
        self._left_bytes -= size_bytes
        if size_bytes < 0:
            raise self.refused(name, f"expected a size of at least 0, found {size_bytes}")
        if self._left_bytes < 0:
            problem = f"expected at most {MAX_UNPACKED_BYTES} bytes in all, found more"
            raise self.refused(name, problem)
        return path

    def add_link(self, name: str, target: str) -> None:
        """Remember a symbolic link."""
        self._add(name, _LINK)
        self._links.append((PurePosixPath(name), target))

    def add_hard_link(self, name: str, target: str) -> None:
        """Make a further name of a file that is there."""
        if name_problem(target):
            raise self.refused(name, _LEADS_OUT)
        if self._kinds.get(PurePosixPath(target)) != _FILE:
            problem = "expected a link to a file that comes before it, found none of that name"
            raise self.refused(name, problem)
        os.link(self._root / target, self._add(name, _FILE), follow_symlinks=False)

    def make_links(self) -> None:
        """Make the symbolic links, all of which must stay in the top folder."""
        for path, target in self._links:
            self._check_link(path, target)
        for path, target in self._links:
            (self._root / path).symlink_to(target)

    def refused(self, name: str, problem: str) -> SdistError:
        """An error about a member."""
        return SdistError(f"{self._archive}: member {name!r} refused: {problem}")

    def _add(self, name: str, kind: str) -> Path:
        if problem := name_problem(name):
            raise self.refused(name, problem)
        path = PurePosixPath(name)
        if len(path.parts) > MAX_LEVELS:
            found = f"found {len(path.parts)}"
            raise self.refused(name, f"expected at most {MAX_LEVELS} levels of folders, {found}")
        for folder in reversed(path.parents[:-1]):
            self._claim(name, folder, _FOLDER)
        if path.parts:
            self._claim(name, path, kind)
        return self._root / path

    def _claim(self, name: str, path: PurePosixPath, kind: str) -> None:
        found = self._kinds.get(path)
        if found is None:
            self._kinds[path] = kind
        elif not found == kind == _FOLDER:
            raise self.refused(name, f"expected {kind} as {str(path)!r}, found {found} there")
        if len(self._kinds) > MAX_MEMBERS:
            problem = f"expected at most {MAX_MEMBERS} files and folders in all, found more"
            raise self.refused(name, problem)
        if found is None and kind == _FOLDER:
            (self._root / path).mkdir()

    def _check_link(self, path: PurePosixPath, target: str) -> None:
        at = path.parent
        steps = [step for step in target.split("/") if step not in {"", "."}]
        for step in steps:
            if self._kinds.get(at) == _LINK:
                problem = "expected a link that leads through folders, found one through links"
                raise self.refused(str(path), problem)
            at = at.parent if step == ".." else at / step
            if not at.parts:
                break
        if target.startswith("/") or not at.parts:
            raise self.refused(str(path), _LEADS_OUT)
