"""Making other files out of sound ones, with a seeded generator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np

Mutator = Callable[[np.random.Generator, bytes], bytes]
Path = tuple[str | int, ...]

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 10**30, 10**4000, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), float("-inf"), "", "x", "../x", "/etc/passwd", "\0", "\ud800",
    "\x1b[31m", "[red]", "é" * 300, "x" * 70_000, [], {}, [None], [[]], {"": None}, ["x"] * 9,
)  # fmt: skip
"""What may stand anywhere in a JSON file."""

TOKENS = (
    b"\0", b"\xff", b"\xed\xa0\x80", b"\x1b[31m", b"\r\n", b"'", b'"', b"\\", b"[[[[", b"{", b"}",
    b"@", b"..", b"/", b"9" * 5000, b"NaN", b"1e999", b"-", b"\xef\xbb\xbf", b"\xfe\xff", b" " * 99,
)  # fmt: skip
LARGEST_BYTES = 1 << 17
"""How much a list grows at once, at most: what is slow is not so because there is much of it."""
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1)


def of_bytes(random: np.random.Generator, data: bytes) -> bytes:
    """Bits and bytes changed, pieces taken out, doubled, cut off, and numbers of all widths."""
    made = bytearray(data)
    for _ in range(1 + int(random.geometric(0.5))):
        at = int(random.integers(0, max(1, len(made))))
        length = int(random.integers(1, 17))
        kind = random.integers(0, 8)
        if kind <= 1 and made:
            made[at % len(made)] ^= 1 << int(random.integers(0, 8))
        elif kind <= 3 and made:
            made[at % len(made)] = int(random.integers(0, 256))
        elif kind == 4:
            width = int(random.choice([1, 2, 4, 8]))
            number = NUMBERS[int(random.integers(0, len(NUMBERS)))] & ((1 << 8 * width) - 1)
            made[at : at + width] = number.to_bytes(width, "little")
        elif kind == 5:
            del made[at : at + length]
        elif kind == 6:
            made[at:at] = made[at : at + length] * int(random.integers(1, 4))
        elif random.random() < 0.3:
            del made[at:]
    return bytes(made)


def of_text(random: np.random.Generator, data: bytes) -> bytes:
    """As `of_bytes`, or with something put in that means something to some reader."""
    if random.random() < 0.3:
        return of_bytes(random, data)
    made = data
    for _ in range(1 + int(random.geometric(0.6))):
        at = int(random.integers(0, len(made) + 1))
        token = TOKENS[int(random.integers(0, len(TOKENS)))]
        made = made[:at] + token + made[at + int(random.integers(0, 4)) :]
    return made


def of_json(random: np.random.Generator, data: bytes) -> bytes:
    """A value replaced, taken out, doubled or renamed, or the text changed."""
    if random.random() < 0.2:
        return of_text(random, data)
    try:
        value = json.loads(data)
    except ValueError:
        return of_text(random, data)
    for _ in range(1 + int(random.geometric(0.6))):
        places = [(), *_places(value)]
        place = places[int(random.integers(0, len(places)))]
        value = _changed(value, place, random)
    return json.dumps(value).encode()


def replaced(data: bytes) -> Iterator[tuple[Path, bytes]]:
    """Every value of a JSON file replaced by every one of `VALUES`, or taken out."""
    for place in [(), *_places(json.loads(data))]:
        for other in VALUES:
            yield place, _dumped(_put(json.loads(data), place, deepcopy(other)))
        if place:
            outer = json.loads(data)
            del _at(outer, place[:-1])[place[-1]]
            yield place, _dumped(outer)


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def _places(value: Any, place: Path = ()) -> list[Path]:
    inner: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [
        each for key, found in inner for each in ((*place, key), *_places(found, (*place, key)))
    ]


def _at(value: Any, place: Path) -> Any:
    for key in place:
        value = value[key]
    return value


def _put(value: Any, place: Path, other: Any) -> Any:
    if not place:
        return other
    _at(value, place[:-1])[place[-1]] = other
    return value


def _changed(value: Any, place: Path, random: np.random.Generator) -> Any:
    if not place or random.random() < 0.6:
        return _put(value, place, deepcopy(VALUES[int(random.integers(0, len(VALUES)))]))
    outer, key = _at(value, place[:-1]), place[-1]
    if random.random() < 0.5:
        del outer[key]
    elif isinstance(outer, list):
        times = min(
            int(random.choice([1, 40, 5000], p=[0.6, 0.35, 0.05])),
            LARGEST_BYTES // len(_dumped(outer[int(key)])),
        )
        outer.extend(deepcopy(outer[int(key)]) for _ in range(times))  # else one change is of all
    else:
        outer[f"{key}x"] = outer.pop(str(key))
    return value
