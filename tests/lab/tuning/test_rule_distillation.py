"""Distilling a model into a rule: what is written and answered, and what cannot be distilled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.datasets._episodes import Episode, Source
from mlgo_gym.datasets._record import header_of
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import DatasetError, ModelError, OptionsError, TrainingError
from mlgo_gym.lab.tuning._rule import LEAST_LINES, features_of, splits_of
from mlgo_gym.lab.tuning._rule_distillation import (
    Distilled,
    RuleConfig,
    _checked,
    _network,
    distill,
)
from mlgo_gym.llvm import LLVM_MAJOR
from mlgo_gym.model._card import find_model, read_card
from mlgo_gym.model._freeze import freeze
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.rollout._rollout import Failure
from mlgo_gym.runners._model_runners import ModelUnderTrainingRunner, ReleaseModeModelRunner
from mlgo_gym.training._data import Data
from tests.training.conftest import Recorded, data_of

SHIPPED, EVICTION = (Path(find_model(n)) for n in ("inlining-for-size", "regalloc-eviction"))
BOUNDS = (np.iinfo(np.int64).min, -1, 0, 1, np.iinfo(np.int64).max)


def distilled(data: Data, output: Path, model: Path = SHIPPED, **config: Any) -> Distilled:
    made = RuleConfig(**{"rounds": 1} | config)
    return distill(model, InliningForSize(), made, data, output=output, card={"command": "test"})


def rule_answers(path: Path, rows: Recorded) -> list[int]:
    """What ``rule.py`` prints for observations."""
    names = rows.dtype.names or ()
    asked = (dict(zip(names, each, strict=True)) for each in rows.tolist())
    done = subprocess.run(
        [sys.executable, path],
        input="".join(f"{json.dumps(each)}\n" for each in asked),
        capture_output=True,
        text=True,
        check=True,
    )
    return list(map(int, done.stdout.split()))


@pytest.mark.e2e
def test_every_form_of_a_rule_answers_alike(
    sample: Corpus, inlining: Recorded, tmp_path: Path
) -> None:
    data = data_of(sample, "scene.cpp", "json_read.c", "frame_stream.c")
    folder = tmp_path / "rule"
    found = distilled(data, folder, lines=24, rounds=2)
    text = (folder / "rule.py").read_text()
    assert text.count("\n") <= 24
    card = json.loads((folder / "card.json").read_text())
    assert card["trainer"] == "distill"
    assert card["features"] == list(features_of(found.rule))
    assert card["results"]["validation"] == found.found.to_json()
    assert (found.found.modules, found.labelled) == (1, 0)
    random = np.random.default_rng(0)
    rows = np.concatenate([inlining, inlining[:200]])
    for name in features_of(found.rule):
        near = [s.least + step for s in splits_of(found.rule) for step in (-1, 0)]
        rows[name][-200:] = random.choice([*near, *BOUNDS], 200)
    expected = rule_answers(folder / "rule.py", rows)
    assert len(set(expected)) == 2
    freeze(folder, tmp_path / "frozen", name="model")
    specs, advice = InliningForSize().layout.specs, InliningForSize.advice
    forms: tuple[tuple[Path, Callable[..., Any]], ...] = (
        (folder, ReleaseModeModelRunner),
        (folder, ModelUnderTrainingRunner),
        (tmp_path / "frozen", ReleaseModeModelRunner),
    )
    for path, runner_class in forms:
        with runner_class(path, specs, advice) as runner:
            answers = []
            for row in rows:
                runner.fill(row.tobytes())
                answers.append(int(runner.evaluate()[0]))
        assert answers == expected


def labels(folder: Path, recorded: Recorded) -> Path:
    """Labels by which calls of callees with many users are to be inlined, and no others."""
    problem = InliningForSize()
    saved = np.where(recorded["callee_users"] > 2, 50.0, -50.0)
    known = {
        "saved_bytes": saved,
        "saved_linked_bytes": saved,
        "sample_weight": np.ones_like(saved),
    }
    source = Source("other", "module", "0" * 64, "round-0", problem.settings())
    actions = np.zeros(len(recorded), np.int64)
    episode = Episode(source, problem.layout, recorded, actions, labels=known)
    with DatasetWriter(folder, header_of(problem)) as writer:
        writer.add(source, [episode])
    return folder


@pytest.mark.e2e
def test_labels_are_gone_by(sample: Corpus, inlining: Recorded, tmp_path: Path) -> None:
    data = data_of(sample, "scene.cpp", "json_read.c")
    folder = labels(tmp_path / "labels", inlining)
    found = distilled(data, tmp_path / "rule", labels=(str(folder),), lines=20)
    assert found.labelled == len(inlining)
    assert "callee_users" in features_of(found.rule)
    card = read_card(tmp_path / "rule")
    assert card is not None
    assert "callee_users" in card.features


def test_a_rule_takes_some_lines() -> None:
    with pytest.raises(OptionsError) as caught:
        RuleConfig(lines=LEAST_LINES - 1)
    assert str(caught.value) == (
        f"lines: expected at least {LEAST_LINES}, which a rule of one question takes, "
        f"found {LEAST_LINES - 1}"
    )


def copied(folder: Path, **changed: Any) -> Path:
    """The shipped model with another card."""
    folder.mkdir()
    for each in SHIPPED.iterdir():
        if each.is_file():
            (folder / each.name).write_bytes(each.read_bytes())
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps(card | changed))
    return folder


def test_a_model_of_another_minor_version_can_be_distilled(tmp_path: Path) -> None:
    """As `tune` can start from it: what LLVM asks is the same."""
    model = copied(tmp_path / "minor", llvm_version=f"{LLVM_MAJOR}.99.0")
    assert _network(model).features() == _network(SHIPPED).features()


@pytest.mark.e2e
def test_models_that_cannot_be_distilled(sample: Corpus, tmp_path: Path) -> None:
    data = data_of(sample, "scene.cpp")
    freeze(SHIPPED, tmp_path / "frozen", name="model")
    frozen = "expected a model directory with its network, found a frozen model"
    foreign = f"expected a model of LLVM {LLVM_MAJOR}, found one of 20.1.8"
    bare = copied(tmp_path / "bare")
    (bare / "network.json").unlink()
    rule = copied(tmp_path / "other rule")
    (rule / "network.json").write_text('{"kind": "rule", "problem": "InliningForSize"}')
    keys = "problem, normalization, hidden and seed"
    lacking = f"network.json: network: expected {keys}: KeyError('hidden')"
    for model, message in (
        (tmp_path / "frozen", frozen),
        (rule, lacking),
        (EVICTION, "expected the inliner's network, found EvictionNetwork"),
        (copied(tmp_path / "old", llvm_version="20.1.8"), foreign),
        (bare, "network.json cannot be read: No such file or directory"),
    ):
        with pytest.raises(ModelError) as caught:
            distilled(data, tmp_path / "rule", model)
        assert str(caught.value) == f"model {str(model)!r}: {message}"
    assert not (tmp_path / "rule").exists()


def test_labels_that_lack_what_the_model_takes(inlining: Recorded) -> None:
    actions = np.zeros(len(inlining), np.int64)
    episode = Episode(Source("other"), InliningForSize().layout, inlining, actions)
    with pytest.raises(DatasetError) as caught:
        _checked(episode, ("cost_estimate", "callee_is_local"), "labels")
    assert str(caught.value) == (
        "dataset 'labels': expected decisions with callee_is_local, which the model takes, "
        "found none"
    )


@pytest.mark.e2e
def test_corpora_without_decisions(sample: Corpus, tmp_path: Path) -> None:
    (tmp_path / "broken.bc").write_bytes(b"BC\xc0\xde")
    packages = Packages.of({"package": Corpus(tmp_path, ("broken",))})
    warnings: list[Failure] = []
    data = Data(packages, data_of(sample).validation, warn=warnings.append)
    with pytest.raises(TrainingError) as caught:
        distilled(data, tmp_path / "rule")
    assert str(caught.value) == (
        "distill: expected modules that ask for decisions, found none of 1"
    )
    assert list(map(str, warnings)) == [
        "module 'broken': LLVM bitcode parsing error\nExpected a single module"
    ]
