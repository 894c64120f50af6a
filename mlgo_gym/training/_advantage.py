"""``advantage``: learn which single answers of the inliner save bytes, around the policy so far.

Rounds in the manner of DAgger (Ross, Gordon, Bagnell 2011): label decisions of the training
packages under the policy so far (`_label_rounds`), fit gradient boosting to all labels so far, the
sign as class and the bytes as cost (`_teacher`), distil it into a network (`_distillation`), and
choose the round that does best on the validation packages. The first policy is LLVM's own default,
or the model that ``start`` names, which is also what is learned where labels say nothing.
By a reward shares of its baseline take the place of the bytes.

::

    rounds/N/       the model after N rounds
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mlgo_gym.base import OptionsError, TrainingError
from mlgo_gym.problems import InliningForSize, Policy, default
from mlgo_gym.rollout import TextSize, measure_of
from mlgo_gym.runners import RELEASE, RunnerPolicy, WorkerPolicy, runner_factory
from mlgo_gym.training._data import Data
from mlgo_gym.training._distillation import AdvantageConfig, distilled, labels_of
from mlgo_gym.training._export import save_model
from mlgo_gym.training._label_rounds import LabelRounds
from mlgo_gym.training._networks import network_features
from mlgo_gym.training._run import Checkpoint, TrainingRun
from mlgo_gym.training._start import load_start
from mlgo_gym.training._validation import Validation, validate

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
