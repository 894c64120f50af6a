"""Tries compared with each other: closed form, a trivial task, real contexts, and going on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import OptionsError, TrainingError
from mlgo_gym.model._card import shipped_models
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.training._data import Data
from mlgo_gym.training._export import load_network
from mlgo_gym.training._group import Config, PolicyGradient, UpdateConfig, advantages_of, train
from mlgo_gym.training._networks import InliningNetwork, Normalization, network_features
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._trials import Trial, Tried
from mlgo_gym.training._validation import Validation
from tests.training.conftest import Recorded, data_of

Array = np.ndarray[Any, Any]

EVICTION = RegallocEviction()
INLINING = InliningForSize()

QUICK = Config(generations=3, contexts=4, tries=3, hidden=(8,), validate_every=3)


def trained(
    folder: Path, config: Config, data: Data, problem: Problem = EVICTION
) -> tuple[Validation, list[Mapping[str, float]]]:
    scalars: list[Mapping[str, float]] = []
    with TrainingRun(
        folder, "group", problem, config, report=lambda _, values: scalars.append(values)
    ) as run:
        return train(run, config, data), scalars


def test_advantages_in_closed_form() -> None:
    """Against the mean of the others, gains and losses limited, zero in the sum."""
    config = Config(most_gain=0.2, most_loss=0.5)
    trial = Trial(0.1, (-9.0, 0.1, 9.0), ((), (), ()))
    found = advantages_of(trial, config)
    np.testing.assert_allclose(found, [0.25 + 0.2, 0.15 - 0.0, -0.1 - 0.5])
    assert found.sum() == pytest.approx(0)
    assert len(advantages_of(Trial(0.0, (), ()), config)) == 0


def flags(count: int) -> Array:
    """Made-up calls that differ in one flag, and that LLVM's own rule is undecided about."""
    rows = np.zeros(count, INLINING.layout.dtype)
    rows["cost_estimate"] = 5
    rows["last_call_to_static_bonus"] = np.arange(count) % 2
    return rows


@pytest.mark.e2e
@pytest.mark.parametrize(("sign", "learns"), [(1.0, True), (-1.0, False)])
def test_a_flag_is_learned(sign: float, learns: bool) -> None:
    """With advantages the wrong way round, the opposite is learned."""
    rows = flags(64)
    statistics = Normalization.fit(INLINING.layout.columns(rows), network_features(INLINING))
    network = InliningNetwork(statistics, (16,), 0)
    update = PolicyGradient(network, INLINING, 1.0, UpdateConfig(learning_rate=3e-2, average=0.5))
    for iteration in range(20):
        generator = np.random.default_rng(iteration)
        tried, right = [], []
        for row, logits in zip(rows, network(INLINING.layout.columns(rows)).numpy(), strict=True):
            chance = np.exp(logits - logits.max())
            chance /= chance.sum()
            action = int(generator.random() < chance[1])
            tried.append(Tried(row.tobytes(), action, float(np.log(chance[action]))))
            right.append(action == row["last_call_to_static_bonus"])
        update.learn(tried, sign * (np.array(right) - 0.5), generator)
    network.set_weights(update.averaged())
    answers = network(INLINING.layout.columns(rows)).numpy().argmax(axis=1)
    share = float(np.mean(answers == rows["last_call_to_static_bonus"]))
    assert share == (1.0 if learns else 0.0)


@pytest.mark.parametrize(("already", "low", "high"), [(0.0, 1.05, 1.5), (-0.5, 1.1, 2.0)])
def test_one_generation_goes_only_so_far(already: float, low: float, high: float) -> None:
    """Beyond the clip nothing is gained by being surer; what went the wrong way is brought back.

    ``already`` is how much surer of the better answer it is than when it tried, as a logarithm.
    """
    rows = flags(2)
    statistics = Normalization.fit(INLINING.layout.columns(rows), network_features(INLINING))
    network = InliningNetwork(statistics, (4,), 0)

    def chances() -> Array:
        exponentials = np.exp(network(INLINING.layout.columns(rows[:1])).numpy()[0])
        found: Array = exponentials / exponentials.sum()
        return found

    before = chances()
    tried = [
        Tried(rows[0].tobytes(), action, float(np.log(before[action])) - sign * already)
        for action, sign in ((0, -1), (1, 1))
    ]
    config = UpdateConfig(learning_rate=3e-3, epochs=100, clip=0.1)
    update = PolicyGradient(network, INLINING, 1.0, config)
    update.learn(tried, np.array([-0.5, 0.5]), np.random.default_rng(0))
    assert low < chances()[1] / before[1] < high


