"""Files that may be anything are read with bounds, and never waited for."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_tools import reading
from corpus_tools.reading import holds, open_regular, parse_json, read_regular, reason_of


def huge(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 33)


def large(path: Path) -> None:
    path.write_bytes(b"12345")


NO_FILE = "expected a regular file, found something else"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkfifo, NO_FILE),
        (os.mkdir, NO_FILE),
        (lambda path: path.symlink_to("/dev/zero"), NO_FILE),
        (huge, "expected at most 4 bytes, found 8589934592"),
        (large, "expected at most 4 bytes, found 5"),
        (lambda _: None, "No such file or directory"),
    ],
    ids=["fifo", "folder", "device", "huge", "large", "nothing"],
)
def test_what_is_not_read(make: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    make(path)
    with pytest.raises(OSError, match=reason) as caught:
        read_regular(path, 4)
    assert reason_of(caught.value) == reason
    assert not holds(path, b"")


def test_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    assert read_regular(path, 4) == b"1234"
    status = Path("/proc/self/cmdline")
    assert read_regular(status) == status.read_bytes() != b""
    with open_regular(path) as stream:
        assert stream.name == str(path)
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
