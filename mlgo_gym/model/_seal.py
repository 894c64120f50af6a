"""Seals tell machine code that this user has frozen on this machine from anybody else's.

A frozen model's description carries a MAC over the whole of it, the object's hash included, under a
key that only this user can read: ``mlgo-gym/key`` in ``$XDG_STATE_HOME`` (``~/.local/state``), made
when it is first needed. Nothing is kept of single models, so they may be moved, copied and removed;
one whose code or description was changed, or that came from elsewhere, has no seal that fits.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mlgo_gym.base import xdg

SEAL: Final = "seal"
"""The key of the description that holds it."""

_KEY_BYTES: Final = 32


def seal(description: Mapping[str, Any]) -> str | None:
    """The seal of a description; ``None`` where this user can keep no key."""
    try:
        return _mac(_made_key(_place()), description)
    except OSError:
        return None


def is_sealed(description: Mapping[str, Any]) -> bool:
    """Whether a description has the seal that it would get here."""
    found = description.get(SEAL)
    try:
        return isinstance(found, str) and hmac.compare_digest(
            found.encode("utf-8", "replace"), _mac(_key(_place()), description).encode()
        )
    except OSError:  # no key, so nothing was sealed
        return False


def _mac(key: bytes, description: Mapping[str, Any]) -> str:
    sealed = {name: value for name, value in description.items() if name != SEAL}
    text = json.dumps(sealed, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _place() -> Path:
    state = xdg("XDG_STATE_HOME")
    if state is None:
        home = Path(os.path.expanduser("~"))  # as it is where nobody knows it  # noqa: PTH111
        if not home.is_dir():  # nothing is to be written there, as where packages are built
            raise FileNotFoundError(f"{home}: expected the home folder, found none")
        state = home / ".local" / "state"
    return state / "mlgo-gym" / "key"


def _key(place: Path) -> bytes:
    """The key, if nobody else can have written or read it."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        key = file.read(_KEY_BYTES + 1) if is_own and not found.st_mode & 0o077 else b""
    if len(key) != _KEY_BYTES:
        raise PermissionError(f"{place}: expected {_KEY_BYTES} bytes that only this user can read")
    return key


def _made_key(place: Path) -> bytes:
    """The key, made if there is none; of several processes at once, the first one's."""
    with contextlib.suppress(FileNotFoundError):
        return _key(place)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            place.hardlink_to(new)
    finally:
        new.unlink()
    return _key(place)
