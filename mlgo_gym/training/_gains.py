"""Gains of other answers by a reward: each flip is compiled and measured by itself.

A measure of what programs take says nothing of single functions, so that the changes of several
flips in one compilation cannot be told apart, as those of bytes can (`search._attribution`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mlgo_gym.base import CompilationError, MlgoGymError, ModuleError, WorkloadError
from mlgo_gym.rollout import Measure, Result, without_frames
from mlgo_gym.search import Flip, NamedCompilation, NamingCompiler, flipped


class Gains:
    """The gains of flips of one module's decisions, added up by decision.

    A flip's gain is the reward with it less the reward without, shares of what LLVM's own
    heuristics take; positive is better. Its decisions share it equally.

    Args:
        naming: compiles the module.
        base: what it makes without flips.
        measure: what rewards are of.
        plain: what LLVM's own heuristics make of the module.

    Attributes:
        errors: why flips have no gain: a program that went wrong, LLVM that crashed or hung.

    Raises:
        ModuleError: the module cannot be measured.
        WorkloadError: a program does something else than it must without any flip.
    """

    def __init__(
        self, naming: NamingCompiler, base: NamedCompilation, measure: Measure, plain: Result
    ) -> None:
        self._naming, self._base = naming, base
        self._measure, self._plain = measure, plain
        self._scores = {
            "baseline_score": measure.score(plain),
            "score": measure.score(base.result),
        }
        if not self._scores["baseline_score"]:
            raise ModuleError(
                base.result.module, f"expected {measure.title} to save, found that there are none"
            )
        self._reward: Final = self._reward_of(base)
        self._sums, self._counts = (np.zeros(len(base.decisions)) for _ in range(2))
        self.errors: Final[list[MlgoGymError]] = []

    def add(self, flips: Sequence[Flip]) -> None:
        """Make each flip; those whose decisions do not come again are left out."""
        for flip in flips:
            try:
                other, made = flipped(self._naming, self._base, [flip])
                gain = self._reward_of(other) - self._reward if made else None
            except (CompilationError, WorkloadError) as error:
                self.errors.append(without_frames(error))
                continue
            if gain is not None:
                chosen = list(flip.decisions)
                self._sums[chosen] += gain / len(chosen)
                self._counts[chosen] += 1

    def facts(self) -> dict[str, Any]:
        """Return an episode's scores and reward, and labels: the means over flips."""
        known = np.where(self._counts > 0, self._counts, np.nan)
        labels = {"saved_share": self._sums / known, "sample_weight": self._counts}
        return {**self._scores, "reward": self._reward, "labels": labels}

    def _reward_of(self, named: NamedCompilation) -> float:
        return self._measure.rewards(named.result, self._plain)[""]
