"""Values as columns: what is read is what was given, whatever it is, in few objects."""

from __future__ import annotations

import pickle  # noqa: TID251 - what Ray does
import pickletools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus, Module
from mlgo_gym.corpus._packages import ModuleKey
from mlgo_gym.errors import ModuleError
from mlgo_gym.evaluation._summary import ModuleScores
from mlgo_gym.lab.cluster._ray_worker import column, values_of
from mlgo_gym.llvm._schedule import Made
from mlgo_gym.rollout._linked_text import Code


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True, slots=True)
class Counted:
    """Made by its constructor no second time."""

    number: int

    def __post_init__(self) -> None:
        raise AssertionError("made again")


@dataclass(frozen=True)
class Named:
    """Pickled by something else than its fields."""

    name: str

    def __reduce__(self) -> tuple[Any, ...]:
        return Named, (self.name.upper(),)


@dataclass
class Changing:
    number: int


def sent(values: Sequence[Any]) -> Sequence[Any]:
    return values_of(pickle.loads(pickle.dumps(column(values))))  # noqa: S301 - its own


def counted(number: int) -> Counted:
    made = object.__new__(Counted)
    object.__setattr__(made, "number", number)
    return made


def scores(name: str, text: int) -> ModuleScores:
    code = {"default": Code(text, {name: 3}), "never": Code(text + 1, {})}
    settings = {"opt_level": "Oz", "features": ""}
    return ModuleScores("lupa", name, "C", {"never": 2}, code=code, settings=settings)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1],
        [1, 1, 1],
        [1, True, 1.0],
        [0.0, -0.0, 0.0],
        [(), ()],
        [{}, {}],
        [(1,), (1, 2)],
        [{"a": 1}, {"b": 1}],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
        [[1], [1]],
        [Colour.RED, Colour.BLUE],
        [ModuleKey("lupa", "a.c"), ModuleKey("lupa", "b.c")],
        [(ModuleKey("", "a.c"), Module("a.c", b"BC")), (ModuleKey("", "b.c"), Module("b.c", b"D"))],
        [Made(None, (scores("a.c", 10),)), Made(None, (scores("b.c", 20),))],
        [Made(None, (1,)), Made(None, ("one",)), Made(None)],
        [Changing(1), Changing(1)],
        [counted(1), counted(2)],
    ],
    ids=repr,
)
def test_values_are_what_they_were(values: list[Any]) -> None:
    found = sent(values)
    assert list(found) == values
    assert repr(list(found)) == repr(values)  # -0.0 and True are equal to others


def test_errors_are_among_them() -> None:
    values = [Made(ModuleError("a.c", "gone")), Made(None, (1,))]
    first, second = sent(values)
    assert (str(first.error), first.made) == ("module 'a.c': gone", ())
    assert second == Made(None, (1,))


def test_who_pickles_itself_does() -> None:
    found = sent([Named("a"), Named("b")])
    assert found == [Named("A"), Named("B")]


def test_what_can_be_changed_is_not_shared() -> None:
    values: list[Any] = [{"a": 1}, {"a": 1}]
    first, second = values_of(column(values))
    first["a"] = 2
    assert second == {"a": 1}
    one, other = sent([Changing(1), Changing(1)])
    one.number = 2
    assert other == Changing(1)


def test_files_are_few_objects() -> None:
    """No object, and no class, is named for each of them."""
    corpus = Corpus.load(SAMPLE_CORPUS)
    files = [corpus.file(name) for name in corpus.names]
    data = pickle.dumps(column(files))
    assert sent(files) == files
    named = [code.name for code, _, _ in pickletools.genops(data)]
    assert named.count("STACK_GLOBAL") == 1
    assert named.count("BUILD") == named.count("NEWOBJ") == 0
