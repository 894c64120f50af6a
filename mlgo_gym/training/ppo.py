"""Proximal policy optimisation: a network learns from the rewards of what it did.

In each iteration some modules are compiled with actions drawn from the network's probabilities, and
then the network is moved towards what was worth more than expected, not further than the clipped
objective lets it (`mlgo_gym.training.ppo_update`). What was expected comes from a critic, by
generalised advantage estimation (`mlgo_gym.training.gae`), or from the module's own past
(`PPO_BANDIT`). Actions that LLVM would not take have no probability.

The reward is that of the environments: at the end of a module the share of the baseline's bytes
that was saved, for eviction at the end of a function the share of its score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

import numpy as np

from mlgo_gym.allocation_policies import lowest_density
from mlgo_gym.errors import ModelError, OptionsError, TrainingError
from mlgo_gym.llvm.compilation import Policy
from mlgo_gym.observations import columns, observation_dtype
from mlgo_gym.policies import default
from mlgo_gym.problems import InliningForSize, Problem, RegallocEviction
from mlgo_gym.training.data import Data
from mlgo_gym.training.episodes import Collected, Collector, Episode
from mlgo_gym.training.export import load_network, save_model
from mlgo_gym.training.networks import (
    InliningNetwork,
    PolicyNetwork,
    network_features,
    network_for,
    network_from_config,
)
from mlgo_gym.training.normalization import Normalization
from mlgo_gym.training.ppo_config import PPO_BANDIT, PRESETS, Config
from mlgo_gym.training.ppo_update import Learner
from mlgo_gym.training.run import TrainingRun
from mlgo_gym.training.sampling import BatchNetwork, SamplingPolicy
from mlgo_gym.training.validation import Validation, validate

__all__ = ["PPO_BANDIT", "PRESETS", "Config", "against_own_past", "train"]

_FAILURES_ALLOWED: Final = 2
"""A module that has failed as often in a row is drawn no more."""

_FIRST: Final[Mapping[str, Policy]] = {
    InliningForSize.name: default,
    RegallocEviction.name: lowest_density,
}
"""What answers when the features' statistics are taken."""


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
    checkpoint = run.restore()
    if checkpoint is None:
        progress, actor = _Progress(), _first_network(collector, run.problem, config)
    else:
        state = dict(checkpoint.state)
        actor = network_from_config(state.pop("network"))
        progress = _Progress(**state)
    trainer = _Trainer(run, config, data, collector, progress=progress, actor=actor)
    if checkpoint is not None:
        trainer.learner.load(checkpoint.arrays)
    return trainer.train()


@dataclass(slots=True)
class _Progress:
    """Where training is, besides the weights; JSON values.

    Attributes:
        iteration: how many are done.
        best: the best validation's loss; ``None`` before the first.
        validated: the iteration of the last validation; -1 before the first.
        averages: the moving average of each episode's score as a share of the baseline's.
        failures: how often each module has failed in a row.
    """

    iteration: int = 0
    best: float | None = None
    validated: int = -1
    averages: dict[str, float] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)


class _Trainer:
    """The loop: compile, learn, record, save."""

    def __init__(
        self,
        run: TrainingRun,
        config: Config,
        data: Data,
        collector: Collector,
        *,
        progress: _Progress,
        actor: PolicyNetwork,
    ) -> None:
        self.learner: Final = Learner(actor, run.problem, config)
        self._run = run
        self._config = config
        self._data = data
        self._collector = collector
        self._progress = progress
        self._answering = BatchNetwork(actor, run.problem, data.jobs)
        self._best: Validation | None = None

    def train(self) -> Validation:
        """Iterate and validate to the end."""
        progress, config = self._progress, self._config
        while True:
            is_last = progress.iteration >= config.iterations or self._run.is_over
            is_due = is_last or progress.iteration % config.validate_every == 0
            if is_due and progress.validated < progress.iteration:
                self._validate()
            if is_last:
                return self._best or self._validation(self._run.model)
            self._iterate()

    def _iterate(self) -> None:
        """One iteration."""
        progress, started = self._progress, monotonic()
        usable = self._usable()
        progress.iteration += 1
        collected = self._collect(usable)
        scalars: dict[str, float] = {
            "collect/modules_failed": len(collected.failures),
            "collect/seconds": monotonic() - started,
        }
        if collected.episodes:
            scalars |= self._learn(collected.episodes)
        self._run.scalars(progress.iteration, scalars)
        self._save()

    def _validate(self) -> None:
        """Compile with the likeliest actions, and export what is best so far."""
        progress, actor = self._progress, self.learner.actor
        candidate = self._run.directory / "candidate"
        save_model(actor, self._run.problem, candidate, {"trainer": self._run.trainer})
        found = self._validation(candidate)
        self._run.scalars(progress.iteration, found.scalars())
        loss = found.loss()
        if progress.best is None or loss < progress.best:
            progress.best, self._best = loss, found
            results = {"iteration": progress.iteration, "validation": found.to_json()}
            self._run.export(actor, results)
        progress.validated = progress.iteration
        self._save()

    def _validation(self, model: Path) -> Validation:
        data = self._data
        return validate(
            model,
            data.validation,
            self._run.problem,
            jobs=data.jobs,
            timeout_s=data.timeout_s,
            warn=data.warn,
        )

    def _collect(self, usable: Sequence[str]) -> Collected:
        """Compile an iteration's modules with actions by chance."""
        config, progress = self._config, self._progress
        drawn = _drawn(usable, config.modules, config.seed, progress.iteration)
        key = f"{config.seed}:{progress.iteration}"
        policy = SamplingPolicy(self._answering, self._run.problem, key)
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

    def _learn(self, episodes: Sequence[Episode]) -> dict[str, float]:
        started = monotonic()
        batch = self.learner.batch(episodes, [self._worth(each) for each in episodes])
        generator = np.random.default_rng([self._config.seed, self._progress.iteration, 1])
        metrics = self.learner.learn(batch, generator)
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

    def _save(self) -> None:
        state = asdict(self._progress) | {"network": self.learner.actor.config()}
        self._run.save(self._progress.iteration, self.learner.arrays(), state)


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
        return _started_from(Path(config.start), problem)
    answer = _FIRST.get(problem.name)
    if answer is None:
        raise OptionsError(f"ppo: expected a problem of {', '.join(_FIRST)}, found {problem.name}")
    names = _drawn(collector.names, len(collector.names), config.seed, 0)
    for start in range(0, len(names), config.modules):
        some = names[start : start + config.modules]
        episodes = collector.collect(some, lambda asked: [answer(each) for each in asked]).episodes
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


def _started_from(model: Path, problem: Problem) -> PolicyNetwork:
    network = load_network(model)
    if network.problem.name != problem.name:
        raise ModelError(
            str(model), f"expected one for {problem.name}, found one for {network.problem.name}"
        )
    return network
