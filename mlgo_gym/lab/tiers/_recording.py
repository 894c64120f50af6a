"""Recordings: what a program does at each tier, and what compiling it costs."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from corpus_tools.reading import Shape, brief, shaped
from mlgo_gym.base import (
    WorkloadError,
    parse_json,
    read_arrays,
    read_bounded,
    write_atomically,
)

TIERS: Final = ("O0", "O1", "O2", "O3")
CACHED: Final = (1, 2, 4)
"""How many values of an argument a function can be specialised on."""
VERSIONS: Final = (*TIERS, *(f"S{count}" for count in CACHED), "P")
"""What a function's code can be: of a tier, specialised on its argument's first values, or pruned
to the blocks that its first calls have reached."""
SPECIAL: Final = len(TIERS)
"""The first version that guesses; the first ones are specialised."""
PRUNED: Final = SPECIAL + len(CACHED)
"""The version that is pruned."""
PROFILED: Final = 6
"""The power of two of the calls that decide what is pruned."""
ENTERED: Final = -1
"""Where a plan has versions, the rest of the function from the loop on that runs."""
RESTED: Final = 2
"""The tier of specialised code, of rests, and of the code that later calls have then."""
RESTS: Final = 16
"""The first of the versions that are rests of functions; the next are by their first block."""
ENTER, SPECIALISE, PRUNE, DROP = range(len(TIERS), len(TIERS) + 4)
"""Decisions besides tiers: to enter the loop that runs, to compile code for the values that an
argument has had, or for the blocks that were reached, and to go back from such code to O0."""
DECISIONS: Final = ("go on", *TIERS[1:], "enter", "specialise", "prune", "drop")
"""The decisions at an event, by number."""
CALL, BACK_EDGE, GUARD = 0, 1, 2
"""Kinds of events: a function's calls, its jumps back, or the wrong guesses of the first version
that guesses have reached a power of two; those of other versions are the next kinds."""

_VERSION: Final = 2
_LARGEST_BYTES: Final = 1 << 26
_LARGEST_ARRAYS: Final = 1 << 27
_LARGEST_ABOUT: Final = 1 << 22
_LONGEST_TEXT: Final = 1024
_MOST_ROUNDS: Final = 1 << 31
_MOST_FUNCTIONS: Final = 1 << 14
MOST_EVENTS: Final = 1 << 15

_TEXTS: Final = ("program", "stdout_sha256", "llvm", "program_sha256")
_SECONDS: Final = ("seconds_per_instruction", "library_s")

_MEASURED: Final = ("compile_s", "entry_s")

_ABOUT: Final[Shape] = {
    **dict.fromkeys(_TEXTS, str),
    "rounds": int,
    "functions": [str],
    **dict.fromkeys(_SECONDS, float),
}


class Event(NamedTuple):
    """A count of a function has reached a power of two.

    Attributes:
        function: its number.
        kind: `CALL`, `BACK_EDGE`, or from `GUARD` on.
        power: the count is two to this.
        call: the number of the call that it belongs to or follows.
        loop: the number of the block that a jump back goes to, where the loop can be entered; else
            -1.
    """

    function: int
    kind: int
    power: int
    call: int
    loop: int = -1


@dataclass(frozen=True, slots=True)
class Table:
    """A table of whole numbers in a recording.

    Attributes:
        columns: what each row has.
        is_signed: whether there may be numbers below zero.
    """

    columns: tuple[str, ...]
    is_signed: bool = False

    def array(self, rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
        """Rows as int64 ``(rows, columns)``."""
        return np.array(rows, np.int64).reshape(-1, len(self.columns))


TABLES: Final[Mapping[str, Table]] = {
    "events": Table(("function", "kind", "power", "call")),
    "counts": Table(("interval", "function", *VERSIONS)),
    "spent": Table(("interval", "function", "instructions")),
    "entries": Table(("event", "instructions"), is_signed=True),
    "values": Table(
        ("function", "place", "count", *(f"value {i}" for i in range(CACHED[-1]))), is_signed=True
    ),
    "kept": Table(("function", "block")),
}
"""The tables of a recording, as `Recording` describes them."""

_Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Recording:
    """One program with one input, at each tier.

    An *interval* begins with an event and ends with the next. What an activation executes belongs
    to the interval that it began in, since it stays in the code that it was called in: so the sum
    over a schedule's intervals is exact.

    Attributes:
        program: the corpus and the workload, as ``sample/json``.
        rounds: how often its ``main`` is called.
        stdout_sha256: the hash of what it writes, in hexadecimal digits.
        llvm: the version of the LLVM that compiled it.
        program_sha256: of its units, in hexadecimal digits.
        functions: the names of those that were called.
        sizes: instructions of LLVM's IR of each function, before optimisation; shape
            ``(functions,)``.
        events: function, kind (`CALL`, `BACK_EDGE`, `GUARD` or one above), power of two, and number
            of the call that it belongs to or follows; in the order of the program; shape
            ``(events, 4)``.
        counts: interval, function, and the instructions that activations which began there execute
            in each of `VERSIONS`; shape ``(rows, 10)``.
        spent: interval, function, and the instructions that it executes in it at O0; shape
            ``(rows, 3)``.
        entries: events of `BACK_EDGE` at which the loop can be entered, and the instructions that
            the rest of the activation then executes more than at O0; shape ``(entries, 2)``.
        values: function, place of an argument, how many values it has (one more stands for more),
            and the first of them, in the order of their appearance; shape ``(rows, 7)``.
        kept: functions that can be pruned, and the numbers of the blocks that are kept; shape
            ``(rows, 2)``.
        compile_s: seconds of the processor that compiling each function takes, by `VERSIONS`;
            shape ``(8, functions)``. Measured, so two recordings differ in it.
        entry_s: the same of the rests that `entries` goes on in; shape ``(entries,)``.
        seconds_per_instruction: of the program's code, fitted to runs at all tiers.
        library_s: seconds in libraries, which are not compiled here, fitted likewise.

    >>> from mlgo_gym.lab.tiers import SAMPLE_RECORDING
    >>> recording = Recording.load(SAMPLE_RECORDING)
    >>> recording.name, len(recording.functions)
    ('sample/json', 13)
    """

    program: str
    rounds: int
    stdout_sha256: str
    llvm: str
    program_sha256: str
    functions: tuple[str, ...]
    sizes: _Ints = field(repr=False)
    events: _Ints = field(repr=False)
    counts: _Ints = field(repr=False)
    spent: _Ints = field(repr=False)
    entries: _Ints = field(repr=False)
    values: _Ints = field(repr=False)
    kept: _Ints = field(repr=False)
    compile_s: NDArray[np.float64] = field(repr=False)
    entry_s: NDArray[np.float64] = field(repr=False)
    seconds_per_instruction: float
    library_s: float

    @property
    def name(self) -> str:
        """The program, and the rounds where there are several: ``sample/json x 30``."""
        return f"{self.program} x {self.rounds}" if self.rounds > 1 else self.program

    def totals(self) -> list[int]:
        """The instructions of the whole program where all functions are of one tier, by tier."""
        return [int(each) for each in self.counts[:, 2 : 2 + len(TIERS)].sum(axis=0)]

    def sha256(self) -> str:
        """The hash of all that is exact: two recordings of a program are equal in it."""
        exact = hashlib.sha256(
            json.dumps([self.program_sha256, self.rounds, self.llvm, self.functions]).encode()
        )
        for each in (getattr(self, name) for name in _EXACT):
            exact.update(np.ascontiguousarray(each, "<i8").tobytes())
        return exact.hexdigest()

    def save(self, path: Path | str) -> None:
        """Write it to a file, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        about = {
            "version": _VERSION,
            **{name: getattr(self, name) for name in _TEXTS},
            "rounds": self.rounds,
            "functions": self.functions,
            **{name: getattr(self, name) for name in _SECONDS},
        }
        file = io.BytesIO()
        words = np.frombuffer(json.dumps(about).encode(), np.uint8)
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        # By columns, and tiers as differences, they are half as large.
        arrays |= {"counts": _differences(self.counts), "spent": np.asfortranarray(self.spent)}
        np.savez_compressed(file, about=words, **arrays)
        write_atomically(Path(path), file.getvalue())

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read one.

        Raises:
            WorkloadError: it cannot be read, or is no whole recording of this version.

        >>> from mlgo_gym.lab.tiers import SAMPLE_RECORDING
        >>> Recording.load(SAMPLE_RECORDING).program
        'sample/json'
        """
        try:
            data = read_bounded(Path(path), _LARGEST_BYTES)
        except OSError as error:
            raise _wrong(path, f"cannot be read: {error.strerror}") from error
        try:
            found = _arrays_of(data)
            about = _about_of(found.pop("about"))
            _check(about, found)
        except ValueError as error:
            expected = "expected what 'mlgo-gym tiers record' writes"
            raise _wrong(path, f"{expected}, found another or damaged file: {error}") from error
        values: dict[str, Any] = {name: about[name] for name in (*_TEXTS, "rounds")}
        values |= {name: float(about[name]) for name in _SECONDS} | found
        return cls(functions=tuple(about["functions"]), **values)


_EXACT: Final = ("sizes", *TABLES)
_ARRAYS: Final = (*_EXACT, *_MEASURED)


def _wrong(path: Path | str, problem: str) -> WorkloadError:
    return WorkloadError(f"recording {str(path)!r}: {problem}")


def _arrays_of(data: bytes) -> dict[str, NDArray[Any]]:
    found = read_arrays(data, _LARGEST_ARRAYS)
    if found.keys() != (names := {"about", *_ARRAYS}):
        raise ValueError(f"expected {', '.join(sorted(names))}")
    return found | {"counts": _sums(found["counts"])}


def _about_of(array: NDArray[Any]) -> Mapping[str, Any]:
    """The description in a file, once it is of this version and within bounds."""
    if array.nbytes > _LARGEST_ABOUT:
        raise ValueError(f"about: expected at most {_LARGEST_ABOUT} bytes, found {array.nbytes}")
    about: Any = parse_json(array.tobytes())
    version = about.get("version") if isinstance(about, dict) else about
    if version != _VERSION:
        raise ValueError(f"expected version {_VERSION}, found {brief(version)}")
    shaped(about, _ABOUT, "about")
    for name in _TEXTS:
        if len(about[name]) > _LONGEST_TEXT or not about[name].isprintable():
            expected = f"expected at most {_LONGEST_TEXT} printable characters"
            raise ValueError(f"{name}: {expected}, found {brief(about[name])}")
    if not 0 < about["rounds"] <= _MOST_ROUNDS:
        raise ValueError(f"rounds: expected 1 to {_MOST_ROUNDS}, found {about['rounds']}")
    return cast("Mapping[str, Any]", about)


def _differences(counts: _Ints) -> _Ints:
    own, tiers = counts[:, :2], counts[:, 2:]
    return np.asfortranarray(np.hstack((own, tiers[:, :1], np.diff(tiers, axis=1))))


def _sums(counts: NDArray[Any]) -> NDArray[Any]:
    if counts.ndim != 2 or counts.dtype != np.int64:
        raise ValueError("counts: expected int64 of two dimensions")
    return np.hstack((counts[:, :2], np.cumsum(counts[:, 2:], axis=1)))


def _check(about: Mapping[str, Any], found: Mapping[str, NDArray[Any]]) -> None:
    count, events = len(about["functions"]), found["events"]
    if not 0 < count <= _MOST_FUNCTIONS:
        raise ValueError(f"expected 1 to {_MOST_FUNCTIONS} functions, found {count}")
    _check_arrays(found, count)
    if not 0 < len(events) <= MOST_EVENTS:
        raise ValueError(f"expected 1 to {MOST_EVENTS} events, found {len(events)}")
    special, prunable = _special(found["values"], count), _prunable(found["kept"], count)
    guesses = {(f, version) for f in special for version in range(SPECIAL, PRUNED)}
    _check_events(events, count, guesses | {(f, PRUNED) for f in prunable})
    _check_entries(found["entries"], events)
    for name in ("counts", "spent"):
        _check_intervals(name, found[name], len(events), count)
    if not (0 < about["seconds_per_instruction"] < 1 and 0 <= about["library_s"] < 1e6):
        raise ValueError("expected seconds per instruction and in libraries")


def _check_arrays(found: Mapping[str, NDArray[Any]], functions: int) -> None:
    """See that arrays have their shapes, their types, and numbers of the right sign."""
    shapes = {
        "sizes": (functions,),
        **{name: (*found[name].shape[:1], len(table.columns)) for name, table in TABLES.items()},
        "compile_s": (len(VERSIONS), functions),
        "entry_s": found["entries"].shape[:1],
    }
    signed = {name for name, table in TABLES.items() if table.is_signed}
    for name, shape in shapes.items():
        kind = np.float64 if name in _MEASURED else np.int64
        if found[name].shape != shape or found[name].dtype != kind:
            raise ValueError(f"{name}: expected {np.dtype(kind).name} of shape {shape}")
        if not np.isfinite(found[name]).all() or (name not in signed and (found[name] < 0).any()):
            raise ValueError(f"{name}: expected numbers from 0 on")


def _special(values: _Ints, functions: int) -> frozenset[int]:
    """The functions that can be specialised, once what is said of them can be."""
    own = values[:, 0].tolist()
    if len(set(own)) < len(own) or not all(0 <= each < functions for each in own):
        raise ValueError("values: expected functions that there are, each once")
    if not ((values[:, 1] >= 0) & (values[:, 2] >= 1) & (values[:, 2] <= CACHED[-1] + 1)).all():
        raise ValueError(f"values: expected arguments, and 1 to {CACHED[-1] + 1} values")
    return frozenset(own)


def _prunable(kept: _Ints, functions: int) -> frozenset[int]:
    own = frozenset(kept[:, 0].tolist())
    if max(own, default=0) >= functions:
        raise ValueError("kept: expected functions that there are")
    return own


def _check_intervals(name: str, rows: _Ints, events: int, functions: int) -> None:
    if len(rows) and (rows[:, 0].max() >= events or rows[:, 1].max() >= functions):
        raise ValueError(f"{name}: expected intervals and functions that there are")
    if (np.diff(rows[:, 0]) < 0).any():
        raise ValueError(f"{name}: expected intervals in their order")


def _check_entries(entries: _Ints, events: _Ints) -> None:
    places = entries[:, 0]
    if len(places) and not (places.min() >= 0 and places.max() < len(events)):
        raise ValueError("entries: expected events that there are")
    if (np.diff(places) <= 0).any() or (events[places, 1] != BACK_EDGE).any():
        raise ValueError("entries: expected jumps back, each once and in their order")


def _check_events(events: _Ints, functions: int, guesses: AbstractSet[tuple[int, int]]) -> None:
    """Each function's counts go up by one power after the other, its calls first."""
    following: dict[tuple[int, int], int] = {}
    for function, kind, power, _ in events.tolist():
        is_known = kind < GUARD or (function, SPECIAL + kind - GUARD) in guesses
        is_known = is_known and function < functions
        called = kind == CALL or (function, CALL) in following
        if not is_known or not called or power != following.get((function, kind), 0):
            raise ValueError("events: expected each power of two once, and in its order")
        following[function, kind] = power + 1
    if sum(kind == CALL for _, kind in following) != functions:
        raise ValueError("events: expected a call of each function")
