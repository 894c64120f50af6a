"""A worker on a node: it says what it runs, makes a state, and does batches of items with it.

What reaches it was made by the cluster's own head: Ray pickles the functions and values that work
is, and unpickles them here (`docs/explanation/threat-model.md`).

Values of a kind are pickled as columns, which takes a part of what they cost one by one: objects
are pickled by functions in Python, columns are a few lists. A column is a tuple of what it is, what
belongs to that, and what is in it::

    ("each", None, values)      values as they are
    ("same", count, value)      one that cannot be changed, so many times
    ("tuple", None, columns)    tuples of one length, by their places
    ("dict", keys, columns)     dicts of the same keys, by these
    ("made", class, columns)    named tuples and frozen dataclasses, by their fields

What is read is equal to what was given, and of the same types.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import cache
from importlib import metadata
from itertools import repeat
from pathlib import Path
from typing import Any, Final, NoReturn

import corpus_tools
import mlgo_gym
from mlgo_gym.base import (
    SHIPPED,
    EnvironmentSetupError,
    InternalError,
    ModuleError,
    read_bounded,
)
from mlgo_gym.corpus import Module, ModuleFile
from mlgo_gym.llvm import Counts, Ended, Made, State, counted, watching

Column = tuple[str, Any, Any]

_SINGLE: Final = frozenset({str, bytes, int, bool, type(None)})
"""Kinds of which equal values are the same; of floats 0.0 and -0.0 are not."""

FREE_BYTES: Final = 1 << 28
"""How much a node's temporary folder must have room for: the files of a model, at their largest."""

_DIGITS: Final = 12
_MOST_FILE_BYTES: Final = 1 << 24


def column(values: Sequence[Any]) -> Column:
    """Values, of whatever kinds, to be pickled.

    >>> column([("a", 1), ("b", 1)])
    ('tuple', None, [('each', None, ('a', 'b')), ('same', 2, 1)])
    """
    if len(values) < 2:
        return "each", None, values
    first = values[0]
    kind: Any = type(first)
    if any(type(each) is not kind for each in values):
        return "each", None, values
    if kind in _SINGLE:
        is_same = all(each == first for each in values)
        return ("same", len(values), first) if is_same else ("each", None, values)
    if not (found := _parts(kind, values)):
        return "each", None, values
    is_same = found[0] != "dict" and all(each[0] == "same" for each in found[2])
    return ("same", len(values), first) if is_same else found


def _parts(kind: Any, values: Sequence[Any]) -> Column | None:
    """Values of a kind by their parts, where all have the same."""
    if kind is dict:
        keys = tuple(values[0])
        is_alike = set(map(type, keys)) == {str} and all(tuple(each) == keys for each in values)
        return ("dict", keys, _columns(map(dict.values, values))) if is_alike else None
    if kind is tuple:
        is_alike = len(set(map(len, values))) == 1
        return ("tuple", None, _columns(values)) if is_alike else None
    if not (names := _fields(kind)):
        return None
    return "made", kind, [column([getattr(each, name) for each in values]) for name in names]


def _columns(rows: Any) -> list[Column]:
    return [column(each) for each in zip(*rows, strict=True)]


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    """Return the fields that a class's values are pickled by, if they are."""
    if kind.__bases__ == (tuple,):
        return getattr(kind, "_fields", ())
    parameters = vars(kind).get("__dataclass_params__")  # of its own
    if parameters is None or not parameters.frozen:
        return ()
    is_plain = (kind.__reduce_ex__, kind.__reduce__) == (object.__reduce_ex__, object.__reduce__)
    state: Any = kind.__getstate__
    is_plain &= "object" in state.__qualname__ or state.__module__ == "dataclasses"
    return tuple(each.name for each in fields(kind)) if is_plain else ()


def values_of(given: Column) -> Sequence[Any]:
    """The values that a column was made of.

    >>> values_of(column([("a", 1), ("b", 1)]))
    [('a', 1), ('b', 1)]
    """
    what, about, found = given
    if what == "each":
        return found  # type: ignore[no-any-return]
    if what == "same":
        return [found] * about
    if what == "made":
        return _made(about, list(map(values_of, found)))
    rows = zip(*map(values_of, found), strict=True)
    return list(rows) if what == "tuple" else [dict(zip(about, each, strict=True)) for each in rows]


def _made(kind: Any, columns: Sequence[Sequence[Any]]) -> list[Any]:
    """Make objects as unpickling does, without ``__init__``, but field by field."""
    if issubclass(kind, tuple):
        return list(map(kind._make, zip(*columns, strict=True)))
    made = list(map(object.__new__, repeat(kind, len(columns[0]))))
    for name, values in zip(_fields(kind), columns, strict=True):
        deque(map(object.__setattr__, made, repeat(name), values), maxlen=0)
    return made


@dataclass(frozen=True, slots=True)
class Stored:
    """A module whose bytes are among what comes beside a batch."""

    index: int
    name: str
    command: tuple[str, ...] | None
    is_text: bool


def facts() -> dict[str, str]:
    """Return the facts that must be equal everywhere for results to be compared."""
    # In this process: that of a worker would be the same, and to start one takes a second.
    from mlgo_gym.llvm import embedded_version  # noqa: PLC0415 - loads LLVM

    return versions() | {"LLVM": embedded_version()}


