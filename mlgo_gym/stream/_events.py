"""Events, which training logs and channels (`stream._training_log`) are made of."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from corpus_tools.reading import brief
from mlgo_gym.base import SpecError, TensorSpec, TrainingLogError

MAX_OBSERVATION_BYTES: Final = 1 << 24
"""The largest observation, and the largest score, that is accepted, in bytes."""

MAX_FEATURES: Final = 4096
"""The most tensors that an observation may have; LLVM's have up to 39, and an embedding is one."""


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
