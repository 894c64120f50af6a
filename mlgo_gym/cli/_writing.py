"""Files and folders that commands write: they are checked before the work.

None may be among the files that the command reads, and all must be writable.

Why one cannot be written is said in one line.
"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from mlgo_gym.base import OptionsError, check_file, check_folder, check_kind, replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOT_ENDINGS: Final = (".png", ".svg", ".pdf")
"""How the name of a plot may end."""

_DPI: Final = 120
_READ: Final = ("FILE", "DIR", "PATH")
"""Metavars of options that name a command's inputs, where their types do not say it."""

_Identity = tuple[int, int] | str


class WriteError(OptionsError):
    """A file or folder of a command cannot be written."""


@dataclass(frozen=True)
class OutputFile:
    """An argparse type: a file or folder that the command writes, which `check_outputs` checks.

    Attributes:
        is_folder: whether it is a folder, which the command makes if need be.
        replaced_kind: if another folder takes its place, the name of a file that all
            such folders have.
        may_be_remote: whether it may be the URI of a folder elsewhere, which is not checked.
        endings: how its name may end, if not in any way.
        may_lack_folder: whether the command makes the folder.
        files: all files that are written if the option has this value.
    """

    is_folder: bool = False
    replaced_kind: str | None = None
    may_be_remote: bool = False
    endings: Sequence[str] = ()
    may_lack_folder: bool = False
    files: Callable[[Path, argparse.Namespace], list[Path]] = lambda path, _: [path]

    def __call__(self, text: str) -> Path | str:
        from mlgo_gym.cli._values import path, place

        return place(text) if self.may_be_remote else path(text)

    def check(self, option: str, path: Path) -> None:
        """See, before the work, that it can be written; nothing changes."""
        try:
            if self.is_folder:
                check_folder(path, is_replaced=self.replaced_kind is not None)
            else:
                self._check_name(option, path)
                check_file(path)
        except OSError as error:
            raise _refused(path, error) from error

    def _check_name(self, option: str, path: Path) -> None:
        problem = None
        if self.endings and path.suffix not in self.endings:
            problem = f"a file name ending in {', '.join(self.endings)}, found {str(path)!r}"
        elif path.is_dir():
            problem = f"a file, found the folder {str(path)!r}"
        elif not self.may_lack_folder and not path.resolve().parent.is_dir():
            problem = f"an existing folder, found {str(path.parent)!r}"
        if problem:
            raise OptionsError(f"{option}: expected {problem}")


def check_outputs(
    options: argparse.Namespace,
    outputs: Iterable[tuple[str, Path]] = (),
    inputs: Iterable[tuple[str, Path]] = (),
) -> None:
    """See, before the work, that all files of a command can be written, and none over another.

    Args:
        options: those of the command, with their ``actions``.
        outputs: what it writes besides what its options name, each by the name of an option.
        inputs: what it reads besides.

    Raises:
        OptionsError: a file or folder cannot be written, is an input or another output, or is in a
            folder that is read or replaced.
    """
    files = _Files()
    for name, path in inputs:
        files.read(name, path)
    written: list[tuple[str, Path]] = []
    replaced: list[tuple[str, Path]] = []
    kinds: dict[Path, str] = {}
    for action in options.actions:
        value = getattr(options, action.dest, None)
        name = max(action.option_strings, key=len, default=action.dest)
        if isinstance(action.type, OutputFile):
            for path in action.type.files(value, options) if isinstance(value, Path) else ():
                (replaced if action.type.replaced_kind else written).append((name, path))
                kinds |= {path: action.type.replaced_kind} if action.type.replaced_kind else {}
                action.type.check(name, path)
        else:
            for path in _paths(value, action.metavar):
                files.read(name, path, may_hold=getattr(action, "may_hold_outputs", False))
    for name, path in replaced:
        files.replace(name, path)
    for name, path in [*written, *outputs, *replaced]:
        files.write(name, path)
    _check_kinds(kinds)


def _check_kinds(kinds: Mapping[Path, str]) -> None:
    """See that folders which are replaced have the file that such folders have."""
    for path, kind in kinds.items():
        try:
            check_kind(path, kind)
        except OSError as error:
            raise _refused(path, error) from error


