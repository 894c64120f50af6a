"""``group``: several tries at the same context, compared with each other.

In each generation some contexts are compiled, functions for register allocation and modules for the
inliner (`training._contexts`): once with the likeliest actions, and several times with a
few of them drawn from the network's probabilities instead. A try that came out better than the
others makes what it drew likelier (`training._group_update`). No critic is needed: the
other tries say what was to be expected (leave-one-out; Kool, van Hoof, Welling 2019). Since most
actions stay the likeliest, what is learned about a drawn one holds for the policy that is exported.

Contexts with more to save are drawn more often, and what is worse than LLVM by more than a limit
costs more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._policy import Action
from mlgo_gym.stream._events import Observation
from mlgo_gym.training._compiled import CompiledNetwork
from mlgo_gym.training._data import Data
from mlgo_gym.training._generations import Generations, Progress, restored
from mlgo_gym.training._group_update import Tried, Update, UpdateConfig
from mlgo_gym.training._networks import FORBIDDEN, PolicyNetwork, network_from_config
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._start import Prepared, first_network, prepared
from mlgo_gym.training._validation import Validation

_Array = np.ndarray[Any, Any]

_LEAST = (
    ("generations", 1),
    ("contexts", 1),
    ("tries", 2),
    ("most_modules", 1),
    ("validate_every", 1),
)


@dataclass(frozen=True)
class Config:
    """What decides the result.

    Attributes:
        seed: of everything random.
        generations: how many there are at most.
        contexts: how many are compiled in each generation.
        tries: how often each is compiled with drawn actions.
        drawn: about how many actions of a try are drawn; the others are the likeliest.
        temperature: logits are divided by it before actions are drawn.
        most_modules: of each package, drawn by the seed; what is trained on is compiled first.
        hidden: the widths of the network's hidden layers.
        most_gain: a try's gain over the likeliest actions counts up to this, as a logarithm.
        most_loss: its loss up to this.
        tolerated: what a context may be worse than LLVM's own heuristic, as a logarithm; beyond
            that it costs twice as much.
        update: how the network learns from it.
        validate_every: generations between two validations, which choose the best model.
        start: a model directory of ours that training starts from; empty starts at LLVM's own
            rule.

    Raises:
        OptionsError: a number is out of its range.
    """

    seed: int = 0
    generations: int = 1000
    contexts: int = 32
    tries: int = 16
    drawn: float = 8.0
    temperature: float = 1.7
    most_modules: int = 60
    hidden: tuple[int, ...] = (32, 16)
    most_gain: float = 0.15
    most_loss: float = 0.5
    tolerated: float = 0.05
    update: UpdateConfig = field(default_factory=UpdateConfig)
    validate_every: int = 20
    start: str = ""

    def __post_init__(self) -> None:
        for name, least in _LEAST:
            if getattr(self, name) < least:
                raise OptionsError(
                    f"{name}: expected a number of at least {least}, found {getattr(self, name)!r}"
                )
        for name in ("drawn", "temperature", "most_gain", "most_loss"):
            if not getattr(self, name) > 0:
                raise OptionsError(
                    f"{name}: expected a number above 0, found {getattr(self, name)}"
                )


@dataclass(frozen=True, slots=True)
class Trial:
    """A context compiled several times.

    Attributes:
        cost: with the likeliest actions, as `Context.log_ratio`, and more beyond what is tolerated.
        costs: of the tries.
        tried: the decisions that each of them drew.
    """

    cost: float
    costs: tuple[float, ...]
    tried: tuple[tuple[Tried, ...], ...]


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
        trainer = _Trainer(run, config, data, found)
        with trainer.compiled:
            return trainer.train()


class _Trainer(Generations[Progress]):
    """Compile, compare, learn."""

    def __init__(self, run: TrainingRun, config: Config, data: Data, prepared: Prepared) -> None:
        workshop, sampler = prepared.workshop, prepared.sampler
        progress, network, arrays = restored(
            run, Progress, lambda: first_network(workshop, sampler, config)
        )
        super().__init__(
            run,
            data,
            progress,
            most=config.generations,
            validate_every=config.validate_every,
            validated=prepared.validated and partial(self._validated_by, prepared.validated),
        )
        self._config, self._workshop, self._sampler = config, workshop, sampler
        self._update = Update(network, run.problem, config.temperature, config.update)
        self.compiled = CompiledNetwork(network, run.problem)
        if arrays is not None:
            self._update.load(arrays)

    def _generation(self, number: int) -> dict[str, float]:
        generator = np.random.default_rng([self._config.seed, number])
        drawn = self._sampler.draw(self._config.contexts, generator)
        started = monotonic()
        self.compiled.take_weights(self._update.network)

        def tried(compiler: Compiler, index: int) -> Trial:
            return self._trial(compiler, index, self.compiled, number)

        trials = list(self._workshop.successes(drawn, tried))
        metrics = {"collect/seconds": monotonic() - started}
        return metrics | (self._learn(trials, generator) if trials else {})

    def _network(self) -> PolicyNetwork:
        network = network_from_config(self._update.network.config())
        network.set_weights(self._update.averaged())
        return network

    def _validated_by(
        self, validated: Callable[[CompiledNetwork], Validation], network: PolicyNetwork
    ) -> Validation:
        self.compiled.take_weights(network)
        return validated(self.compiled)

    def _arrays(self) -> dict[str, _Array]:
        return self._update.arrays()

    def _trial(
        self, compiler: Compiler, index: int, network: CompiledNetwork, generation: int
    ) -> Trial:
        """Compile a context with the likeliest actions and, if there is a choice, with others."""
        config, context = self._config, self._sampler.contexts[index]

        def cost(answers: _Answers) -> float:
            score = self._workshop.score(compiler, context, answers)
            return context.cost(score, config.tolerated)

        likeliest = _Answers(network)
        least = cost(likeliest)
        costs, tried = [], []
        if likeliest.open:
            share = min(1.0, config.drawn / likeliest.open)
            for number in range(config.tries):
                seed = [config.seed, generation, index, number]
                generator = np.random.default_rng(seed)
                answers = _Answers(network, share, config.temperature, generator)
                costs.append(cost(answers))
                tried.append(tuple(answers.tried))
        return Trial(least, tuple(costs), tuple(tried))

    def _learn(
        self, trials: Sequence[tuple[int, Trial]], generator: np.random.Generator
    ) -> dict[str, float]:
        tried: list[Tried] = []
        advantages: list[_Array] = []
        for index, trial in trials:
            weight = self._sampler.weights[index]
            for decisions, advantage in zip(
                trial.tried, advantages_of(trial, self._config), strict=True
            ):
                tried += decisions
                advantages.append(np.full(len(decisions), weight * advantage))
        metrics = {
            "cost/mean": float(np.mean([trial.cost for _, trial in trials])),
            "cost/worst": max(trial.cost for _, trial in trials),
            "collect/decisions": len(tried),
        }
        if tried:
            metrics |= self._update.learn(tried, np.concatenate(advantages), generator)
        return metrics


class _Answers:
    """Answers with the likeliest action, or sometimes with one that is drawn.

    Args:
        network: gives the logits.
        share: of the decisions with a choice, how many are drawn.
        temperature: logits are divided by it before.
        generator: draws.

    Attributes:
        open: how many decisions had a choice.
        tried: those that were drawn.
    """

    def __init__(
        self,
        network: CompiledNetwork,
        share: float = 0.0,
        temperature: float = 1.0,
        generator: np.random.Generator | None = None,
    ) -> None:
        self._network = network
        self._share = share
        self._temperature = temperature
        self._generator = generator
        self.open = 0
        self.tried: list[Tried] = []

    def __call__(self, observation: Observation) -> Action:
        logits = self._network.logits(observation.payload)
        best = int(logits.argmax())
        if np.count_nonzero(logits > FORBIDDEN) < 2:
            return best
        self.open += 1
        if self._generator is None or self._generator.random() >= self._share:
            return best
        powers = np.exp((logits.astype(np.float64) - logits[best]) / self._temperature)
        ends = np.cumsum(powers)
        action = int(np.searchsorted(ends, self._generator.random() * ends[-1], side="right"))
        logarithm = float(np.log(powers[action] / ends[-1]))
        self.tried.append(Tried(observation.payload, action, logarithm))
        return action


def advantages_of(trial: Trial, config: Config) -> _Array:
    """How much better each try was than the others, ``float [tries]``; positive is better.

    >>> trial = Trial(0.0, (-0.1, 0.1, 0.0), ((), (), ()))
    >>> [round(float(each), 3) for each in advantages_of(trial, Config())]
    [0.15, -0.15, 0.0]
    """
    if not trial.costs:
        return np.zeros(0)
    losses = np.array(trial.costs) - trial.cost
    losses = np.clip(losses, -config.most_gain, config.most_loss)
    others = (losses.sum() - losses) / (len(losses) - 1)
    advantages: _Array = others - losses
    return advantages
