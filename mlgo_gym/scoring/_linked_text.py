"""Linked text: the code of a package's objects as a linker keeps it, each COMDAT group once.

Inline functions and instances of templates are in every object that uses them. Inlining them away
in one object saves nothing as long as another has them; the sum of the objects' sizes says
otherwise.

Of all groups of one name a linker takes the first, here in the order of the corpus. Padding, and
what a linker may drop besides (``--gc-sections``, ``--icf``), are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.llvm._result import CompilationResult


@dataclass(frozen=True, slots=True)
class Code:
    """The code of one object.

    Attributes:
        text_bytes: all of it.
        comdat_bytes: what of it is in each COMDAT group, by the group's name.

    >>> Code(text_bytes=10, comdat_bytes={}).text_bytes
    10
    """

    text_bytes: int
    comdat_bytes: Mapping[str, int] = field(repr=False)

    @classmethod
    def of(cls, result: CompilationResult) -> Code:
        """The code that came out of a compilation."""
        return cls(result.text_size_bytes, result.comdat_text_bytes())

    @property
    def own_bytes(self) -> int:
        """What is in no group, so that a linker keeps it in any case."""
        return self.text_bytes - sum(self.comdat_bytes.values())


def linked_text_bytes(package: Sequence[Code]) -> int:
    """The code of objects that are linked together, in a linker's order, in bytes.

    >>> linked_text_bytes([Code(100, {"f": 30}), Code(80, {"f": 32, "g": 8})])
    148
    """
    return sum(each.own_bytes for each in package) + sum(_kept(package).values())


def linked_text_shares(package: Sequence[Code]) -> NDArray[Any]:
    """The part of each object in `linked_text_bytes`: float64 ``[objects]``, in bytes.

    What is kept of a COMDAT group is shared equally by the objects that have it: which of them
    comes first is chance.

    >>> linked_text_shares([Code(100, {"f": 30}), Code(80, {"f": 32, "g": 8})])
    array([85., 63.])
    """
    kept = _kept(package)
    owners = Counter(name for each in package for name in each.comdat_bytes)
    return np.array(
        [
            each.own_bytes + sum(kept[name] / owners[name] for name in each.comdat_bytes)
            for each in package
        ]
    )


def _kept(package: Sequence[Code]) -> dict[str, int]:
    kept: dict[str, int] = {}
    for each in package:
        for name, size in each.comdat_bytes.items():
            kept.setdefault(name, size)
    return kept
