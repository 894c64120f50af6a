"""Networks with other weights, compared: closed form, a trivial task, real contexts, going on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import OptionsError, TrainingError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.training._data import Data, TrainingContext, Workshop
from mlgo_gym.training._evolution import Ascent, Config, train, worth_of
from mlgo_gym.training._export import CompiledNetwork
from mlgo_gym.training._generations import Generation, restored
from mlgo_gym.training._networks import InliningNetwork, Normalization, network_features
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._trials import Perturbation, Perturbed, noise
from tests.training.conftest import data_of

INLINING = InliningForSize()
QUICK = Config(generations=3, contexts=2, pairs=2, noise=0.5, hidden=(8,), validate_every=3)


def network() -> InliningNetwork:
    rows = np.zeros(8, INLINING.layout.dtype)
    rows["cost_estimate"] = np.arange(8)
    statistics = Normalization.fit(INLINING.layout.columns(rows), network_features(INLINING))
    return InliningNetwork(statistics, (4,), 0)


@dataclass(frozen=True)
class Learning:
    """A learner that only has what it goes on from."""

    update: Ascent

    def learn_from(self, _: Generation) -> Mapping[str, float]:
        return {}


def test_worth_in_closed_form() -> None:
    """Gains, losses and programs that go wrong are limited; the root of the mean square is 1."""
    costs = np.array([[[-9.0, 0.0], [0.0, np.inf]], [[0.0, 0.0], [0.0, 0.0]]])
    found = worth_of(costs, np.array([1.0, 4.0]), most_gain=0.1, most_loss=0.5)
    np.testing.assert_allclose(found, np.array([0.1, 0.5]) / np.sqrt((0.01 + 0.25) / 2))
    assert not worth_of(np.zeros((1, 3, 2)), np.ones(1), 0.1, 0.5).any()


Edit = Callable[[dict[str, Any], dict[str, Any]], object]

EDITS: dict[str, tuple[Edit, str]] = {
    "no network": (
        lambda _, state: state.pop("network"),
        "state: expected 'network', found none",
    ),
    "network a list": (
        lambda _, state: state.update(network=[1]),
        "state.network: expected a JSON object, found [1]",
    ),
    "another problem": (
        lambda _, state: state["network"].update(problem="RegallocPriority"),
        "network: expected one of InliningForSize, RegallocEviction, found 'RegallocPriority'",
    ),
    "wide": (
        lambda _, state: state["network"].update(hidden=[1 << 26]),
        "network: hidden: expected widths for at most {weights} weights, found (67108864,) "
        "behind {names} numbers",
    ),
    "generation": (
        lambda _, state: state.update(generation=-1),
        "generation: expected a whole number from 0 to 2,147,483,648, found -1",
    ),
    "best": (
        lambda _, state: state.update(best=float("nan")),
        "state.best: expected a number or null, found nan",
    ),
    "no average": (
        lambda arrays, _: arrays.pop("average.0"),
        "expected an array 'average.0', found none",
    ),
    "shape": (
        lambda arrays, _: arrays.update({"network.3": np.zeros((3, 3), np.float32)}),
        "network.3: expected float32 of shape (1,), found float32 of shape (3, 3)",
    ),
    "texts": (
        lambda arrays, _: arrays.update({"network.3": np.array(["x"])}),
        "network.3: expected float32 of shape (1,), found <U1 of shape (1,)",
    ),
    "average": (
        lambda arrays, _: arrays.update({"average.3": np.zeros(2, np.float32)}),
        "average.3: expected float32 of shape (1,), found float32 of shape (2,)",
    ),
    "NaN": (
        lambda arrays, _: arrays.update({"network.3": np.array([np.nan], np.float32)}),
        "network.3: expected finite numbers, found others",
    ),
    "optimizer": (
        lambda arrays, _: arrays.update({"optimizer.2": arrays["optimizer.2"] + np.inf}),
        "optimizer.2: expected finite numbers, found others",
    ),
}


@pytest.mark.parametrize("edit", [None, *EDITS])
def test_checkpoints_of_strangers(edit: str | None, tmp_path: Path) -> None:
    """What a checkpoint holds is taken whole, or refused by an error that names the file."""
    ascent = Ascent(network(), learning_rate=0.01, kept=0.0)
    arrays = ascent.arrays()
    state: dict[str, Any] = {"generation": 2, "best": None, "validated": -1}
    state["network"] = ascent.network.config()
    weights = sum(each.size for each in ascent.averaged())
    change, message = EDITS[edit] if edit else (None, "")
    if change:
        change(arrays, state)
    with TrainingRun(tmp_path, "evolution", INLINING, QUICK) as run:
        run.save(2, arrays, state)
        begin = partial(Ascent, learning_rate=0.01, kept=0.0)
        if not change:
            found = restored(run, lambda each: Learning(begin(each)))
            assert found is not None
            assert found[0].generation == 2
            again = found[1].update.arrays()
            assert all(np.array_equal(again[name], each) for name, each in arrays.items())
            return
        with pytest.raises(TrainingError) as error:
            restored(run, lambda each: Learning(begin(each)))
    names = len(ascent.network.normalization.names)
    expected = message.format(weights=f"{weights:,}", names=names)
    assert str(error.value) == (f"run {str(tmp_path)!r}: checkpoint.npz cannot be read: {expected}")


@pytest.mark.parametrize("sign", [1, -1])
def test_weights_move_towards_what_costs_less(sign: int) -> None:
    """A cost that grows with a weight makes it less; the other way round, more."""
    ascent = Ascent(network(), learning_rate=0.01, kept=0.0)
    shapes = [tuple(each.shape) for each in ascent.averaged()]
    for generation in range(20):
        known = Perturbation(0, generation, 8, 0.1, 0.0)
        ascent.learn([-sign * noise(known, each, shapes)[-1][0] for each in range(8)], known)
    moved = float(ascent.averaged()[-1][0])
    assert 0.1 < -sign * moved < 0.3


def test_nothing_is_learned_of_equal_costs() -> None:
    ascent = Ascent(network(), learning_rate=0.01, kept=0.0)
    before = ascent.arrays()
    ascent.learn(np.zeros(4), Perturbation(0, 1, 4, 0.1, 0.0))
    for name, array in ascent.arrays().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.e2e
def test_a_pair_is_what_its_networks_cost(sample: Corpus) -> None:
    """Each cost is that of the network with the noise in its weights, compiled by itself."""
    known = Perturbation(seed=1, generation=2, pairs=2, noise=0.5, tolerated=0.05)
    learner = network()
    with (
        Workshop(INLINING, jobs=1, timeout_s=120) as workshop,
        CompiledNetwork(learner, INLINING) as code,
        Compiler() as compiler,
    ):
        module = sample["json_write.c"]
        context = TrainingContext("json_write.c", module, baseline=1000.0)
        found = Perturbed(workshop, code, known)(compiler, (0, context)).costs
        before = learner.get_weights()
        expected = np.zeros((2, 2))
        for number, sign in np.ndindex(2, 2):
            shifts = noise(known, number, [each.shape for each in before])
            scale = np.float32(-0.5 if sign else 0.5)
            learner.set_weights([a + scale * b for a, b in zip(before, shifts, strict=True)])
            code.take_weights(learner)
            score = workshop.score(compiler, context, code.answer)
            expected[number, sign] = context.cost(score, 0.05)
    np.testing.assert_array_equal(found, expected)
    assert len(set(found.ravel().tolist())) > 2


def trained(folder: Path, problem: Problem, data: Data) -> list[Mapping[str, float]]:
    scalars: list[Mapping[str, float]] = []
    with TrainingRun(
        folder, "evolution", problem, QUICK, report=lambda _, values: scalars.append(values)
    ) as run:
        assert train(run, QUICK, data).modules == 1
    return scalars


@pytest.mark.e2e
def test_going_on_is_as_never_stopping(sample: Corpus, tmp_path: Path) -> None:
    """Also with two workers."""
    names = ("frame_stream.c", "json_write.c", "scene.cpp")
    folder, cut_off = tmp_path / "run", tmp_path / "cut-off"

    def watch(step: int, scalars: Mapping[str, float]) -> None:
        if step == QUICK.generations and "collect/differing" in scalars:
            assert scalars["collect/differing"] > 0
            shutil.copytree(folder, cut_off)

    with TrainingRun(folder, "evolution", INLINING, QUICK, report=watch) as run:
        train(run, QUICK, data_of(sample, *names))
    trained(cut_off, INLINING, data_of(sample, *names, jobs=2))
    expected, found = (dict(np.load(each / "checkpoint.npz")) for each in (folder, cut_off))
    assert expected.keys() == found.keys()
    for name in expected.keys() - {"state"}:
        np.testing.assert_array_equal(expected[name], found[name])
    card = json.loads((folder / "model" / "card.json").read_text())
    assert (card["trainer"], card["config"]["pairs"]) == ("evolution", QUICK.pairs)


@pytest.mark.e2e
def test_eviction_learns_too(sample: Corpus, tmp_path: Path) -> None:
    scalars = trained(
        tmp_path / "run", RegallocEviction(), data_of(sample, "expr_vm.c", "codec_text.c")
    )
    assert any(each.get("collect/differing", 0.0) > 0 for each in scalars)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": 0}, "pairs: expected a whole number from 1 to 65,536, found 0"),
        ({"noise": 0.0}, "noise: expected a number above 0, found 0.0"),
        ({"learning_rate": -1.0}, "learning_rate: expected a number above 0, found -1.0"),
        ({"average": 2.0}, "average: expected a number from 0 to 1, found 2.0"),
    ],
)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        replace(QUICK, **changes)
    assert str(caught.value) == message
