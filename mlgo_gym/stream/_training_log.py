r"""LLVM's training log: its events, a reader and a writer; channels are made of the same events.

The format is that of ``llvm/lib/Analysis/TrainingLogger.cpp``; the stream of an interactive
channel (``InteractiveModelRunner.cpp``) is the same without outcomes. Lines are JSON and end in
``\n``; tensors are raw, packed, in native byte order::

    {"features":[SPEC,...],"score":SPEC,"advice":SPEC}\n     once; score and advice are optional
    {"context":"NAME"}\n                                      what follows belongs to NAME
    {"observation":N}\nTENSORS\n                              all features, in the header's order
    {"outcome":N}\nSCORE\n                                    where the header has a score

Observations are numbered from 0 within each context name; a context that comes back goes on
counting. A SPEC is the JSON form of `mlgo_gym.base._tensor_spec.TensorSpec`. An outcome follows the
observation that it belongs to; not every observation needs one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, Self

import numpy as np

from corpus_tools.reading import brief
from mlgo_gym.base import (
    InternalError,
    SpecError,
    TensorSpec,
    TrainingLogError,
    parse_json,
    quote_json,
)

MAX_OBSERVATION_BYTES: Final = 1 << 24
"""The largest observation, and the largest score, that is accepted, in bytes."""

MAX_FEATURES: Final = 4096
"""The most tensors that an observation may have; LLVM's have up to 39, and an embedding is one."""

MAX_LINE_BYTES: Final = 1 << 20
"""The longest JSON line that is accepted, in bytes."""

