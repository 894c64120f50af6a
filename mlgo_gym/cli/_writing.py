"""Files and folders that commands write: why they cannot is said in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from mlgo_gym.base import OptionsError, replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI: Final = 120


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


def make_folder(folder: Path, *, to_write: Path | None = None) -> None:
    """Make a folder if need be, before the work; the error names what was to be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(to_write or folder, error) from error


def check_folder(option: str, path: Path | None) -> None:
    """See, before the work, that a file's folder is there, if a file is asked for."""
    if path and not path.resolve().parent.is_dir():
        found = str(path.parent)
        raise OptionsError(f"{option}: expected an existing folder, found {found!r}")


def _refused(path: Path, error: OSError) -> OptionsError:
    return OptionsError(f"cannot write {str(path)!r}: {error.strerror}")