class _Files:
    """What a command reads and writes, by what all names of a file or folder have in common."""

    def __init__(self) -> None:
        self._inputs: list[tuple[str, Path]] = []
        self._taken: dict[_Identity, str] = {}
        self._closed: dict[_Identity, tuple[str, Path]] = {}

    def read(self, name: str, path: Path, *, may_hold: bool = False) -> None:
        """Add an input; a folder may not have outputs in it, unless it may hold them.

        What is not there is none: it is an error later, or the name of something that ships.
        """
        if (identity := _identity(path)) is None or not path.exists():
            return
        self._inputs.append((name, path))
        self._taken[identity] = name
        if path.is_dir() and not may_hold:
            self._closed[identity] = name, path

    def replace(self, name: str, folder: Path) -> None:
        """See that nothing is lost with a folder that is replaced; no output may be in it."""
        if (identity := _identity(folder)) is None:
            return
        for read, path in self._inputs:
            if identity in _above(path):
                expected = f"a folder without {read} in it"
                raise OptionsError(f"{name}: expected {expected}, found {str(folder)!r}")
        self._closed[identity] = name, folder

    def write(self, name: str, path: Path) -> None:
        """Add an output."""
        if (identity := _identity(path)) is None:
            return
        expected = None
        if identity in self._taken:
            kind = "folder" if path.is_dir() else "file"
            expected = f"another {kind} than {self._taken[identity]}"
        elif holder := self._holder(path, identity):
            expected = f"a place outside {holder}"
        if expected:
            raise OptionsError(f"{name}: expected {expected}, found {str(path)!r}")
        self._taken[identity] = name

    def _holder(self, path: Path, identity: _Identity) -> str | None:
        """The option whose folder has an output in it, also by another name, a link's."""
        for each in _above(path):
            if each in self._closed:
                return self._closed[each][0]
        return self._contents.get(identity) if path.is_file() else None

    @cached_property
    def _contents(self) -> dict[_Identity, str]:
        """The option of each file in folders."""
        folders = self._closed.values()
        return {each: name for name, folder in folders for each in _identities_in(folder)}


def _paths(value: Any, metavar: Any) -> Iterator[Path]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, Path) or (isinstance(each, str) and metavar in _READ):
            yield Path(each)


def _identity(path: Path) -> _Identity | None:
    """Return what names of one file or folder have in common; ``None`` for devices and pipes."""
    try:
        about = path.stat()
    except (OSError, ValueError):
        return str(_real(path))
    is_kept = stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)
    return (about.st_dev, about.st_ino) if is_kept else None


def _real(path: Path) -> Path:
    """Where links lead; of a relative path whose folder is gone, itself."""
    try:
        return Path(os.path.realpath(path))
    except FileNotFoundError:
        return path


def _above(path: Path) -> list[_Identity]:
    """The folders that a path is in, by its name and where links lead."""
    target, named = _real(path), _real(path.parent)
    folders = dict.fromkeys([*target.parents, named, *named.parents])
    return [identity for each in folders if (identity := _identity(each)) is not None]


def _identities_in(folder: Path) -> Iterator[_Identity]:
    """The files in a folder, wherever its links lead."""
    seen: set[_Identity | None] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        seen.add(_identity(Path(place)))
        folders[:] = [each for each in folders if _identity(Path(place, each)) not in seen]
        for each in files:
            if (identity := _identity(Path(place, each))) is not None:
                yield identity


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing, as `mlgo_gym.base._files.replacing` does.

    That it cannot be written is an `OptionsError`. Other errors of the system in the block stay as
    they are, and so does a pipe whose reader has seen enough.
    """
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        if error.filename != str(path) or isinstance(error, BrokenPipeError):
            raise
        raise _refused(path, error) from error


def save_figure(path: Path, figure: Figure) -> None:
    """Write a plot, in the format that the name's ending says."""
    with writing(path) as file:
        figure.savefig(file, format=path.suffix.removeprefix("."), dpi=_DPI)


def save_figures(folder: Path, figures: Mapping[str, Figure]) -> None:
    """Write plots as PNG files, by their names, into a folder that is made if need be."""
    make_folder(folder)
    write_all(
        *(partial(save_figure, folder / f"{name}.png", each) for name, each in figures.items())
    )


def make_folder(folder: Path, *, to_write: Path | None = None) -> None:
    """Make a folder if need be; the error names what was to be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(to_write or folder, error) from error


def write_all(*steps: Callable[[], object]) -> None:
    """Take all steps that write files; where some fail, the error names them all."""
    errors: list[str] = []
    for step in steps:
        try:
            step()
        except OptionsError as error:
            errors.append(str(error))
    if errors:
        raise OptionsError("; ".join(errors))


def _refused(path: Path, error: OSError) -> WriteError:
    return WriteError(f"cannot write {str(path)!r}: {error.strerror}")
