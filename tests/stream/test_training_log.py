"""The training log: round trips, LLVM's own output to the byte, and damage at every position."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import SpecError, TrainingLogError
from mlgo_gym.stream._training_log import (
    Context,
    Event,
    Header,
    Observation,
    Outcome,
    StreamDecoder,
    TrainingLogReader,
    TrainingLogWriter,
)
from tests.stream.native_peer import captured_stream

A = TensorSpec("a", "int64_t", (1,))
B = TensorSpec("b", "float", (2,))
HUGE = TensorSpec("x", "int64_t", (1 << 22,))
REWARD = TensorSpec("reward", "float", (1,))


def example_log() -> bytes:
    file = io.BytesIO()
    writer = TrainingLogWriter(file, Header((A, B), score=REWARD))
    writer.start_context("f")
    writer.log_observation({"a": 1, "b": [0.5, -1]})
    writer.log_outcome(0)
    writer.log_observation({"a": 2, "b": [10, 10]})
    writer.start_context("g\n")
    writer.log_observation({"a": -3, "b": [np.inf, 0]})
    writer.log_outcome(-0.25)
    writer.start_context("f")
    writer.log_observation({"a": 4, "b": [0, 0]})
    return file.getvalue()


def test_bytes_are_those_of_llvm() -> None:
    lines = example_log().split(b"\n")
    assert lines[0] == (
        b'{"features":[{"name":"a","type":"int64_t","port":0,"shape":[1]},'
        b'{"name":"b","type":"float","port":0,"shape":[2]}],'
        b'"score":{"name":"reward","type":"float","port":0,"shape":[1]}}'
    )
    assert lines[1:3] == [b'{"context":"f"}', b'{"observation":0}']
    assert lines[3] == np.int64(1).tobytes() + np.array([0.5, -1], np.float32).tobytes()
    assert lines[4:6] == [b'{"outcome":0}', np.float32(0).tobytes()]
    assert lines[6] == b'{"observation":1}'


def test_reader_gives_back_what_was_written() -> None:
    records = list(TrainingLogReader(io.BytesIO(example_log())))
    assert [(r.observation.context, r.observation.index) for r in records] == [
        ("f", 0),
        ("f", 1),
        ("g\n", 0),
        ("f", 2),  # a context that comes back goes on counting
    ]
    assert [int(r.observation["a"][0]) for r in records] == [1, 2, -3, 4]
    assert [None if r.score is None else float(r.score[0]) for r in records] == [
        0.0,
        None,
        -0.25,
        None,
    ]
    arrays = records[0].observation.arrays()
    assert list(arrays) == ["a", "b"]
    assert arrays["b"].tolist() == [0.5, -1.0]
    arrays["b"][0] = 7  # fresh, writable, and nobody else's
    assert records[0].observation["b"].tolist() == [0.5, -1.0]


@given(st.lists(st.integers(1, 60)))
def test_pieces_of_any_size_give_the_same_events(sizes: list[int]) -> None:
    data = example_log()
    decoder, kinds, start = StreamDecoder(), [], 0
    for size in [*sizes, len(data)]:
        decoder.feed(data[start : start + size])
        start += size
        while (event := decoder.next_event()) is not None:
            kinds.append(type(event))
    decoder.finish()
    assert kinds == [
        Header, Context, Observation, Outcome, Observation,
        Context, Observation, Outcome, Context, Observation,
    ]  # fmt: skip


def _read(data: bytes) -> int:
    return sum(1 for _ in TrainingLogReader(io.BytesIO(data)))


def test_a_log_cut_anywhere_is_an_error_or_a_shorter_log() -> None:
    data = example_log()
    whole = _read(data)
    for length in range(len(data)):
        try:
            assert _read(data[:length]) <= whole
        except TrainingLogError as error:
            assert re.search(r"byte \d+|empty", str(error))


@given(st.integers(0, len(example_log()) - 1), st.integers(0, 255))
def test_a_damaged_byte_is_an_error_or_another_value(position: int, value: int) -> None:
    data = bytearray(example_log())
    data[position] = value
    try:
        _read(bytes(data))
    except TrainingLogError as error:
        assert str(error)


HEADER = Header((A,), score=REWARD).to_json().encode() + b"\n"
OBSERVATION = b'{"observation":0}\n' + bytes(8) + b"\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "training log, byte 0: expected a header, found an empty stream"),
        (b"{}\n", 'header: expected an object with a list "features", found {}'),
        (b"[1]\n", 'header: expected an object with a list "features", found [1]'),
        (
            b'{"features":[]}\n',
            "header: expected observations of 1 to 16777216 bytes, found 0 bytes in 0 features",
        ),
        (
            b'{"features":[{"name":"x","type":"int64_t","port":0,"shape":[4194304]}]}\n',
            "header: expected observations of 1 to 16777216 bytes, "
            "found 33554432 bytes in 1 features",
        ),
        (
            (Header((A,)).to_json()[:-1] + ',"score":' + HUGE.to_json() + "}\n").encode(),
            "header: expected a score of at most 16777216 bytes, found 33554432",
        ),
        (
            Header((A,)).to_json().replace("]}", "]}" + "," + A.to_json(), 1).encode() + b"\n",
            "header: two features are called 'a'",
        ),
        (
            b'{"features":[{"name":"x"}]}\n',
            "header: tensor spec 'x': expected the properties name, type, port and shape, "
            "found no type, port, shape",
        ),
        (
            ('{"features":[' + ",".join([A.to_json()] * 4097) + "]}\n").encode(),
            "header: expected at most 4096 features, found 4097",
        ),
        (
            b'{"features":[{"name":"x","type":"float","port":0,"shape":['
            + b",".join([b"2147483647"] * 90_000)
            + b"]}]}\n",
            "header: tensor 'x': expected at most 16 dimensions, found 90000",
        ),
        (b"nonsense\n", "training log, byte 0: expected a line of JSON, found b'nonsense\\n'"),
        (
            HEADER + OBSERVATION,
            f"training log, byte {len(HEADER)}: expected a context before the first "
            f"observation, found {(OBSERVATION)[:40]!r}",
        ),
        (
            HEADER + b'{"what":1}\n',
            f"training log, byte {len(HEADER)}: expected a context, an observation or an "
            "outcome, found b'{\"what\":1}\\n'",
        ),
        (
            HEADER + b'{"context":"f"}\n{"outcome":0}\n',
            f"training log, byte {len(HEADER) + 16}: expected the outcome of observation None, "
            "found b'{\"outcome\":0}\\n'",
        ),
        (
            HEADER + b'{"context":"f"}\n{"observation":x}\n' + bytes(8) + b"\n",
            f"training log, byte {len(HEADER) + 16}: expected the number of an observation, "
            "found b'{\"observation\":x}\\n\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\n'",
        ),
        (
            HEADER + b'{"context":"f"}\n' + OBSERVATION[:-1] + b"!",
            f"training log, byte {len(HEADER) + 16}: expected a line's end after the tensors of "
            "b'{\"observation\":0}\\n\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00!'",
        ),
        (
            HEADER + b'{"context":"f"}\n' + OBSERVATION[:-3],
            f"training log, byte {len(HEADER) + 16}: the stream ends in the middle of "
            "b'{\"observation\":0}\\n\\x00\\x00\\x00\\x00\\x00\\x00'",
        ),
        (
            b"x" * ((1 << 20) + 1),
            "training log, byte 0: expected a line of at most 1048576 bytes, found 1048577 without "
            f"an end: {(b'x' * 40)!r}",
        ),
    ],
)
def test_what_is_not_a_log(data: bytes, message: str) -> None:
    with pytest.raises(TrainingLogError) as caught:
        _read(data)
    assert str(caught.value) == message


def test_an_outcome_needs_a_score() -> None:
    data = (
        Header((A,)).to_json().encode() + b'\n{"context":"f"}\n' + OBSERVATION + b'{"outcome":0}\n'
    )
    with pytest.raises(TrainingLogError, match="expected no outcome, since the header has no sco"):
        _read(data)


@pytest.mark.parametrize("name", ["f", "g"])
def test_an_outcome_is_of_its_own_context(name: str) -> None:
    """The observation before it is of another, even where that has the same name."""
    before = HEADER + b'{"context":"f"}\n' + OBSERVATION + b'{"context":"%b"}\n' % name.encode()
    with pytest.raises(TrainingLogError) as caught:
        _read(before + b'{"outcome":0}\n' + bytes(4) + b"\n")
    assert str(caught.value) == (
        f"training log, byte {len(before)}: expected the outcome of observation None, "
        "found b'{\"outcome\":0}\\n\\x00\\x00\\x00\\x00\\n'"
    )
    writer = TrainingLogWriter(io.BytesIO(), Header((A,), score=REWARD))
    writer.start_context("f")
    writer.log_observation({"a": 1})
    writer.start_context(name)
    with pytest.raises(TrainingLogError, match="^training log: expected an observation before it"):
        writer.log_outcome(0)


def test_an_observation_has_one_outcome() -> None:
    writer = TrainingLogWriter(io.BytesIO(), Header((A,), score=REWARD))
    writer.start_context("f")
    writer.log_observation({"a": 1})
    writer.log_outcome(0)
    with pytest.raises(TrainingLogError, match="^training log: expected an observation before it"):
        writer.log_outcome(0)


def test_writer_refuses_what_makes_no_log() -> None:
    writer = TrainingLogWriter(io.BytesIO(), Header((A, B), score=REWARD))
    with pytest.raises(TrainingLogError, match="^training log: expected a context before an obs"):
        writer.log_observation(bytes(16))
    writer.start_context("f")
    with pytest.raises(TrainingLogError, match="^training log: expected an observation before it"):
        writer.log_outcome(0)
    with pytest.raises(
        TrainingLogError,
        match=r"^training log: expected the header's features, found missing \['b'\] and unknown "
        r"\['c'\]$",
    ):
        writer.log_observation({"a": 1, "c": 2})
    with pytest.raises(
        TrainingLogError, match="^training log: expected an observation of 16 bytes, found 15$"
    ):
        writer.log_observation(bytes(15))
    with pytest.raises(SpecError, match="^tensor 'b': expected float32"):
        writer.log_observation({"a": 1, "b": "x"})
    no_score = TrainingLogWriter(io.BytesIO(), Header((A,)))
    with pytest.raises(TrainingLogError, match="^training log: the header has no score"):
        no_score.log_outcome(1)


@pytest.mark.parametrize("tool", ["opt-22", "llc-22"])
def test_equal_to_what_llvm_itself_writes(tool: str, sample: Corpus, tmp_path: Path) -> None:
    """Decode what LLVM's own opt (inliner) and llc (eviction) send, and write it again."""
    stream = captured_stream(tool, sample.folder / "matrix.cpp.bc", tmp_path)
    copy, events = _written_again(stream)
    assert copy == stream
    assert sum(isinstance(event, Observation) for event in events) > 20


