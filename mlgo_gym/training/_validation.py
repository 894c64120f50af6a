"""What a model is worth on packages that it was not trained on, to choose among models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from mlgo_gym.evaluation._evaluate import Setting, in_order, module_scores
from mlgo_gym.evaluation._summary import WORSE_RATIO, Scored
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._problem import Problem
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.runners._release import ReleaseModeModelRunner
from mlgo_gym.training._compiled import CompiledNetwork
from mlgo_gym.training._contexts import TrainingContext, Workshop
from mlgo_gym.training._data import Data

WORSE_WEIGHT: Final = 0.1
"""What the share of modules that are worse counts beside the change itself."""

_LEAST: Final = 1e-9
_MODEL: Final = "model"
_CHOSEN_BY: Final = ("score_module_mean", "linked_text")
"""Of the statistics that there are: a measure of a problem's own comes before its code."""


@dataclass(frozen=True, slots=True)
class Validation:
    """Changes against LLVM's own heuristic by the statistic's key, negative is better.

    Worse are modules by more than 1 % (and 64 bytes); failed are modules, or functions alone.
    """

    changes: Mapping[str, float]
    worse: int
    modules: int
    failed: int

    def loss(self, worse_weight: float = WORSE_WEIGHT) -> float:
        """What models are chosen by, the lower the better; infinite where no module was compiled.

        The change of linked text, or of the score in the mean where the measure is another, and
        ``worse_weight`` times the share of the modules that are worse.
        """
        found = (self.changes[key] for key in _CHOSEN_BY if key in self.changes)
        change = next(found, math.inf)
        return change + worse_weight * self.worse / max(1, self.modules)

    def to_json(self) -> dict[str, Any]:
        return {
            **{key: round(value, 6) for key, value in self.changes.items()},
            "worse_modules": self.worse,
            "modules": self.modules,
            "failed_modules": self.failed,
        }

    def scalars(self) -> dict[str, float]:
        """The numbers under names for curves."""
        numbers = {**self.changes, "worse_modules": self.worse}
        return {f"validation/{key}": float(value) for key, value in numbers.items()}


def validate(model: Path, data: Data, problem: Problem) -> Validation:
    """Compile what is held out with a model, in release mode, beside LLVM's own heuristic."""
    policy = RunnerPolicy(partial(ReleaseModeModelRunner, model))
    packages = data.validation
    setting = Setting(problem, jobs=data.jobs, timeout_s=data.timeout_s)
    scores = in_order(list(module_scores(packages, {_MODEL: policy}, setting)), packages)
    for each in scores:
        for error in each.errors:
            data.warn(f"{each.package}: {error}")
    scored = Scored(scores, [_MODEL], resamples=1)
    changes = {
        statistic.key: scored.change(statistic, _MODEL).value for statistic in scored.statistics()
    }
    return Validation(
        changes, len(scored.worse(_MODEL)), len(scored.modules), len(scores) - len(scored.modules)
    )


def validate_functions(
    workshop: Workshop, contexts: Sequence[TrainingContext], network: CompiledNetwork
) -> Validation:
    """Allocate held-out functions with a network, each by itself; a failure counts as unchanged."""
    largest_first = sorted(contexts, key=lambda each: -each.size_bytes)

    def score(compiler: Compiler, context: TrainingContext) -> float:
        return workshop.score(compiler, context, network.answer)

    scored = list(workshop.successes(largest_first, score))
    ratios = {context.module: 1.0 for context in contexts}
    for context, value in scored:
        ratios[context.module] += context.share * (value / context.baseline - 1)
    changes = {
        "score_module_mean": _mean_change(
            [math.log(max(each, _LEAST)) for each in ratios.values()]
        ),
        "score_mean": _mean_change([context.log_ratio(value) for context, value in scored]),
    }
    worse = sum(each > WORSE_RATIO for each in ratios.values())
    return Validation(changes, worse, len(ratios), len(contexts) - len(scored))


def _mean_change(logs: Sequence[float]) -> float:
    return math.expm1(sum(logs) / len(logs)) if logs else 0.0