_READ_BYTES: Final = 1 << 16
_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring features of one type and shape, which one array holds."""

    names: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    count: int
    offset: int


@dataclass(frozen=True)
class Header:
    """The first line of a stream: the tensors of every observation, and optionally more.

    Attributes:
        features: the tensors of an observation, in the order in which they are sent.
        score: the tensor of an outcome, where there are outcomes.
        advice: the tensor that is sent back as the answer, on a channel.

    Raises:
        TrainingLogError: no features, two of one name, or observations too large.

    >>> Header((TensorSpec("callee_users", "int64_t", (1,)),)).size_bytes
    8
    """

    features: tuple[TensorSpec, ...]
    score: TensorSpec | None = None
    advice: TensorSpec | None = None
    size_bytes: int = field(init=False, compare=False)
    slices: Mapping[str, tuple[TensorSpec, slice]] = field(init=False, compare=False, repr=False)
    runs: tuple[Run, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.features) > MAX_FEATURES:
            limit = f"expected at most {MAX_FEATURES} features"
            raise TrainingLogError(f"header: {limit}, found {len(self.features)}")
        slices: dict[str, tuple[TensorSpec, slice]] = {}
        start = 0
        for spec in self.features:
            if spec.name in slices:
                raise TrainingLogError(f"header: two features are called {spec.name!r}")
            slices[spec.name] = (spec, slice(start, start + spec.size_bytes))
            start += spec.size_bytes
        if not 0 < start <= MAX_OBSERVATION_BYTES:
            raise TrainingLogError(
                f"header: expected observations of 1 to {MAX_OBSERVATION_BYTES} bytes, "
                f"found {start} bytes in {len(self.features)} features"
            )
        if self.score is not None and self.score.size_bytes > MAX_OBSERVATION_BYTES:
            raise TrainingLogError(
                f"header: expected a score of at most {MAX_OBSERVATION_BYTES} bytes, "
                f"found {self.score.size_bytes}"
            )
        object.__setattr__(self, "size_bytes", start)
        object.__setattr__(self, "slices", slices)
        object.__setattr__(self, "runs", tuple(_runs(self.features)))

    def to_json(self) -> str:
        """The header as LLVM's ``Logger::writeHeader`` prints it, without the line's end."""
        parts = [f'"features":[{",".join(spec.to_json() for spec in self.features)}]']
        if self.score is not None:
            parts.append(f'"score":{self.score.to_json()}')
        if self.advice is not None:
            parts.append(f'"advice":{self.advice.to_json()}')
        return "{" + ",".join(parts) + "}"

    @classmethod
    def from_value(cls, value: object) -> Header:
        """Read a header from parsed JSON."""
        features = value.get("features") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(features, list):
            raise TrainingLogError(
                f'header: expected an object with a list "features", found {brief(value)}'
            )
        try:
            return cls(
                features=feature_specs(features),
                score=TensorSpec.from_value(value["score"]) if "score" in value else None,
                advice=TensorSpec.from_value(value["advice"]) if "advice" in value else None,
            )
        except SpecError as error:
            raise TrainingLogError(f"header: {error}") from error


def feature_specs(values: list[Any]) -> tuple[TensorSpec, ...]:
    """Read the tensors of an observation from parsed JSON."""
    if len(values) > MAX_FEATURES:
        raise SpecError(f"expected at most {MAX_FEATURES} features, found {len(values)}")
    return tuple(TensorSpec.from_value(each) for each in values)


@dataclass(frozen=True, slots=True)
class Context:
    """The name that the following observations belong to: a function, a module or nothing.

    >>> Context("main").name
    'main'
    """

    name: str


class Observation(Mapping[str, np.ndarray[Any, Any]]):
    """The features of one decision, by name; arrays are made when they are asked for.

    Attributes:
        header: names, types and order of the features.
        index: the observation's number within its context, from 0.
        payload: the raw tensors, in header order and native byte order.

    >>> header = Header((TensorSpec("callee_users", "int64_t", (1,)),))
    >>> asked = Observation(header, context="main", index=0, payload=(7).to_bytes(8, "little"))
    >>> int(asked["callee_users"][0])
    7
    """

    __slots__ = ("_sent", "context", "header", "index", "payload")

    def __init__(
        self,
        header: Header,
        context: str,
        index: int,
        payload: bytes,
        sent: Observation | None = None,
    ) -> None:
        self._sent = sent
        self.header = header
        self.context = context
        self.index = index
        self.payload = payload

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        spec, where = self.header.slices[name]
        return np.frombuffer(self.payload[where], spec.dtype).reshape(spec.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.header.slices)

    def __len__(self) -> int:
        return len(self.header.slices)

    @property
    def sent(self) -> Observation:
        """All that LLVM sent, as it sent it."""
        return self._sent or self

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """All tensors by name, as fresh arrays that may be written to."""
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        data = bytearray(self.payload)
        for run in self.header.runs:
            block = np.frombuffer(data, run.dtype, run.count, run.offset).reshape(run.shape)
            arrays.update(zip(run.names, block, strict=True))
        return arrays

    def __repr__(self) -> str:
        return f"Observation({self.context!r}, {self.index}, {len(self)} features)"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The score of one observation, a raw tensor, and that one's number within its context.

    >>> Outcome(context="main", index=0, payload=bytes(4)).index
    0
    """

    context: str
    index: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a training log: an observation, and the score behind it, if there is one."""

    observation: Observation
    score: np.ndarray[Any, Any] | None


Event = Header | Context | Observation | Outcome
"""The events of a stream."""


def _runs(features: tuple[TensorSpec, ...]) -> Iterator[Run]:
    offset = 0
    for (dtype, shape), group in itertools.groupby(features, lambda spec: (spec.dtype, spec.shape)):
        specs = tuple(group)
        count = sum(spec.element_count for spec in specs)
        names = tuple(spec.name for spec in specs)
        yield Run(names, dtype, (len(specs), *shape), count, offset)
        offset += count * dtype.itemsize


class StreamDecoder:
    """Turns bytes, in pieces of any size, into the events of a stream.

    Feed what has arrived, then take events until there is none; it holds no more than what is
    not yet an event. Nothing is read or waited for here.

    Raises:
        TrainingLogError: from `next_event` and `finish`, with the position in bytes.

    >>> decoder = StreamDecoder()
    >>> decoder.feed(b'{"features":[{"name":"size","port":0,"type":"int64_t","shape":[1]}]}')
    >>> decoder.feed(bytes([10]))
    >>> decoder.next_event().features[0].name
    'size'
    """

    def __init__(self) -> None:
        self.header: Header | None = None
        self._buffer = b""
        self._arrived: list[bytes] = []
        self._missing = 0
        self._is_in_line = False
        self._line_bytes = 0
        self._position = 0
        self._context: str | None = None
        self._last_index: int | None = None

    def __copy__(self) -> Self:
        """A decoder that has taken in the same bytes, and goes on by itself."""
        twin = type(self).__new__(type(self))
        vars(twin).update(vars(self), _arrived=list(self._arrived))
        return twin

    def feed(self, data: bytes) -> None:
        """Take in the bytes that follow the ones fed before."""
        self._arrived.append(data)
        self._missing -= len(data)
        if self._is_in_line:
            self._is_in_line = b"\n" not in data
            self._line_bytes += len(data)

    def next_event(self) -> Event | None:
        """The next whole event, or ``None`` where more bytes are needed first."""
        if self._missing > 0 or (self._is_in_line and self._line_bytes <= MAX_LINE_BYTES):
            return None
        if self._arrived:
            self._buffer = b"".join((self._buffer, *self._arrived))
            self._arrived.clear()
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > MAX_LINE_BYTES:
                found = f"found {len(self._buffer)} without an end:"
                raise self._error(f"expected a line of at most {MAX_LINE_BYTES} bytes, {found}")
            self._is_in_line, self._line_bytes = True, len(self._buffer)
            return None
        self._is_in_line = False
        if self._buffer.startswith(b'{"observation":') and self.header is not None:
            return self._observation(self.header, end)
        return self._line(end)

    def finish(self) -> None:
        """Check that the stream ended where it may end."""
        self.check_whole()
        if self.header is None:
            raise self._error("expected a header, found an empty stream")

    def check_whole(self) -> None:
        """Check that the stream, which may have no header yet, ended in the middle of nothing."""
        if rest := b"".join((self._buffer, *self._arrived)):
            self._buffer = rest
            raise self._error("the stream ends in the middle of")

    def _line(self, end: int) -> Event | None:
        value = self._parse(end)
        if self.header is None:
            self.header = Header.from_value(value)
            self._consume(end + 1)
            return self.header
        match value:
            case {"context": str(name)}:
                self._context, self._last_index = name, None
                self._consume(end + 1)
                return Context(name)
            case {"outcome": int(index)}:
                return self._outcome(self.header, index, end)
            case _:
                raise self._error("expected a context, an observation or an outcome, found")

    def _observation(self, header: Header, end: int) -> Observation | None:
        total = end + 2 + header.size_bytes
        if not self._has(total):
            return None
        number = self._buffer[15 : end - 1]
        if not number.isdigit() or self._buffer[end - 1 : end] != b"}" or len(number) > 18:
            raise self._error("expected the number of an observation, found")
        if self._context is None:
            raise self._error("expected a context before the first observation, found")
        self._check_end(total)
        self._last_index = int(number)
        payload = self._buffer[end + 1 : total - 1]
        self._consume(total)
        return Observation(header, self._context, self._last_index, payload)

    def _outcome(self, header: Header, index: int, end: int) -> Outcome | None:
        if header.score is None:
            raise self._error("expected no outcome, since the header has no score, found")
        if self._context is None or index != self._last_index:
            raise self._error(f"expected the outcome of observation {self._last_index}, found")
        total = end + 2 + header.score.size_bytes
        if not self._has(total):
            return None
        self._check_end(total)
        payload = self._buffer[end + 1 : total - 1]
        self._consume(total)
        return Outcome(self._context, index, payload)

    def _has(self, total: int) -> bool:
        self._missing = max(0, total - len(self._buffer))  # until then nothing is looked at again
        return self._missing == 0

    def _check_end(self, total: int) -> None:
        if self._buffer[total - 1] != ord("\n"):
            raise self._error("expected a line's end after the tensors of")

    def _parse(self, end: int) -> object:
        try:
            return parse_json(self._buffer[:end])
        except ValueError as error:
            raise self._error("expected a line of JSON, found") from error

    def _consume(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._position += count

    def _error(self, message: str) -> TrainingLogError:
        found = f" {self._buffer[:_SHOWN]!r}" if self._buffer else ""
        return TrainingLogError(f"training log, byte {self._position}: {message}{found}")


def read_events(file: BinaryIO) -> Iterator[Event]:
    """The events of a stream, its header first, in bounded memory."""
    decoder = StreamDecoder()
    while data := file.read(_READ_BYTES):
        decoder.feed(data)
        while (event := decoder.next_event()) is not None:
            yield event
    decoder.finish()


class TrainingLogReader:
    """Reads a training log from a binary file, record by record, in bounded memory.

    Iterating yields `Record`. The file stays the caller's to close.

    Raises:
        TrainingLogError: at construction for the header, while iterating for the rest.

    >>> import io
    >>> from mlgo_gym import TensorSpec
    >>> header = Header((TensorSpec("size", "int64_t", (1,)),))
    >>> file = io.BytesIO()
    >>> writer = TrainingLogWriter(file, header)
    >>> writer.start_context("main")
    >>> writer.log_observation({"size": 7})
    >>> reader = TrainingLogReader(io.BytesIO(file.getvalue()))
    >>> [(r.observation.context, int(r.observation["size"][0]), r.score) for r in reader]
    [('main', 7, None)]
    """

    def __init__(self, file: BinaryIO) -> None:
        self._events = read_events(file)
        header = next(self._events)
        if not isinstance(header, Header):
            raise InternalError(f"training log: expected a header, found {header!r}")
        self.header: Final = header

    def __iter__(self) -> Iterator[Record]:
        waiting: Observation | None = None
        for event in self._events:
            if isinstance(event, Outcome) and waiting is not None:
                yield Record(waiting, self._score(event))
                waiting = None
                continue
            if waiting is not None:
                yield Record(waiting, None)
            waiting = event if isinstance(event, Observation) else None
        if waiting is not None:
            yield Record(waiting, None)

    def _score(self, outcome: Outcome) -> np.ndarray[Any, Any] | None:
        return self.header.score.decode(outcome.payload) if self.header.score else None


class TrainingLogWriter:
    """Writes a training log to a binary file, as LLVM's ``Logger`` does, to the byte.

    The header is written at construction. The file stays the caller's to flush and close.

    >>> import io
    >>> from mlgo_gym.base._tensor_spec import TensorSpec
    >>> file = io.BytesIO()
    >>> writer = TrainingLogWriter(file, Header((TensorSpec("size", "int64_t", (1,)),)))
    >>> writer.start_context("main")
    >>> writer.log_observation((7).to_bytes(8, "little"))
    >>> b'{"context":"main"}' in file.getvalue()
    True
    """

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self.header: Final = header
        self._file = file
        self._context: str | None = None
        self._next_index: dict[str, int] = {}
        self._open_index: int | None = None
        file.write(f"{header.to_json()}\n".encode())

    def start_context(self, name: str) -> None:
        """Say what the following observations belong to (``Logger::switchContext``)."""
        self._context, self._open_index = name, None
        self._file.write(f'{{"context":{quote_json(name)}}}\n'.encode())

    def log_observation(self, tensors: Mapping[str, object] | bytes) -> None:
        """Write one observation: its tensors by name, or its raw bytes in header order.

        Raises:
            TrainingLogError: no context was started, a feature is missing or unknown, or the
                raw bytes have another length.
            SpecError: a tensor does not fit its spec.
        """
        if self._context is None:
            raise TrainingLogError("training log: expected a context before an observation")
        payload = tensors if isinstance(tensors, bytes) else self._encode(tensors)
        if len(payload) != self.header.size_bytes:
            raise TrainingLogError(
                f"training log: expected an observation of {self.header.size_bytes} bytes, "
                f"found {len(payload)}"
            )
        index = self._next_index.get(self._context, 0)
        self._file.write(b'{"observation":%d}\n%b\n' % (index, payload))
        self._next_index[self._context] = index + 1
        self._open_index = index

    def log_outcome(self, score: object) -> None:
        """Write the score of the observation that was written last.

        Raises:
            TrainingLogError: the header has no score, or no observation came before.
            SpecError: the score does not fit its spec.
        """
        if self.header.score is None:
            raise TrainingLogError("training log: the header has no score, so no outcome fits")
        if self._open_index is None:
            raise TrainingLogError("training log: expected an observation before its outcome")
        payload = self.header.score.encode(score)
        self._file.write(b'{"outcome":%d}\n%b\n' % (self._open_index, payload))
        self._open_index = None

    def _encode(self, tensors: Mapping[str, object]) -> bytes:
        names = {spec.name for spec in self.header.features}
        if set(tensors) != names:
            missing, unknown = sorted(names - set(tensors)), sorted(set(tensors) - names)
            raise TrainingLogError(
                f"training log: expected the header's features, found missing {missing} "
                f"and unknown {unknown}"
            )
        return b"".join(spec.encode(tensors[spec.name]) for spec in self.header.features)