@pytest.mark.e2e
def test_what_is_saved_is_all_there_is() -> None:
    rows = flags(8)
    statistics = Normalization.fit(INLINING.layout.columns(rows), network_features(INLINING))
    tried = [Tried(row.tobytes(), index % 2, -0.7) for index, row in enumerate(rows)]
    worth = np.arange(8.0)

    def learned(update: PolicyGradient, seed: int) -> dict[str, Array]:
        update.learn(tried, worth, np.random.default_rng(seed))
        return update.arrays()

    first, second = (
        PolicyGradient(InliningNetwork(statistics, (4,), seed), INLINING, 1.0, UpdateConfig())
        for seed in (0, 1)
    )
    learned(first, 0)
    second.load(first.arrays())
    expected, found = learned(first, 1), learned(second, 1)
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(array, found[name])


@pytest.fixture(scope="module")
def finished(sample: Corpus, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A finished run, and the run's folder as it was when its last generation was cut off."""
    folder = tmp_path_factory.mktemp("group") / "run"
    cut_off = folder.with_name("cut-off")

    def watch(step: int, scalars: Mapping[str, float]) -> None:
        if step == QUICK.generations and "collect/decisions" in scalars:
            assert scalars["collect/decisions"] > 10
            shutil.copytree(folder, cut_off)

    data = data_of(sample, "expr_vm.c", "codec_text.c")
    with TrainingRun(folder, "group", EVICTION, QUICK, report=watch) as run:
        assert train(run, QUICK, data).modules == 1
    return folder, cut_off


@pytest.mark.e2e
def test_going_on_is_as_never_stopping(finished: tuple[Path, Path], sample: Corpus) -> None:
    """Also with two workers; contexts are not made again."""
    folder, cut_off = finished
    contexts = cut_off / "contexts" / "trained-on.npz"
    before = contexts.stat()
    trained(cut_off, QUICK, data_of(sample, "expr_vm.c", "codec_text.c", jobs=2))
    assert (contexts.stat().st_ino, contexts.stat().st_size) == (before.st_ino, before.st_size)
    expected, found = (dict(np.load(each / "checkpoint.npz")) for each in (folder, cut_off))
    assert expected.keys() == found.keys()
    for name in expected.keys() - {"state"}:
        np.testing.assert_array_equal(expected[name], found[name])


@pytest.mark.e2e
def test_the_run_leaves_a_model_with_a_card(finished: tuple[Path, Path]) -> None:
    card = json.loads((finished[0] / "model" / "card.json").read_text())
    assert card["trainer"] == "group"
    assert card["config"]["update"]["clip"] == QUICK.update.clip
    assert card["results"]["validation"]["modules"] == 1


@pytest.mark.e2e
def test_the_inliner_learns_too(sample: Corpus, tmp_path: Path) -> None:
    config = replace(QUICK, generations=1)
    found, scalars = trained(tmp_path / "run", config, data_of(sample, "frame_stream.c"), INLINING)
    assert found.modules == 1
    (generation,) = (each for each in scalars if "collect/decisions" in each)
    assert 3 <= generation["collect/decisions"] <= 3 * 47
    assert generation["cost/mean"] == 0  # LLVM's own rule, to begin with


def test_nothing_to_train_on(tmp_path: Path, sample: Corpus) -> None:
    (tmp_path / "empty.bc").write_bytes(b"")
    data = replace(data_of(sample), packages=Packages.of({"none": Corpus(tmp_path, ("empty",))}))
    with pytest.raises(TrainingError) as caught:
        trained(tmp_path / "run", QUICK, data)
    assert str(caught.value) == "group: expected modules that compile and ask, found none"


COUNT = "expected a whole number from 1 to 2,147,483,648, found 0"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"generations": 0},
            f"generations: {COUNT}",
        ),
        ({"contexts": 0}, f"contexts: {COUNT}"),
        ({"tries": 1}, "tries: expected a whole number from 2 to 65,536, found 1"),
        (
            {"most_modules": 0},
            f"most_modules: {COUNT}",
        ),
        (
            {"validate_every": 0},
            f"validate_every: {COUNT}",
        ),
        ({"drawn": 0.0}, "drawn: expected a number above 0, found 0.0"),
        ({"temperature": -1.0}, "temperature: expected a number above 0, found -1.0"),
        ({"most_gain": 0.0}, "most_gain: expected a number above 0, found 0.0"),
        ({"most_loss": 0.0}, "most_loss: expected a number above 0, found 0.0"),
    ],
)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        replace(QUICK, **changes)
    assert str(caught.value) == message