def test_names_are_escaped_as_llvm_itself_does(tmp_path: Path) -> None:
    characters = [*map(chr, range(1, 0x20)), '"', "\\", "/", "\x7f", "\xe9", "\u2028"]
    escaped = (
        "".join(f"\\{byte:02X}" for byte in f"{character}f".encode()) for character in characters
    )
    functions = (
        f'define i32 @"{name}"(i32 %x) {{\n  %y = mul i32 %x, 7\n  ret i32 %y\n}}\n'
        for name in escaped
    )
    (tmp_path / "odd.ll").write_text(
        'target triple = "x86_64-unknown-linux-gnu"\n' + "".join(functions)
    )
    stream = captured_stream("llc-22", tmp_path / "odd.ll", tmp_path)
    copy, events = _written_again(stream)
    assert copy == stream
    names = [event.name for event in events if isinstance(event, Context)]
    assert names == [f"{character}f" for character in characters]


def _written_again(stream: bytes) -> tuple[bytes, list[Event]]:
    """What is decoded of a stream, written by our own writer; and the events."""
    decoder, copy = StreamDecoder(), io.BytesIO()
    decoder.feed(stream)
    header = decoder.next_event()
    assert isinstance(header, Header)
    writer = TrainingLogWriter(copy, header)
    events: list[Event] = []
    while (event := decoder.next_event()) is not None:
        events.append(event)
        match event:
            case Context(name):
                writer.start_context(name)
            case Observation():
                writer.log_observation(event.payload)
    decoder.finish()
    return copy.getvalue(), events
