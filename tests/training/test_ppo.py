"""PPO: trivial tasks, real modules, and going on where it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import ModelError, OptionsError, TrainingError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._observations import columns, observation_array, observation_dtype
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.rollout._rollout import rollout
from mlgo_gym.stream._events import Header, Observation
from mlgo_gym.training._data import Data
from mlgo_gym.training._episodes import Episode
from mlgo_gym.training._export import save_model
from mlgo_gym.training._networks import EvictionNetwork, InliningNetwork, network_features
from mlgo_gym.training._normalization import Normalization
from mlgo_gym.training._ppo import train
from mlgo_gym.training._ppo_config import PPO_BANDIT, Config
from mlgo_gym.training._ppo_update import Learner
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._sampling import BatchNetwork, SamplingPolicy, features_of, raw_rows
from mlgo_gym.training._validation import Validation
from tests.training.conftest import data_of

Array = np.ndarray[Any, Any]
Report = Callable[[int, Mapping[str, float]], None]

INLINING = InliningForSize()
EVICTION = RegallocEviction()
LEARNING = ("json_write.c", "hash_map.c", "digest.c")


@dataclass(frozen=True)
class Curve:
    """A finished run, and its folder as it was before its seventh iteration was saved."""

    config: Config
    rewards: list[float]
    folder: Path
    cut_off: Path


QUICK = Config(
    seed=1,
    iterations=8,
    modules=3,
    hidden=(32,),
    learning_rate=3e-3,
    minibatch=64,
    epochs=8,
    moving_average=0.7,
    validate_every=100,
)


def trained(
    folder: Path,
    config: Config,
    data: Data,
    *,
    problem: Problem = INLINING,
    report: Report | None = None,
    budget_s: float | None = None,
) -> Validation:
    with TrainingRun(folder, "ppo", problem, config, report=report, budget_s=budget_s) as run:
        return train(run, config, data)


@pytest.fixture(scope="module")
def curve(sample: Corpus, inlining: Array, tmp_path_factory: pytest.TempPathFactory) -> Curve:
    """A run that starts from a network that inlines far too much."""
    folder = tmp_path_factory.mktemp("ppo")
    statistics = Normalization.fit(columns(inlining, INLINING), network_features(INLINING))
    network = InliningNetwork(statistics, QUICK.hidden, QUICK.seed)
    *weights, bias = network.get_weights()
    network.set_weights([*weights, bias + 2.5])
    save_model(network, INLINING, folder / "start", {})
    config = replace(QUICK, start=str(folder / "start"))
    rewards = []

    def watch(step: int, scalars: Mapping[str, float]) -> None:
        if "reward/mean" in scalars:
            rewards.append(scalars["reward/mean"])
            if step == config.iterations - 1:
                shutil.copytree(folder / "run", folder / "cut-off")

    trained(folder / "run", config, data_of(sample, *LEARNING), report=watch)
    return Curve(config, rewards, folder / "run", folder / "cut-off")


def test_the_reward_rises(curve: Curve) -> None:
    assert len(curve.rewards) == curve.config.iterations
    assert np.mean(curve.rewards[-3:]) > np.mean(curve.rewards[:2]) + 0.1


def test_going_on_is_as_never_stopping(curve: Curve, sample: Corpus) -> None:
    """Also with two workers, which answer in another order."""
    steps = []
    trained(
        curve.cut_off,
        curve.config,
        data_of(sample, *LEARNING, jobs=2),
        report=lambda step, _: steps.append(step),
    )
    assert steps == [7, 8, 8]  # the one that was cut off, the last, and its validation
    expected, found = (
        dict(np.load(folder / "checkpoint.npz")) for folder in (curve.folder, curve.cut_off)
    )
    assert expected.keys() == found.keys()
    assert all(np.array_equal(expected[name], found[name]) for name in expected if name != "state")


def test_the_run_leaves_a_model_with_a_card(curve: Curve) -> None:
    card = json.loads((curve.folder / "model" / "card.json").read_text())
    assert card["trainer"] == "ppo"
    assert card["config"]["learning_rate"] == QUICK.learning_rate
    assert card["results"]["validation"]["modules"] == 1
    assert list((curve.folder / "tensorboard").iterdir())


def test_bad_modules_are_left_out(sample: Corpus, tmp_path: Path) -> None:
    """One is broken; the other goes away after the third iteration, and comes back."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "broken.bc").write_bytes(b"BC\xc0\xde")
    shutil.copy(sample.folder / "digest.c.bc", folder)
    manifest = {"modules": ["broken", "digest.c"], "has_thinlto": False}
    (folder / "corpus_description.json").write_text(json.dumps(manifest))
    warnings: list[str] = []
    failed: list[float] = []

    def watch(step: int, scalars: Mapping[str, float]) -> None:
        if "collect/modules_failed" in scalars:
            failed.append(scalars["collect/modules_failed"])
        if step == 3:
            (folder / "digest.c.bc").unlink()

    data = data_of(sample, "digest.c", warn=warnings.append)
    data = replace(data, packages={"package": Corpus.load(folder)})
    config = replace(QUICK, iterations=6, epochs=1, value_weight=0.0, hidden=(4,))
    with pytest.raises(TrainingError) as caught:
        trained(tmp_path / "run", config, data, report=watch)
    assert str(caught.value) == (
        "ppo: expected modules that compile, found that all 2 failed 2 times in a row"
    )
    assert failed == [1, 1, 0, 1, 1]  # after two failures in a row a module is drawn no more
    broken = "module 'package/broken': LLVM bitcode parsing error\nExpected a single module"
    path = str(folder / "digest.c.bc")
    gone = f"module 'digest.c': cannot read {path!r}: No such file or directory"
    assert warnings == [broken, broken, gone, gone]
    shutil.copy(sample.folder / "digest.c.bc", folder)
    assert trained(tmp_path / "run", config, data, report=watch).modules == 1
    assert failed == [1, 1, 0, 1, 1, 1]


