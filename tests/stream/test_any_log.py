"""Any training log: what is written is what the format says, and what is read."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.stream._training_log import Header, TrainingLogReader, TrainingLogWriter
from tests.generated import examples

TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
TYPES = {"float": "f4", "double": "f8", "int8_t": "i1", "uint16_t": "u2", "int32_t": "i4",
         "int64_t": "i8", "uint64_t": "u8"}  # fmt: skip
SHAPES = st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple)


def specs(name: st.SearchStrategy[str]) -> st.SearchStrategy[TensorSpec]:
    return st.builds(TensorSpec, name, st.sampled_from(sorted(TYPES)), SHAPES)


FEATURES = st.lists(
    specs(TEXTS.filter(bool)), min_size=1, max_size=3, unique_by=lambda spec: spec.name
)


@dataclass(frozen=True)
class Row:
    """One observation of a context: the tensors' bytes, and those of its outcome, if it has one."""

    context: str
    features: tuple[bytes, ...]
    outcome: bytes | None


@dataclass(frozen=True)
class Log:
    """What a log is made of; contexts come back, and some have nothing."""

    header: Header
    parts: tuple[tuple[str, tuple[Row, ...]], ...]

    @property
    def rows(self) -> list[Row]:
        return [row for _, rows in self.parts for row in rows]


def width(spec: TensorSpec) -> int:
    return int(np.dtype(TYPES[spec.type]).itemsize * np.prod(spec.shape))


@st.composite
def logs(draw: st.DrawFn) -> Log:
    features = tuple(draw(FEATURES))
    score = draw(st.none() | specs(st.just("reward")))
    advice = draw(st.none() | specs(st.just("answer")))

    def raw(spec: TensorSpec) -> bytes:
        return draw(st.binary(min_size=width(spec), max_size=width(spec)))

    def row(name: str) -> Row:
        has_outcome = score is not None and draw(st.booleans())
        outcome = raw(score) if score and has_outcome else None
        return Row(name, tuple(map(raw, features)), outcome)

    names = draw(st.lists(st.sampled_from(["f", "g", draw(TEXTS)]), max_size=5))
    counts = st.integers(0, 3)
    parts = tuple((name, tuple(row(name) for _ in range(draw(counts)))) for name in names)
    return Log(Header(features, score, advice), parts)


def array(spec: TensorSpec, raw: bytes) -> np.ndarray[Any, Any]:
    return np.frombuffer(raw, TYPES[spec.type]).reshape(spec.shape)


def written(log: Log) -> bytes:
    """By our writer; observations as bytes and as arrays, in turns."""
    file = io.BytesIO()
    writer = TrainingLogWriter(file, log.header)
    for name, rows in log.parts:
        writer.start_context(name)
        for number, row in enumerate(rows):
            pairs = zip(log.header.features, row.features, strict=True)
            named = {spec.name: array(spec, raw) for spec, raw in pairs}
            writer.log_observation(named if number % 2 else b"".join(row.features))
            if row.outcome is not None and log.header.score:
                writer.log_outcome(array(log.header.score, row.outcome))
    return file.getvalue()


def spelled(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "type": spec.type, "port": spec.port, "shape": list(spec.shape)}


def documented(log: Log) -> tuple[list[Any], bytes]:
    """The log as the format is documented: its lines of JSON, and all other bytes in one."""
    header: dict[str, Any] = {"features": [spelled(each) for each in log.header.features]}
    header |= {"score": spelled(log.header.score)} if log.header.score else {}
    header |= {"advice": spelled(log.header.advice)} if log.header.advice else {}
    lines: list[Any] = [header]
    raw, counts = b"", dict.fromkeys((name for name, _ in log.parts), 0)
    for name, rows in log.parts:
        lines.append({"context": name})
        for row in rows:
            lines.append({"observation": counts[name]})
            raw += b"".join(row.features)
            if row.outcome is not None:
                lines.append({"outcome": counts[name]})
                raw += row.outcome
            counts[name] += 1
    return lines, raw


def taken_apart(data: bytes, log: Log) -> tuple[list[Any], bytes]:
    """A file's lines and other bytes, without our reader."""
    file, lines, raw = io.BytesIO(data), [], b""
    while line := file.readline():
        value = json.loads(line)
        lines.append(value)
        size = sum(map(width, log.header.features)) if "observation" in value else 0
        size = width(log.header.score) if "outcome" in value and log.header.score else size
        if size:
            raw += file.read(size)
            assert file.read(1) == b"\n"
    return lines, raw


@examples(40)
@given(logs())
def test_any_log_is_as_documented_and_comes_back(log: Log) -> None:
    data = written(log)
    assert taken_apart(data, log) == documented(log)
    reader = TrainingLogReader(io.BytesIO(data))
    assert reader.header == log.header
    counts: dict[str, int] = {}
    for found, row in zip(reader, log.rows, strict=True):
        index = counts.get(row.context, 0)
        counts[row.context] = index + 1
        assert (found.observation.context, found.observation.index) == (row.context, index)
        assert found.observation.payload == b"".join(row.features)
        for spec, raw in zip(log.header.features, row.features, strict=True):
            assert found.observation[spec.name].tobytes() == raw
        assert (None if found.score is None else found.score.tobytes()) == row.outcome
