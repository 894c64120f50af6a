"""PyTorch policies as model directories: PyTorch, TFLite and native code answer alike."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.envs._wrappers import FloatVectorObservation, SignedLogObservation
from mlgo_gym.errors import ModelError, OptionsError
from mlgo_gym.model._card import read_card
from mlgo_gym.model._tflite_writer import GraphWriter, write_tflite
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.runners._model_runners import ModelUnderTrainingRunner, ReleaseModeModelRunner
from mlgo_gym.training._from_torch import VectorNormalization, export_torch, translated
from mlgo_gym.training._from_torch import _exported as exported
from tests.model.agreement import interpreter
from tests.training.conftest import Recorded

INLINING = InliningForSize()
EVICTION = RegallocEviction()

Array = np.ndarray[Any, Any]


def vectors(recorded: Recorded, problem: Problem) -> Array:
    """What an environment's wrappers make of recorded observations, in numpy."""
    parts = []
    for feature in problem.layout.features:
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
    export_torch(
        layers,
        problem,
        tmp_path / "model",
        normalization=VectorNormalization(
            signed_log=True, mean=tuple(mean.tolist()), variance=tuple(variance.tolist()), limit=2.0
        ),
        card={"steps": 7},
    )
    for runner_class in (ReleaseModeModelRunner, ModelUnderTrainingRunner):
        with runner_class(tmp_path / "model", problem.layout.specs, problem.advice) as runner:
            found = []
            for row in recorded:
                runner.fill(row.tobytes())
                found.append(runner.evaluate().item())
        assert found == expected.tolist(), runner_class
    card = read_card(tmp_path / "model", problem.layout.specs)
    assert card is not None
    assert card.features == problem.layout.feature_names


def test_the_vector_is_the_wrappers(inlining: Recorded) -> None:
    env = FloatVectorObservation(
        SignedLogObservation(gymnasium.make("mlgo_gym/InliningForSize-v0"))
    )
    observation, _ = env.reset(options={"module": "scene.cpp"})
    env.close()
    np.testing.assert_array_equal(observation, vectors(inlining, INLINING)[0])


def graph_of(policy: Any, inputs: int, normalization: VectorNormalization | None = None) -> bytes:
    """A policy as TFLite, from its vector to its logits."""
    writer = GraphWriter()
    value = writer.input(TensorSpec("vector", "float", (1, inputs)))
    if normalization:
        value = normalization.of(writer, value)
    return write_tflite(writer.graph("logits", translated(writer, exported(policy, inputs), value)))


def answers(model: bytes, vectors: Array) -> Array:
    """TFLite's logits of each vector."""
    tflite = interpreter(model)
    (given,), (made,) = tflite.get_input_details(), tflite.get_output_details()
    found = []
    for vector in vectors:
        tflite.set_tensor(given["index"], vector[None])
        tflite.invoke()
        found.append(tflite.get_tensor(made["index"])[0])
    return np.array(found)


