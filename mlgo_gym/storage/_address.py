"""Places that are given by URI: ``file://`` is a folder here, ``s3://BUCKET/KEY`` one of S3.

There are no other protocols: some of those that fsspec knows run commands, or read what is packed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from mlgo_gym.errors import OptionsError

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*(?:::[^/]*)?)://(.*)", re.DOTALL)
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]", re.ASCII)
_LONGEST_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """A folder or an object of S3.

    Attributes:
        bucket: its bucket.
        key: its key, without a slash at its ends; empty is the whole bucket.

    >>> str(ObjectAddress("lab", "corpora") / "lupa")
    's3://lab/corpora/lupa'
    """

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{'/'.join(filter(None, (self.bucket, self.key)))}"

    def __truediv__(self, name: str) -> ObjectAddress:
        return ObjectAddress(self.bucket, "/".join(filter(None, (self.key, name))))


def place_of(given: str | Path | ObjectAddress) -> Path | ObjectAddress:
    """Where something is that is given by path or URI.

    Raises:
        OptionsError: the protocol is another one, or what follows it is no place.

    >>> place_of("s3://lab/corpora/"), place_of("corpora"), place_of("file:///srv/corpora")
    (ObjectAddress(bucket='lab', key='corpora'), PosixPath('corpora'), PosixPath('/srv/corpora'))
    """
    found = _URI.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        return given if isinstance(given, ObjectAddress) else Path(given)
    protocol, rest = found.groups()
    if protocol == "file":
        return _local(rest)
    if protocol != "s3":
        raise OptionsError(f"address: expected file:// or s3://, found {protocol}://")
    bucket, _, key = rest.partition("/")
    if "@" in bucket:  # not shown: it may be a password
        raise OptionsError(
            "address: expected s3://BUCKET/KEY, found a user before the bucket; credentials are "
            "taken from where AWS's own tools have them"
        )
    key = key.rstrip("/")
    if not _BUCKET.fullmatch(bucket):
        raise OptionsError(f"address: expected a bucket's name after s3://, found {bucket!r}")
    if key and (wrong := wrong_name(key)) is not None:
        raise OptionsError(f"address: expected names between slashes, found {wrong!r} in {key!r}")
    return ObjectAddress(bucket, key)


def wrong_name(key: str) -> str | None:
    """The part of a key that would not be the name of a file or folder here, if there is one.

    >>> wrong_name("src/a.c.bc"), wrong_name("src/../a"), wrong_name("/etc/passwd")
    (None, '..', '')
    """
    for part in key.split("/"):
        if part in {"", ".", ".."} or not part.isprintable() or "\\" in part:
            return part
        if len(part.encode("utf-8", "surrogatepass")) > _LONGEST_NAME:
            return part
    return None


def _local(rest: str) -> Path:
    host, slash, path = rest.partition("/")
    if host not in {"", "localhost"} or not slash:
        raise OptionsError(f"address: expected file:///PATH, found {'file://' + rest!r}")
    return Path("/" + unquote(path))
