"""Files that may be anything are read with bounds, and never waited for."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from corpus_tools import reading
from corpus_tools.reading import holds, parse_json, read_regular


def test_what_a_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert not holds(path, b"")
    os.mkfifo(tmp_path / "fifo")
    assert not holds(tmp_path / "fifo", b"")
    path.write_bytes(b"1234")
    assert [holds(path, data) for data in (b"1234", b"1243", b"123", b"12345")] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a":' * 100_000, b"\xff"])
def test_what_is_no_json(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"Expect|expected at most 100 levels, found more|codec"):
        parse_json(text)


@pytest.mark.parametrize("item", ["[]", '{"a":0}', "-1"])
def test_more_values_than_there_is_memory_for(item: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_VALUES", 1000)
    text = f"[{','.join([item] * 1001)}]"
    for each in (text, text.encode()):
        with pytest.raises(ValueError, match="^expected at most 1000 values, found more$"):
            parse_json(each)
    assert parse_json('["' + "a" * 2000 + '"]') == ["a" * 2000]


def test_a_large_build_is_parsed() -> None:
    """A list of 100,000 commands, of 60 arguments each."""
    entry = {"directory": "/build", "file": "a.cc", "arguments": ["-DAAAAAAAA"] * 60}
    text = "[" + ",".join([json.dumps(entry)] * 100_000) + "]"
    assert reading._value_count(text) < reading.MAX_VALUES


def test_memory_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    tracemalloc.start()
    try:
        assert read_regular(path, 1 << 31) == b"1234"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
