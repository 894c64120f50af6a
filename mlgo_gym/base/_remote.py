"""Folders by URI: fsspec copies them here to be read, or to be worked on (extra ``remote``).

A copy is in the cache under what was listed, and gets its name once all of it is there. Credentials
are those of the protocol's own tools. Errors are ``OSError``: ``strerror`` is the reason, and
``filename`` the URI.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote

from corpus_tools.budget import Budget
from corpus_tools.scratch import scratch_folder
from mlgo_gym.base._errors import EnvironmentSetupError, OptionsError
from mlgo_gym.base._files import FileError, exclusive_folder, locked_folder
from mlgo_gym.base._own_folder import cache_folder, check_way, claim

PROTOCOLS: Final = ("s3", "gs", "az", "hf", "memory")
"""Protocols that list a folder with its files' sizes; others of fsspec run commands, or unpack."""

MAX_BYTES: Final = 1 << 36
"""How much a folder may hold, all together."""

MAX_FILES: Final = 1 << 18
SPARE_BYTES: Final = 1 << 28
"""The room that must stay free where copies are."""

CONNECT_S: Final = 10.0
READ_S: Final = 60.0
KEPT_S: Final = 7 * 86400.0
"""How long a copy stays that nobody asks for."""

_NAME: Final = "remote"
_WEB: Final = ("https", "http")
_PIECE_BYTES: Final = 1 << 20
_S3: Final = {"connect_timeout": CONNECT_S, "read_timeout": READ_S, "retries": {"max_attempts": 1}}
_SETTINGS: Final = MappingProxyType({"s3": {"config_kwargs": _S3}})
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]*)://(.*)", re.DOTALL)
_USER: Final = re.compile(r"//[^/\s]*@")
_LONGEST_NAME: Final = 255
_SHOWN: Final = 200


def place_of(given: str | Path) -> Path | str:
    """Return the path that a path or a ``file://`` URI names, or another URI as it is listed.

    Raises:
        OptionsError: the protocol is another one, or what follows it names no folder.

    >>> place_of("s3://lab/corpora/"), place_of("corpora"), place_of("file:///srv/corpora")
    ('s3://lab/corpora', PosixPath('corpora'), PosixPath('/srv/corpora'))
    """
    found = _URI.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        return Path(given)
    protocol, rest = found.groups()
    host, slash, path = rest.partition("/")
    if protocol == "file" and host in {"", "localhost"} and slash:
        return Path("/" + unquote(path))
    if protocol not in PROTOCOLS:
        names = ", ".join(f"{each}://" for each in PROTOCOLS)
        found_host = host if protocol == "file" else ""
        raise OptionsError(
            f"address: expected file:///PATH or {names}, found {protocol}://{found_host}"
        )
    if "@" in host:  # not shown: it may be a password
        raise OptionsError(
            f"address: expected {protocol}://BUCKET/KEY, found a user before the bucket; "
            "credentials are taken from where the protocol's own tools have them"
        )
    if (wrong := wrong_name(rest.rstrip("/"))) is not None:
        raise OptionsError(f"address: expected names between slashes, found {wrong!r} in {rest!r}")
    return f"{protocol}://{rest.rstrip('/')}"


def is_remote(text: str) -> bool:
    """Say whether a text is a URI of a folder elsewhere; gRPC's addresses have other protocols."""
    protocol, found, _ = text.partition("://")
    return bool(found) and protocol in PROTOCOLS


def local_folder(given: str | Path, suffix: str = "") -> Path:
    """Return the folder here that a path names, or a copy of what a URI names.

    Args:
        given: a path or a URI.
        suffix: the end of the names of the files that are needed.

    Raises:
        OptionsError: it is a URI of another protocol, or names no folder.
        EnvironmentSetupError: the protocol's package is not installed, or others can write to the
            cache.
        OSError: it cannot be read, is not there, changes meanwhile, or is too large.
    """
    place = place_of(given)
    if isinstance(place, Path):
        return place
    remote, root = RemoteFolder(place, suffix), _root()
    listed = remote.list()
    if not listed:
        reason = "expected files in it, found none; check the address and whose server it is"
        raise FileError(errno.ENOENT, reason, place)
    state = repr((place, sorted(listed.items()))).encode("utf-8", "backslashreplace")
    copy = root / hashlib.blake2b(state, digest_size=20).hexdigest()
    folder = copy / place.rpartition("/")[2]
    with tempfile.TemporaryDirectory(prefix=".", dir=root) as scratch:
        new = Path(scratch) / "new"
        with locked_folder(root):
            _tidy(root, Path(scratch))
            if _is_whole(folder, listed):
                os.utime(copy)
                return folder
        remote.copy(listed, new / folder.name)
        with locked_folder(root):
            if not _is_whole(folder, listed):  # another process may have been faster
                if copy.exists():
                    copy.rename(Path(scratch) / "damaged")
                new.rename(copy)
            return folder