@pytest.mark.e2e
def test_a_finished_run_is_validated_again(
    finished: tuple[Path, Path], sample: Corpus, tmp_path: Path
) -> None:
    """From its checkpoint; nothing is compiled or learned besides."""
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    checkpoint = (folder / "checkpoint.npz").read_bytes()
    found, scalars = trained(folder, QUICK, data_of(sample, "expr_vm.c", "codec_text.c"))
    card = json.loads((folder / "model" / "card.json").read_text())
    assert scalars == []
    assert (folder / "checkpoint.npz").read_bytes() == checkpoint
    assert found.modules == card["results"]["validation"]["modules"] == 1


@pytest.mark.e2e
def test_the_inliner_learns_from_a_start(
    inlining: Recorded, sample: Corpus, tmp_path: Path
) -> None:
    """One generation on one module: the start and what came of it are validated."""
    fitted = Normalization.fit(INLINING.layout.columns(inlining), network_features(INLINING))
    start = InliningNetwork(fitted, (2,), 3)
    (tmp_path / "network.json").write_text(json.dumps(start.config()))
    weights = {str(index): each for index, each in enumerate(start.get_weights())}
    np.savez(tmp_path / "weights.npz", **weights)
    config = replace(QUICK, generations=1, contexts=1, tries=2, start=str(tmp_path))
    data = data_of(sample, "frame_stream.c")
    held_out = Packages.of({"held-out": sample.only(("json_write.c",))})
    found, scalars = trained(tmp_path / "run", config, replace(data, validation=held_out), INLINING)
    assert found.changes["text"] == 0  # a new network answers as LLVM does
    assert [set(each) >= {"validation/text"} for each in scalars] == [True, False, True]
    assert 2 <= scalars[1]["collect/decisions"] <= 2 * 47
    card = json.loads((tmp_path / "run" / "model" / "card.json").read_text())
    assert card["results"]["generation"] == 0
    assert card["config"]["start"] == str(tmp_path)
    loaded = load_network(tmp_path / "run" / "candidate")
    assert loaded.config() == start.config()


@pytest.mark.e2e
def test_a_start_gets_a_margin(sample: Corpus, tmp_path: Path) -> None:
    """And keeps its weights, where no generation is better."""
    start = str(shipped_models()["regalloc-eviction"])
    config = replace(QUICK, generations=1, contexts=1, tries=2, start=start, margin=3.0)
    found, _ = trained(tmp_path / "run", config, data_of(sample, "expr_vm.c", "codec_text.c"))
    assert found.modules == 1
    loaded = load_network(tmp_path / "run" / "model")
    before = load_network(Path(start))
    assert loaded.config() == {**before.config(), "margin": 3.0}
    card = json.loads((tmp_path / "run" / "model" / "card.json").read_text())
    if card["results"]["generation"] == 0:
        for one, other in zip(loaded.get_weights(), before.get_weights(), strict=True):
            assert np.array_equal(one, other)
    again = replace(config, margin=0.0, start=str(tmp_path / "run" / "model"))
    trained(tmp_path / "again", again, data_of(sample, "expr_vm.c", "codec_text.c"))
    assert load_network(tmp_path / "again" / "model").config() == loaded.config()
