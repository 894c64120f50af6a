"""Unpacking an sdist that may be hostile: all of it inside its folder, or nothing at all."""

from __future__ import annotations

import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from corpus_tools.errors import SdistError
from corpus_tools.manifest import name_problem

# A small archive can ask for any amount of disk; the largest sdist of a recipe unpacks to 60 MB.
MAX_UNPACKED_BYTES = 4 << 30

_UNREADABLE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError),
    # zipfile's words for a password and for a method of compression it does not know.
    *(RuntimeError, NotImplementedError),
)


def unpack_sdist(archive: Path, folder: Path) -> Path:
    """Unpack a ``.tar.gz`` or ``.zip`` sdist.

    Nothing is left in ``folder`` if the archive is refused.

    Args:
        archive: the file.
        folder: an existing folder to unpack into.

    Returns:
        The package's top folder, inside a new folder of ``folder``.

    Raises:
        SdistError: the archive cannot be read or does not have exactly one top folder; a member
            is absolute, leads out, is a device, links out of the folder, or the members together
            exceed MAX_UNPACKED_BYTES.
    """
    target = Path(tempfile.mkdtemp(dir=folder, prefix="sdist."))
    try:
        _extract(archive, target)
        return _top_folder(archive, target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _extract(archive: Path, target: Path) -> None:
    try:
        if archive.name.endswith(".zip"):
            _extract_zip(archive, target)
        else:
            _extract_tar(archive, target)
    except _UNREADABLE as error:
        raise SdistError(f"{archive.name}: expected a readable archive: {error}") from error


def _extract_tar(archive: Path, target: Path) -> None:
    budget = _Budget(archive.name)

    def checked(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        _check_name(archive.name, member.name)
        budget.spend(member.name, member.size)
        try:
            return tarfile.data_filter(member, path)
        except tarfile.FilterError as error:
            raise _refused(archive.name, member.name, _tar_problem(error)) from error

    with tarfile.open(archive) as tar:
        tar.extractall(target, filter=checked)  # noqa: S202 - `checked` is the check


def _tar_problem(error: tarfile.FilterError) -> str:
    """Translate the refusals of ``tarfile``, which name the folder unpacked into."""
    if isinstance(error, tarfile.SpecialFileError):
        return "expected a file, folder or link, found a device or pipe"
    return "expected a link that stays inside the archive, found one that leads out"


def _extract_zip(archive: Path, target: Path) -> None:
    budget = _Budget(archive.name)
    with zipfile.ZipFile(archive) as zip_file:
        for member in zip_file.infolist():
            # orig_filename: ZipInfo cuts the name at a NUL.
            _check_name(archive.name, member.orig_filename)
            budget.spend(member.filename, member.file_size)
            _check_zip_type(archive.name, member)
        zip_file.extractall(target)  # noqa: S202 - every member was checked


def _check_zip_type(archive: str, member: zipfile.ZipInfo) -> None:
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        problem = "expected a file or folder, found a link or device"
        raise _refused(archive, member.filename, problem)


def _check_name(archive: str, name: str) -> None:
    if problem := name_problem(name):
        raise _refused(archive, name, problem)


class _Budget:
    """Counts the bytes that members announce, up to MAX_UNPACKED_BYTES."""

    def __init__(self, archive: str) -> None:
        self._archive = archive
        self._left = MAX_UNPACKED_BYTES

    def spend(self, member: str, size_bytes: int) -> None:
        self._left -= size_bytes
        if self._left < 0:
            problem = f"expected at most {MAX_UNPACKED_BYTES} bytes in all, found more"
            raise _refused(self._archive, member, problem)


def _refused(archive: str, member: str, problem: str) -> SdistError:
    return SdistError(f"{archive}: member {member!r} refused: {problem}")


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
