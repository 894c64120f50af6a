"""Unpacking an sdist that may be hostile: all of it inside its folder, or nothing at all.

Files are written by name, into folders that we made, and links come last: at no time is there a
link that a file could be written through, whatever Python's own unpacking does about links.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final

from corpus_tools.archive_tree import ArchiveTree
from corpus_tools.errors import SdistError
from corpus_tools.reading import open_regular, reason_of

MAX_HEADER_BYTES: Final = 8 << 10
MAX_HEADERS_BYTES: Final = 64 << 20
MAX_DIRECTORY_BYTES: Final = 16 << 20
_COPIED_BYTES: Final = 1 << 16
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others unpack without bounds
_COMPRESSED: Final[Mapping[bytes, Callable[[Any], Any]]] = MappingProxyType(
    {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
)
_UNREADABLE: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError),
    # zipfile's words for a password and for a method of compression it does not know, and
    # tarfile's for numbers that are none.
    *(RuntimeError, NotImplementedError, ValueError),
)


def unpack_sdist(archive: Path, folder: Path) -> Path:
    """Unpack a ``.tar.gz`` or ``.zip`` sdist.

    Files get the permissions 0644 or, in a tar archive, 0755 where their owner may execute them.
    Nothing is left in ``folder`` if the archive is refused.

    Args:
        archive: the file.
        folder: an existing folder to unpack into.

    Returns:
        The package's top folder, inside a new folder of ``folder``.

    Raises:
        SdistError: the archive cannot be read or does not have exactly one top folder; a member
            is absolute, leads out, comes twice, is a device or a sparse file, links out of the top
            folder or through another link; or there are more members, bytes or levels of folders
            than are unpacked.
    """
    target = Path(tempfile.mkdtemp(dir=folder, prefix="sdist."))
    try:
        _extract(archive, target)
        return _top_folder(archive, target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _extract(archive: Path, target: Path) -> None:
    extract = _extract_zip if archive.name.endswith(".zip") else _extract_tar
    tree = ArchiveTree(archive.name, target)
    try:
        with open_regular(archive) as file:
            extract(file, tree)
        tree.make_links()
    except _UNREADABLE as error:
        problem = f"expected a readable archive: {reason_of(error)}"
        raise SdistError(f"{archive.name}: {problem}") from error


def _extract_tar(file: io.BufferedReader, tree: ArchiveTree) -> None:
    start = file.read(max(map(len, _COMPRESSED)))
    file.seek(0)
    found = [opened for magic, opened in _COMPRESSED.items() if start.startswith(magic)]
    data = found[0](file) if found else file
    headers = _Headers(data)
    with tarfile.TarFile(fileobj=headers) as tar:
        while (member := tar.next()) is not None:
            _add_tar(member, data, tree)
            tar.members.clear()  # type: ignore[attr-defined]  # typeshed lacks what it keeps
            tar.pax_headers = {}
            headers.next_member()


def _add_tar(member: tarfile.TarInfo, data: IO[bytes], tree: ArchiveTree) -> None:
    if member.isdir():
        tree.add_folder(member.name)
    elif member.issym():
        tree.add_link(member.name, member.linkname)
    elif member.islnk():
        tree.add_hard_link(member.name, member.linkname)
    elif member.isreg() and not member.issparse():
        path = tree.add_file(member.name, member.size)
        data.seek(member.offset_data)
        _copy(data.read, path, member.size)
        path.chmod(0o755 if member.mode & stat.S_IXUSR else 0o644)
        with suppress(OSError, OverflowError, ValueError):  # make goes by times
            os.utime(path, (member.mtime, member.mtime))
    else:
        found = "a sparse file" if member.isreg() else "a device or pipe"
        raise tree.refused(member.name, f"expected a file, folder or link, found {found}")


def _extract_zip(file: io.BufferedReader, tree: ArchiveTree) -> None:
    with zipfile.ZipFile(_Pieces(file, MAX_DIRECTORY_BYTES)) as zip_file:
        for member in zip_file.infolist():
            name = member.orig_filename  # ZipInfo cuts its other name at a NUL
            if not member.filename:
                raise tree.refused(name, "expected a name, found none")
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
                raise tree.refused(name, "expected a file or folder, found a link or device")
            if member.is_dir():
                tree.add_folder(name)
            elif member.compress_type not in _METHODS:
                found = f"method {member.compress_type}"
                raise tree.refused(name, f"expected it stored or deflated, found {found}")
            else:
                path = tree.add_file(name, member.file_size)
                with zip_file.open(member) as data:
                    _copy(data.read, path, member.file_size)


def _copy(read: Callable[[int], bytes], path: Path, size_bytes: int) -> None:
    with path.open("xb") as copy:
        while size_bytes:
            data = read(min(size_bytes, _COPIED_BYTES))
            if not data:
                raise EOFError(f"the last {size_bytes} bytes of {path.name!r} are missing")
            copy.write(data)
            size_bytes -= len(data)


class _Pieces(io.RawIOBase):
    """A file that is read in pieces of bounded length; closing it does not close what it reads.

    ``tarfile`` and ``zipfile`` read a header, or the directory of an archive, whole and at the
    length that the archive says.
    """

    def __init__(self, file: IO[bytes], limit_bytes: int) -> None:
        self._file, self._limit = file, limit_bytes

    def read(self, at_most: int | None = -1, /) -> bytes:
        """Read that many bytes, or all there are."""
        if at_most is not None and 0 <= at_most <= self._limit:
            return self._file.read(at_most)
        data = self._file.read(self._limit + 1)
        if len(data) > self._limit:
            raise OSError(f"expected headers of at most {self._limit} bytes, found more")
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go elsewhere."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Where the next piece begins."""
        return self._file.tell()

    def seekable(self) -> bool:
        """That it can go elsewhere."""
        return True


class _Headers(_Pieces):
    """The headers of a tar archive: those of one member and those of all members are bounded.

    What ``tarfile`` makes of a member's headers may grow with the square of their length.
    """

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, MAX_HEADER_BYTES)
        self._of_member = self._of_all = 0

    def next_member(self) -> None:
        """Begin the next member."""
        self._of_member = 0

    def read(self, at_most: int | None = -1, /) -> bytes:
        """Read that many bytes, or all there are."""
        data = super().read(at_most)
        self._of_member += len(data)
        self._of_all += len(data)
        if self._of_member > MAX_HEADER_BYTES:
            raise OSError(f"expected headers of at most {MAX_HEADER_BYTES} bytes, found more")
        if self._of_all > MAX_HEADERS_BYTES:
            raise OSError(f"expected at most {MAX_HEADERS_BYTES} bytes of headers, found more")
        return data


def _top_folder(archive: Path, target: Path) -> Path:
    entries = sorted(target.iterdir())
    if len(entries) == 1 and entries[0].is_dir():
        return entries[0]
    found = ", ".join(_names(entries)) or "nothing"
    raise SdistError(f"{archive.name}: expected one top folder, found {found}")


def _names(entries: list[Path]) -> Iterator[str]:
    yield from (entry.name for entry in entries[:5])
    if len(entries) > 5:
        yield f"and {len(entries) - 5} more"
