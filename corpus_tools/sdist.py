"""The sdist of a recipe: fetched, unpacked, and with what the package's build would add.

`tarfile` and `zipfile` unpack. Names and sizes are looked at first: what they say is bounded, and
no member goes through another that is a link.

Some sdists carry a library as an archive of its own, and some sources include headers that
``configure`` or ``cmake`` would write. A recipe names the first and holds the second; neither may
replace a file that the sdist has.
"""

from __future__ import annotations

import hashlib
import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Final, Literal, NamedTuple

from corpus_tools.budget import Budget
from corpus_tools.errors import RecipeError, SdistError
from corpus_tools.manifest import name_problem
from corpus_tools.reading import open_regular, reason_of
from corpus_tools.recipes import Recipe
from corpus_tools.scratch import sibling_folder

MAX_UNPACKED_BYTES: Final = 4 << 30
"""A small archive can ask for any amount of disk; the largest sdist of a recipe takes 60 MB."""
MAX_MEMBERS: Final = 1 << 17
MAX_LEVELS: Final = 100

_FILE, _FOLDER, _LINK = "a file", "a folder", "a link"
_UNREADABLE: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError),
    # zipfile's words for a password and for a method of compression it does not know, tarfile's
    # for numbers that are none, and what comes of a number that is too large.
    *(RuntimeError, NotImplementedError, ValueError, OverflowError, MemoryError),
)

_Mode = Literal["r:", "r:gz", "r:bz2", "r:xz"]
_COMPRESSED: Final[tuple[tuple[bytes, _Mode], ...]] = (
    (b"\x1f\x8b", "r:gz"),
    (b"BZh", "r:bz2"),
    (b"\xfd7zXZ", "r:xz"),
)
"""How a compressed tar begins, and how `tarfile` reads it."""
_MOST_MAGIC: Final = 5