def function(torch: Any, compute: Callable[[Any, Any], Any], *, layers: int = 0) -> Any:
    """A module that computes so, of PyTorch and a vector; some have layers between."""

    class Function(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(layers))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = x + torch.tanh(layer(x))
            return compute(torch, x)

    return Function()


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "rule": lambda torch, x: torch.stack([-x[..., 1], (4.5 - x[..., 1]).clamp(-4, 4) / 2], dim=-1),
    "signed logarithm": lambda torch, x: torch.sign(x) * torch.log1p(torch.abs(x)),
    "and back": lambda torch, x: torch.sign(x) * torch.expm1(torch.abs(x)),
    "slices": lambda torch, x: torch.cat([x[:, 3:], x[:, :2], x[:, -1:]], dim=1),
    "mask": lambda torch, x: torch.where((x > 0) & ~(x >= 2), x, -1.0),
    "flags": lambda _, x: x * (x < 0.5) + (x != 0),
    "means": lambda _, x: (x - x.mean(-1, keepdim=True)) / x.square().sum(dim=1)[:, None],
    "powers": lambda torch, x: torch.sqrt(x**2) + torch.rsqrt(1 + x * x),
    "extremes": lambda torch, x: torch.maximum(torch.minimum(x, -x), x - 1),
    "in place": lambda _, x: (x * 2).add_(1).relu_(),
    "softmax": lambda torch, x: torch.softmax(x, dim=-1),
    "shapes": lambda _, x: x.reshape(1, 2, 3)[:, 1].unsqueeze(0).flatten(1),
    "bounds": lambda _, x: x.clamp(min=-1.0) + x.clamp(max=0.5),
    "doubles": lambda torch, x: x.to(torch.float32) * torch.tensor([1.0, 2.0, 3.0] * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arithmetic(torch: Any, name: str) -> None:
    torch.manual_seed(3)
    policy = function(torch, FUNCTIONS[name], layers=1)
    vectors = np.random.default_rng(3).normal(0, 2, (20, 6)).astype(np.float32)
    with torch.no_grad():
        expected = np.concatenate([policy(torch.tensor(each[None])).numpy() for each in vectors])
    np.testing.assert_allclose(answers(graph_of(policy, 6), vectors), expected, 1e-5, 1e-6)


LAYERS = (
    "Dropout", "ELU", "GELU(approximate='tanh')", "Hardtanh", "Identity", "LayerNorm(6)",
    "LeakyReLU", "ReLU", "ReLU(inplace=True)", "ReLU6", "SiLU", "Sigmoid", "Softmax(-1)",
    "Tanh", "Linear(6, 4, bias=False)", "Flatten",
)  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_layers(torch: Any, layer: str) -> None:
    torch.manual_seed(4)
    made = eval(f"nn.{layer}" if "(" in layer else f"nn.{layer}()", {"nn": torch.nn})  # noqa: S307
    policy = torch.nn.Sequential(torch.nn.Linear(5, 6), made)
    vectors = np.random.default_rng(4).normal(0, 2, (20, 5)).astype(np.float32)
    data = graph_of(policy, 5)
    assert policy.training
    with torch.no_grad():
        expected = policy.eval()(torch.tensor(vectors)).numpy()
    np.testing.assert_allclose(answers(data, vectors), expected, 1e-5, 1e-6)


def test_normalisation(torch: Any) -> None:
    normalization = VectorNormalization(
        signed_log=True, mean=(1.0, 0.5, -2.0), variance=(4.0, 0.0, 1.0), epsilon=0.25, limit=1.5
    )
    vectors = np.random.default_rng(5).normal(0, 9, (20, 3)).astype(np.float32)
    logs = np.sign(vectors) * np.log1p(np.abs(vectors))
    expected = (logs - [1.0, 0.5, -2.0]) / np.sqrt(np.array([4.0, 0.0, 1.0]) + 0.25)
    data = graph_of(torch.nn.Identity(), 3, normalization)
    np.testing.assert_allclose(answers(data, vectors), expected.clip(-1.5, 1.5), 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda nn: nn.Linear(37, 2),
         "expected a module that takes float32 [1, 38], and that torch.export takes, found "),
        (lambda nn: nn.Linear(38, 33),
         "expected logits of shape (1, 2) for InliningForSize, found (1, 33)"),
        (lambda nn: nn.Sequential(nn.Unflatten(1, (2, 19)), nn.Linear(19, 2)),
         "expected logits of shape (1, 2) for InliningForSize, found (1, 2, 2)"),
        (lambda nn: nn.Sequential(nn.Linear(38, 8), nn.Softplus(), nn.Linear(8, 2)),
         "operator softplus: not supported"),
        (lambda nn: nn.Sequential(nn.Linear(38, 8), nn.GELU(), nn.Linear(8, 2)),
         "operator gelu: expected approximate='tanh'"),
        (lambda _: 5, "expected a torch.nn.Module, found 5"),
    ],
)  # fmt: skip
def test_policies_that_do_not_fit(
    torch: Any, policy: Callable[[Any], Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionsError) as caught:
        export_torch(policy(torch.nn), INLINING, tmp_path / "model")
    assert str(caught.value).startswith(f"torch policy: {message}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda torch, x: (x, torch.tanh(x)),
         "expected one tensor of logits that the features decide, found 2 outputs"),
        (lambda torch, _: torch.tensor([[1.0, 2.0]]),
         "expected one tensor of logits that the features decide, found 1 outputs"),
        (lambda torch, x: torch.add(x, x, alpha=2),
         "operator add: expected neither alpha nor rounding_mode"),
        (lambda _, x: x**3, "operator pow: expected the exponent 2"),
        (lambda _, x: x[:, ::2], "operator slice: expected the step 1"),
        (lambda torch, x: x.to(torch.int64), "operator _to_copy: expected float32"),
        (lambda torch, x: torch.softmax(x, dim=0), "operator softmax: expected the last dimension"),
        (lambda _, x: x[:, : int(x[0, 0])],
         "expected a module that takes float32 [1, 6], and that torch.export takes, found "),
    ],
)  # fmt: skip
def test_functions_that_do_not_fit(
    torch: Any, compute: Callable[[Any, Any], Any], message: str
) -> None:
    with pytest.raises(OptionsError) as caught:
        graph_of(function(torch, compute), 6)
    assert str(caught.value).startswith(f"torch policy: {message}")


def test_problems_and_normalisations_that_do_not_fit(torch: Any, tmp_path: Path) -> None:
    layers = torch.nn.Linear(38, 2)
    with pytest.raises(OptionsError) as caught:
        export_torch(layers, RegallocPriority(), tmp_path / "model")
    assert str(caught.value) == (
        "torch policy: expected a problem with numbered actions, found RegallocPriority"
    )
    with pytest.raises(OptionsError, match="^normalisation: expected 2 variances, found 1$"):
        VectorNormalization(mean=(0.0, 0.0), variance=(1.0,))
    two = VectorNormalization(mean=(0.0,) * 2, variance=(1.0,) * 2)
    with pytest.raises(OptionsError, match="^normalisation: expected 38 means, found 2$"):
        export_torch(layers, INLINING, tmp_path / "model", normalization=two)


def test_without_tensorflow(tmp_path: Path) -> None:
    script = """
        import sys
        sys.modules.update(dict.fromkeys(("tensorflow", "keras", "ai_edge_litert")))
        import torch
        from mlgo_gym import InliningForSize
        from mlgo_gym.training import export_torch
        export_torch(torch.nn.Linear(38, 2), InliningForSize(), sys.argv[1])
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), tmp_path / "model"],
        check=True,
        capture_output=True,
    )
    assert {each.name for each in (tmp_path / "model").iterdir()} == {
        "card.json",
        "model.tflite",
        "output_spec.json",
    }


def test_a_folder_that_cannot_be_written(torch: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="cannot be written: File exists$"):
        export_torch(torch.nn.Linear(38, 2), INLINING, tmp_path / "file" / "model")
