"""Proximal policy optimisation: a network learns from the rewards of what it did.

In each iteration some modules are compiled with actions drawn from the network's probabilities, and
then the network is moved towards what was worth more than expected, not further than the clipped
objective lets it (`training._ppo_update`). What was expected comes from a critic, by
generalised advantage estimation (`training._gae`), or from the module's own past
(`PPO_BANDIT`). Actions that LLVM would not take have no probability.

The reward is that of the environments: at the end of a module the share of the baseline's bytes
that was saved, for eviction at the end of a function the share of its score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, ClassVar, Final

import numpy as np

from mlgo_gym.errors import TrainingError
from mlgo_gym.policies._batched import BatchedPolicy
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._observations import columns, observation_dtype
from mlgo_gym.problems._problem import Problem
from mlgo_gym.training._data import Data
from mlgo_gym.training._episodes import Collected, Collector, Episode
from mlgo_gym.training._generations import Generations, Progress, restored
from mlgo_gym.training._networks import (
    InliningNetwork,
    PolicyNetwork,
    network_features,
    network_for,
)
from mlgo_gym.training._normalization import Normalization
from mlgo_gym.training._ppo_config import Config
from mlgo_gym.training._ppo_update import Learner
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._sampling import BatchNetwork, SamplingPolicy
from mlgo_gym.training._start import load_start, rule_of
from mlgo_gym.training._validation import Validation

_FAILURES_ALLOWED: Final = 2
"""A module that has failed as often in a row is drawn no more."""


def train(run: TrainingRun, config: Config, data: Data) -> Validation:
    """Train until the iterations or the run's budget are over; goes on where the run was.

    What is learned depends on the configuration and the corpora, not on the number of workers. The
    run's model is the best on the validation packages, with the likeliest actions.

    Args:
        run: the folder, with the budget.
        config: how.
        data: what is trained and chosen on.

    Returns:
        What the best model is worth on the validation packages.

    Raises:
        TrainingError: no module compiles and asks for a decision, or none does any more, or the
            folder cannot be written.
        OptionsError: there is no network for the problem.
        ModelError: there is no model to start from.
    """
    collector = Collector(data.packages, run.problem, jobs=data.jobs, timeout_s=data.timeout_s)
    return _Trainer(run, config, data, collector).train()


@dataclass(slots=True)
class _Progress(Progress):
    """Where training is, besides the weights.

    Attributes:
        averages: the moving average of each episode's score as a share of the baseline's.
        failures: how often each module has failed in a row.
    """

    UNIT: ClassVar[str] = "iteration"

    averages: dict[str, float] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)


class _Trainer(Generations[_Progress]):
    """Compile, learn."""

    def __init__(self, run: TrainingRun, config: Config, data: Data, collector: Collector) -> None:
        progress, actor, arrays = restored(
            run, _Progress, lambda: _first_network(collector, run.problem, config)
        )
        super().__init__(
            run, data, progress, most=config.iterations, validate_every=config.validate_every
        )
        self._config, self._collector = config, collector
        self._learner = Learner(actor, run.problem, config)
        self._answering = BatchNetwork(actor, run.problem, data.jobs)
        if arrays is not None:
            self._learner.load(arrays)

    def _generation(self, number: int) -> dict[str, float]:
        started = monotonic()
        collected = self._collect(self._usable(), number)
        scalars: dict[str, float] = {
            "collect/modules_failed": len(collected.failures),
            "collect/seconds": monotonic() - started,
        }
        if collected.episodes:
            scalars |= self._learn(collected.episodes, number)
        return scalars

    def _network(self) -> PolicyNetwork:
        return self._learner.actor

    def _arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        return self._learner.arrays()

    def _collect(self, usable: Sequence[str], iteration: int) -> Collected:
        """Compile an iteration's modules with actions by chance."""
        config, progress = self._config, self._progress
        drawn = _drawn(usable, config.modules, config.seed, iteration)
        key = f"{config.seed}:{iteration}"
        policy = BatchedPolicy(SamplingPolicy(self._answering, self._run.problem, key))
        collected = self._collector.collect(drawn, policy, lambda: self._run.is_over)
        failures = {name: progress.failures.get(name, 0) + 1 for name in collected.failures}
        for name in drawn:
            progress.failures.pop(name, None)
        progress.failures |= failures
        for error in collected.failures.values():
            self._data.warn(error)
        return collected

    def _usable(self) -> list[str]:
        failures = self._progress.failures
        names = self._collector.names
        usable = [name for name in names if failures.get(name, 0) < _FAILURES_ALLOWED]
        if not usable:
            failures.clear()  # when the run goes on, all are tried again
            self._save()
            raise TrainingError(
                f"ppo: expected modules that compile, found that all {len(names)} failed "
                f"{_FAILURES_ALLOWED} times in a row"
            )
        return usable

    def _learn(self, episodes: Sequence[Episode], iteration: int) -> dict[str, float]:
        started = monotonic()
        batch = self._learner.batch(episodes, [self._worth(each) for each in episodes])
        generator = np.random.default_rng([self._config.seed, iteration, 1])
        metrics = self._learner.learn(batch, generator)
        rewards = [each.reward for each in episodes]
        return metrics | {
            "reward/mean": float(np.mean(rewards)),
            "reward/median": float(np.median(rewards)),
            "reward/lowest": min(rewards),
            "collect/episodes": len(episodes),
            "collect/decisions": len(batch.actions),
            "learn/seconds": monotonic() - started,
        }

    def _worth(self, episode: Episode) -> float:
        """The reward to learn from."""
        limit = self._config.reward_limit
        kept = self._config.moving_average
        reward = against_own_past(episode, self._progress.averages, kept)
        return reward if limit is None else min(max(reward, -limit), limit)


