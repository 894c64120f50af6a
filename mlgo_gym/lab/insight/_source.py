"""Source files that debug information names, out of one folder and no other."""

from __future__ import annotations

import errno
import os
from pathlib import Path, PurePosixPath
from typing import Final

from mlgo_gym.base import FileError, OptionsError, read_bounded

MAX_SOURCE_BYTES: Final = 1 << 22
"""The largest source file that is shown."""


class SourceFolder:
    """A folder that sources are read from.

    The names are a stranger's: what they lead to outside the folder is not looked at.

    Raises:
        OptionsError: there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise OptionsError(f"--source: expected a folder, found {str(folder)!r}")
        self._folder: Final = Path(os.path.realpath(folder))

    def lines(self, name: str) -> list[str]:
        """The lines of a file, by the longest end of its name that the folder has.

        What a name has before its last ``..`` says where a compiler was, and is not looked at.

        Raises:
            OSError: it is not there, or is no text file of such a size; ``strerror`` says why.
        """
        parts = [each for each in PurePosixPath(name).parts if each != "/"]
        while ".." in parts:
            del parts[: parts.index("..") + 1]
        if not parts or "\0" in name:
            raise FileError(errno.EINVAL, "expected a name of a file in the folder", name)
        for start in range(len(parts)):
            path = Path(os.path.realpath(self._folder.joinpath(*parts[start:])))
            if path.is_relative_to(self._folder) and path.is_file():
                data = read_bounded(path, MAX_SOURCE_BYTES)
                return [each.decode("utf-8", "replace") for each in data.splitlines()]
        raise FileError(errno.ENOENT, "is not in the folder", name)
