"""``advantage``: learn which single answers of the inliner save bytes, around the policy so far.

Rounds in the manner of DAgger (Ross, Gordon, Bagnell 2011): label decisions of the training
packages under the policy so far (`_labels`), fit gradient boosting to all labels so far and to
those of other runs, the sign as class and the bytes as cost, distil it into a network
(`_distillation`), and choose the round that does best on the validation packages. The first policy
is LLVM's own default, or the model that ``start`` names, which is also what is learned where labels
say nothing. By a reward shares of its baseline take the place of the bytes.

::

    survey.json     which functions several objects of a package have
    labels/         a dataset of decisions with labels, policies round-0, round-1, ...
    rounds/N/       the model after N rounds
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from mlgo_gym.base import OptionsError, TrainingError, write_json
from mlgo_gym.corpus import ModuleKey
from mlgo_gym.datasets import Dataset, DatasetWriter, Episode, header_of
from mlgo_gym.problems import InliningForSize, Policy, Problem, default
from mlgo_gym.rollout import Failure, TextSize, measure_of, without_frames
from mlgo_gym.runners import RELEASE, RunnerPolicy, WorkerPolicy, runner_factory
from mlgo_gym.training._data import Data, successes
from mlgo_gym.training._distillation import AdvantageConfig, distilled, labels_of
from mlgo_gym.training._export import save_model
from mlgo_gym.training._labels import (
    REWARD,
    LabelSetting,
    Shares,
    label_modules,
    shares_of,
    survey,
)
from mlgo_gym.training._networks import network_features
from mlgo_gym.training._run import Checkpoint, TrainingRun
from mlgo_gym.training._start import load_start
from mlgo_gym.training._validation import Validation, validate

_LABELLING: Final = 0.75
"""The part of a round's time for labels; the rest is for fitting and validating."""

_BYTES: Final = "bytes of code"


@dataclass(frozen=True, slots=True)
class LabelRounds:
    """Labels modules under one policy after the other, and reads what is known so far."""

    run: TrainingRun
    problem: InliningForSize
    config: AdvantageConfig
    data: Data

    def shares(self) -> Shares:
        """The code that the objects of each package share; surveyed once in a run.

        By a reward nobody asks for it.
        """
        if self.data.rewards:
            return {}
        path = self.run.directory / "survey.json"
        if path.exists():
            return self.run.read_json(path.name, {"*": {"*": int}})
        self.run.doing("survey")
        data = self.data
        surveyed = survey(data.packages, jobs=data.jobs, timeout_s=data.timeout_s)
        found = dict(successes(surveyed, data.warn))
        if not found:
            raise TrainingError("advantage: expected modules to train on, found none that compiles")
        shares = shares_of(found)
        write_json(path, shares)
        return shares

    def label(self, number: int, policy: Policy, shares: Shares) -> None:
        """Label modules for a round, until this part of the budget is spent."""
        name = f"round-{number}"
        self.run.doing("labels")
        until_s = self._ends_s(number)
        labelled = 0
        config, data = self.config, self.data
        seed = config.seed + number
        setting = LabelSetting(
            self.problem,
            config.batches,
            data.jobs,
            data.timeout_s,
            seed,
            config.flips,
            config.band,
            data.rewards,
        )
        with (
            DatasetWriter(self._folder, header_of(self.problem), max_part_age_s=60.0) as writer,
            policy,
        ):
            there = {(key.package, key.module) for key in writer.keys if key.policy == name}
            left = self.data.packages.only(key for key in self._order(number) if key not in there)
            with closing(label_modules(left, policy, name, shares, setting)) as found:
                for done in found:
                    if done.error:
                        self.data.warn(Failure(without_frames(done.error)))
                    else:
                        source, episode, errors = done.value
                        for error in errors:
                            self.data.warn(Failure(error, f"module {source.module!r}: a flip"))
                        writer.add(source, [episode] if episode else [])
                        if episode:
                            labelled += int(np.count_nonzero(episode.label("sample_weight")))
                        self.run.scalars(len(writer.keys), {f"labels/{name}": float(labelled)})
                    if until_s is not None and self.run.spent_s >= until_s:
                        break

    def episodes(self) -> Iterator[Episode]:
        """This run's labels, and those of other runs that may be learned from.

        Raises:
            TrainingError: they are not of this run's reward.
        """
        own = [self._folder] if self._folder.exists() else []
        for folder in (*own, *map(Path, self.config.labels)):
            yield from labels_in(folder, self.problem, self.data)

    @property
    def _folder(self) -> Path:
        return self.run.directory / "labels"

    def _ends_s(self, number: int) -> float | None:
        if self.run.budget_s is None:
            return None
        left_s = max(0.0, self.run.budget_s - self.run.spent_s)
        return self.run.spent_s + _LABELLING * left_s / (self.config.rounds - number)

    def _order(self, number: int) -> list[ModuleKey]:
        """All modules, at random, the packages in turns: they differ more than their modules do."""
        random = np.random.default_rng([self.config.seed, number])
        turns = []
        for keys in self.data.packages.by_package.values():
            order = random.permutation(len(keys))
            turns += [(turn, random.random(), keys[index]) for turn, index in enumerate(order)]
        return [key for _, _, key in sorted(turns)]


