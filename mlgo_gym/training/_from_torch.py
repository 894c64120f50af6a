"""Policies that were trained in PyTorch, as model directories.

A policy is a ``torch.nn.Sequential`` of ``Linear``, ``ReLU`` and ``Tanh`` layers, from the vector
of all features to one logit for each action, as stable-baselines3, RLlib and most others have it.
What the training environment's wrappers did to the vector goes into the model, since LLVM sends
plain features.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

if "torch" in sys.modules and "tensorflow" not in sys.modules:
    # PyTorch's CUDA builds load Triton with the first optimiser. Its LLVM ends the process
    # ("registered more than once") when TensorFlow's is there before it, not the other way round.
    with contextlib.suppress(ImportError):
        importlib.import_module("triton._C.libtriton")

import numpy as np

from mlgo_gym.base import EnvironmentSetupError, OptionsError

try:
    import keras
    import tensorflow as tf
except ModuleNotFoundError as missing:
    raise EnvironmentSetupError(
        f"export_torch_mlp: expected the package {missing.name!r}, found none; "
        "pip install 'mlgo-gym[train]' brings it"
    ) from missing

from mlgo_gym.problems import Problem
from mlgo_gym.training._export import save_model
from mlgo_gym.training._network_code import FORBIDDEN
from mlgo_gym.training._networks import networked_problems


@dataclass(frozen=True, slots=True)
class VectorNormalization:
    """The normalisation that a training environment's wrappers apply to the features.

    Attributes:
        signed_log: each number becomes ``sign(x) * log(1 + |x|)`` (`SignedLogObservation`).
        mean: of each number after that, which is taken from it; empty leaves it.
        variance: its variance, by the root of which it is divided.
        epsilon: added to the variance.
        limit: what remains is clipped to this size.

    The last four are those of Gymnasium's ``NormalizeObservation`` (``obs_rms.mean``,
    ``obs_rms.var`` and ``epsilon``; it does not clip) and of stable-baselines3's ``VecNormalize``
    (these three and ``clip_obs``).

    Raises:
        OptionsError: there are not as many means as variances.

    >>> VectorNormalization(signed_log=True).signed_log
    True
    """

    signed_log: bool = False
    mean: tuple[float, ...] = ()
    variance: tuple[float, ...] = ()
    epsilon: float = 1e-8
    limit: float = math.inf

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.variance):
            raise OptionsError(
                f"normalisation: expected {len(self.mean)} variances, found {len(self.variance)}"
            )

    def __call__(self, values: Any) -> Any:
        """Normalise inside a TensorFlow graph: ``float32 [batch, features]``, in and out."""
        if self.signed_log:
            values = tf.sign(values) * tf.math.log(1.0 + tf.abs(values))
        if self.mean:
            mean, variance = np.array(self.mean), np.array(self.variance)
            factor = 1 / np.sqrt(variance + self.epsilon)
            values = (values - mean.astype(np.float32)) * factor.astype(np.float32)
        if math.isfinite(self.limit):
            values = tf.minimum(tf.maximum(values, -self.limit), self.limit)
        return values


class TorchPolicy(keras.Model):  # type: ignore[misc, unused-ignore]
    """A PyTorch policy's weights in a network that `training._export` can save."""

    def __init__(self, layers: Any, problem: Problem, normalization: VectorNormalization) -> None:
        super().__init__()
        self.problem = problem
        self._normalization = normalization
        self._layers_of_torch = []
        for layer, weights in _converted(layers, problem):
            layer.build((None, len(weights[0])))
            layer.set_weights(weights)
            self._layers_of_torch.append(layer)
        if normalization.mean and len(normalization.mean) != _width(problem):
            raise OptionsError(
                f"normalisation: expected {_width(problem)} means, found {len(normalization.mean)}"
            )
        self.built = True

    def features(self) -> tuple[str, ...]:
        """All features, in LLVM's order, which is that of the vector."""
        return tuple(each.spec.name for each in self.problem.features)

    def config(self) -> dict[str, Any]:
        """Its configuration as JSON values; `mlgo_gym.training.load_network` does not make it."""
        normalization = asdict(self._normalization)
        if not math.isfinite(self._normalization.limit):
            normalization["limit"] = None
        return {
            "kind": "torch",
            "problem": self.problem.name,
            "normalization": normalization,
            "layers": [[each.units, each.activation.__name__] for each in self._layers_of_torch],
        }

    def call(self, observations: Mapping[str, Any]) -> Any:
        """The logits, ``float32 [batch, actions]``, of features as LLVM sends them."""
        parts = []
        for feature in self.problem.features:
            part = tf.cast(observations[feature.spec.name], tf.float32)
            if feature.may_be_infinite:  # as the environments show it
                part = tf.where(tf.abs(part) <= part.dtype.max, part, feature.high)
            parts.append(tf.reshape(part, [-1, feature.spec.element_count]))
        values = self._normalization(tf.concat(parts, axis=-1))
        for layer in self._layers_of_torch:
            values = layer(values)
        if "mask" not in observations:
            return values
        mask = tf.cast(observations["mask"], tf.float32)
        return values * mask + FORBIDDEN * (1.0 - mask)