def unpack_sdist(archive: Path, folder: Path) -> Path:
    """Unpack a ``.tar.gz`` or ``.zip`` sdist, a tar archive by `tarfile.data_filter`.

    Nothing is left in ``folder`` if the archive is refused.

    Args:
        archive: the file.
        folder: an existing folder to unpack into.

    Returns:
        The package's top folder, inside a new folder of ``folder``.

    Raises:
        SdistError: the archive cannot be read or does not have exactly one top folder; a member
            is absolute, leads out, comes twice, is a device, links out of the archive or lies
            below a link; or there are more members, bytes or levels of folders than are unpacked.
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
    try:
        with open_regular(archive) as file:
            extract(file, archive.name, target)
    except tarfile.FilterError as error:
        raise SdistError(f"{archive.name}: member refused: {error}") from error
    except _UNREADABLE as error:
        problem = " ".join((reason_of(error) or type(error).__name__).split())
        raise SdistError(f"{archive.name}: expected a readable archive: {problem}") from error


def _extract_tar(file: IO[bytes], name: str, target: Path) -> None:
    begins = file.read(_MOST_MAGIC)
    file.seek(0)  # to try each compression in turn may read all of a file that has none
    mode: _Mode = next((mode for magic, mode in _COMPRESSED if begins.startswith(magic)), "r:")
    with tarfile.open(fileobj=file, mode=mode) as tar:
        _check(name, map(_of_tar, tar))
        tar.extractall(target, filter="data")


def _extract_zip(file: IO[bytes], name: str, target: Path) -> None:
    with zipfile.ZipFile(file) as zip_file:
        _check(name, map(_of_zip, zip_file.infolist()))
        zip_file.extractall(target)  # noqa: S202 - the names have been checked


class _Member(NamedTuple):
    name: str
    size_bytes: int
    kind: str
    hard_link: str = ""


def _of_tar(member: tarfile.TarInfo) -> _Member:
    kind = _FOLDER if member.isdir() else _LINK if member.issym() else _FILE
    hard_link = member.linkname if member.islnk() else ""
    return _Member(member.name, member.size, kind, hard_link)


def _of_zip(member: zipfile.ZipInfo) -> _Member:
    kind = _FOLDER if member.filename.endswith("/") else _FILE
    return _Member(member.filename, member.file_size, kind)


def _check(archive: str, members: Iterable[_Member]) -> None:
    """Look at all members before the first of them is unpacked."""
    kinds: dict[PurePosixPath, str] = {}
    budget = Budget(bytes=MAX_UNPACKED_BYTES, files_and_folders=MAX_MEMBERS)
    for member in members:
        known = len(kinds)
        problem = _problem(member, kinds)
        new = len(kinds) - known
        if problem := budget.problem(bytes=member.size_bytes, files_and_folders=new) or problem:
            raise SdistError(f"{archive}: member {member.name!r} refused: {problem}")


def _problem(member: _Member, kinds: dict[PurePosixPath, str]) -> str | None:
    """Why a member is refused; `kinds` gets its path and its folders.

    The data filter resolves paths to see where a link leads, which does not see all of a path that
    is too long (CVE-2025-4517). So nothing may lie below a link, or be another name of one.
    """
    if problem := name_problem(member.name):
        return problem
    path = PurePosixPath(member.name)
    if len(path.parts) > MAX_LEVELS:
        return f"expected at most {MAX_LEVELS} levels of folders, found {len(path.parts)}"
    for folder in reversed(path.parents[:-1]):
        if (found := kinds.setdefault(folder, _FOLDER)) != _FOLDER:
            return f"expected a folder as {str(folder)!r}, found {found} there"
    if member.hard_link and kinds.get(PurePosixPath(member.hard_link)) != _FILE:
        return "expected a link to a file that comes before it, found none of that name"
    if path in kinds and not kinds[path] == member.kind == _FOLDER:
        return f"expected {member.kind} as {str(path)!r}, found {kinds[path]} there"
    kinds[path] = member.kind
    return None


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


def fetch_sdist(recipe: Recipe, cache_dir: Path) -> Path:
    """Return the recipe's sdist, downloading it if the cache does not have it.

    Args:
        recipe: names the file and its SHA-256, which is checked in either case.
        cache_dir: folder to keep the file in; made if missing. A file of the right name and the
            wrong content is replaced. Nothing half-written is ever there under that name.

    Returns:
        The file, in ``cache_dir``.

    Raises:
        SdistError: the network failed, nobody has the file, what came is not what the recipe
            asks for, or unearth is missing.
    """
    cached = cache_dir / recipe.sdist
    if cached.is_file() and sha256_of(cached) == recipe.sha256:
        return cached
    with sibling_folder(cached) as temporary:
        fetched = _download(recipe, temporary)
        check_sha256(fetched, recipe.sha256)
        fetched.replace(cached)
    return cached


def check_sha256(path: Path, expected: str) -> None:
    """See that a file is the one that was meant.

    Args:
        path: the file.
        expected: hexadecimal SHA-256.

    Raises:
        SdistError: it is another.
    """
    found = sha256_of(path)
    if found != expected:
        raise SdistError(f"{path.name}: expected sha256 {expected}, found {found}")


def sha256_of(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download(recipe: Recipe, folder: Path) -> Path:
    try:
        from corpus_tools.package_index import download  # noqa: PLC0415 - an extra brings unearth
    except ModuleNotFoundError as error:
        raise SdistError(
            f"package {recipe.package!r}: needs {error.name}; run: pip install 'mlgo-gym[corpus]'"
        ) from error
    return download(recipe, folder)


def unpack_sources(recipe: Recipe, sdist: Path, folder: Path) -> Path:
    """Unpack an sdist, then the recipe's archives in it, then write its generated files.

    Args:
        recipe: the recipe.
        sdist: its file, whose hash was checked.
        folder: an existing folder to unpack into.

    Returns:
        The package's top folder, inside a new folder of ``folder``.

    Raises:
        SdistError: see `unpack_sdist`.
        RecipeError: an archive is not there, or what is added has the name of what is there.
    """
    root = unpack_sdist(sdist, folder)
    for archive in recipe.archives:
        _unpack_beside(recipe, archive, root)
    for name, content in recipe.generated_files:
        _write(recipe, name, content, root)
    return root


def _unpack_beside(recipe: Recipe, name: str, root: Path) -> None:
    archive = root / name
    if not archive.is_file():
        problem = f"expected an archive in {recipe.sdist}, found none"
        raise RecipeError(f"recipe {recipe.name!r}: {name!r}: {problem}")
    top = unpack_sdist(archive, archive.parent)
    target = archive.parent / top.name
    if target.exists():
        raise _taken(recipe, target.relative_to(root).as_posix())
    top.rename(target)
    top.parent.rmdir()


def _write(recipe: Recipe, name: str, content: str, root: Path) -> None:
    path = root / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(content)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _taken(recipe, name) from error


def _taken(recipe: Recipe, name: str) -> RecipeError:
    problem = f"expected a new name, found it in {recipe.sdist}"
    return RecipeError(f"recipe {recipe.name!r}: {name!r}: {problem}")
