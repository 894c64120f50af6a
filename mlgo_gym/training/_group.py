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

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Annotated, Any

import numpy as np

from mlgo_gym.rollout import Failure
from mlgo_gym.training._compiled import CompiledNetwork
from mlgo_gym.training._data import Data
from mlgo_gym.training._export import save_model
from mlgo_gym.training._features import ALL_FEATURES
from mlgo_gym.training._group_update import Update, UpdateConfig
from mlgo_gym.training._networks import (
    PolicyNetwork,
    network_for,
    network_from_config,
    with_margin,
)
from mlgo_gym.training._ranges import Count, NotNegative, Positive, Range, Ranged, Seed, Widths
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._start import Prepared, load_start, prepared, statistics
from mlgo_gym.training._trials import Trial, Trials, TrialSetting, Tried
from mlgo_gym.training._validation import Validation, validate, validate_functions

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class GroupConfig(Ranged):
    """The settings that decide the result; docs/guides/training.md explains each."""

    seed: Seed = 0
    generations: Count = 1000
    contexts: Count = 32
    tries: Annotated[int, Range(2, 1 << 16)] = 16
    drawn: Positive = 8.0
    temperature: Positive = 1.7
    most_modules: Count = 60
    features: str = ALL_FEATURES
    hidden: Widths = (32, 16)
    most_gain: Positive = 0.15
    most_loss: Positive = 0.5
    tolerated: NotNegative = 0.05
    update: UpdateConfig = field(default_factory=UpdateConfig)
    validate_every: Count = 20
    start: str = ""
    margin: NotNegative = 0.0

    def setting(self, generation: int) -> TrialSetting:
        """How contexts are tried in a generation."""
        tries, drawn = self.tries, self.drawn
        return TrialSetting(self.seed, generation, tries, drawn, self.temperature, self.tolerated)


def train(run: TrainingRun, config: GroupConfig, data: Data) -> Validation:
    """Train until the generations or the run's budget are over; goes on where the run was.

    What is learned depends on the configuration and the corpora, not on the number of workers.
    """
    with prepared(run, data, config.most_modules, config.seed) as found:
        trainer = _Trainer(run, config, data, found)
        with trainer.compiled:
            return trainer.train()


@dataclass(slots=True)
class _Progress:
    """The state of training besides the weights, in checkpoints as it is here."""

    generation: int = 0
    best: float | None = None
    validated: int = -1


class _Trainer:
    """Compile, compare, learn; validate now and then, and export what is best so far."""

    def __init__(
        self, run: TrainingRun, config: GroupConfig, data: Data, prepared: Prepared
    ) -> None:
        self._run, self._config, self._data = run, config, data
        self._workshop, self._sampler, self._held_out = prepared
        self._best: Validation | None = None
        self._candidate = run.directory / "candidate"
        checkpoint = run.restore()
        if checkpoint is None:
            self._progress, network = _Progress(), self._first_network()
        else:
            state = dict(checkpoint.state)
            network = network_from_config(state.pop("network"))
            self._progress = _Progress(**state)
        self._update = Update(network, run.problem, config.temperature, config.update)
        self.compiled = CompiledNetwork(network, run.problem)
        if checkpoint is not None:
            self._update.load(checkpoint.arrays)

    def train(self) -> Validation:
        """Go on to the end; what the best model is worth on what is held out, in release mode."""
        progress, run, config = self._progress, self._run, self._config
        while True:
            is_last = progress.generation >= config.generations or run.is_over
            is_due = is_last or progress.generation % config.validate_every == 0
            if is_due and progress.validated < progress.generation:
                self._validate()
                run.doing("generation")
            if is_last:
                return self._best or validate(run.model, self._data, run.problem)
            number = progress.generation + 1
            scalars = self._generation(number)
            progress.generation = number
            run.scalars(number, scalars)
            self._save()

    def _first_network(self) -> PolicyNetwork:
        """The network of a model directory, or a new one, which answers as LLVM's own rule."""
        config, problem = self._config, self._run.problem
        if config.start:
            return with_margin(load_start(config.start, problem), config.margin)
        found = statistics(self._workshop, self._sampler, config.seed, config.features)
        return with_margin(network_for(problem, found, config.hidden, config.seed), config.margin)

    def _validate(self) -> None:
        """Find what the average is worth, and export it if it is the best so far."""
        progress, run = self._progress, self._run
        network = network_from_config(self._update.network.config())
        network.set_weights(self._update.averaged())
        run.doing("validation")
        found = self._validation(network)
        run.scalars(progress.generation, found.scalars())
        loss = found.loss(most_text=self._data.most_text)
        if progress.best is None or loss < progress.best:
            progress.best = loss
            self._best = found if self._held_out is None else None
            results = {"generation": progress.generation, "validation": found.to_json()}
            run.export(network if self._held_out is not None else self._candidate, results)
        progress.validated = progress.generation
        self._save()

    def _validation(self, network: PolicyNetwork) -> Validation:
        run = self._run
        if self._held_out is not None:
            self.compiled.take_weights(network)
            return validate_functions(self._workshop, self._held_out, self.compiled)
        save_model(network, run.problem, self._candidate, {"trainer": run.trainer})
        return validate(self._candidate, self._data, run.problem)

    def _save(self) -> None:
        state = asdict(self._progress) | {"network": self._update.network.config()}
        self._run.save(self._progress.generation, self._update.arrays(), state)

    def _generation(self, number: int) -> dict[str, float]:
        started = monotonic()
        self.compiled.take_weights(self._update.network)
        generator = np.random.default_rng([self._config.seed, number])
        drawn = self._sampler.draw(self._config.contexts, generator)
        work = Trials(self._workshop, self.compiled, self._config.setting(number))
        trials = list(self._workshop.successes(drawn, work, self._sampler.numbered))
        for error in (each for _, trial in trials for each in trial.errors):
            self._data.warn(Failure(error))
        metrics = {"collect/seconds": monotonic() - started}
        return metrics | (self._learn(trials, generator) if trials else {})

    def _learn(
        self, trials: Sequence[tuple[int, Trial]], generator: np.random.Generator
    ) -> dict[str, float]:
        tried: list[Tried] = []
        advantages: list[_Array] = []
        for index, trial in trials:
            weight = self._sampler.weights[index]
            worth = advantages_of(trial, self._config)
            for decisions, advantage in zip(trial.tried, worth, strict=True):
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


def advantages_of(trial: Trial, config: GroupConfig) -> _Array:
    """How much better each try was than the others, ``float [tries]``; positive is better.

    >>> trial = Trial(0.0, (-0.1, 0.1, 0.0), ((), (), ()))
    >>> [round(float(each), 3) for each in advantages_of(trial, GroupConfig())]
    [0.15, -0.15, 0.0]
    """
    if len(trial.costs) < 2:  # there are no others
        return np.zeros(len(trial.costs))
    losses = np.array(trial.costs) - trial.cost
    losses = np.clip(losses, -config.most_gain, config.most_loss)
    others = (losses.sum() - losses) / (len(losses) - 1)
    advantages: _Array = others - losses
    return advantages
