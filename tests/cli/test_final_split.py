"""The split ``final``: what refuses it, and what an evaluation on it leaves in a model's card."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mlgo_gym.cli._main import main
from mlgo_gym.model._card import read_card

NEVER = Path(__file__).parents[1] / "models" / "never"
CARD = {"problem": "InliningForSize", "llvm_version": "22.1.0", "features": ["callee_users"]}


@pytest.fixture
def last(small_folder: Path) -> Path:
    """A corpus of the split."""
    (small_folder / "corpus_info.json").write_text('{"package": "p", "split": "final"}')
    return small_folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model directory with a card."""
    shutil.copytree(NEVER, tmp_path / "mine")
    (tmp_path / "mine" / "card.json").write_text(json.dumps(CARD))
    return tmp_path / "mine"


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("train advantage --output out", "to train and to choose on"),
        ("train imitate --output out --set traces=t", "to train and to choose on"),
        ("demo --output out", "to train and to choose on"),
        ("tune --output out", "to train and to choose on"),
        ("dataset record --output out", "to record"),
        ("search --output out", "to search"),
        ("rollout --log out", "to record"),
        ("rollout --traces out", "to record"),
        ("vocabulary train --output out.json", "to train on"),
        ("corpus split --output out", "to split"),
    ],
)
def test_it_is_refused(
    *,
    command: str,
    what: str,
    last: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "--corpus", str(last)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"mlgo-gym: error: corpus {str(last)!r}: expected one of the split 'train' or 'test' "
        f"{what}, found 'final', which is only evaluated on"
    )
    assert not (tmp_path / "out" / "corpus_description.json").exists()


def test_the_parts_of_its_modules_are_of_it_too(last: Path, tmp_path: Path) -> None:
    out = tmp_path / "functions"
    arguments = ["--corpus", str(last), "--output", str(out), "--minimum-instructions", "50"]
    assert main(["corpus", "split-functions", *arguments]) == 0
    assert json.loads((out / "corpus_info.json").read_text())["split"] == "final"


def test_a_card_says_how_often(
    last: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate = ["evaluate", "--corpus", str(tmp_path), "--split", "final", "--model", str(model)]
    assert main(evaluate) == 0
    assert "split 'final': --record-in-card keeps it" in capsys.readouterr().out
    assert json.loads((model / "card.json").read_text()) == CARD
    for times in (1, 2):
        assert main([*evaluate, "--policy", "always", "--record-in-card"]) == 0
        said = f"mine: evaluated on the split 'final' {times} times, by its card."
        assert said in capsys.readouterr().out
    found = json.loads((model / "card.json").read_text())
    first, second = found.pop("final_tests")
    assert found == CARD
    assert read_card(model) is not None
    assert first.pop("date") <= second.pop("date")
    assert first == second
    assert first["modules"] == {last.name: 3}
    assert first["results"]["linked_text"]["change"] > 0  # nothing is inlined


@pytest.mark.parametrize(
    ("split", "arguments", "message"),
    [
        (
            "test",
            ["--model", "{model}"],
            "expected corpora of the split 'final' alone, found others",
        ),
        ("final", ["--policy", "always"], "expected models, found none"),
        ("final", ["--model", "{bare}"], "expected models with card.json, found '{bare}'"),
    ],
)
def test_cards_that_cannot_be_written(
    *,
    split: str,
    arguments: list[str],
    message: str,
    last: Path,
    model: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (last / "corpus_info.json").write_text(json.dumps({"split": split}))
    bare = shutil.copytree(model, model.with_name("bare"))
    (bare / "card.json").unlink()
    given = [each.format(model=model, bare=bare) for each in arguments]
    assert main(["evaluate", "--corpus", str(last), "--record-in-card", *given]) == 1
    found = capsys.readouterr().err.splitlines()[-1]
    assert found == f"mlgo-gym: error: --record-in-card: {message.format(bare=bare)}"


def test_a_card_of_another_form(
    last: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "card.json").write_text(json.dumps(CARD | {"final_tests": 3}))
    assert main(["evaluate", "--corpus", str(last), "--model", str(model), "--record-in-card"]) == 1
    found = capsys.readouterr().err.splitlines()[-1]
    assert found.endswith("card.json: expected final_tests as a list, found 3")
