"""Evolution strategies: closed form, convergence, real contexts, and going on where they were."""

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
from mlgo_gym.errors import ModelError, OptionsError, TrainingError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.training._data import Data
from mlgo_gym.training._es import Config, costs_of, train
from mlgo_gym.training._es_update import Momentum, direction_of, flattened, like, noise_of, scale_of
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._validation import Validation
from tests.training.conftest import data_of

Array = np.ndarray[Any, Any]

EVICTION = RegallocEviction()

QUICK = Config(
    generations=3, pairs=2, contexts=4, noise=1.0, learning_rate=0.5, hidden=(8,), validate_every=3
)


def trained(
    folder: Path,
    config: Config,
    data: Data,
    *,
    problem: Problem = EVICTION,
    budget_s: float | None = None,
    scalars: list[Mapping[str, float]] | None = None,
) -> Validation:
    def report(_: int, values: Mapping[str, float]) -> None:
        if scalars is not None:
            scalars.append(values)

    with TrainingRun(folder, "es", problem, config, budget_s=budget_s, report=report) as run:
        return train(run, config, data)


def minimized(learning_rate: float, *, sign: float = 1.0) -> float:
    """What is left of a quadratic cost of 1 after 150 generations."""
    target = np.linspace(-1, 1, 20)
    weights, momentum = np.zeros(20), Momentum(20, learning_rate, 0.5)
    for generation in range(150):
        noise = noise_of(8, 20, np.random.default_rng(generation))
        offsets = 0.05 * np.concatenate([noise, -noise])
        costs = np.array([np.sum(np.square(weights + each - target)) for each in offsets])
        weights += momentum.step(sign * direction_of(costs.reshape(2, 8), noise))
    return float(np.sum(np.square(weights - target)) / np.sum(np.square(target)))


def test_a_quadratic_is_minimized() -> None:
    assert minimized(0.05) < 0.03


@pytest.mark.parametrize(("learning_rate", "sign"), [(3.0, 1.0), (0.05, -1.0)])
def test_wrong_steps_do_not_minimize(learning_rate: float, sign: float) -> None:
    assert minimized(learning_rate, sign=sign) > 1


def test_the_direction_in_closed_form() -> None:
    """Ranks 1 to 3 of three pairs, the sign of the cheaper side, and length 1 for one unit."""
    noise = np.eye(3)
    costs = np.array([[1.0, 0.0, 100.0], [2.0, 3.0, 0.0]])
    np.testing.assert_allclose(direction_of(costs, noise), np.array([1, 2, -3]) / np.sqrt(14))
    np.testing.assert_allclose(direction_of(costs[::-1], noise), -direction_of(costs, noise))
    np.testing.assert_array_equal(direction_of(np.ones((2, 3)), noise), np.zeros(3))


def test_noise_alone_is_about_one_unit() -> None:
    generator = np.random.default_rng(0)
    noise = noise_of(8, 5000, generator)
    direction = direction_of(generator.standard_normal((2, 8)), noise)
    assert np.sqrt(np.mean(np.square(direction))) == pytest.approx(1, abs=0.05)


def test_no_context_decides_alone() -> None:
    table = np.array([[0.0, 50.0], [0.2, 0.0], [0.2, 0.0]])
    first, second = costs_of(table, np.ones(3), limit=0.1)
    assert first > second


def test_weights_are_put_back_as_they_were() -> None:
    weights = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array([7], np.float32)]
    vector = flattened(weights)
    assert [each.tolist() for each in like(vector, weights)] == [[[0, 1, 2], [3, 4, 5]], [7]]
    assert scale_of([*weights, *weights], head_only=True)[:7].tolist() == [0] * 7