def test_eviction_learns_within_its_masks(sample: Corpus, tmp_path: Path) -> None:
    """LLVM's problem refuses what is masked, so that the run ends at all is half of it."""
    scalars: dict[str, float] = {}
    config = replace(QUICK, iterations=1, modules=2, hidden=(8,), epochs=1)
    found = trained(
        tmp_path / "run",
        config,
        data_of(sample, "matrix.cpp", "bignum.c", jobs=2),
        problem=EVICTION,
        report=lambda _, values: scalars.update(values),
    )
    assert found.modules == 1
    assert scalars["collect/decisions"] > scalars["collect/episodes"] > 2
    assert 0 < scalars["policy/entropy"] < np.log(33)


def test_a_spent_budget_leaves_the_starting_point(sample: Corpus, tmp_path: Path) -> None:
    """LLVM's own rule, which as a start for the next run is the same again."""
    data = data_of(sample, "digest.c")
    found = trained(tmp_path / "first", QUICK, data, budget_s=1e-9)
    assert json.loads((tmp_path / "first/model/network.json").read_text())["band"] == [-25, 120]
    assert found.changes["text"] == 0
    config = replace(QUICK, start=str(tmp_path / "first" / "model"))
    assert trained(tmp_path / "second", config, data, budget_s=1e-9) == found


def flags(count: int, seed: int) -> Array:
    """Made-up calls that differ in one flag."""
    rows = np.zeros(count, observation_dtype(INLINING))
    rows["cost_estimate"] = 5
    rows["last_call_to_static_bonus"] = np.random.default_rng(seed).integers(0, 2, count)
    return rows


def learner_of(rows: Array, config: Config) -> Learner:
    statistics = Normalization.fit(columns(rows, INLINING), network_features(INLINING))
    return Learner(InliningNetwork(statistics, config.hidden, config.seed), INLINING, config)


