"""A worker on a node: it says what it runs, makes a state, and does batches of items with it.

What reaches it was made by the cluster's own head: Ray pickles the functions and values that work
is, and unpickles them here (`docs/threat-model.md`).
"""

from __future__ import annotations

import hashlib
import platform
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import mlgo_gym
from mlgo_gym.corpus._corpus import Module
from mlgo_gym.errors import EnvironmentSetupError
from mlgo_gym.files import read_bounded
from mlgo_gym.llvm._schedule import Made, State

_DIGITS: Final = 12
_MOST_CODE_BYTES: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Stored:
    """A module whose bytes are among what comes beside a batch."""

    index: int
    name: str
    command: tuple[str, ...] | None
    is_text: bool


def facts() -> dict[str, str]:
    """What must be the same everywhere, or results could not be compared.

    Raises:
        EnvironmentSetupError: LLVM cannot be loaded.
        ImportError: the same.
        OSError: the same.
    """
    # In this process: that of a worker would be the same, and to start one takes a second.
    from mlgo_gym.llvm.process import _binding as binding  # noqa: PLC0415 - loads LLVM

    return versions() | {"LLVM": binding.llvm_version()}


def versions() -> dict[str, str]:
    """Those of them that nothing is started for."""
    return {
        "Python": platform.python_version(),
        "Ray": metadata.version("ray"),
        "mlgo_gym": f"{metadata.version('mlgo-gym')} {_source_digest()}",
        "llvmlite": metadata.version("llvmlite"),
        "machine": f"{sys.platform} {platform.machine()}",
    }


@cache
def _source_digest() -> str:
    """The hash of this project's code, which its version does not tell apart."""
    folder = Path(mlgo_gym.__file__).parent
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        code = read_bounded(path, _MOST_CODE_BYTES)
        found.update(str(path.relative_to(folder)).encode() + code)
    return found.hexdigest()[:_DIGITS]


class RemoteWorker:
    """What Ray keeps on a node; its calls come one after the other."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._make = state
        self._state: State | None = None
        self._work: tuple[int, Callable[[Any, Any], Made[Any]]] | None = None

    def introduce(self) -> tuple[str, Mapping[str, str], str]:
        """Where it is, its `facts`, and why LLVM is not among them, if it is not."""
        try:
            return socket.gethostname(), facts(), ""
        except (EnvironmentSetupError, ImportError, OSError) as error:
            return socket.gethostname(), versions(), str(error)

    def do(
        self, run: int, work: Sequence[Any], items: Sequence[Any], *stored: bytes
    ) -> tuple[list[Made[Any]], float]:
        """The outcomes of items, and the seconds that they took.

        Args:
            run: which run of the executor it is.
            work: where what is done with an item is to be had, once for each run.
            items: what the work is called with.
            stored: the bytes of modules that are `Stored` in the items.
        """
        start = time.perf_counter()
        if self._work is None or self._work[0] != run:
            self._work = run, _received(work[0])
        if self._state is None:
            self._state = self._make()
        made = [self._work[1](self._state, unpacked(item, stored)) for item in items]
        return made, time.perf_counter() - start

    def close(self) -> None:
        """Close the state."""
        if self._state is not None:
            self._state.close()
        self._state = None


def _received(work: Any) -> Any:
    """What is done with an item.

    Raises:
        EnvironmentSetupError: it cannot be loaded on this node.
    """
    import ray  # noqa: PLC0415 (it is there where this runs)

    try:
        return ray.get(work)
    except ray.exceptions.RaySystemError as error:
        reason = str(error).strip().splitlines()[-1]
        raise EnvironmentSetupError(
            f"ray: node {socket.gethostname()}: cannot load what it is to do: {reason}"
        ) from None


def packed(item: Any, store: Callable[[Module], int | None]) -> Any:
    """An item whose modules are `Stored`, where the function says under which index."""
    if isinstance(item, Module):
        index = store(item)
        return item if index is None else Stored(index, item.name, item.command, item.is_text)
    if type(item) is tuple:
        return tuple(packed(part, store) for part in item)
    return item


def unpacked(item: Any, stored: Sequence[bytes]) -> Any:
    """The item that was packed."""
    if isinstance(item, Stored):
        return Module(item.name, stored[item.index], item.command, item.is_text)
    if type(item) is tuple:
        return tuple(unpacked(part, stored) for part in item)
    return item