def against_own_past(episode: Episode, averages: dict[str, float], kept: float) -> float:
    """The share that was saved of the module's own moving average, which is brought up to date.

    ml-compiler-opt rewards so (``compiler_opt/rl/compilation_runner.py``).

    Args:
        episode: with its reward against the baseline.
        averages: of each episode's score as a share of the baseline's; 1 before the first.
        kept: how much of the old average remains.

    >>> averages = {}
    >>> [round(against_own_past(Episode("a", None, None, 0.1), averages, 0.8), 4) for _ in range(2)]
    [0.1, 0.0816]
    >>> averages
    {'a': 0.964}
    """
    share = 1.0 - episode.reward
    average = averages.get(episode.name, 1.0)
    averages[episode.name] = kept * average + (1.0 - kept) * share
    return 1.0 - share / average if average > 0 else 0.0


def _drawn(names: Sequence[str], count: int, seed: int, purpose: int) -> tuple[str, ...]:
    order = np.random.default_rng([seed, purpose]).permutation(len(names))[:count]
    return tuple(names[index] for index in order)


def _first_network(collector: Collector, problem: Problem, config: Config) -> PolicyNetwork:
    """The one to start from, or one with the statistics of what a simple policy sees."""
    if config.start:
        return load_start(config.start, problem)
    rule = rule_of(problem, "ppo")
    names = _drawn(collector.names, len(collector.names), config.seed, 0)
    for start in range(0, len(names), config.modules):
        some = names[start : start + config.modules]
        episodes = collector.collect(some, rule).episodes
        if episodes:
            rows = np.concatenate([each.rows for each in episodes])
            seen = columns(rows.view(observation_dtype(problem))[:, 0], problem)
            normalization = Normalization.fit(seen, network_features(problem))
            if isinstance(problem, InliningForSize) and config.band:
                low, high = config.band
                return InliningNetwork(normalization, config.hidden, config.seed, (low, high))
            return network_for(problem, normalization, config.hidden, config.seed)
    raise TrainingError(
        f"ppo: expected modules that compile and ask for decisions, found none among {len(names)}"
    )
