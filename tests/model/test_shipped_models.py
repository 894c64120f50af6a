"""Models that ship: found by name, with cards that hold, and better than LLVM where it is quick."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.model._card import find_model, read_card, shipped_models
from mlgo_gym.policies._models import problem_of_models, settings_of_models
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.runners._release import ReleaseModeModelRunner

NAMES = ("inlining-for-size", "inlining-for-size-derived", "regalloc-eviction")


def test_they_are_all_there() -> None:
    assert set(shipped_models()) == set(NAMES)


@pytest.mark.e2e
@pytest.mark.parametrize("name", NAMES)
def test_their_cards_hold(name: str, sample: Corpus) -> None:
    folder = Path(find_model(name))
    kind = problem_of_models([str(folder)])
    problem = kind(**settings_of_models([str(folder)], kind))
    card = read_card(folder, problem.sent())
    assert card is not None
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 1 << 20
    with Compiler(timeout_s=120) as compiler:
        result = compiler.compile_module(
            sample["scene.cpp"],
            problem=problem,
            policy=RunnerPolicy(partial(ReleaseModeModelRunner, folder)),
        )
    assert result.decisions > 0


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_model(NAMES[0]) != NAMES[0]
    (tmp_path / NAMES[0]).mkdir()
    assert find_model(NAMES[0]) == NAMES[0]
    assert find_model("no-such-model") == "no-such-model"