def versions() -> dict[str, str]:
    """Return the facts that are known without starting anything."""
    return {
        "Python": platform.python_version(),
        "Ray": metadata.version("ray"),
        "mlgo_gym": f"{metadata.version('mlgo-gym')} {_installed_digest()}",
        "llvmlite": metadata.version("llvmlite"),
        "machine": f"{sys.platform} {platform.machine()}",
    }


@cache
def _installed_digest() -> str:
    """The hash of this project's code and data, which its version does not tell apart.

    Without the models that ship: those that work needs are sent along.
    """
    found = hashlib.sha256()
    for package in (corpus_tools, mlgo_gym):
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".pyc" and not path.is_relative_to(SHIPPED):
                data = read_bounded(path, _MOST_FILE_BYTES)
                found.update(f"{path.relative_to(folder.parent)} {len(data)} ".encode() + data)
    return found.hexdigest()[:_DIGITS]


def lack_of_space(folder: str, free_bytes: int) -> str:
    """Return a complaint about a temporary folder with too little room, or ``""``.

    >>> lack_of_space("/tmp", 3 << 20)
    "temporary folder '/tmp': expected at least 256 MiB free, found 3; TMPDIR names another"
    """
    if free_bytes >= FREE_BYTES:
        return ""
    expected = f"expected at least {FREE_BYTES >> 20} MiB free, found {free_bytes >> 20}"
    return f"temporary folder {folder!r}: {expected}; TMPDIR names another"


def _space() -> tuple[str, int]:
    """The temporary folder and what is free in it, for this user."""
    try:
        folder = tempfile.gettempdir()
        return folder, shutil.disk_usage(folder).free
    except OSError:  # of those that there may be, none can be written
        return os.environ.get("TMPDIR", "/tmp"), 0  # noqa: S108 - it is named, not used


def answers(files: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Return a node's report of itself and of module files, given as their fields.

    All of it is what Python itself has: who asks may have another version of this package.
    """
    folder, free_bytes = _space()
    try:
        runs, failure = facts(), ""
    except (EnvironmentSetupError, ImportError, OSError) as error:
        runs, failure = versions(), str(error)
    seen = 0
    for file in (ModuleFile(*each) for each in files):
        try:
            seen += file.is_here and bool(file.read())
        except ModuleError as error:
            failure = failure or str(error)
    return {
        "node": socket.gethostname(),
        "runs": runs,
        "failure": failure,
        "temporary_folder": folder,
        "free_bytes": free_bytes,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "seen": seen,
    }


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The report of a batch: its seconds, and the compilations meanwhile.

    Compilations are described where somebody watches.
    """

    seconds: float
    counts: Counts
    ended: tuple[Ended, ...] = ()


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch as it is sent.

    Attributes:
        work: where what is done with an item is to be had, if it is not what was done before.
        is_watched: compilations are described.
        items: what the work is called with.
    """

    work: tuple[Any, ...]
    is_watched: bool
    items: Column


class RemoteWorker:
    """The actor that Ray keeps on a node; its calls come one after the other."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._make = state
        self._state: State | None = None
        self._work: Callable[[Any, Any], Made[Any]] = _untold

    def introduce(self) -> dict[str, Any]:
        """The node's report, Ray's id of it, and what its clock says, in nanoseconds."""
        import ray  # noqa: PLC0415 (it is there where this runs)

        node_id = ray.get_runtime_context().get_node_id()
        return {**answers(()), "node_id": node_id, "there_ns": time.monotonic_ns()}

    def do(self, batch: SentBatch, *stored: bytes) -> tuple[Column, BatchReport] | None:
        """The outcomes of items, and what is said of them.

        ``None``, and nothing is done, where there are modules to be read that are not here.

        Args:
            batch: what to do.
            stored: the bytes of modules that are `Stored` in the items.
        """
        start = time.perf_counter()
        for work in batch.work:
            self._work = _received(work)
        items = values_of(batch.items)
        if not all(each.is_here for each in files_in(items)):
            return None
        if self._state is None:
            self._state = self._make()
        ended: list[Ended] = []
        before = counted()
        with watching(ended.append) if batch.is_watched else nullcontext():
            made = [self._work(self._state, unpacked(item, stored)) for item in items]
        counts = Counts(*(now - then for now, then in zip(counted(), before, strict=True)))
        return column(made), BatchReport(time.perf_counter() - start, counts, tuple(ended))

    def close(self) -> None:
        """Close the state."""
        if self._state is not None:
            self._state.close()
        self._state = None


def _untold(_: Any, item: Any) -> NoReturn:
    raise InternalError(f"ray: expected to be told what to do with {item!r}, found nothing")


def _received(work: Any) -> Any:
    """Handle an item."""
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
    return tuple(packed(part, store) for part in item) if type(item) is tuple else item


def unpacked(item: Any, stored: Sequence[bytes]) -> Any:
    """The item that was packed."""
    if isinstance(item, Stored):
        return Module(item.name, stored[item.index], item.command, item.is_text)
    return tuple(unpacked(part, stored) for part in item) if type(item) is tuple else item


def files_in(items: Iterable[Any]) -> Iterator[ModuleFile]:
    """The modules of items that are yet to be read."""
    for item in items:
        if isinstance(item, ModuleFile):
            yield item
        elif type(item) is tuple:
            yield from files_in(item)