def file_place(text: str) -> Path | str:
    """Return the path that names a file here, or a URI of one elsewhere, also on the web.

    Raises:
        OptionsError: as from `place_of`.

    >>> file_place("https://example.org/a.tar.xz"), file_place("a.tar.xz")
    ('https://example.org/a.tar.xz', PosixPath('a.tar.xz'))
    """
    protocol, is_uri, rest = text.partition("://")
    if not is_uri or protocol not in _WEB:
        return place_of(text)
    if "@" in rest.partition("/")[0]:  # not shown: it may be a password
        raise OptionsError(
            f"address: expected {protocol}://HOST/FILE, found a user before the host"
        )
    return text


def copy_file(place: str, target: Path, most_bytes: int) -> None:
    """Write what a URI of `file_place` names to a file here.

    Args:
        place: the URI.
        target: the file, which is not there yet.
        most_bytes: how long it may be.

    Raises:
        EnvironmentSetupError: the protocol's package is not installed.
        OSError: it cannot be read or written, or is longer.
    """
    budget = Budget(partial(_too_long, place), bytes=most_bytes)
    with target.open("xb") as file, closing(_pieces(place)) as pieces:
        for data in pieces:
            budget.charge(bytes=len(data))
            file.write(data)


def _too_long(place: str, problem: str) -> FileError:
    return FileError(errno.EFBIG, problem, place)


def _pieces(place: str) -> Generator[bytes]:
    """The bytes of a file; errors of whoever takes them are not its own."""
    if place.partition("://")[0] not in _WEB:
        yield from RemoteFolder(place).pieces()
        return
    import http.client  # noqa: PLC0415 (slow to import, and seldom needed)
    import urllib.request  # noqa: PLC0415

    try:
        with urllib.request.urlopen(place, timeout=READ_S) as answer:  # noqa: S310 (of _WEB)
            yield from iter(partial(answer.read, _PIECE_BYTES), b"")
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = str(getattr(error, "reason", None) or error) or type(error).__name__
        words = " ".join(reason.split())[:_SHOWN]
        raise FileError(errno.EIO, f"cannot be read: {words}", place) from error


def is_copy(path: Path) -> bool:
    """Say whether a path is in a copy, where nothing should be written."""
    return path.resolve().is_relative_to((cache_folder() / _NAME).resolve())


