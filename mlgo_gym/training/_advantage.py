"""``advantage``: learn which single answers of the inliner save bytes, around the policy so far.

Rounds in the manner of DAgger (Ross, Gordon, Bagnell 2011): label decisions of the training
packages under the policy so far (`training._labels`), fit gradient boosting to all labels
so far, the sign as class and the bytes as cost, distil it into a network, and choose the round
that does best on the validation packages. The first policy is LLVM's own default.

::

    survey.json     which functions several objects of a package have
    labels/         a dataset of decisions with labels, policies round-0, round-1, ...
    rounds/N/       the model after N rounds
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from mlgo_gym.corpus._packages import ModuleKey
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._episodes import Episode
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import TrainingError
from mlgo_gym.files import write_json
from mlgo_gym.llvm._compiler import llvm_version
from mlgo_gym.problems._inlining_for_size import DEFAULT_ADVICE, InliningForSize
from mlgo_gym.problems._policy import Policy
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.runners._release import ReleaseModeModelRunner
from mlgo_gym.training._data import Data
from mlgo_gym.training._export import save_model
from mlgo_gym.training._fitting import FitConfig, Rows, fit_advantages
from mlgo_gym.training._labels import LabelSetting, label_modules, shares_of, survey
from mlgo_gym.training._networks import InliningNetwork, network_features
from mlgo_gym.training._normalization import Normalization
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._teacher import Labels, TeacherConfig, fit_teacher
from mlgo_gym.training._validation import WORSE_WEIGHT, Validation, validate

_Array = np.ndarray[Any, Any]

_LABELLING: Final = 0.75
"""The part of a round's time for labels; the rest is for fitting and validating."""


@dataclass(frozen=True)
class Config:
    """What decides the result.

    Attributes:
        seed: of everything random.
        rounds: how often decisions are labelled around the newest policy; 0 learns from `labels`
            alone, once.
        labels: the folders of labels that other runs have left, to learn from as well; those of
            modules that are held out are not.
        batches: compilations of a module that flip single decisions, and as many that flip all
            calls of callees.
        joint_labels: besides, share out what the policy's departures from LLVM's default did
            together.
        linked_weight: how much linked bytes count against the object's, from 0 to 1.
        hidden: the widths of the network's hidden layers.
        band: the costs between which the network may answer otherwise than LLVM's default: beyond
            them it has little to win and much to lose.
        distillation_rows: on how many decisions at most the network learns to answer as the
            teacher; labelled ones first.
        caution: how much certainty it takes, in log-odds, to depart from LLVM's default: with 0.15
            a departure that loses bytes counts 1.16 times as much as one that saves them.
        logit_limit: the teacher's certainty is clipped here.
        worse_weight: what is best: the change of linked text, and this times the share of the
            modules that are worse by more than 1 %.
        teacher: gradient boosting.
        fit: how the network is fitted.
    """

    seed: int = 0
    rounds: int = 3
    labels: tuple[str, ...] = ()
    batches: int = 2
    joint_labels: bool = False
    linked_weight: float = 0.4
    hidden: tuple[int, ...] = (128, 128)
    band: tuple[int, int] = (-25, 120)
    distillation_rows: int = 200_000
    caution: float = 0.15
    logit_limit: float = 3.0
    worse_weight: float = WORSE_WEIGHT
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    fit: FitConfig = field(default_factory=lambda: FitConfig(epochs=25))


def train(run: TrainingRun, config: Config, data: Data) -> Validation:
    """Train for as long as the run's budget lasts, or until all rounds are done.

    Args:
        run: a run for `InliningForSize`.
        config: what decides the result.
        data: what is trained on.

    Returns:
        What the best model is worth on the validation packages.

    Raises:
        TrainingError: there is nothing to train on, or the folder cannot be used.
    """
    return _Trainer(run, config, data).train()