def export_torch_mlp(
    layers: Any,
    problem: Problem,
    directory: str | Path,
    *,
    normalization: VectorNormalization = VectorNormalization(),
    card: Mapping[str, Any] = MappingProxyType({}),
) -> TorchPolicy:
    """Write a PyTorch policy as a model directory.

    The vector is `mlgo_gym.envs.FloatVectorObservation`'s: all features in LLVM's order,
    those with 33 numbers one after the other. The decision is the largest logit's, of those that
    LLVM takes.

    Args:
        layers: a ``torch.nn.Sequential`` of ``Linear``, ``ReLU``, ``Tanh``, ``Flatten`` and
            ``Identity``; its last layer is ``Linear``, with 2 outputs for the inliner (not to
            inline, and to inline) and 33 for eviction.
        problem: what it answers.
        directory: where; a model that is there is replaced.
        normalization: what the training environment's wrappers did to the vector.
        card: more for the model's card.

    Returns:
        The network that was saved.

    Raises:
        OptionsError: the module has other layers, or takes or gives other numbers than the problem
            has.
        ModelError: the folder cannot be written.
        EnvironmentSetupError: PyTorch is not installed.

    >>> import tempfile, torch
    >>> from mlgo_gym import InliningForSize
    >>> layers = torch.nn.Sequential(torch.nn.Linear(38, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = export_torch_mlp(layers, InliningForSize(), f"{folder}/model")
    ...     (Path(folder) / "model" / "model.tflite").exists()
    True
    """
    policy = TorchPolicy(layers, problem, normalization)
    save_model(policy, problem, Path(directory), {"trainer": "torch", **card})
    return policy


def _converted(layers: Any, problem: Problem) -> Iterator[tuple[Any, list[np.ndarray[Any, Any]]]]:
    """Dense layers with their weights, and what they take and give checked."""
    if not problem.network:
        raise OptionsError(
            f"torch policy: expected a problem of {networked_problems()}, found {problem.name}"
        )
    actions = int(problem.action_space().n)  # type: ignore[attr-defined]
    dense = list(_dense_layers(layers))
    found = (dense[0][1].shape[0], dense[-1][1].shape[1]) if dense else (0, 0)
    if found != (_width(problem), actions):
        raise OptionsError(
            f"torch policy: expected {_width(problem)} inputs and {actions} outputs "
            f"for {problem.name}, found {found[0]} and {found[1]}"
        )
    if dense[-1][0] != "linear":
        raise OptionsError(
            f"torch policy: expected Linear as the last layer, found {dense[-1][0]} behind it"
        )
    width = found[0]
    for number, (activation, kernel, *bias) in enumerate(dense, 1):
        if len(kernel) != width:
            raise OptionsError(
                f"torch policy: expected {width} inputs of layer {number}, found {len(kernel)}"
            )
        width = kernel.shape[1]
        layer = keras.layers.Dense(width, activation=activation, use_bias=bool(bias))
        yield layer, [kernel, *bias]


def _dense_layers(layers: Any) -> Sequence[list[Any]]:
    """For each ``Linear`` its activation, kernel ``[inputs, outputs]``, and bias if it has one."""
    try:
        from torch import nn  # noqa: PLC0415 (not needed otherwise)
    except ImportError as error:
        raise EnvironmentSetupError("torch policy: expected PyTorch: pip install torch") from error
    activations = {nn.ReLU: "relu", nn.Tanh: "tanh"}
    dense: list[list[Any]] = []
    for layer in _flat(layers, nn.Sequential):
        kind = type(layer)
        if kind is nn.Linear:
            parameters = [layer.weight.T, *([] if layer.bias is None else [layer.bias])]
            arrays = [each.detach().cpu().numpy().astype(np.float32) for each in parameters]
            dense.append(["linear", *arrays])
        elif kind in activations and dense and dense[-1][0] == "linear":
            dense[-1][0] = activations[kind]
        elif kind not in {nn.Flatten, nn.Identity}:
            raise OptionsError(
                f"torch policy: expected Linear, each with ReLU or Tanh behind it or neither, "
                f"found {kind.__name__}"
            )
    return dense


def _flat(layers: Any, sequence: type[Any]) -> Iterator[Any]:
    """The layers in a module, in the order in which they are applied."""
    if not isinstance(layers, sequence):
        yield layers
        return
    for layer in layers:
        yield from _flat(layer, sequence)


def _width(problem: Problem) -> int:
    return sum(each.spec.element_count for each in problem.features)