class RemoteFolder:
    """A folder that a URI names, as far as its files' names end in ``suffix``."""

    def __init__(self, uri: str, suffix: str = "") -> None:
        self.uri: Final = uri
        self._suffix = suffix
        protocol = uri.partition(":")[0]
        with self._naming(uri):
            core = importlib.import_module("fsspec.core")
            settings: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
            settings |= _SETTINGS.get(protocol, {})
            self._fs, self._root = core.url_to_fs(uri, **settings)

    def list(self) -> dict[str, Mapping[str, Any]]:
        """Return what the protocol says of each file, by its name in the folder."""
        with self._naming(self.uri):
            found = self._fs.find(self._root, detail=True)
        files: dict[str, Mapping[str, Any]] = {}
        for path, about in found.items():
            name = path.removeprefix(self._root).removeprefix("/")
            if not name or name.endswith("/") or not name.endswith(self._suffix):
                continue  # of those that end so, consoles make empty folders
            if wrong_name(name) is not None:
                reason = f"expected names of files in the folder, found {name[:_SHOWN]!r}"
                raise FileError(errno.EINVAL, reason, self.uri)
            if type(about.get("size")) is not int or about["size"] < 0:
                reason = f"expected the size of {name!r}, found {about.get('size')!r}"
                raise FileError(errno.EINVAL, reason, self.uri)
            files[name] = about
        budget = Budget(self._too_much, files=MAX_FILES, bytes=MAX_BYTES)
        size_bytes = sum(each["size"] for each in files.values())
        budget.charge(files=len(files), bytes=size_bytes)
        return files

    def _too_much(self, problem: str) -> FileError:
        return FileError(errno.EFBIG, f"{problem}: name a part of it", self.uri)

    def pieces(self) -> Generator[bytes]:
        """Read the file that the URI names, in place of a folder."""
        with self._naming(self.uri), self._fs.open(self._root, "rb") as file:
            yield from iter(partial(file.read, _PIECE_BYTES), b"")

    def copy(self, listed: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
        """Copy the files of a listing, which must be the same afterwards."""
        folder.mkdir(parents=True, exist_ok=True)
        needed = sum(each["size"] for each in listed.values()) + SPARE_BYTES
        if (free := shutil.disk_usage(folder).free) < needed:
            reason = f"expected {needed} bytes free in {str(folder.parent)!r}, found {free}"
            raise FileError(errno.ENOSPC, f"{reason}; MLGO_CACHE names another folder", self.uri)
        there, here = self._paths(listed), [str(folder / name) for name in listed]
        with self._naming(self.uri):
            self._fs.get(there, here)
        if self.list() != listed:
            raise FileError(errno.ESTALE, "changed while it was read; run it again", self.uri)
        if not _is_whole(folder, listed):
            raise FileError(errno.EIO, "expected files as long as listed, found others", self.uri)

    def put(self, path: Path, name: str) -> None:
        """Put a file there; in object stores it is there whole or not at all."""
        with self._naming(f"{self.uri}/{name}"):
            self._fs.put_file(str(path), *self._paths([name]))

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self._naming(f"{self.uri}/{name}"):
            self._fs.rm_file(*self._paths([name]))

    def _paths(self, names: Iterable[str]) -> Sequence[str]:
        return [f"{self._root}/{name}" for name in names]

    @contextmanager
    def _naming(self, uri: str) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            protocol = uri.partition(":")[0]
            hint = "pip install 'mlgo-gym[remote]'" if protocol == "s3" else str(error)
            raise EnvironmentSetupError(f"{protocol}://: needs its package; {hint}") from error
        except Exception as error:  # each protocol's package has errors of its own
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            reason = _USER.sub("//", " ".join(text.split()))  # an endpoint may have a password
            number = errno.ENOENT if isinstance(error, FileNotFoundError) else errno.EIO
            raise OSError(getattr(error, "errno", None) or number, reason, uri) from error


class WorkedFolder:
    """A folder here; what is written to it is at its place once that was put.

    Attributes:
        path: where to read and write.
        place: where it belongs, which is the same but for a URI.
    """

    def __init__(self, path: Path, remote: RemoteFolder | None = None) -> None:
        self.path: Final = path
        self.place: Final = remote.uri if remote else path
        self._remote = remote
        if remote:
            remote.copy(remote.list(), path)
        self._seen = self._files() if remote else {}

    def put(self, last: Sequence[str] = ()) -> None:
        """Have what has changed at its place.

        Args:
            last: names of files, wherever they are, that come after all others, in this order.

        Raises:
            OSError: it cannot be written; ``filename`` is its URI.
        """
        if self._remote is None:
            return
        found = self._files()
        ranks = {name: rank for rank, name in enumerate(last, 1)}
        for name in sorted(found, key=lambda name: ranks.get(name.rpartition("/")[2], 0)):
            if self._seen.get(name) != found[name]:
                self._remote.put(self.path / name, name)
                self._seen[name] = found[name]
        for name in self._seen.keys() - found.keys():
            self._remote.remove(name)
            del self._seen[name]

    def _files(self) -> dict[str, tuple[int, int]]:
        """List the files that are whole, with a token that changes when they do."""
        paths = [path for path in sorted(self.path.rglob("*")) if path.is_file()]
        names = {path: path.relative_to(self.path) for path in paths}
        whole = [each for each in paths if not any(p.startswith(".") for p in names[each].parts)]
        stats = {names[each].as_posix(): each.stat() for each in whole}
        return {name: (about.st_mtime_ns, about.st_size) for name, about in stats.items()}


@contextmanager
def worked_folder(given: str | Path) -> Iterator[WorkedFolder]:
    """Yield a folder to be read and written here; what a URI names is copied first.

    A folder here is made and locked, and removed if it stays empty; nothing is locked at a URI.
    One process works on a folder at a time. The folder may be a link; in it are none
    (`exclusive_folder`).

    Raises:
        OptionsError: it is a URI of another protocol, or names no folder, another process works
            there, or there is a link, a FIFO or a device in it.
        EnvironmentSetupError: the protocol's package is not installed.
        OSError: it cannot be read.

    >>> with worked_folder("runs/a") as folder:
    ...     folder.put()
    >>> folder.path
    PosixPath('runs/a')
    """
    place = place_of(given)
    if isinstance(place, Path):
        with _locked(place):
            yield WorkedFolder(place)
        return
    with scratch_folder() as scratch:
        yield WorkedFolder(scratch, RemoteFolder(place))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder, and leave none where there was none and nothing was written."""
    was_there = folder.exists()
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive_folder(folder))
        except BlockingIOError as error:
            raise OptionsError(f"{str(folder)!r}: another process is working there") from error
        except OSError as error:
            reason = f"cannot be written: {error.strerror}"
            raise OptionsError(f"{str(folder)!r}: {reason}") from error
        try:
            yield
        finally:
            if not was_there:
                with suppress(OSError):
                    folder.rmdir()


def wrong_name(key: str) -> str | None:
    """Return the part of a key that would not be the name of a file or folder here."""
    for part in key.split("/"):
        is_long = len(part.encode("utf-8", "surrogatepass")) > _LONGEST_NAME
        if part in {"", ".", ".."} or is_long or not part.isprintable() or "\\" in part:
            return part
    return None


def _root() -> Path:
    """Make the cache's folder of copies, which nobody else can write to."""
    root = cache_folder() / _NAME
    root.parent.mkdir(parents=True, exist_ok=True)
    check_way(root.parent)
    claim(root)
    return root


def _is_whole(folder: Path, listed: Mapping[str, Mapping[str, Any]]) -> bool:
    """Say whether all that was listed is in a folder."""
    files = ((folder / name, about["size"]) for name, about in listed.items())
    return all(path.is_file() and path.stat().st_size == size for path, size in files)


def _tidy(root: Path, scratch: Path) -> None:
    """Move away copies that were not used for long, and what killed processes have left."""
    for number, folder in enumerate(root.iterdir()):
        with suppress(FileNotFoundError):  # another process's, which has failed
            if folder.stat().st_mtime < time.time() - KEPT_S:
                folder.rename(scratch / str(number))