def play(network: BatchNetwork, rows: Array, key: str) -> tuple[list[Episode], Array]:
    """One decision an episode: worth 1 where the flag was answered, otherwise -1."""
    header = Header(INLINING.sent())
    policy = SamplingPolicy(network, INLINING, key)
    asked = [Observation(header, "", index, row.tobytes()) for index, row in enumerate(rows)]
    actions = np.array(policy(asked))
    rewards = np.where(actions == rows["last_call_to_static_bonus"], 1.0, -1.0)
    raw = raw_rows([each.payload for each in asked], INLINING)
    episodes = [
        Episode(str(index), raw[index : index + 1], actions[index : index + 1], float(reward))
        for index, reward in enumerate(rewards)
    ]
    return episodes, rewards


@pytest.mark.parametrize(("entropy", "learns"), [(0.003, True), (10.0, False)])
def test_a_flag_is_learned(entropy: float, learns: bool) -> None:
    """So much weight on chance leaves nothing else, so it must not get there."""
    config = Config(
        hidden=(16,), learning_rate=3e-3, minibatch=64, epochs=8, entropy=entropy, reward_limit=None
    )
    rows = flags(64, 0)
    learner = learner_of(rows, config)
    network = BatchNetwork(learner.actor, INLINING, len(rows))
    means = []
    for iteration in range(30):
        episodes, rewards = play(network, rows, str(iteration))
        means.append(float(rewards.mean()))
        batch = learner.batch(episodes, [each.reward for each in episodes])
        learner.learn(batch, np.random.default_rng(iteration))
    assert abs(means[0]) < 0.4
    assert (float(np.mean(means[-5:])) > 0.9) == learns


def test_where_the_reward_is_given() -> None:
    rows = flags(5, 0)
    raw = raw_rows([row.tobytes() for row in rows], INLINING)
    actions = np.zeros(5, np.int64)
    episodes = [Episode("a", raw[:2], actions[:2], 0.5), Episode("b", raw[2:], actions[2:], -1.0)]
    worth = [each.reward for each in episodes]
    at_the_end = learner_of(rows, Config(hidden=(4,), discount=0.5, decay=0.5, value_weight=0.0))
    batch = at_the_end.batch(episodes, worth)
    np.testing.assert_allclose(batch.advantages, [0.125, 0.5, -0.0625, -0.25, -1.0])
    np.testing.assert_allclose(batch.returns, [0.25, 0.5, -0.25, -0.5, -1.0])
    bandit = learner_of(rows, replace(PPO_BANDIT, hidden=(4,))).batch(episodes, worth)
    np.testing.assert_allclose(bandit.advantages, [0.5, 0.5, -1.0, -1.0, -1.0])


@pytest.mark.slow
def test_the_penalty_keeps_the_policy_near() -> None:
    divergences = {}
    for target in (None, 0.001):
        config = Config(
            hidden=(16,), learning_rate=3e-3, minibatch=64, epochs=40, clip=10.0, kl_target=target
        )
        rows = flags(64, 0)
        learner = learner_of(rows, config)
        episodes, rewards = play(BatchNetwork(learner.actor, INLINING, 64), rows, "once")
        batch = learner.batch(episodes, rewards.tolist())
        metrics = learner.learn(batch, np.random.default_rng(0))
        divergences[target] = metrics["policy/kl"]
    assert 0 < divergences[0.001] < 0.25 * divergences[None]


