"""The labels of ``advantage``: gathered round after round, and read with those of other runs.

::

    survey.json     which functions several objects of a package have
    labels/         a dataset of decisions with labels, policies round-0, round-1, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from mlgo_gym.base import TrainingError, write_json
from mlgo_gym.corpus import ModuleKey
from mlgo_gym.datasets import Dataset, DatasetWriter, Episode, header_of
from mlgo_gym.problems import InliningForSize, Policy, Problem
from mlgo_gym.rollout import Failure, without_frames
from mlgo_gym.training._data import Data, successes
from mlgo_gym.training._distillation import AdvantageConfig
from mlgo_gym.training._labels import (
    REWARD,
    LabelSetting,
    Shares,
    label_modules,
    shares_of,
    survey,
)
from mlgo_gym.training._run import TrainingRun

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
