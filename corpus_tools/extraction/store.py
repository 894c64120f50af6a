"""Writing a corpus into a folder that may hold one already.

Files are staged beside those that they will replace and moved at the end, the manifest last. While
files of a module are replaced the manifest does not name it, so whoever reads the corpus, at any
moment and after any interruption, finds no half module in it. Files that are the same already are
left alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from corpus_tools.errors import ExtractionError, LayoutError, OutputError
from corpus_tools.extraction.embedded import ExtractedModule
from corpus_tools.manifest import MANIFEST_NAME, Manifest, name_problem, write_json
from corpus_tools.reading import holds

# Always this name, so that whatever a killed run left is found by it.
_STAGING = ".mlgo-corpus-staging"


@contextmanager
def open_store(folder: Path, *, replaces: bool = False) -> Iterator[CorpusStore]:
    """Open a folder to write a corpus into; make it if need be.

    What an interrupted run left of its staging is removed, and the folder where it is new and stays
    empty.

    Args:
        folder: the corpus.
        replaces: a module may be staged again, and the last one counts; else that is an error.

    Raises:
        OutputError: it cannot be written, or another process is writing it.
    """
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            _remove(staging := folder / _STAGING)
            staging.mkdir()
            try:
                yield CorpusStore(folder, staging, replaces=replaces)
            finally:
                _remove(staging)
                if is_new:
                    with suppress(OSError):  # it holds modules
                        folder.rmdir()
    except OSError as error:
        raise OutputError.refused(folder, error) from error


class CorpusStore:
    """The modules of a corpus on their way to disk.

    Args:
        folder: the corpus.
        staging: a folder on the same file system, for files until they are moved.
        replaces: whether a module may be staged again.
    """

    def __init__(self, folder: Path, staging: Path, *, replaces: bool) -> None:
        self._folder = folder
        self._root = folder.resolve()
        self._staging = staging
        self._replaces = replaces
        self._staged: list[tuple[str, Path, Path]] = []
        self._files: set[Path] = set()
        self._folders: set[Path] = set()
        self._checked: set[Path] = set()
        self._owners: dict[str, str] = {}

    def stage(self, module: ExtractedModule, label: str) -> None:
        """Take a module in.

        Args:
            module: with the contents of its files.
            label: where it comes from, for the error about the next of the same name.

        Raises:
            ExtractionError: its files would leave the corpus, or stand in the way of another's.
        """
        key = os.path.normpath(module.name)
        if problem := name_problem(module.name):
            raise ExtractionError(f"module {module.name!r}: {problem}")
        if (owner := self._owners.get(key)) and not self._replaces:
            raise ExtractionError(
                f"module {module.name!r}: expected a name of its own, found that of {owner}; "
                "name a folder above both with --obj_base_dir"
            )
        if key.startswith(_STAGING):
            raise ExtractionError(f"module {module.name!r}: such names are the corpus's own")
        targets = {suffix: self._folder / f"{module.name}{suffix}" for suffix in module.files}
        for target in targets.values():
            self._check(target, module.name)
            self._check_folder(target.parent, module.name)
        self._owners[key] = label
        for suffix, target in targets.items():
            self._files.add(target)
            if target.parent not in self._folders:
                self._folders.update(target.parents)
            self._stage_file(module.name, target, module.files[suffix])

    def commit(self, description: dict[str, object]) -> None:
        """Move what was staged to its place, then write this as the manifest."""
        self._forget({module for module, _, target in self._staged if target.exists()})
        for _, staged, target in self._staged:
            target.parent.mkdir(parents=True, exist_ok=True)
            staged.replace(target)
        self._write(description)

    def _write(self, description: dict[str, object]) -> None:
        write_json(self._folder / MANIFEST_NAME, description, staging=self._staging)

    def _check(self, target: Path, module: str) -> None:
        parents = () if target.parent in self._folders else target.parents
        if target in self._files and not self._replaces:
            raise ExtractionError(
                f"module {module!r}: {target.relative_to(self._folder)} would be written twice"
            )
        in_way = [each for each in parents if each in self._files]
        if target in self._folders or in_way:
            blocker = in_way[0] if in_way else target
            raise ExtractionError(
                f"module {module!r}: {blocker.relative_to(self._folder)} would be both "
                "a file and a folder"
            )
        try:
            is_taken = target.is_dir()
        except OSError as error:
            raise ExtractionError(f"module {module!r}: {error.strerror}") from error
        if is_taken:
            raise ExtractionError(f"module {module!r}: something else is at {target}")

    def _check_folder(self, folder: Path, module: str) -> None:
        """See that a folder is, or can be made, inside the corpus."""
        if folder in self._checked:
            return
        if not (resolved := folder.resolve()).is_relative_to(self._root):
            raise ExtractionError(
                f"module {module!r}: a link leads out of the corpus to {resolved}"
            )
        for each in (folder, *folder.parents):
            if each.is_file():
                raise ExtractionError(f"module {module!r}: something else is at {each}")
        self._checked.add(folder)

    def _stage_file(self, module: str, target: Path, content: bytes) -> None:
        if holds(target, content):
            return
        staged = self._staging / str(len(self._staged))
        staged.write_bytes(content)
        self._staged.append((module, staged, target))

    def _forget(self, modules: set[str]) -> None:
        """Take modules whose files will be replaced out of the manifest that is there."""
        if not modules:
            return
        try:
            old = Manifest.read(self._folder)
        except LayoutError:
            return
        kept = tuple(module for module in old.modules if module not in modules)
        if kept != old.modules:
            self._write(replace(old, modules=kept).as_json())


def _remove(path: Path) -> None:
    """Remove a folder, or whatever else has its name; what a link leads to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise OutputError(folder, "another process is writing a corpus there") from error
    finally:
        os.close(descriptor)
