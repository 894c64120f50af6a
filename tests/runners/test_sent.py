"""Runners of models that go to another machine: with their files, and nothing of this one's."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgo_gym.errors import ModelError, OptionsError
from mlgo_gym.model import find_model, freeze
from mlgo_gym.problems import InliningForSize
from mlgo_gym.runners import RunnerPolicy, runner_factory
from mlgo_gym.runners import _load as load
from mlgo_gym.runners._base import RunnerFactory

SENT, ADVICE = InliningForSize().layout.specs, InliningForSize.advice


@pytest.fixture(autouse=True)
def removed() -> Iterator[None]:
    """What copies have written goes, as it does at the end of a process."""
    yield
    load._folder_of.cache_clear()
    load._FOLDERS.close()


def answers(factory: RunnerFactory) -> bytes:
    with factory(SENT, ADVICE) as runner:
        return bytes(runner.evaluate().tobytes())


def test_a_model_directory(tmp_path: Path) -> None:
    """A copy of it is whole, without the folder."""
    folder = tmp_path / "model"
    shutil.copytree(find_model("inlining-for-size"), folder)
    factory = runner_factory(str(folder), "release")
    expected = answers(factory)
    made = copy.deepcopy(factory)
    shutil.rmtree(folder)
    assert answers(made) == expected


@pytest.mark.parametrize("name", ["", "inliner.json"])
def test_a_frozen_model(tmp_path: Path, name: str) -> None:
    """A folder or its description; what this user has frozen needs no key elsewhere."""
    folder = tmp_path / "frozen"
    freeze(find_model("inlining-for-size"), folder, name="inliner")
    factory = runner_factory(str(folder / name), "release")
    expected = answers(factory)
    policy = copy.deepcopy(RunnerPolicy(factory, keep=True))
    shutil.rmtree(folder)
    sent = policy.for_worker(InliningForSize())
    assert sent is not None
    assert answers(policy._factory) == expected


def test_a_frozen_model_of_somebody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    freeze(find_model("inlining-for-size"), tmp_path, name="inliner")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    with pytest.raises(OptionsError, match="expected machine code that this user has frozen"):
        copy.deepcopy(runner_factory(str(tmp_path), "release"))


def test_a_model_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "MAX_SENT_BYTES", 1000)
    shutil.copytree(find_model("inlining-for-size"), tmp_path / "model")
    with pytest.raises(ModelError, match="cannot be sent: expected at most "):
        copy.deepcopy(runner_factory(str(tmp_path / "model"), "release"))


def test_a_host_is_an_address() -> None:
    factory = runner_factory("localhost:1234", "interactive", token="secret")  # noqa: S106
    assert copy.deepcopy(factory) == factory
