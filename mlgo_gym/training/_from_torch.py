"""Policies that were trained in PyTorch, as model directories, without TensorFlow.

A policy is a module from the vector of all features to one logit for each action, as
stable-baselines3, TorchRL, RLlib and most others have one. ``torch.export`` says what it does,
operator by operator, and each becomes one of TFLite. What the training environment's wrappers did
to the vector goes into the model, since LLVM sends plain features.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import gymnasium
import numpy as np

from mlgo_gym.base import EnvironmentSetupError, OptionsError
from mlgo_gym.model import GraphWriter, Value, write_tflite
from mlgo_gym.problems import Problem
from mlgo_gym.training._model_folder import model_folder
from mlgo_gym.training._network_code import FORBIDDEN
from mlgo_gym.training._torch_operators import translated

_LARGEST: Final = float(np.finfo(np.float32).max)


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

    def of(self, writer: GraphWriter, values: Value) -> Value:
        """Add it to a graph, for values ``float32 [1, numbers]``."""
        if self.signed_log:
            logarithm = writer.of("LOG", writer.of("ADD", writer.of("ABS", values), 1.0))
            values = writer.of("MUL", writer.of("SIGN", values), logarithm)
        if self.mean:
            factor = 1 / np.sqrt(np.array(self.variance) + self.epsilon)
            values = writer.of("SUB", values, np.array(self.mean, np.float32))
            values = writer.of("MUL", values, factor.astype(np.float32))
        if math.isfinite(self.limit):
            values = writer.of("MINIMUM", writer.of("MAXIMUM", values, -self.limit), self.limit)
        return values


def export_torch(
    policy: Any,
    problem: Problem,
    directory: str | Path,
    *,
    normalization: VectorNormalization = VectorNormalization(),
    card: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write a PyTorch policy as a model directory.

    The vector is `mlgo_gym.envs.FloatVectorObservation`'s: all features in LLVM's order,
    those with 33 numbers one after the other. The decision is the largest logit's, of those that
    LLVM takes. Neither TensorFlow nor TFLite is needed.

    Args:
        policy: a ``torch.nn.Module`` from ``float32 [1, numbers]`` to ``float32 [1, actions]``: 2
            actions for the inliner (not to inline, and to inline), and 33 for eviction. It is
            exported as it is in ``eval`` mode, by ``torch.export``. Layers and arithmetic, slices
            and concatenations can be exported; loops over data cannot.
        problem: what it answers.
        directory: where; a model that is there is replaced.
        normalization: what the training environment's wrappers did to the vector.
        card: more for the model's card.

    Raises:
        OptionsError: the problem has no numbered actions; or the policy cannot be exported, takes
            or gives other numbers than the problem has, or has an operator that is not supported.
        ModelError: the folder cannot be written.
        EnvironmentSetupError: PyTorch is not installed.

    >>> import tempfile, torch
    >>> from mlgo_gym import InliningForSize
    >>> layers = torch.nn.Sequential(torch.nn.Linear(38, 8), torch.nn.SiLU(), torch.nn.Linear(8, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_torch(layers, InliningForSize(), f"{folder}/model")
    ...     (Path(folder) / "model" / "model.tflite").exists()
    True
    """
    space = problem.action_space()
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise OptionsError(
            f"torch policy: expected a problem with numbered actions, found {problem.name}"
        )
    numbers = sum(each.spec.element_count for each in problem.layout.features)
    if normalization.mean and len(normalization.mean) != numbers:
        raise OptionsError(
            f"normalisation: expected {numbers} means, found {len(normalization.mean)}"
        )
    writer = GraphWriter()
    sent = {each.spec.name: writer.input(each.spec) for each in problem.layout.features}
    values = normalization.of(writer, _vector(writer, problem, sent))
    logits = translated(writer, _exported(policy, numbers), values)
    if logits.shape != (1, space.n):
        raise OptionsError(
            f"torch policy: expected logits of shape (1, {space.n}) for {problem.name}, "
            f"found {logits.shape}"
        )
    if "mask" in sent:
        mask = writer.cast(sent["mask"], "float32")
        forbidden = writer.of("MUL", writer.of("SUB", 1.0, mask), FORBIDDEN)
        logits = writer.of("ADD", writer.of("MUL", logits, mask), forbidden)
    decision = writer.of("ARG_MAX", logits, np.int32(1), dtype="int64", shape=(1,))
    data = write_tflite(writer.graph(problem.advice.name, decision))
    made_for = {"trainer": "torch", **card}
    with model_folder(Path(directory), problem, tuple(sent), made_for) as folder:
        (folder / "model.tflite").write_bytes(data)


def _vector(writer: GraphWriter, problem: Problem, sent: Mapping[str, Value]) -> Value:
    """All features ``float32 [1, numbers]``, as the environments show them."""
    parts = []
    for feature in problem.layout.features:
        part = writer.cast(sent[feature.spec.name], "float32")
        if feature.may_be_infinite:
            finite = writer.of("LESS_EQUAL", writer.of("ABS", part), _LARGEST, dtype="bool")
            part = writer.of("SELECT_V2", finite, part, float(feature.high), dtype="float32")
        parts.append(writer.reshaped(part, (1, feature.spec.element_count)))
    return writer.joined(parts, axis=1)


def _exported(policy: Any, numbers: int) -> Any:
    """A policy as ``torch.export`` writes it down."""
    try:
        import torch  # noqa: PLC0415 - not needed otherwise
    except ImportError as error:
        raise EnvironmentSetupError(
            "torch policy: expected PyTorch, found none; pip install torch brings it"
        ) from error
    if not isinstance(policy, torch.nn.Module):
        raise OptionsError(f"torch policy: expected a torch.nn.Module, found {policy!r}")
    trains = policy.training
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of PyTorch for itself
            exported = torch.export.export(policy.eval(), (torch.zeros(1, numbers),), strict=False)
            return exported.run_decompositions({})  # which leaves nothing that works in place
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise OptionsError(
            f"torch policy: expected a module that takes float32 [1, {numbers}], and that "
            f"torch.export takes, found {type(error).__name__}: {reason}"
        ) from error
    finally:
        policy.train(trains)
