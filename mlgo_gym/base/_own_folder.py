"""Folders of caches: nobody but their user can write to them, or put others in their place."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from mlgo_gym.base._errors import EnvironmentSetupError

_MODE: Final = 0o1700
"""The mode of a folder. Others to whom it is opened by mistake still cannot replace its files."""
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def cache_folder() -> Path:
    """Return the folder of ``MLGO_CACHE``, by default ``mlgo-gym`` among the user's caches."""
    given = os.environ.get("MLGO_CACHE")
    return Path(given) if given else (xdg("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlgo-gym"


def xdg(name: str) -> Path | None:
    """Return the folder of a variable of the XDG specification, which ignores relative ones."""
    found = Path(os.environ.get(name, ""))
    return found if found.is_absolute() else None


def check_way(folder: Path) -> None:
    """See that nobody else can put another in a folder's place, as far as its path is there.

    Folders above it are the user's or root's; others write to them only where they cannot replace
    what is not theirs, as in ``/tmp``. A group of the owner's number is the owner's own.
    """
    top = Path("/").stat().st_uid  # root may be nobody, in a user namespace
    real = Path(os.path.realpath(folder))
    for each in (*reversed(real.parents), real, *reversed(folder.parents), folder):
        try:
            about = each.stat()
        except FileNotFoundError:
            continue
        group_writes = about.st_mode & stat.S_IWGRP and about.st_gid != about.st_uid
        is_shared = group_writes or about.st_mode & stat.S_IWOTH
        is_trusted = about.st_uid in {os.geteuid(), 0, top}
        if not is_trusted or (is_shared and not about.st_mode & stat.S_ISVTX):
            raise EnvironmentSetupError(
                f"{str(each)!r}: expected a folder that nobody else can write to, found owner "
                f"{about.st_uid}, mode {stat.S_IMODE(about.st_mode):04o}; MLGO_CACHE names another"
            )


def claim(folder: Path) -> None:
    """Make a folder that nobody else can write to; one that others could write to is emptied."""
    try:
        about = folder.lstat()
    except FileNotFoundError:  # what is there now, another process has made meanwhile
        about = None
    if about and stat.S_ISDIR(about.st_mode) and is_ours(about):
        if not about.st_mode & stat.S_ISVTX:  # without it the scripts prepare at every call
            folder.chmod(_MODE)
        return
    if about:
        remove(folder)
    with suppress(FileExistsError):  # another process was faster
        folder.mkdir(mode=0o700)
        folder.chmod(_MODE)


def remove(path: Path) -> None:
    """Remove a file or a folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def is_ours(about: os.stat_result) -> bool:
    """Whether what is there belongs to the user, or root, who alone can write to it."""
    return about.st_uid in {os.geteuid(), 0} and not about.st_mode & _OTHERS_WRITE
