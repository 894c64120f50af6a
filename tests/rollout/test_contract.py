"""The contract, over measures that run no program; and measures that break it."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.llvm._result import CompilationResult
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.rollout import MeasureSetting
from mlgo_gym.rollout._linked_text import LinkedText
from mlgo_gym.rollout._measures import AllocationCost, KeptObjectUnit, Measure, Result, TextSize
from mlgo_gym.testing import ContractError, check_measure


@pytest.mark.parametrize(
    ("measure", "problem"),
    [
        (TextSize(), InliningForSize()),
        (TextSize(), RegallocEviction()),
        (AllocationCost(), RegallocEviction()),
        (AllocationCost(), RegallocPriority()),
    ],
)
def test_measures_keep_the_contract(sample: Corpus, measure: Measure, problem: Problem) -> None:
    check_measure(measure, sample["lru_cache.cpp"], problem)


def test_linked_text_keeps_it(sample: Corpus) -> None:
    measure = LinkedText.prepare(MeasureSetting(sample.only(["lru_cache.cpp", "scene.cpp"])))
    check_measure(measure, sample["lru_cache.cpp"], InliningForSize(), opt_level="O2")


class Negative(TextSize):
    def score(self, result: Result) -> float:
        return -result.score


class Reversed(TextSize):
    def rewards(self, result: Result, baseline: Result) -> dict[str, float]:
        return {"": -super().rewards(result, baseline)[""]}


class Nameless(TextSize):
    title: str = ""


class Whole(TextSize):
    """The whole has another name."""

    def rewards(self, result: Result, baseline: Result) -> dict[str, float]:
        return {"all": super().rewards(result, baseline)[""]}


class Apart(TextSize):
    """Its parts have no rewards."""

    def parts(self, result: Result) -> dict[str, float]:
        return super().parts(result) | {"f": 1.0}


class Unrewarding(TextSize):
    def rewards(self, result: Result, baseline: Result) -> Any:
        """Forgets to return them."""


class OtherKey(TextSize):
    def scores(self, result: Result) -> dict[str, float]:
        return {"size": self.score(result)}


class Changing(TextSize):
    """One result more, one byte more."""

    count: ClassVar[int] = 0

    def score(self, result: Result) -> float:
        Changing.count += 1
        return result.score + Changing.count


class Alone(TextSize):
    """Equals nothing but itself."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class Hidden(TextSize):
    """Its context is no JSON."""

    def context(self) -> Any:
        return {"package": b"sha256"}


class Greedy(TextSize):
    """Closes what others use."""

    def __init__(self) -> None:
        self.sizes: dict[str, float] | None = {}

    def __hash__(self) -> int:
        return 0

    def score(self, result: Result) -> float:
        assert self.sizes is not None, "closed"
        return self.sizes.setdefault(result.digest, result.score)

    def close(self) -> None:
        self.sizes = None


class Hoarding(TextSize):
    """Results hold objects that it does not look at."""

    unit: type[KeptObjectUnit] = KeptObjectUnit

    @property
    def keeps_objects(self) -> bool:
        return False


class Forgetful(TextSize):
    """Looks at the object each time."""

    unit: type[KeptObjectUnit] = KeptObjectUnit

    def score(self, result: Result) -> float:
        assert isinstance(result, CompilationResult)
        return float(len(result.object_bytes or b""))


class Mistaken(TextSize):
    """Its results are those of objects."""

    makes_objects: ClassVar[bool] = False


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (Nameless(), "title: expected some text, found ''"),
        (Hidden(), "context: expected JSON, found TypeError: Object of type bytes is not"),
        (Alone(), "equality with a copy: expected True, found False"),
        (Negative(), "score 'text_size_bytes' of LLVM's own: expected a finite number, 0 or more"),
        (OtherKey(), "score 'text_size_bytes' of LLVM's own: expected [0-9]+, found None"),
        (Greedy(), "score of default after a share was closed: expected a number, found Assertion"),
        (Mistaken(), "an object's result for LLVM's own: expected False, found True"),
        (Hoarding(), "object in the result of LLVM's own: expected False, found True"),
        (Forgetful(), "score of LLVM's own without its object: expected .*, found 0.0"),
        (Apart(), "parts of LLVM's own without a reward: expected set\\(\\), found {'f'}"),
        (
            Unrewarding(),
            "rewards of LLVM's own: expected a mapping of names to numbers, found None",
        ),
        (Whole(), "a reward of the whole, named '': expected True, found False"),
        (Reversed(), "reward of .* above that of .*: expected .*, found "),
        (Changing(), "score.* of LLVM's own.*: expected "),
    ],
)
def test_the_suite_finds_what_is_broken(sample: Corpus, measure: Measure, message: str) -> None:
    with pytest.raises(ContractError, match=f"^{message}"):
        check_measure(measure, sample["frame_stream.c"], InliningForSize())
