"""Problems are found by their entry points, a third party's as our own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import ClassVar

import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.errors import EnvironmentSetupError, OptionsError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._registry import _found, option_name, problem_named, problems

OWN = ("inlining-for-size", "regalloc-eviction", "regalloc-priority")


def test_our_own() -> None:
    assert tuple(problems())[:3] == OWN
    assert [option_name(problems()[name]) for name in OWN] == list(OWN)
    with pytest.raises(OptionsError) as caught:
        problem_named("inlining-for-fun")
    expected = f"problem: expected one of {', '.join(problems())}, found 'inlining-for-fun'"
    assert str(caught.value) == expected


@dataclass(frozen=True, slots=True)
class Another(InliningForSize):
    name: ClassVar[str] = "Another"


@dataclass(frozen=True, slots=True)
class Vector(InliningForSize):
    name: ClassVar[str] = "Vector"
    advice: ClassVar[TensorSpec] = TensorSpec("both", "int64_t", (2,))


@dataclass(frozen=True, slots=True)
class Nameless(InliningForSize):
    name: ClassVar[str] = "Nameless"
    default_policy: ClassVar[str] = "sometimes"


class Lacking(Problem):
    name: ClassVar[str] = "Lacking"


_PARTS = (
    *("advice", "policies", "default_policy", "measure", "action_space", "documented_layout"),
    *("advisor_options", "default_options", "encode_advice", "fallback_action", "settings"),
)
Plain = type(
    "Plain", (Problem,), {"name": "Plain"} | {each: vars(InliningForSize)[each] for each in _PARTS}
)
"""All that a problem has, but no dataclass."""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which a package's metadata is found, as after an installation."""
    folder = tmp_path / "third_party-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    _found.cache_clear()
    yield folder / "entry_points.txt"
    _found.cache_clear()


HERE = "tests.problems.test_registry"


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("mine", "nowhere:Problem", "cannot be loaded: No module named 'nowhere'"),
        (
            "mine",
            f"{HERE}:OWN",
            "expected a subclass of mlgo_gym.problems.Problem, found ('inlining-for-size', "
            "'regalloc-eviction', 'regalloc-priority')",
        ),
        (
            "mine",
            f"{HERE}:Lacking",
            "Lacking: expected advice, policies, default_policy, measure, action_space, "
            "advisor_options, default_options, documented_layout, encode_advice, fallback_action, "
            "settings, found none",
        ),
        ("mine", f"{HERE}:Plain", "Plain: expected a dataclass, found none"),
        ("mine", f"{HERE}:Vector", "Vector: advice: expected one number, found int64_t (2,)"),
        (
            "mine",
            f"{HERE}:Nameless",
            "Nameless: default_policy: expected one of default, always, never, random, found "
            "'sometimes'",
        ),
        (
            "inlining-for-size",
            f"{HERE}:Another",
            "expected a name of its own, found that of another",
        ),
        (
            "mine",
            "mlgo_gym.problems._inlining_for_size:InliningForSize",
            "expected a problem of another name, found 'InliningForSize' twice",
        ),
    ],
)
def test_bad_entry_points(installed: Path, name: str, target: str, message: str) -> None:
    installed.write_text(f"[mlgo_gym.problems]\n{name} = {target}\n")
    said = f"entry point {name!r} of third-party 1.0 ({target}): {message}"
    with pytest.warns(RuntimeWarning) as caught:
        assert tuple(problems()) == OWN
    assert [str(each.message).startswith(said) for each in caught] == [True]
    if name == "mine":
        with pytest.raises(EnvironmentSetupError) as asked:
            problem_named("mine")
        assert str(asked.value).startswith(said)


def test_one_more(installed: Path) -> None:
    installed.write_text(f"[mlgo_gym.problems]\nmine = {HERE}:Another\n")
    assert problem_named("mine") is problem_named("Another") is Another
    assert tuple(problems()) == (*OWN, "mine")
    assert "third-party" in {each.name for each in metadata.distributions()}
