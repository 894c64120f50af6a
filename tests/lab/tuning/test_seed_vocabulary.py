"""Seed embeddings: what TransE finds in triplets, and vocabularies out of corpora."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import EnvironmentSetupError, OptionsError, TrainingError
from mlgo_gym.lab.tuning._seed_vocabulary import (
    SeedConfig,
    TrainedVocabulary,
    Triplet,
    _TransE,
    train_vocabulary,
)
from mlgo_gym.problems._vocabulary import ARGUMENTS, OPCODES, TYPES, Vocabulary
from tests.conftest import require

PAIRS = Counter({(each, each + 6 * by, by - 1): 5 for each in range(6) for by in (1, 2)})
"""Each of six names has a tail of its own by either of two relations, as translations can say."""


def trained(counts: Counter[Triplet], config: SeedConfig) -> _TransE:
    made = _TransE(counts, config)
    for _ in range(config.epochs):
        made.epoch()
    return made


def rank(made: _TransE, counts: Counter[Triplet]) -> float:
    """The mean rank by its definition, triplet by triplet; all of them weigh the same."""
    relations = sorted({relation for *_, relation in counts})
    ranks = []
    for head, tail, relation in counts:
        expected = made.vectors[head] + made._translations[relations.index(relation)]
        away = [math.dist(expected, vector) for vector in made.vectors]
        wrong = [each for each in range(len(away)) if (head, each, relation) not in counts]
        ranks.append(1 + sum(away[each] < away[tail] for each in wrong))
    return sum(ranks) / len(ranks)


def test_tails_become_nearest() -> None:
    before = _TransE(PAIRS, SeedConfig(8, 1, 3))
    assert before.mean_rank() == pytest.approx(rank(before, PAIRS))
    assert before.mean_rank() > 5
    after = trained(PAIRS, SeedConfig(8, 150, 3))
    assert (after.mean_rank(), rank(after, PAIRS)) == (1, 1)
    assert np.linalg.norm(after.vectors, axis=1) == pytest.approx(1)


def test_one_number_cannot_tell_them_apart() -> None:
    assert trained(PAIRS, SeedConfig(1, 150, 3)).mean_rank() > 3


def test_a_loss_falls_and_what_is_frequent_weighs_more() -> None:
    made = _TransE(PAIRS, SeedConfig(8, 1, 3))
    losses = [made.epoch() for _ in range(150)]
    assert sum(losses[-10:]) < sum(losses[:10]) / 5
    weights = _TransE(Counter({(0, 1, 0): 1, (1, 2, 0): 1000}), SeedConfig())._weights
    assert weights[1] / weights[0] == pytest.approx(1 + math.log(1000))
    assert weights.mean() == pytest.approx(1)


@pytest.fixture
def packages(small: Corpus) -> Packages:
    require("llvm-ir2vec-22", "llvm-22")
    return Packages.of({"small": small})


def short(packages: Packages, jobs: int = 1, seed: int = 7) -> TrainedVocabulary:
    return train_vocabulary(packages, SeedConfig(4, 3, seed), jobs=jobs)


@pytest.mark.e2e
def test_two_runs_are_equal(packages: Packages) -> None:
    first, second = short(packages), short(packages, jobs=2)
    assert (first.data, first.card) == (second.data, second.card)
    assert short(packages, seed=8).data != first.data


def test_a_vocabulary_has_every_name(packages: Packages) -> None:
    made = short(packages)
    sections = json.loads(made.data)
    names = {"Opcodes": OPCODES, "Types": TYPES, "Arguments": ARGUMENTS}
    assert {section: tuple(of) for section, of in sections.items()} == names
    lengths = {name: math.hypot(*vector) for of in sections.values() for name, vector in of.items()}
    assert {name for name, length in lengths.items() if not length} >= {"UserOp1", "CatchPad"}
    assert [length for length in lengths.values() if length] == pytest.approx(
        [1] * sum(map(bool, lengths.values())), abs=1e-4
    )
    assert lengths["Call"]
    assert lengths["PointerTy"]
    assert lengths["Constant"]
    assert made.card["sha256"] == Vocabulary.parse(made.data, "made").sha256
    assert made.card["trained_on"]["modules"] == {"small": 3}
    assert made.card["triplets"] > 1000 > made.card["different_triplets"] > 100


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((0,), "dimension: expected a number from 1 to 4096, found 0"),
        ((4097,), "dimension: expected a number from 1 to 4096, found 4097"),
        ((75, 0), "epochs: expected a number above 0, found 0"),
    ],
)
def test_settings_out_of_range(settings: tuple[int, ...], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        SeedConfig(*settings)
    assert str(caught.value) == message


def copied(packages: Packages, folder: Path, first: bytes) -> Packages:
    """The modules, the first of them with other bytes."""
    (corpus,) = packages.named.values()
    for name in corpus:
        (folder / f"{name}.bc").write_bytes(corpus[name].data)
    (folder / f"{corpus.names[0]}.bc").write_bytes(first)
    return Packages.of({"small": Corpus(folder, corpus.names)})


@pytest.mark.e2e
def test_what_cannot_be_read_is_left_out(packages: Packages, tmp_path: Path) -> None:
    said: list[str] = []
    made = train_vocabulary(
        copied(packages, tmp_path, b"no bitcode"), SeedConfig(4, 3), warn=said.append
    )
    message = "module 'json_write.c': expected bitcode, found something else"
    assert (said, made.card["left_out"]) == ([f"{message}; left out"], [message])
    without = packages.only(list(packages)[1:])
    assert made.data == train_vocabulary(without, SeedConfig(4, 3)).data


def test_nothing_to_train_on(packages: Packages, tmp_path: Path) -> None:
    one = copied(packages, tmp_path, b"no bitcode").only(list(packages)[:1])
    with pytest.raises(TrainingError) as caught:
        train_vocabulary(one, SeedConfig())
    assert str(caught.value) == "vocabulary: expected triplets, found none in 1 modules"


def test_no_tool(small: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentSetupError, match="expected llvm-ir2vec of LLVM 22 on PATH"):
        train_vocabulary(Packages.of({"small": small}), SeedConfig())
