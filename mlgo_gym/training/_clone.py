"""``clone``: a network that answers as a known policy does, to start from or as a test of it all.

::

    decisions/      a dataset of what the policy answered on the training packages
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from mlgo_gym.base import TrainingError
from mlgo_gym.datasets import Dataset, DatasetWriter, header_of, record, remaining
from mlgo_gym.training._data import Data
from mlgo_gym.training._fitting import FittedConfig, fit_decisions
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._validation import Validation

REWARDLESS = "it answers as a policy does, whatever that is good for"
_RECORDING = 0.6
"""The part of the budget that decisions are recorded in."""


@dataclass(frozen=True)
class Config(FittedConfig):
    """The settings that decide the result; docs/guides/training.md explains each."""

    policy: str = ""


def train(run: TrainingRun, config: Config, data: Data) -> Validation:
    """Record the policy's decisions on the training packages, and fit a network to them."""
    problem, name = run.problem, config.policy or run.problem.rule
    policy = problem.policy(name, config.seed)
    folder = run.directory / "decisions"
    with DatasetWriter(folder, header_of(problem), max_part_age_s=60.0) as writer:
        left = remaining(writer, data.packages, name)
        reports = record(
            writer, left, problem, name, policy, jobs=data.jobs, timeout_s=data.timeout_s
        )
        with closing(reports):
            for report in reports:
                for failure in report.failures:
                    data.warn(failure)
                run.scalars(len(writer.keys), {"modules": len(writer.keys)})
                if run.budget_s is not None and run.spent_s > _RECORDING * run.budget_s:
                    break
        if not writer.keys:
            raise TrainingError("clone: expected modules to train on, found none that compiles")
    run.save(1, {})
    return fit_decisions(run, Dataset.open(folder, problem=problem).episodes(), config, data)
