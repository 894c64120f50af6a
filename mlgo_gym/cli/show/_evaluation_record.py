"""An evaluation as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlgo_gym.evaluation import (
    ModuleScores,
    Scored,
    Setting,
    Worse,
)
from mlgo_gym.rollout import BASELINE


def as_record(scored: Scored, setting: Setting, seed: int) -> dict[str, Any]:
    """The whole evaluation, the modules that failed included."""
    scores = scored.scores
    versions = sorted({each.llvm_version for each in scores if each.llvm_version})
    return {
        "problem": setting.problem.settings(),
        "opt_level": setting.opt_level,
        "llvm_version": versions,
        "policies": list(scored.policies),
        "seed": seed,
        "total": _group(scored),
        "languages": {
            language: _group(scored.of_language(language)) for language in scored.languages
        },
        "packages": {package: _group(scored.of_package(package)) for package in scored.packages},
        "worse": {
            policy: [_worse(each) for each in scored.worse(policy)] for policy in scored.policies
        },
        "modules": _modules(scored),
    }


def _group(scored: Scored) -> dict[str, Any]:
    return {"modules": len(scored.modules), "packages": len(scored.packages)} | {
        statistic.key: {
            "ratios" if statistic.is_mean else BASELINE: scored.baseline(statistic),
            "policies": {
                policy: ({} if statistic.is_mean else {"total": scored.total(statistic, policy)})
                | scored.change(statistic, policy).to_json()
                for policy in scored.policies
            },
        }
        for statistic in scored.statistics()
    }


def _worse(worse: Worse) -> dict[str, Any]:
    return {
        "package": worse.scores.package,
        "module": worse.scores.module,
        BASELINE: worse.baseline,
        "policy": worse.value,
    }


def _modules(scored: Scored) -> list[dict[str, Any]]:
    keys = [each.key for each in scored.statistics() if not each.is_mean]
    columns = {
        key: {name: scored.values(key, name) for name in (BASELINE, *scored.policies)}
        for key in keys
    }
    places = {id(each): place for place, each in enumerate(scored.modules)}
    return [_module(each, places.get(id(each)), columns) for each in scored.scores]


def _module(
    scores: ModuleScores, place: int | None, columns: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "package": scores.package,
        "module": scores.module,
        "language": scores.language,
        "errors": list(map(str, scores.errors)),
        "decisions": dict(scores.decisions),
    }
    if place is not None:
        for key, values in columns.items():
            record[key] = {name: float(column[place]) for name, column in values.items()}
    return record