def labels_in(
    folder: Path, problem: Problem | str, data: Data, llvm_version: str | None = None
) -> Iterator[Episode]:
    """The labels in a folder, but those of modules that are held out.

    Raises:
        TrainingError: they are not of what is trained for.
    """
    reward = data.rewards and data.rewards.name
    for episode in Dataset.open(folder, problem=problem, llvm_version=llvm_version).episodes():
        if (found := episode.source.settings.get(REWARD)) != reward:
            raise TrainingError(
                f"labels {str(folder)!r}: expected labels by {reward or _BYTES}, found "
                f"{found or _BYTES}"
            )
        if ModuleKey(episode.source.package, episode.source.module) not in data.validation:
            yield episode


Config = AdvantageConfig


def train(run: TrainingRun, config: AdvantageConfig, data: Data) -> Validation:
    """Train for as long as the run's budget lasts, or until all rounds are done."""
    if not isinstance(run.problem, InliningForSize):
        raise TrainingError(f"advantage: expected InliningForSize, found {run.problem.name}")
    if data.rewards:
        if config.hot_bytes:
            raise OptionsError(
                f"hot_bytes: expected 0 with a reward, which may be of what is executed, found "
                f"{config.hot_bytes:g}"
            )
    elif type(measure := measure_of(run.problem)) is not TextSize:  # labels are bytes of code
        raise TrainingError(
            "advantage: expected a problem that is measured by bytes of code, found "
            f"{run.problem.name}, which is by {measure.title}"
        )
    if config.hot_bytes and not run.problem.hotness:
        raise OptionsError(
            f"hot_bytes: expected 0 without 'hotness', by which it goes, found {config.hot_bytes:g}"
        )
    return _Trainer(run, run.problem, config, data).train()


class _Trainer:
    def __init__(
        self, run: TrainingRun, problem: InliningForSize, config: AdvantageConfig, data: Data
    ) -> None:
        self._run = run
        self._config = config
        self._data = data
        self._problem = problem
        self._features = network_features(problem, config.features)
        self._start = load_start(config.start, problem) if config.start else None
        self._labels = LabelRounds(run, problem, config, data)
        checkpoint = run.restore({"validations": [{"loss": float}]}) or Checkpoint(
            0, {}, {"validations": []}
        )
        self._round = checkpoint.step
        self._validations: list[dict[str, Any]] = list(checkpoint.state["validations"])
        self._best: Validation | None = None

    def train(self) -> Validation:
        rounds = self._config.rounds
        shares = self._labels.shares() if rounds else {}
        while self._round < max(1, rounds):
            if rounds:
                self._labels.label(self._round, self._policy(), shares)
            self._learn()
            self._round += 1
            self._run.save(self._round, {}, {"validations": self._validations})
            if self._run.is_over:
                break
        if self._best is None:  # all was done before
            self._best = validate(self._run.model, self._data, self._problem)
        return self._best

    def _policy(self) -> Policy:
        if self._round == 0 and self._start is None:
            return WorkerPolicy(default)
        model = str(self._model(self._round)) if self._round else self._config.start
        return RunnerPolicy(runner_factory(model, RELEASE), keep=True)

    def _learn(self) -> None:
        """Fit to all labels so far, and keep the model if it is the best."""
        run, number = self._run, self._round + 1
        labels = labels_of(
            self._labels.episodes(),
            self._features,
            self._config.linked_weight,
            by_reward=self._data.rewards is not None,
            hot_bytes=self._config.hot_bytes,
            start=self._start,
        )
        network = distilled(run, labels, self._config, self._round)
        model = self._model(number)
        save_model(network, self._problem, model, {"trainer": run.trainer})
        run.doing("validation")
        found = validate(model, self._data, self._problem)
        loss = found.loss(self._config.worse_weight, self._data.most_text)
        best = min((each["loss"] for each in self._validations), default=np.inf)
        self._validations.append({"loss": loss, **found.to_json()})
        run.scalars(number, found.scalars())
        if loss < best:
            self._best = found
            learned = {"labelled_decisions": int(labels.is_known.sum()), "rounds": number}
            run.export(model, {**learned, "validation": found.to_json()})

    def _model(self, rounds: int) -> Path:
        return self._run.directory / "rounds" / str(rounds)
