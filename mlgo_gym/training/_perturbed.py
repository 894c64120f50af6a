"""Contexts compiled with networks a little beside one, here or on nodes, without TensorFlow.

The noise depends on the seed, the generation and the pair's number, not on who compiles what, so
only numbers travel: a worker makes the noise again, and so does the learner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlgo_gym.base import WorkloadError
from mlgo_gym.llvm import Compiler
from mlgo_gym.rollout import without_frames
from mlgo_gym.training._contexts import TrainingContext, Workshop
from mlgo_gym.training._network_code import NetworkCode

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Perturbation:
    """The networks of a generation; docs/guides/training.md explains each setting."""

    seed: int
    generation: int
    pairs: int
    noise: float
    tolerated: float


def noise(
    perturbation: Perturbation, number: int, shapes: Sequence[tuple[int, ...]]
) -> list[_Array]:
    """The noise of a pair of networks, of variance 1, for weights of such shapes."""
    generator = np.random.default_rng([perturbation.seed, perturbation.generation, number])
    return [generator.standard_normal(shape, np.float32) for shape in shapes]


@dataclass(frozen=True, slots=True)
class Compared:
    """A context's costs with each network of each pair, ``float [pairs, 2]``.

    The cost with a network by which a program goes wrong is infinite; `errors` say what it did.
    """

    costs: _Array
    errors: tuple[WorkloadError, ...] = ()


@dataclass(frozen=True, slots=True)
class Perturbed:
    """Compiles a context with each network of each pair."""

    workshop: Workshop
    network: NetworkCode
    perturbation: Perturbation

    def __call__(self, compiler: Compiler, numbered: tuple[int, TrainingContext]) -> Compared:
        known, (_, context) = self.perturbation, numbered
        shapes = [each.shape for each in self.network.weights]
        costs = np.full((known.pairs, 2), np.inf)
        errors = []
        with self.network.copy() as network:
            for number in range(known.pairs):
                shifts = noise(known, number, shapes)
                for place, scale in enumerate((known.noise, -known.noise)):
                    self._shift(network, shifts, scale)
                    try:
                        score = self.workshop.score(compiler, context, network.answer)
                    except WorkloadError as error:
                        errors.append(without_frames(error))
                        continue
                    costs[number, place] = context.cost(score, known.tolerated)
        return Compared(costs, tuple(errors))

    def _shift(self, network: NetworkCode, shifts: Sequence[_Array], scale: float) -> None:
        """Give a copy the network's weights and so much of a pair's noise."""
        for weights, base, shift in zip(network.weights, self.network.weights, shifts, strict=True):
            weights[...] = base + np.float32(scale) * shift
