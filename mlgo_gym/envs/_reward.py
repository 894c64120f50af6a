"""The measure behind an environment's reward."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mlgo_gym.base import InternalError, OptionsError, Users
from mlgo_gym.corpus import Packages
from mlgo_gym.llvm import CompilationResult
from mlgo_gym.rollout import (
    Measure,
    Mix,
    Result,
    Rewards,
    measure_kinds,
    measure_named,
    of_module,
)


def rewarding(
    reward: object, packages: Packages, opt_level: str | None, timeout_s: float
) -> tuple[Measure | None, bool]:
    """The measure of a ``reward``, and whether it was made here, to be closed by who asked.

    Raises:
        OptionsError: it is no name of one, and no measure.
        WorkloadError: programs are to run, and no corpus has workloads.
    """
    if reward is None or isinstance(reward, Measure):
        return reward, False
    if not isinstance(reward, str):
        expected = "a name or an instance of mlgo_gym.rollout.Measure"
        raise OptionsError(f"reward: expected {expected}, found {reward!r}")
    first, *others = packages.named.values()
    if others:
        return MeasureOfEach(reward, packages, opt_level, timeout_s), True
    return measure_named(reward, first, opt_level=opt_level, timeout_s=timeout_s), True


class MeasureOfEach(Measure):
    """A reward of the modules of several corpora: each is measured in its own corpus.

    The measure of a corpus is made when the first of its modules is scored; for what is linked or
    run, the corpus is compiled then. Environments in threads may share it.

    Args:
        reward: its name.
        packages: the modules of the corpora.
        opt_level: clang's level to compile at; ``None`` takes each module's own.
        timeout_s: how long LLVM may take for one module, in seconds.

    Raises:
        OptionsError: it is no reward.
        WorkloadError: programs are to run, and no corpus has workloads.
    """

    key: str = Mix.key
    title: str = Mix.title
    meaning: str = Mix.meaning

    def __init__(
        self, reward: str, packages: Packages, opt_level: str | None, timeout_s: float
    ) -> None:
        kind, *others = measure_kinds(reward)
        if others:
            self.unit = Mix.unit_of((kind, *others))
        else:
            self.unit, self.key = kind.unit, kind.key
            self.title, self.meaning = kind.title, kind.meaning
        self._packages: Final = packages
        self._rewards: Final = Rewards(reward, packages, opt_level, timeout_s)
        self._users = Users()

    def score(self, result: Result) -> float:
        """The score in the module's corpus."""
        measure, own = self._of(result)
        return measure.score(own)

    def scores(self, result: Result) -> dict[str, float]:
        """The same by its name, and what it is made of."""
        measure, own = self._of(result)
        return measure.scores(own)

    def parts(self, result: Result) -> dict[str, float]:
        """The scores that means are taken of."""
        measure, own = self._of(result)
        return measure.parts(own)

    def rewards(self, result: Result, baseline: Result) -> dict[str, float]:
        """The reward of each context, and of the whole as ``""``."""
        (measure, own), (_, plain) = self._of(result), self._of(baseline)
        return measure.rewards(own, plain)

    def share(self) -> Measure:
        """Add a user; every user must call `close`."""
        self._users.add()
        return self

    def close(self) -> None:
        """Close the corpora's measures, once all users have done so."""
        if self._users.leave():
            self._rewards.close()

    def _of(self, result: Result) -> tuple[Measure, Result]:
        """The measure of a module's corpus, and the result under its name there.

        Raises:
            ModuleError: the corpus's workloads cannot be used.
        """
        if not isinstance(result, CompilationResult):
            raise InternalError(f"measure: expected the result of an object, found {result!r}")
        key = self._packages.key(result.module)
        with of_module(result.module):
            return self._rewards.of(key).measure, replace(result, module=key.name)