@pytest.fixture(scope="module")
def finished(sample: Corpus, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A finished run, and the run's folder as it was when its last generation was cut off."""
    folder = tmp_path_factory.mktemp("es") / "run"
    cut_off = folder.with_name("cut-off")

    def watch(step: int, scalars: Mapping[str, float]) -> None:
        if step == QUICK.generations and "collect/contexts" in scalars:
            shutil.copytree(folder, cut_off)

    data = data_of(sample, "bignum.c", "matrix.cpp")
    with TrainingRun(folder, "es", EVICTION, QUICK, report=watch) as run:
        assert train(run, QUICK, data).modules == 1
    return folder, cut_off


def test_going_on_is_as_never_stopping(finished: tuple[Path, Path], sample: Corpus) -> None:
    """Also with two workers."""
    folder, cut_off = finished
    trained(cut_off, QUICK, data_of(sample, "bignum.c", "matrix.cpp", jobs=2))
    expected, found = (dict(np.load(each / "checkpoint.npz")) for each in (folder, cut_off))
    assert expected.keys() == found.keys() == {"weights", "scale", "direction", "state"}
    for name in ("weights", "scale", "direction"):
        np.testing.assert_array_equal(expected[name], found[name])
    assert np.abs(expected["direction"]).sum() > 0


def test_the_run_leaves_a_model_with_a_card(finished: tuple[Path, Path]) -> None:
    card = json.loads((finished[0] / "model" / "card.json").read_text())
    assert card["trainer"] == "es"
    assert card["config"]["noise"] == QUICK.noise
    assert card["results"]["validation"]["modules"] == 1


@pytest.mark.slow
def test_the_inliner_learns_too(sample: Corpus, tmp_path: Path) -> None:
    scalars: list[Mapping[str, float]] = []
    config = replace(QUICK, generations=1, noise=5.0)
    found = trained(
        tmp_path / "run",
        config,
        data_of(sample, "digest.c"),
        problem=InliningForSize(),
        scalars=scalars,
    )
    assert found.modules == 1
    (generation,) = (each for each in scalars if "collect/contexts" in each)
    assert generation["collect/contexts"] == 1
    assert generation["cost/spread"] > 0


@pytest.mark.slow
def test_only_the_head_learns(sample: Corpus, tmp_path: Path) -> None:
    config = replace(QUICK, generations=1, head_only=True)
    trained(tmp_path / "run", config, data_of(sample, "bignum.c"))
    direction = np.load(tmp_path / "run" / "checkpoint.npz")["direction"]
    scale = np.load(tmp_path / "run" / "checkpoint.npz")["scale"]
    assert np.count_nonzero(scale) == 9 < len(direction)


def test_a_spent_budget_leaves_the_starting_point(sample: Corpus, tmp_path: Path) -> None:
    """LLVM's own rule, which as a start for the next run is the same again."""
    data = data_of(sample, "bignum.c")
    found = trained(tmp_path / "first", QUICK, data, budget_s=1e-9)
    config = replace(QUICK, start=str(tmp_path / "first" / "model"))
    assert trained(tmp_path / "second", config, data, budget_s=1e-9) == found


def test_what_cannot_be_trained(sample: Corpus, tmp_path: Path) -> None:
    data = data_of(sample, "bignum.c")
    with pytest.raises(OptionsError) as options:
        trained(tmp_path / "a", QUICK, data, problem=RegallocPriority())
    assert str(options.value) == (
        "training: expected a problem of InliningForSize, RegallocEviction, found RegallocPriority"
    )
    with pytest.raises(ModelError, match="network.json cannot be read: No such file"):
        trained(tmp_path / "b", replace(QUICK, start=str(tmp_path)), data)
    empty = Corpus(tmp_path, ("empty",))
    (tmp_path / "empty.bc").write_bytes(b"")
    with pytest.raises(TrainingError) as training:
        trained(tmp_path / "c", QUICK, replace(data, packages={"none": empty}))
    assert str(training.value) == "es: expected modules that compile and ask, found none"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"generations": 0}, "generations: expected a number of at least 1, found 0"),
        ({"pairs": 0}, "pairs: expected a number of at least 1, found 0"),
        ({"contexts": -1}, "contexts: expected a number of at least 1, found -1"),
        ({"validate_every": 0}, "validate_every: expected a number of at least 1, found 0"),
        ({"noise": 0.0}, "noise: expected a number above 0, found 0.0"),
        ({"learning_rate": -1.0}, "learning_rate: expected a number above 0, found -1.0"),
        ({"limit": 0.0}, "limit: expected a number above 0, found 0.0"),
        ({"momentum": 1.0}, "momentum: expected 0 to below 1, found 1.0"),
    ],
)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        replace(QUICK, **changes)
    assert str(caught.value) == message
