"""Tensors that LLVM sends to a policy inside a worker, and legal answers; without numpy."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

FORMATS: Final = {
    "float": "f",
    "double": "d",
    **{
        f"{sign}int{8 << power}_t": letter
        for sign, letters in (("", "bhiq"), ("u", "BHIQ"))
        for power, letter in enumerate(letters)
    },
}


@dataclass(frozen=True, slots=True)
class SentTensor:
    """A tensor, as LLVM describes it, and where it lies.

    >>> SentTensor.of({"name": "x", "type": "int64_t", "shape": [1]}, 8).end
    16
    """

    name: str
    type: str
    shape: tuple[int, ...]
    start: int

    @classmethod
    def of(cls, value: Mapping[str, Any], start: int = 0) -> SentTensor:
        """The tensor of a JSON object."""
        return cls(value["name"], value["type"], tuple(value["shape"]), start)

    @property
    def item_bytes(self) -> int:
        """The size of one number."""
        return struct.calcsize(FORMATS[self.type])

    @property
    def end(self) -> int:
        """The place of the next tensor."""
        return self.start + self.item_bytes * math.prod(self.shape)

    def is_like(self, other: SentTensor) -> bool:
        """Whether the type and the shape are the same."""
        return (self.type, self.shape) == (other.type, other.shape)


@dataclass(frozen=True, slots=True)
class Legal:
    """Legal answers: numbers from a range and, where there is a mask, positions in it."""

    low: float
    high: float
    advice: struct.Struct
    mask: SentTensor | None

    @classmethod
    def of(
        cls, allowed: Sequence[Any], advice: SentTensor, sent: Mapping[str, SentTensor]
    ) -> Legal | None:
        low, high, mask = allowed
        if advice.shape != (1,) or (mask and mask not in sent):
            return None
        return cls(low, high, struct.Struct(f"={FORMATS[advice.type]}"), sent.get(mask))

    @property
    def advice_bytes(self) -> int:
        return self.advice.size

    def __call__(self, advice: bytes, payload: bytes) -> bool:
        (value,) = self.advice.unpack(advice)
        if not self.low <= value <= self.high or self.mask is None:
            return bool(self.low <= value <= self.high)
        start = self.mask.start + self.mask.item_bytes * int(value)
        return start < self.mask.end and any(payload[start : start + self.mask.item_bytes])


def legal_as_documented(about: Mapping[str, Any], header: Mapping[str, Any]) -> Legal | None:
    """Return the legal answers, where LLVM sends exactly what the problem documents."""
    described = [[each["name"], each["type"], each["shape"]] for each in header["features"]]
    if described != about["sent"]:
        return None
    return Legal.of(about["allowed"], SentTensor.of(header["advice"]), laid_out(header)[0])


def laid_out(header: Mapping[str, Any]) -> tuple[dict[str, SentTensor], int]:
    """The tensors of an observation by name, and its size in bytes."""
    sent: dict[str, SentTensor] = {}
    end = 0
    for each in header["features"]:
        sent[each["name"]] = tensor = SentTensor.of(each, end)
        end = tensor.end
    return sent, end
