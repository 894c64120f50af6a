"""The worth of a model on packages that it was not trained on, to choose among models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from mlgo_gym.base import TrainingError
from mlgo_gym.corpus import Module, ModuleKey
from mlgo_gym.evaluation import (
    WORSE_RATIO,
    ModuleScores,
    Scored,
    Setting,
    in_order,
    module_scores,
    scores_of,
)
from mlgo_gym.llvm import Compiler, each
from mlgo_gym.problems import Policy, Problem
from mlgo_gym.rollout import BASELINE, Comparison, Rewards, compared, of_module
from mlgo_gym.runners import native_policy
from mlgo_gym.training._data import Data, TrainingContext, Workshop, successes
from mlgo_gym.training._trials import NetworkCode, Scores

WORSE_WEIGHT: Final = 0.1
"""The weight of the share of modules that are worse, beside the change itself."""

_LEAST: Final = 1e-9
_TOO_MUCH: Final = 1e6
_MODEL: Final = "model"
_CHOSEN_BY: Final = ("score_module_mean", "linked_text_package_mean", "linked_text")
"""The first of these that there is: a measure of a problem's own comes before its code."""


@dataclass(frozen=True, slots=True)
class Validation:
    """Changes against LLVM's own heuristic by the statistic's key, negative is better.

    Worse are modules by more than 1 % (of text, and 64 bytes); failed are modules, or functions
    alone. The interval, of 95 %, is over packages, of the change that models are chosen by.
    """

    changes: Mapping[str, float]
    worse: int
    modules: int
    failed: int
    interval: tuple[float, float] | None = None

    def loss(self, worse_weight: float = WORSE_WEIGHT, most_text: float | None = None) -> float:
        """The number that models are chosen by, less is better; infinite without any module.

        The change of linked text, each package counting the same, or of the score in the mean where
        the measure is another, and ``worse_weight`` times the share of the modules that are worse.
        Where there is more than
        ``most_text`` times LLVM's own text, it is more than any without, and the more text the
        more.
        """
        if most_text is not None and (more := 1 + self.changes.get("text", 0.0) - most_text) > 0:
            return _TOO_MUCH + more
        key = _chosen_by(self.changes)
        change = self.changes[key] if key else math.inf
        return change + worse_weight * self.worse / max(1, self.modules)

    def to_json(self) -> dict[str, Any]:
        return {
            **{key: round(value, 6) for key, value in self.changes.items()},
            **({"interval": [round(each, 6) for each in self.interval]} if self.interval else {}),
            "worse_modules": self.worse,
            "modules": self.modules,
            "failed_modules": self.failed,
        }

    def scalars(self) -> dict[str, float]:
        """The numbers under names for curves."""
        numbers = {**self.changes, "worse_modules": self.worse}
        return {f"validation/{key}": float(value) for key, value in numbers.items()}


def validate(model: Path, data: Data, problem: Problem) -> Validation:
    """Compile what is held out with a model, in release mode, beside LLVM's own heuristic.

    Raises:
        TrainingError: programs are to run, and none reaches a module.
    """
    return validate_all({_MODEL: model}, data, problem)[_MODEL]


def validate_all(models: Mapping[str, Path], data: Data, problem: Problem) -> dict[str, Validation]:
    """Validate several models, by name, over the modules that compile with all of them."""
    packages = data.validation
    with ExitStack() as stack:
        policies = {name: native_policy(model, problem, stack) for name, model in models.items()}
        if data.rewards:
            found = _rewarded(policies, data, problem, data.rewards)
        else:
            setting = Setting(problem, jobs=data.jobs, timeout_s=data.timeout_s)
            found = list(module_scores(packages, policies, setting))
    scores = in_order(found, packages)
    for failed in scores:
        for error in failed.errors:
            data.warn(error.within(failed.package))
    scored = Scored(scores, list(models))
    if data.rewards and not scored.modules:
        raise TrainingError(
            f"validation: expected held-out modules that can be measured by {data.rewards.name}, "
            f"found none of {len(packages)}"
        )
    return {name: _validation(scored, name, len(packages)) for name in models}


def _chosen_by(changes: Mapping[str, Any]) -> str | None:
    return next((key for key in _CHOSEN_BY if key in changes), None)


def _validation(scored: Scored, name: str, modules: int) -> Validation:
    found = {each.key: scored.change(each, name) for each in scored.statistics()}
    changes = {key: each.value for key, each in found.items()}
    known = len(scored.modules)
    key = _chosen_by(found)
    interval = found[key].interval if key else None
    return Validation(changes, _worse(scored, name), known, modules - known, interval)


def _worse(scored: Scored, name: str) -> int:
    """How many modules are worse, by the score where there is one."""
    if not scored.modules or not scored.modules[0].costs:
        return len(scored.worse(name))
    model, baseline = (scored.values("score", each) for each in (name, BASELINE))
    return int((model > WORSE_RATIO * baseline).sum())


def _rewarded(
    policies: Mapping[str, Policy], data: Data, problem: Problem, rewards: Rewards
) -> list[ModuleScores]:
    """Score the held-out modules by a reward; warn of modules that cannot be scored."""
    packages = data.validation
    work = partial(_scored, policies=policies, problem=problem, rewards=rewards)
    compiler = partial(Compiler, timeout_s=data.timeout_s)
    read, size = packages.keyed, packages.size_bytes
    found = each(packages, work, compiler, read=read, jobs=data.jobs, size=size)
    return [scores for _, scores in successes(found, data.warn)]


def _scored(
    compiler: Compiler,
    read: tuple[ModuleKey, Module],
    *,
    policies: Mapping[str, Policy],
    problem: Problem,
    rewards: Rewards,
) -> ModuleScores:
    key, module = read
    measure = rewards.of(key).measure
    report = compared(compiler, module, policies, problem, Comparison(measure=measure))
    with of_module(key.name):
        return scores_of(replace(report, package=key.package))


def validate_functions(
    workshop: Workshop, contexts: Sequence[TrainingContext], network: NetworkCode
) -> Validation:
    """Allocate held-out functions with a network, each by itself; a failure counts as unchanged."""
    largest_first = sorted(contexts, key=lambda each: -each.size_bytes)

    scored = list(workshop.successes(largest_first, Scores(workshop, network)))
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
