"""Every reader, and every file that is none: it is taken, or refused by an error that names it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz import mutators
from tests.fuzz.targets import OWN, TARGETS, Target

HUGE = 6 << 30


STEPS = {"network": 7}
"""Of readers that take long for each file, here a network of Keras's, every so many-th is tried."""


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


KINDS: dict[str, Callable[[Path], None]] = {
    "FIFO": os.mkfifo,
    "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "/dev/full": lambda path: path.symlink_to("/dev/full"),
    "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
    "sparse": _sparse,
    "empty": Path.touch,
}
TEXTS: dict[str, bytes] = {
    "zeros": bytes(1000),
    "deep": b"[" * 100_000,
    "deep and whole": b'{"a":' * 500 + b"1" + b"}" * 500,
    "bignum": b"9" * 5000,
    "no UTF-8": b'{"a":"\xff\xfe"}',
    "lone surrogate": b'{"modules":["\\ud800"],"\\udfff":"\\ud800"}',
    "NaN": b'{"a":NaN,"b":[Infinity,-Infinity]}',
    "twice": b'{"modules":[],"modules":[1],"has_thinlto":1,"has_thinlto":false}',
    "UTF-16": '{"modules":[]}'.encode("utf-16"),
    "null": b"null",
    "list": b"[]",
    "object": b"{}",
    "text": b'"x"',
    "number": b"1e999",
    "a long line": b"x" * (1 << 21),
    "escapes": b"\x1b[31m[red]\x1b]0;title\x07\r\n",
}
GRAPHS = {"graph", "graph evaluated"}
JSON = [name for name, each in TARGETS.items() if each.mutate is mutators.of_json]


@contextmanager
def _taken_or_refused(target: Target, path: Path) -> Iterator[None]:
    try:
        yield
    except OWN as error:
        message = str(error)
        assert not target.names_it or path.name in message or str(path.parent) in message


def _placed(target: Target, folder: Path) -> Path:
    target.around(folder)
    path = folder / target.name
    path.unlink(missing_ok=True)
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in TARGETS if name != "channel"])
def test_what_is_no_file(name: str, kind: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    path = _placed(target, tmp_path)
    KINDS[kind](path)
    with _taken_or_refused(target, path):
        target.read(path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.e2e) if name == "graph evaluated" else name
        for name in TARGETS
    ],
)
def test_a_sound_file_is_taken(name: str, tmp_path: Path) -> None:
    """So that what the others show is not of a file that nobody takes."""
    target = TARGETS[name]
    path = _placed(target, tmp_path)
    seeds, taken = target.seeds(), 0
    for seed in seeds:
        path.write_bytes(seed)
        if name == "frozen model":  # it is for a machine that there is not
            with pytest.raises(OWN, match="expected an object for .*, found one for x"):
                target.read(path)
            taken += 1
            continue
        try:
            target.read(path)
            taken += 1
        except OWN:
            assert name in GRAPHS  # some of which are not lowered
    assert taken == len(seeds) or (name in GRAPHS and taken)


@pytest.mark.parametrize("name", TARGETS)
def test_files_that_hold_something_else(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    path = _placed(target, tmp_path)
    (seed, *_) = target.seeds()
    cut = {f"{size} bytes": seed[:size] for size in (1, 7, len(seed) // 2, len(seed) - 1)}
    for data in (TEXTS | cut).values():
        path.write_bytes(data)
        with _taken_or_refused(target, path):
            target.read(path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.e2e) if name in {"card", "vocabulary"} else name
        for name in JSON
    ],
)
def test_values_of_another_type(name: str, tmp_path: Path) -> None:
    """Each value of a JSON file, one after the other, is everything that it may not be."""
    target = TARGETS[name]
    path = _placed(target, tmp_path)
    for seed in target.seeds():
        for _, data in islice(mutators.replaced(seed), 0, None, STEPS.get(name, 1)):
            path.write_bytes(data)
            with _taken_or_refused(target, path):
                target.read(path)
