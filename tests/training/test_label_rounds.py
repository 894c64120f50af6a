"""Labels gathered round after round: surveyed once, for a part of the time, read with others'."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.errors import OptionsError, TrainingError
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.training import _run
from mlgo_gym.training._advantage import LabelRounds, train
from mlgo_gym.training._distillation import distilled, labels_of
from mlgo_gym.training._labels import LabelSetting, label_modules
from mlgo_gym.training._networks import network_features
from mlgo_gym.training._run import TrainingRun
from tests.curation.make import assembled, make_corpus
from tests.llvm.test_hotness import counted
from tests.training.conftest import data_of
from tests.training.test_advantage import QUICK

INLINING = InliningForSize()


def test_shares_are_surveyed_once(sample: Corpus, tmp_path: Path) -> None:
    data = data_of(sample, "frame_stream.c")
    with TrainingRun(tmp_path / "run", "advantage", INLINING, QUICK) as run:
        rounds = LabelRounds(run, INLINING, QUICK, data)
        assert rounds.shares() == {"sample": {}}
        (run.directory / "survey.json").write_text('{"sample": {"f": 2}}')
        assert rounds.shares() == {"sample": {"f": 2}}


def test_labels_for_three_quarters_of_the_time(
    sample: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is shared out among the rounds that are left; without a budget, all there is."""
    now = [0.0]
    monkeypatch.setattr(_run, "monotonic", lambda: now[0])
    data = data_of(sample, "frame_stream.c")
    with TrainingRun(tmp_path / "run", "advantage", INLINING, QUICK, budget_s=100) as run:
        rounds = LabelRounds(run, INLINING, QUICK, data)
        now[0] = 20.0
        assert [rounds._ends_s(number) for number in (0, 1)] == [50.0, 80.0]
        now[0] = 120.0
        assert rounds._ends_s(1) == 120.0
        run.budget_s = None
        assert rounds._ends_s(0) is None


@pytest.mark.e2e
def test_labels_in_no_time_are_those_of_a_module(sample: Corpus, tmp_path: Path) -> None:
    """The next run goes on with the others; one that never asks is in the dataset, too."""
    folder = make_corpus(tmp_path / "mine", {"quiet": assembled("define void @f() { ret void }")})
    data = data_of(sample, "frame_stream.c")
    corpora = {"sample": sample.only(("frame_stream.c", "hash_map.c")), "mine": Corpus.load(folder)}
    data = replace(data, packages=Packages.of(corpora))
    labelled: list[dict[str, float]] = []
    run = TrainingRun(
        tmp_path / "run", "advantage", INLINING, QUICK, budget_s=1e-6,
        report=lambda _, values: labelled.append(dict(values)),
    )  # fmt: skip
    with run:
        rounds = LabelRounds(run, INLINING, QUICK, data)
        rounds.label(0, INLINING.policy("default"), {})
        assert len(labelled) == 1
        run.budget_s = None
        rounds.label(0, INLINING.policy("default"), {})
        assert len(labelled) == 3
        episodes = {each.source.module: each for each in rounds.episodes()}
        assert set(episodes) == {"frame_stream.c", "hash_map.c"}
        known = {
            name: float(np.isfinite(each.label("saved_bytes")).sum())
            for name, each in episodes.items()
        }
        assert min(known.values()) > 0
        assert (
            sum(known.values())
            == max(each["labels/round-0"] for each in labelled) + (labelled[0]["labels/round-0"])
        )  # each run counts its own
        modules = Dataset.open(tmp_path / "run" / "labels").modules
        assert {each.key.module for each in modules} == {"quiet", *episodes}
        held_out = replace(data, validation=Packages.of({"sample": sample.only(("hash_map.c",))}))
        others = LabelRounds(run, INLINING, QUICK, held_out).episodes()
        assert [each.source.module for each in others] == ["frame_stream.c"]


def test_labels_that_nothing_can_be_learned_of(sample: Corpus, tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as error:
        labels_of([], (), 0.5)
    assert str(error.value) == "advantage: expected labelled decisions, found none"
    packages = Packages.of({"sample": sample.only(("frame_stream.c",))})
    (done,) = label_modules(packages, default, "default", {}, LabelSetting(batches=1))
    episode = done.value[1]
    assert episode is not None
    config = replace(QUICK, band=(9000, 9001))
    run = TrainingRun(tmp_path / "run", "advantage", INLINING, config)
    with run, pytest.raises(TrainingError) as error:
        distilled(run, labels_of([episode], network_features(InliningForSize()), 0.5), config, 0)
    assert str(error.value) == (
        "advantage: expected decisions that cost from 9000 to below 9001, found none"
    )


@pytest.mark.e2e
def test_hot_calls_are_worth_bytes(sample: Corpus, tmp_path: Path) -> None:
    """A quarter of all counts is worth a quarter; a 4096th, next to nothing."""
    problem = InliningForSize(hotness=True)
    folder = make_corpus(tmp_path / "mine", {"counted": assembled(counted().data.decode())})
    packages = Packages.of({"mine": Corpus.load(folder)})
    (done,) = label_modules(packages, default, "default", {}, LabelSetting(problem, batches=1))
    episode = done.value[1]
    assert episode is not None
    labels = {"saved_bytes": 0.0, "saved_linked_bytes": 0.0, "sample_weight": 1.0}
    known = {name: np.full(len(episode), value) for name, value in labels.items()}
    episode = replace(episode, labels=known)
    plain, hot = (
        labels_of([episode], network_features(problem), 0.5, hot_bytes=price).advantages
        for price in (0.0, 4096.0)
    )
    shares = {304: 1024, 224: 1}
    seen = episode.observations["call_share"].ravel().tolist()
    assert {*seen} == {*shares}
    np.testing.assert_allclose(hot - plain, [shares[each] for each in seen])

    packages = Packages.of({"sample": sample.only(("frame_stream.c",))})
    (done,) = label_modules(packages, default, "default", {}, LabelSetting(batches=1))
    episode = done.value[1]
    assert episode is not None
    with pytest.raises(OptionsError) as error:
        labels_of([episode], network_features(INLINING), 0.5, hot_bytes=1.0)
    assert str(error.value) == (
        "hot_bytes: expected labels with the feature 'call_share', which 'hotness' adds, found "
        "none in those of sample"
    )


def test_hot_calls_are_known_by_hotness(sample: Corpus, tmp_path: Path) -> None:
    config = replace(QUICK, hot_bytes=2.5)
    run = TrainingRun(tmp_path / "run", "advantage", INLINING, config)
    with run, pytest.raises(OptionsError) as error:
        train(run, config, data_of(sample, "frame_stream.c"))
    assert str(error.value) == (
        "hot_bytes: expected 0 without 'hotness', by which it goes, found 2.5"
    )