class _Trainer:
    def __init__(self, run: TrainingRun, config: Config, data: Data) -> None:
        if not isinstance(run.problem, InliningForSize):
            raise TrainingError(f"advantage: expected InliningForSize, found {run.problem.name}")
        self._run = run
        self._config = config
        self._data = data
        self._problem: InliningForSize = run.problem
        checkpoint = run.restore()
        self._round = checkpoint.step if checkpoint else 0
        self._validations: list[dict[str, Any]] = (
            list(checkpoint.state["validations"]) if checkpoint else []
        )
        self._best: Validation | None = None

    def train(self) -> Validation:
        shares = self._survey() if self._config.rounds else {}
        while self._round < max(1, self._config.rounds):
            if self._config.rounds:
                self._label(shares)
            self._learn()
            self._round += 1
            self._run.save(self._round, {}, {"validations": self._validations})
            if self._run.is_over:
                break
        if self._best is None:  # all was done before
            self._best = validate(self._run.model, self._data, self._problem)
        return self._best

    def _survey(self) -> dict[str, dict[str, int]]:
        path = self._run.directory / "survey.json"
        if path.exists():
            return self._run.read_json(path.name)
        self._run.doing("survey")
        found: dict[ModuleKey, tuple[str, ...]] = {}
        with closing(
            survey(self._data.packages, jobs=self._data.jobs, timeout_s=self._data.timeout_s)
        ) as surveyed:
            for done in surveyed:
                if done.error:
                    self._data.warn(str(done.error))
                else:
                    found[done.item] = done.value
        if not found:
            raise TrainingError("advantage: expected modules to train on, found none that compiles")
        shares = shares_of(found)
        write_json(path, shares)
        return shares

    def _label(self, shares: Mapping[str, Mapping[str, int]]) -> None:
        """Label modules under the policy so far, until this part of the budget is spent."""
        name = f"round-{self._round}"
        setting = LabelSetting(
            self._problem,
            self._config.batches,
            self._data.jobs,
            self._data.timeout_s,
            self._config.seed + self._round,
            self._config.joint_labels,
        )
        self._run.doing("labels")
        until_s = self._labelling_ends_s()
        labelled = 0
        header = DatasetHeader.of(self._problem, llvm_version())
        with ExitStack() as stack:
            writer = stack.enter_context(DatasetWriter(self._labels, header, max_part_age_s=60.0))
            there = {(key.package, key.module) for key in writer.keys if key.policy == name}
            left = self._data.packages.only(each for each in self._order() if each not in there)
            policy = stack.enter_context(self._policy())
            found = label_modules(
                left,
                policy=policy,
                policy_name=name,
                shares=shares,
                setting=setting,
            )
            stack.enter_context(closing(found))
            for done in found:
                if done.error:
                    self._data.warn(str(done.error))
                else:
                    source, episode = done.value
                    writer.add(source, [episode] if episode else [])
                    if episode:
                        labelled += int(np.isfinite(episode.label("saved_bytes")).sum())
                    step = len(writer.keys)
                    self._run.scalars(step, {f"labels/{name}": float(labelled)})
                if until_s is not None and self._run.spent_s >= until_s:
                    break

    def _labelling_ends_s(self) -> float | None:
        if self._run.budget_s is None:
            return None
        left_s = max(0.0, self._run.budget_s - self._run.spent_s)
        rounds = self._config.rounds - self._round
        return self._run.spent_s + _LABELLING * left_s / rounds

    def _order(self) -> list[ModuleKey]:
        """All modules: the packages take turns, each with its modules in a random order.

        A round's time is seldom enough for all, and packages differ more than their modules do.
        """
        random = np.random.default_rng([self._config.seed, self._round])
        turns = []
        for keys in self._data.packages.by_package.values():
            order = random.permutation(len(keys))
            turns += [(turn, random.random(), keys[index]) for turn, index in enumerate(order)]
        return [key for _, _, key in sorted(turns)]

    def _policy(self) -> Policy:
        if self._round == 0:
            return self._problem.policy(self._problem.rule)
        return RunnerPolicy(partial(ReleaseModeModelRunner, self._model(self._round)), keep=True)

    def _learn(self) -> None:
        """Fit to all labels so far, and keep the model if it is the best."""
        observations, advantages, weights, packages = self._labelled()
        features = network_features(self._problem)
        columns = {name: np.ascontiguousarray(observations[name]) for name in features}
        is_known = np.isfinite(advantages)
        labels = Labels(
            np.stack([columns[name] for name in features], axis=-1),
            advantages,
            weights,
            np.where(observations[DEFAULT_ADVICE] == 1, 1, -1),
            packages,
        )
        self._run.doing("fitting the teacher")
        teacher = fit_teacher(labels, self._config.teacher, self._config.seed)
        chosen = self._distillation_rows(columns["cost_estimate"], is_known)
        columns = {name: values[chosen] for name, values in columns.items()}
        limit = self._config.logit_limit
        answers = teacher(labels.features[chosen]).mean(axis=0)
        answers += self._config.caution * labels.defaults[chosen]
        rows = Rows(columns, np.clip(answers, -limit, limit), np.ones(len(answers)))
        network = InliningNetwork(
            Normalization.fit(columns, features),
            self._config.hidden,
            self._config.seed,
            self._config.band,
        )
        self._run.doing("fitting")
        fitting = fit_advantages(network, rows, self._config.fit, self._config.seed)
        for epoch, numbers in enumerate(fitting):
            step = self._round * self._config.fit.epochs + epoch
            self._run.scalars(step, {f"fit/{key}": value for key, value in numbers.items()})
        model = self._model(self._round + 1)
        save_model(network, self._problem, model, {"trainer": self._run.trainer})
        self._run.doing("validation")
        found = validate(model, self._data, self._problem)
        loss = found.loss(self._config.worse_weight)
        best = min((each["loss"] for each in self._validations), default=np.inf)
        self._validations.append({"loss": loss, **found.to_json()})
        self._run.scalars(self._round + 1, found.scalars())
        if loss < best:
            self._best = found
            learned = {"labelled_decisions": int(is_known.sum()), "rounds": self._round + 1}
            self._run.export(network, {**learned, "validation": found.to_json()})

    def _labelled(self) -> tuple[_Array, _Array, _Array, _Array]:
        """All decisions so far; what inlining saves, NaN if unknown; the weight; the package."""
        observations, advantages, weights, packages = [], [], [], []
        share = self._config.linked_weight
        for episode in self._episodes():
            saved = (1 - share) * episode.label("saved_bytes")
            saved = saved + share * episode.label("saved_linked_bytes")
            observations.append(episode.observations)
            advantages.append(np.where(episode.actions == 0, saved, -saved))
            weights.append(episode.label("sample_weight"))
            packages.append(episode.source.package)
        if not observations:
            raise TrainingError("advantage: expected labelled decisions, found none")
        return (
            np.concatenate(observations),
            np.concatenate(advantages),
            np.concatenate(weights),
            np.repeat(np.unique(packages, return_inverse=True)[1], list(map(len, observations))),
        )

    def _episodes(self) -> Iterator[Episode]:
        """This run's labels, and those of other runs that may be learned from."""
        own = [self._labels] if self._labels.exists() else []
        for folder in (*own, *map(Path, self._config.labels)):
            for episode in Dataset.open(folder, problem=self._problem).episodes():
                key = ModuleKey(episode.source.package, episode.source.module)
                if key not in self._data.validation:
                    yield episode

    def _distillation_rows(self, costs: _Array, is_known: _Array) -> _Array:
        """Rows inside the band: labelled decisions first, then others at random."""
        low, high = self._config.band
        inside = np.flatnonzero((low <= costs) & (costs < high))
        if not inside.size:
            raise TrainingError(
                f"advantage: expected decisions that cost from {low} to below {high}, found none"
            )
        random = np.random.default_rng(self._config.seed)
        order = np.argsort(random.random(inside.size) - is_known[inside])
        return np.sort(inside[order[: self._config.distillation_rows]])

    def _model(self, rounds: int) -> Path:
        return self._run.directory / "rounds" / str(rounds)

    @property
    def _labels(self) -> Path:
        return self._run.directory / "labels"
