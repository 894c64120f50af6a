"""The address of a gRPC host, and the file of its Unix socket. Needs no grpcio."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mlgo_gym.base import OptionsError

_UNIX: Final = "unix:"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a host: ``HOST:PORT``, ``[IPV6]:PORT`` or ``unix:PATH``.

    >>> [Address(each).is_local for each in ("unix:/run/host", "127.0.0.2:0", "10.0.0.1:80")]
    [True, True, False]
    """

    text: str

    def __post_init__(self) -> None:
        if self.path:
            return
        host, _, port = self.text.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535 or self.text.startswith(_UNIX):
            raise OptionsError(
                f"gRPC address {self.text!r}: expected HOST:PORT, [IPV6]:PORT or unix:PATH"
            )

    @property
    def path(self) -> str:
        """The Unix socket's path; empty where it is none."""
        return self.text.removeprefix(_UNIX) if self.text.startswith(_UNIX) else ""

    @property
    def host(self) -> str:
        """The host's name or number; empty for a Unix socket."""
        return "" if self.path else self.text.rpartition(":")[0]

    @property
    def is_local(self) -> bool:
        """Whether nobody outside this machine can be at the other end."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


class SocketFile:
    """A Unix socket's file, for this user only; another's, or no socket, is an `OptionsError`."""

    def __init__(self, address: Address) -> None:
        self._path = Path(address.path) if address.path else None
        self._identity: tuple[int, int] | None = None
        if self._path is not None and _is_taken(self._path):
            raise OptionsError(f"gRPC host {address.text}: the path is in use")

    @contextlib.contextmanager
    def binding(self) -> Iterator[None]:
        """Take charge of the file that the block makes, which is for this user from the start."""
        if self._path is None:
            yield
            return
        before = os.umask(0o177)
        try:
            yield
        finally:
            os.umask(before)
        self._path.chmod(0o600)
        self._identity = _identity(self._path)

    def remove(self) -> None:
        """Delete the file, if it is still the same; safe to call twice."""
        if self._path is not None and self._identity is not None:
            with contextlib.suppress(FileNotFoundError):
                if _identity(self._path) == self._identity:
                    self._path.unlink()
            self._identity = None


def _is_taken(path: Path) -> bool:
    """Whether something is there that is not the socket of a host that is gone."""
    if not os.path.lexists(path):
        return False
    if not stat.S_ISSOCK(path.lstat().st_mode):
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino
