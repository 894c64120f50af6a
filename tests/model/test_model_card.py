"""Model cards: what they say, and models of another LLVM."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from corpus_tools.reading import brief
from mlgo_gym.errors import ModelError
from mlgo_gym.model._card import ModelCard, read_card
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.runners._model_runners import ModelUnderTrainingRunner, ReleaseModeModelRunner

MODEL = Path(__file__).parents[1] / "models" / "inliner"
FEATURES = tuple(each.spec for each in InliningForSize().layout.features)
ADVICE = InliningForSize.advice
CARD: dict[str, Any] = {"problem": "InliningForSize", "llvm_version": "21.1.0", "features": []}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    shutil.copytree(MODEL, tmp_path / "model")
    return tmp_path / "model"


def test_what_a_card_says(model: Path) -> None:
    card = read_card(model)
    assert card is not None
    assert (card.problem, len(card.features)) == ("InliningForSize", 38)
    assert card.differences(InliningForSize().layout.specs) == ("inlining_default",)
    (model / "card.json").unlink()
    assert read_card(model) is None


def test_a_card_that_is_no_file_is_not_passed_over(model: Path) -> None:
    card = model / "card.json"
    card.unlink()
    os.mkfifo(card)
    with pytest.raises(ModelError, match=r"card\.json: expected a regular file, found a FIFO"):
        read_card(model)
    card.unlink()
    card.symlink_to("nowhere")
    with pytest.raises(ModelError, match=r"card\.json.*No such file or directory"):
        read_card(model)


@pytest.mark.parametrize("kind", [ReleaseModeModelRunner, ModelUnderTrainingRunner])
def test_a_model_of_another_llvm(model: Path, kind: Any) -> None:
    features = [spec.name for spec in FEATURES]
    (model / "card.json").write_text(json.dumps(CARD | {"features": features[:30]}))
    with kind(model, FEATURES, ADVICE) as runner:
        assert runner.card == ModelCard("InliningForSize", "21.1.0", tuple(features[:30]))
        assert runner.card.differences(runner.inputs) == tuple(features[30:])
    (model / "card.json").write_text(json.dumps(CARD | {"features": [*features, "gone", "lost"]}))
    with pytest.raises(ModelError) as caught:
        kind(model, FEATURES, ADVICE)
    assert str(caught.value) == (
        f"model '{model}': was trained on features of LLVM 21.1.0 that are not offered: "
        "'gone', 'lost'"
    )


@pytest.mark.parametrize(
    "card",
    [
        [],
        {},
        CARD | {"features": [1]},
        CARD | {"features": "x"},
        CARD | {"problem": None},
        CARD | {"settings": []},
        CARD | {"settings": {"ir2vec": 1}},
        [[]] * 1_000_000,
    ],
)
def test_cards_of_another_form(model: Path, card: object) -> None:
    (model / "card.json").write_text(json.dumps(card))
    with pytest.raises(ModelError) as caught:
        read_card(model)
    assert str(caught.value) == (
        f"model '{model}': card.json: expected problem and llvm_version as texts, features as a "
        f"list of texts and settings, if any, as texts by name, found {brief(card)}"
    )
