"""The scores that an evaluation keeps of a module, under LLVM and under each policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mlgo_gym.corpus import ModuleKey
from mlgo_gym.llvm import CompilationResult
from mlgo_gym.rollout import (
    BASELINE,
    Code,
    Failure,
    GeometricMean,
    ModuleReport,
    TextSize,
    geometric_mean_ratio,
)


@dataclass(frozen=True, slots=True)
class ModuleScores:
    """One module under LLVM's own heuristic, which is called `BASELINE`, and under each policy.

    Costs are of register allocation, functions those that ask, by policy. A module with errors is
    left out of all sums.
    """

    package: str
    module: str
    language: str
    decisions: Mapping[str, int] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    functions: Mapping[str, GeometricMean] = field(default_factory=dict)
    code: Mapping[str, Code] = field(default_factory=dict, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    llvm_version: str = ""
    module_sha256: str = ""
    errors: tuple[Failure, ...] = ()
    not_honoured: tuple[str, ...] = ()

    @property
    def key(self) -> ModuleKey:
        """The package and the module."""
        return ModuleKey(self.package, self.module)

    @property
    def is_complete(self) -> bool:
        return not self.errors

    def with_code(self, other: ModuleScores) -> ModuleScores:
        """These scores, with the code of another evaluation of the same module."""
        known = set(map(str, self.errors))
        errors = *self.errors, *(each for each in other.errors if str(each) not in known)
        return replace(self, code=other.code, errors=errors)


def scores_of(report: ModuleReport) -> ModuleScores:
    """Return the scores of a report."""
    results = report.results
    policies = {name: result for name, result in results.items() if name != BASELINE}
    measure = report.measure
    scored = {} if type(measure) is TextSize else results
    parts = {name: measure.parts(result) for name, result in scored.items()}
    first = next(iter(policies.values()), None)
    # LLVM's own result, which the best may be, is not of those that ask alone.
    asking = next((each for name, each in parts.items() if name != BASELINE), {})
    return ModuleScores(
        package=report.package,
        module=report.module,
        language=report.language,
        decisions={name: result.decisions for name, result in policies.items()},
        costs={name: measure.score(result) for name, result in scored.items()},
        functions={
            name: geometric_mean_ratio({part: each[part] for part in asking}, parts[BASELINE])
            for name, each in parts.items()
            if name != BASELINE
        },
        code={
            name: Code.of(result)
            for name, result in results.items()
            if isinstance(result, CompilationResult)
        },
        settings=first.settings if first else {},
        llvm_version=report.baseline.llvm_version if report.baseline else "",
        module_sha256=report.baseline.module_sha256 if report.baseline else "",
        errors=report.failures,
        not_honoured=report.not_honoured,
    )
