"""Files and folders that commands write: they are checked before the work.

Why one cannot be written is said in one line.
"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from mlgo_gym.base import OptionsError, replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOT_ENDINGS: Final = (".png", ".svg", ".pdf")
"""How the name of a plot may end."""

_DPI: Final = 120
_READ: Final = ("FILE", "DIR", "PATH")
"""Metavars of options that name a command's inputs, where their types do not say it."""


@dataclass(frozen=True)
class OutputFile:
    """An argparse type: a file that the command writes, which `check_outputs` checks.

    Attributes:
        is_folder: whether it is a folder in the place of a file, whose contents are replaced.
        endings: how its name may end, if not in any way.
        may_lack_folder: whether the command makes the folder.
        files: all files that are written if the option has this value.
    """

    is_folder: bool = False
    endings: Sequence[str] = ()
    may_lack_folder: bool = False
    files: Callable[[Path, argparse.Namespace], list[Path]] = lambda path, _: [path]

    def __call__(self, text: str) -> Path:
        from mlgo_gym.cli._values import path

        return path(text)

    def check(self, option: str, path: Path) -> None:
        """See, before the work, that the file can be written; folders are the command's to see."""
        if self.is_folder:
            return
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
        OptionsError: a file is a folder, has none, or is an input or another output.
    """
    written: list[tuple[str, Path]] = []
    read = [*inputs]
    for action in options.actions:
        value = getattr(options, action.dest, None)
        name = max(action.option_strings, key=len, default=action.dest)
        if isinstance(action.type, OutputFile):
            for path in action.type.files(value, options) if value else ():
                action.type.check(name, path)
                written.append((name, path))
        else:
            read += ((name, path) for path in _paths(value, action.metavar))
    taken = {file: name for name, path in read if (file := _identity(path)) is not None}
    for name, path in [*written, *outputs]:
        if (file := _identity(path)) is None:
            continue
        if file in taken:
            other = f"another {'folder' if path.is_dir() else 'file'} than {taken[file]}"
            raise OptionsError(f"{name}: expected {other}, found {str(path)!r}")
        taken[file] = name


def _paths(value: Any, metavar: Any) -> Iterator[Path]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, Path) or (isinstance(each, str) and metavar in _READ):
            yield Path(each)


def _identity(path: Path) -> tuple[int, int] | str | None:
    """Return what names of one file or folder have in common; ``None`` for devices and pipes."""
    try:
        about = path.stat()
    except (OSError, ValueError):
        return os.path.realpath(path)
    is_kept = stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)
    return (about.st_dev, about.st_ino) if is_kept else None


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
    """Write plots as PNG files, by their names."""
    write_all(
        *(partial(save_figure, folder / f"{name}.png", each) for name, each in figures.items())
    )


def make_folder(folder: Path, *, to_write: Path | None = None) -> None:
    """Make a folder if need be, before the work; the error names what was to be written there."""
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


def _refused(path: Path, error: OSError) -> OptionsError:
    return OptionsError(f"cannot write {str(path)!r}: {error.strerror}")
