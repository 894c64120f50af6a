"""``es``: evolution strategies on a network's weights.

In each generation the weights are disturbed in antithetic pairs, every disturbed network compiles
the same contexts, functions for register allocation and modules for the inliner
(`training._contexts`), and the weights move to where the costs are lower
(`training._es_update`). The cost of a network is the weighted mean of its contexts'
log-ratios to what LLVM's own heuristic reaches; each context's is limited around the median of all
networks, so that none decides alone, and what is worse than LLVM by more than a limit costs more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._policy import Action
from mlgo_gym.stream._events import Observation
from mlgo_gym.training._contexts import Context
from mlgo_gym.training._data import Data
from mlgo_gym.training._es_update import Momentum, direction_of, flattened, like, noise_of, scale_of
from mlgo_gym.training._generations import Generations, Progress, restored
from mlgo_gym.training._networks import PolicyNetwork
from mlgo_gym.training._plain import PlainNetwork, plain_network
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._start import Prepared, first_network, prepared
from mlgo_gym.training._validation import Validation

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Config:
    """What decides the result.

    Attributes:
        seed: of everything random.
        generations: how many there are at most.
        pairs: of disturbed networks in each generation.
        contexts: how many are compiled in each generation, with every network.
        noise: how much weights are disturbed, in units of their scale.
        learning_rate: a step's length, in the same unit.
        momentum: the part of the last step's direction that goes on.
        head_only: only the last layer learns.
        most_modules: of each package, drawn by the seed; what is trained on is compiled first.
        limit: a context's cost counts up to this far from the median, as a logarithm.
        tolerated: what a context may be worse than LLVM's own heuristic, as a logarithm; beyond
            that it costs twice as much.
        hidden: the widths of the network's hidden layers.
        validate_every: generations between two validations, which choose the best model.
        start: a model directory of ours that training starts from; empty starts at LLVM's own
            rule.

    Raises:
        OptionsError: a number is out of its range.
    """

    seed: int = 0
    generations: int = 1000
    pairs: int = 8
    contexts: int = 64
    noise: float = 0.2
    learning_rate: float = 0.05
    momentum: float = 0.8
    head_only: bool = False
    most_modules: int = 60
    limit: float = 0.15
    tolerated: float = 0.05
    hidden: tuple[int, ...] = (32, 16)
    validate_every: int = 20
    start: str = ""

    def __post_init__(self) -> None:
        for name in ("generations", "pairs", "contexts", "most_modules", "validate_every"):
            if getattr(self, name) < 1:
                raise OptionsError(
                    f"{name}: expected a number of at least 1, found {getattr(self, name)!r}"
                )
        for name in ("noise", "learning_rate", "limit"):
            if not getattr(self, name) > 0:
                raise OptionsError(
                    f"{name}: expected a number above 0, found {getattr(self, name)!r}"
                )
        if not 0 <= self.momentum < 1:
            raise OptionsError(f"momentum: expected 0 to below 1, found {self.momentum!r}")


def train(run: TrainingRun, config: Config, data: Data) -> Validation:
    """Train until the generations or the run's budget are over; goes on where the run was.

    What is learned depends on the configuration and the corpora, not on the number of workers.

    Args:
        run: the folder, with the budget.
        config: how.
        data: what is trained and chosen on.

    Returns:
        What the best model is worth on the validation packages.

    Raises:
        TrainingError: no module compiles and asks for a decision.
        OptionsError: there is no network for the problem.
        ModelError: there is no model to start from.
    """
    with prepared(run, config, data) as found:
        return _Trainer(run, config, data, found).train()


class _Trainer(Generations[Progress]):
    """Disturb, compile, step."""

    def __init__(self, run: TrainingRun, config: Config, data: Data, prepared: Prepared) -> None:
        workshop, sampler = prepared.workshop, prepared.sampler
        progress, self._learned, arrays = restored(
            run, Progress, lambda: first_network(workshop, sampler, config)
        )
        super().__init__(
            run,
            data,
            progress,
            most=config.generations,
            validate_every=config.validate_every,
            validated=prepared.validated,
        )
        self._config, self._workshop, self._sampler = config, workshop, sampler
        self._shapes = self._learned.get_weights()
        self._weights = flattened(self._shapes)
        self._scale = scale_of(self._shapes, head_only=config.head_only)
        self._momentum = Momentum(len(self._weights), config.learning_rate, config.momentum)
        if arrays is not None:
            self._weights = arrays["weights"]
            self._scale = arrays["scale"]
            self._momentum.direction = arrays["direction"]

    def _generation(self, number: int) -> dict[str, float]:
        config = self._config
        generator = np.random.default_rng([config.seed, number])
        noise = noise_of(config.pairs, len(self._weights), generator)
        offsets = config.noise * self._scale * np.concatenate([noise, -noise])
        networks = [
            plain_network(self._learned, like(self._weights + offset, self._shapes))
            for offset in offsets
        ]
        drawn = self._sampler.draw(config.contexts, generator)
        started = monotonic()
        table, weights = self._compiled(drawn, networks)
        metrics = {"collect/seconds": monotonic() - started, "collect/contexts": len(table)}
        if len(table):
            costs = costs_of(table, weights, config.limit)
            step = self._momentum.step(direction_of(costs.reshape(2, config.pairs), noise))
            self._weights = self._weights + self._scale * step
            metrics |= {
                "cost/mean": float(table.mean()),
                "cost/spread": float(costs.std()),
                "step/length": float(np.sqrt(np.mean(np.square(step)))),
            }
        return metrics

    def _compiled(
        self, drawn: Sequence[int], networks: Sequence[PlainNetwork]
    ) -> tuple[_Array, _Array]:
        """The costs of contexts, ``[contexts, networks]``, and their weights; failures left out."""

        def costs(compiler: Compiler, index: int) -> list[float]:
            context = self._sampler.contexts[index]
            return [self._cost(compiler, context, each) for each in networks]

        found = self._workshop.successes(drawn, costs)
        rows = [(self._sampler.weights[index], row) for index, row in found]
        return np.array([row for _, row in rows]), np.array([weight for weight, _ in rows])

    def _cost(self, compiler: Compiler, context: Context, network: PlainNetwork) -> float:
        def answer(observation: Observation) -> Action:
            return int(network.logits(observation.payload).argmax())

        score = self._workshop.score(compiler, context, answer)
        return context.cost(score, self._config.tolerated)

    def _network(self) -> PolicyNetwork:
        self._learned.set_weights(like(self._weights, self._shapes))
        return self._learned

    def _arrays(self) -> dict[str, _Array]:
        return {
            "weights": self._weights,
            "scale": self._scale,
            "direction": self._momentum.direction,
        }


def costs_of(table: _Array, weights: _Array, limit: float) -> _Array:
    """What each network costs, against the others, ``float [networks]``.

    Args:
        table: the costs, ``float [contexts, networks]``.
        weights: of the contexts, ``float [contexts]``.
        limit: how far from a context's median a cost counts.

    >>> costs_of(np.array([[0.0, 0.1, 9.0]]), np.array([1.0]), limit=0.5).tolist()
    [-0.1, 0.0, 0.5]
    """
    differences = np.clip(table - np.median(table, axis=1, keepdims=True), -limit, limit)
    costs: _Array = weights @ differences / weights.sum()
    return costs