def test_what_is_drawn_has_its_probability_and_is_never_masked() -> None:
    random = np.random.default_rng(0)
    rows = np.zeros(3000, observation_dtype(EVICTION))
    rows["mask"] = random.integers(0, 2, rows["mask"].shape)
    rows["mask"][:, -1] = 1
    rows["use_def_density"] = random.random(rows["mask"].shape)
    rows["progress"] = np.arange(3000)
    statistics = Normalization.fit(columns(rows, EVICTION), network_features(EVICTION))
    actor = EvictionNetwork(statistics, (8,))
    actor.set_weights([random.normal(0, 1, each.shape) for each in actor.get_weights()])
    network = BatchNetwork(actor, EVICTION, 1000)
    header = Header(EVICTION.sent())
    asked = [Observation(header, "f", 0, row.tobytes()) for row in rows]
    drawn = np.array(SamplingPolicy(network, EVICTION, "1")(asked))
    assert rows["mask"][np.arange(3000), drawn].all()
    logits = network.logits(raw_rows([each.payload for each in asked], EVICTION))
    share = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    counts = np.bincount(drawn, minlength=33)
    assert (np.abs(counts - share.sum(axis=0)) < 5 * np.sqrt(share.sum(axis=0) + 1)).all()
    assert np.count_nonzero(counts) > 20
    assert SamplingPolicy(network, EVICTION, "1")(asked[7:9]) == drawn[7:9].tolist()
    assert SamplingPolicy(network, EVICTION, "2")(asked) != drawn.tolist()
    greedy = SamplingPolicy(network, EVICTION, None)
    assert greedy(asked) == logits.argmax(axis=1).tolist()
    assert [greedy.answer(each) for each in asked[:5]] == greedy(asked)[:5]


@pytest.mark.parametrize("problem", [INLINING, EVICTION, RegallocPriority()])
def test_raw_rows_are_the_features(problem: Problem, sample: Corpus) -> None:
    if isinstance(problem, InliningForSize):
        reports = rollout(
            sample, {"random": problem.policy("random")}, problem, names=["digest.c"],
            keep_decisions=True,
        )  # fmt: skip
        payloads = [each.payload for report in reports for each in report.attempts[0].decisions]
    else:
        size = observation_dtype(problem).itemsize
        data = np.random.default_rng(0).integers(0, 120, (4, size), np.uint8)
        payloads = [each.tobytes() for each in data]
    found = features_of(raw_rows(payloads, problem), problem)
    expected = observation_array(payloads, problem)
    assert list(found) == list(expected.dtype.names or ())
    for name, values in found.items():
        assert values.dtype.as_numpy_dtype == expected[name].dtype
        np.testing.assert_array_equal(values.numpy(), expected[name])


def test_problems_and_models_that_do_not_fit(sample: Corpus, tmp_path: Path) -> None:
    data = data_of(sample, "digest.c")
    with pytest.raises(OptionsError) as options:
        trained(tmp_path / "a", QUICK, data, problem=RegallocPriority())
    assert str(options.value) == (
        "ppo: expected a problem of InliningForSize, RegallocEviction, found RegallocPriority"
    )
    with pytest.raises(ModelError, match="network.json cannot be read: No such file"):
        trained(tmp_path / "b", replace(QUICK, start=str(tmp_path)), data)
    (tmp_path / "empty.bc").write_bytes(b"")
    empty = Corpus(tmp_path, ("empty",))
    with pytest.raises(TrainingError) as training:
        trained(tmp_path / "c", QUICK, replace(data, packages={"none": empty}))
    assert str(training.value) == (
        "ppo: expected modules that compile and ask for decisions, found none among 1"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iterations": 0}, "iterations: expected a number above 0, found 0"),
        ({"modules": -1}, "modules: expected a number above 0, found -1"),
        ({"epochs": 0}, "epochs: expected a number above 0, found 0"),
        ({"minibatch": 0}, "minibatch: expected a number above 0, found 0"),
        ({"validate_every": 0}, "validate_every: expected a number above 0, found 0"),
        ({"discount": 1.5}, "discount: expected a number from 0 to 1, found 1.5"),
        ({"decay": -0.1}, "decay: expected a number from 0 to 1, found -0.1"),
        ({"moving_average": 2.0}, "moving_average: expected a number from 0 to 1, found 2.0"),
        ({"band": (5,)}, "band: expected two costs or none, found (5,)"),
    ],
)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        replace(QUICK, **changes)
    assert str(caught.value) == message
