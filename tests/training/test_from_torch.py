"""PyTorch policies as model directories: PyTorch, TFLite and native code answer alike."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from mlgo_gym.envs._wrappers import FloatVectorObservation, SignedLogObservation
from mlgo_gym.errors import OptionsError
from mlgo_gym.model._card import read_card
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.runners._release import ReleaseModeModelRunner
from mlgo_gym.runners._under_training import ModelUnderTrainingRunner
from mlgo_gym.training._from_torch import TorchPolicy, VectorNormalization, export_torch_mlp
from tests.training.conftest import Recorded

INLINING = InliningForSize()
EVICTION = RegallocEviction()

Array = np.ndarray[Any, Any]


def vectors(recorded: Recorded, problem: Problem) -> Array:
    """What an environment's wrappers make of recorded observations, in numpy."""
    parts = []
    for feature in problem.features:
        part = recorded[feature.spec.name].reshape(len(recorded), -1).astype(np.float64)
        parts.append(np.where(np.isfinite(part), part, feature.high))
    values = np.concatenate(parts, axis=1)
    return np.asarray(np.sign(values) * np.log1p(np.abs(values)), np.float32)


@pytest.fixture(scope="module")
def torch() -> Any:
    """Imported when it is needed: two seconds, and every process of a run collects this file."""
    return importlib.import_module("torch")


def layers_of(nn: Any, inputs: int, actions: int) -> Any:
    """One activation object twice, and a sequence in a sequence, as others' libraries have."""
    tanh = nn.Tanh()
    first = nn.Sequential(nn.Linear(inputs, 24), tanh, nn.Linear(24, 16, bias=False), tanh)
    return nn.Sequential(nn.Flatten(), first, nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, actions))


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("problem", "actions"),
    [(INLINING, 2), (EVICTION, 33)],
)
def test_all_forms_answer_alike(
    torch: Any, problem: Problem, actions: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    name = "inlining" if problem is INLINING else "eviction"
    recorded: Recorded = request.getfixturevalue(name)
    values = vectors(recorded, problem)
    mean, variance = values.mean(axis=0, dtype=np.float64), values.var(axis=0, dtype=np.float64)
    torch.manual_seed(2)
    layers = layers_of(torch.nn, values.shape[1], actions)
    normal = np.clip((values - mean) / np.sqrt(variance + 1e-8), -2.0, 2.0).astype(np.float32)
    with torch.no_grad():
        logits = layers(torch.from_numpy(normal)).numpy()
    if "mask" in (recorded.dtype.names or ()):
        logits = np.where(recorded["mask"] != 0, logits, -math.inf)
    expected = logits.argmax(axis=-1)
    assert len(set(expected)) > 1
    export_torch_mlp(
        layers,
        problem,
        tmp_path / "model",
        normalization=VectorNormalization(
            signed_log=True, mean=tuple(mean.tolist()), variance=tuple(variance.tolist()), limit=2.0
        ),
        card={"steps": 7},
    )
    for runner_class in (ReleaseModeModelRunner, ModelUnderTrainingRunner):
        with runner_class(tmp_path / "model", problem.sent(), problem.advice) as runner:
            found = []
            for row in recorded:
                runner.fill(row.tobytes())
                found.append(runner.evaluate().item())
        assert found == expected.tolist(), runner_class
    card = read_card(tmp_path / "model", problem.sent())
    assert card is not None
    assert card.features == tuple(each.spec.name for each in problem.features)


def test_the_vector_is_the_wrappers(inlining: Recorded) -> None:
    env = FloatVectorObservation(
        SignedLogObservation(gymnasium.make("mlgo_gym/InliningForSize-v0"))
    )
    observation, _ = env.reset(options={"module": "scene.cpp"})
    env.close()
    np.testing.assert_array_equal(observation, vectors(inlining, INLINING)[0])


@pytest.mark.e2e
def test_another_normalisation_answers_otherwise(torch: Any, inlining: Recorded) -> None:
    torch.manual_seed(0)
    layers = layers_of(torch.nn, 38, 2)
    observations = {name: inlining[name] for name in inlining.dtype.names or ()}
    plain, logs = (
        TorchPolicy(layers, INLINING, VectorNormalization(signed_log=each))(observations).numpy()
        for each in (False, True)
    )
    assert not np.allclose(plain, logs)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (lambda nn: nn.Sequential(nn.Linear(38, 8), nn.Dropout(), nn.Linear(8, 2)),
         "torch policy: expected Linear, each with ReLU or Tanh behind it or neither, found "
         "Dropout"),
        (lambda nn: nn.Sequential(nn.ReLU(), nn.Linear(38, 2)),
         "torch policy: expected Linear, each with ReLU or Tanh behind it or neither, found ReLU"),
        (lambda nn: nn.Sequential(nn.Linear(38, 4), nn.ReLU(), nn.Tanh(), nn.Linear(4, 2)),
         "torch policy: expected Linear, each with ReLU or Tanh behind it or neither, found Tanh"),
        (lambda nn: nn.Sequential(nn.Linear(38, 2), nn.Tanh()),
         "torch policy: expected Linear as the last layer, found tanh behind it"),
        (lambda nn: nn.Sequential(nn.Linear(37, 2)),
         "torch policy: expected 38 inputs and 2 outputs for InliningForSize, found 37 and 2"),
        (lambda nn: nn.Linear(38, 33),
         "torch policy: expected 38 inputs and 2 outputs for InliningForSize, found 38 and 33"),
        (lambda nn: nn.Sequential(),
         "torch policy: expected 38 inputs and 2 outputs for InliningForSize, found 0 and 0"),
        (lambda nn: nn.Sequential(nn.Linear(38, 8), nn.Linear(9, 2)),
         "torch policy: expected 8 inputs of layer 2, found 9"),
    ],
)  # fmt: skip
def test_layers_that_do_not_fit(torch: Any, layers: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        TorchPolicy(layers(torch.nn), INLINING, VectorNormalization())
    assert str(caught.value) == message


def test_problems_and_normalisations_that_do_not_fit(torch: Any) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(38, 2))
    with pytest.raises(OptionsError) as caught:
        TorchPolicy(layers, RegallocPriority(), VectorNormalization())
    assert str(caught.value) == (
        "torch policy: expected a problem of InliningForSize, RegallocEviction, found "
        "RegallocPriority"
    )
    with pytest.raises(OptionsError, match="^normalisation: expected 2 variances, found 1$"):
        VectorNormalization(mean=(0.0, 0.0), variance=(1.0,))
    with pytest.raises(OptionsError, match="^normalisation: expected 38 means, found 2$"):
        TorchPolicy(layers, INLINING, VectorNormalization(mean=(0.0,) * 2, variance=(1.0,) * 2))
