"""The objects of S3 (extra ``remote``): listed, copied, put and removed, by s3fs.

Endpoint and credentials are those of AWS's own tools (``AWS_ENDPOINT_URL``, ``AWS_PROFILE``, ...),
or of fsspec's settings (``FSSPEC_S3_ANON=true``). What goes wrong is an ``OSError`` whose
``strerror`` is the reason and whose ``filename`` is the address, as in `mlgo_gym.files`.
"""

from __future__ import annotations

import errno
import importlib
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from mlgo_gym.errors import EnvironmentSetupError
from mlgo_gym.files import FileError
from mlgo_gym.storage._address import ObjectAddress, wrong_name

MAX_OBJECTS: Final = 1 << 18
"""How many objects a folder may have."""

CONNECT_S: Final = 10.0
READ_S: Final = 60.0

_CHUNK_BYTES: Final = 1 << 20
_TRIES: Final = 3
_PAGE: Final = 1000
_SHOWN: Final = 200
_NO_EXTRA: Final = "s3://: needs s3fs; run: pip install 'mlgo-gym[remote]'"
_USER: Final = re.compile(r"//[^/\s]*@")
_CHANGED: Final = "PreconditionFailed"


@dataclass(frozen=True, slots=True)
class Entry:
    """An object as a listing has it.

    Attributes:
        name: its key behind that of the folder.
        tag: what tells its content from others that it had or will have.
    """

    name: str
    size_bytes: int
    tag: str


class ObjectStore(AbstractContextManager["ObjectStore"]):
    """A connection to S3."""

    def __init__(self) -> None:
        try:
            s3fs, asyn = (importlib.import_module(each) for each in ("s3fs", "fsspec.asyn"))
            self._errors = importlib.import_module("botocore.exceptions")
        except ImportError as error:
            raise EnvironmentSetupError(_NO_EXTRA) from error
        retries = {"max_attempts": 1}
        times = {"connect_timeout": CONNECT_S, "read_timeout": READ_S, "retries": retries}
        settings = {"skip_instance_cache": True, "use_listings_cache": False}
        self._s3 = s3fs.S3FileSystem(**settings, config_kwargs=times)
        self._s3.retries = _TRIES
        self._sync = asyn.sync
        self._passing = s3fs.core.S3_RETRYABLE_ERRORS

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; it is opened anew where it is used again."""
        self._s3.close_session(self._s3.loop, self._s3.s3)

    def endpoint(self) -> str:
        """The server's address."""
        with self._telling(ObjectAddress("", "")):
            return str(self._s3.s3.meta.endpoint_url)

    def list(self, folder: ObjectAddress, suffix: str) -> list[Entry]:
        """The objects of a folder, in the order of their names, whose names end so."""
        found: list[Entry] = []
        prefix = f"{folder.key}/" if folder.key else ""
        asked: dict[str, Any] = {"Bucket": folder.bucket, "Prefix": prefix, "MaxKeys": _PAGE}
        seen = 0
        while True:
            with self._telling(folder):
                page = self._s3.call_s3("list_objects_v2", **asked)
            objects = page.get("Contents", ())
            for each in objects:
                name = each["Key"].removeprefix(prefix)
                if not name or name.endswith("/") or not name.endswith(suffix):
                    continue  # of those that end so, consoles make empty folders
                if wrong_name(name) is not None:
                    reason = f"expected names of files in the folder, found {name[:_SHOWN]!r}"
                    raise FileError(errno.EINVAL, reason, str(folder))
                found.append(Entry(name, int(each["Size"]), str(each["ETag"])))
            seen += len(objects) or 1
            if seen > MAX_OBJECTS:
                reason = f"expected at most {MAX_OBJECTS:,} objects, found more"
                raise FileError(errno.EFBIG, reason, str(folder))
            if not page.get("IsTruncated"):
                return sorted(found, key=lambda entry: entry.name)
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def copy(self, folder: ObjectAddress, entry: Entry, file: BinaryIO) -> None:
        """Copy an object that is as the listing has it; of one that is longer, no more is read."""
        address = folder / entry.name
        with self._telling(address):
            done = self._copied(address, entry, file)
        if done != entry.size_bytes:
            reason = f"expected {entry.size_bytes} bytes, as it is listed, found "
            found = "more" if done > entry.size_bytes else str(done)
            raise FileError(errno.EIO, reason + found, str(address))

    def _copied(self, address: ObjectAddress, entry: Entry, file: BinaryIO) -> int:
        done = 0
        for left in reversed(range(_TRIES)):
            try:
                for chunk in self._chunks(address, entry, done):
                    done += len(chunk)
                    if done > entry.size_bytes:
                        return done
                    file.write(chunk)
            except self._passing:
                if not left:
                    raise
            else:
                break
        return done

    def put(self, path: Path, address: ObjectAddress) -> None:
        """Put a file there, whole or not at all."""
        with self._telling(address):
            self._s3.put_file(str(path), f"{address.bucket}/{address.key}")

    def remove(self, address: ObjectAddress) -> None:
        """Remove an object, if it is there."""
        with self._telling(address):
            self._s3.call_s3("delete_object", Bucket=address.bucket, Key=address.key)

    def _chunks(self, address: ObjectAddress, entry: Entry, start: int) -> Iterator[bytes]:
        if start == entry.size_bytes:
            return
        asked = {"Bucket": address.bucket, "Key": address.key, "IfMatch": entry.tag}
        if start:
            asked["Range"] = f"bytes={start}-"
        body = self._s3.call_s3("get_object", **asked)["Body"]
        try:
            while chunk := self._sync(self._s3.loop, body.read, _CHUNK_BYTES):
                yield chunk
        finally:
            body.close()

    @contextmanager
    def _telling(self, address: ObjectAddress) -> Iterator[None]:
        try:
            yield
        except self._errors.NoCredentialsError as error:
            reason = "expected credentials, as AWS's own tools have them, found none"
            raise FileError(errno.EACCES, reason, str(address)) from error
        except OSError as error:
            raise _named(error, address) from error
        except (self._errors.BotoCoreError, self._errors.ClientError, *self._passing) as error:
            raise FileError(errno.EIO, _reason(error), str(address)) from error


def _named(error: OSError, address: ObjectAddress) -> OSError:
    """The error of an object by its address; `FileNotFoundError` and others stay what they are."""
    cause = error.__cause__
    if _CHANGED in str(cause or error):
        return FileError(errno.ESTALE, "changed while it was read", str(address))
    return OSError(error.errno or errno.EIO, _reason(error), str(address))


def _reason(error: Exception) -> str:
    """An error in a line, without the user and password that an endpoint may have."""
    text = (error.strerror if isinstance(error, OSError) else "") or str(error)
    return _USER.sub("//", " ".join(text.split())) or type(error).__name__
