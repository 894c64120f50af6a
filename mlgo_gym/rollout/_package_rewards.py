"""The measure of a reward for each package of several."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from mlgo_gym.base import ModuleError, OptionsError, UsageError, WorkloadError
from mlgo_gym.corpus import ModuleKey, Packages
from mlgo_gym.llvm import Jobs
from mlgo_gym.problems import InliningForSize, PolicyLike
from mlgo_gym.rollout._measures import Measure
from mlgo_gym.rollout._named import measure_kinds, measure_named


class Reward(NamedTuple):
    """The measure of a package, and the facts that must be equal for scores to be compared."""

    measure: Measure
    same: dict[str, Any]


@contextmanager
def of_module(name: str) -> Iterator[None]:
    """Errors of programs under the name of the module whose object was put into them."""
    try:
        yield
    except WorkloadError as error:
        raise ModuleError(name, str(error)) from error


class Rewards(AbstractContextManager["Rewards"]):
    """The reward of each package, made when it is first asked for; workers in threads share it.

    Args:
        reward: its name, or the measure itself, which somebody else closes.
        packages: whose workloads run; of a measure, the one that it was made for.
        opt_level: clang's level to compile at; ``None`` takes each module's own.
        timeout_s: how long LLVM may take for one module, in seconds.
        policy: as `measure_named` has it.
        jobs: how many modules of a package are compiled at once.

    Attributes:
        name: the reward.
        packages: whose workloads run.

    Raises:
        OptionsError: one measure is given for several packages.
        WorkloadError: programs are to run, and no package has workloads.
    """

    def __init__(
        self,
        reward: str | Measure,
        packages: Packages,
        opt_level: str | None,
        timeout_s: float,
        *,
        policy: tuple[InliningForSize, PolicyLike] | None = None,
        jobs: Jobs = 1,
    ) -> None:
        self._given = given = reward if isinstance(reward, Measure) else None
        self.name: Final = given.key if given else str(reward)
        self.packages: Final = packages
        self._corpora = {
            package: packages.corpora[keys[0]] for package, keys in packages.by_package.items()
        }
        if given and len(self._corpora) > 1:
            raise OptionsError(
                f"reward: expected the name of a measure, of which each of {len(self._corpora)} "
                f"packages has its own, found the measure {given.key!r}"
            )
        self._kinds = (type(given),) if given else measure_kinds(self.name)
        for kind in self._kinds:
            kind.check(self._corpora)
        self._how: dict[str, Any] = {
            "opt_level": opt_level,
            "timeout_s": timeout_s,
            "policy": policy,
        }
        self._jobs = jobs
        self._alone = threading.Lock()
        self._made: dict[str, Reward] = {}
        if given:
            self._made = {package: Reward(given, given.context()) for package in self._corpora}
        self._stack = ExitStack()

    def close(self) -> None:
        """Close the measures that were made."""
        self._stack.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Rewards], tuple[Any, ...]]:
        """A copy for workers elsewhere.

        Raises:
            UsageError: programs are to run, which are here.
        """
        if any(kind.runs_programs for kind in self._kinds):
            raise UsageError(
                f"reward {self.name!r}: expected workers on this machine, where its programs run, "
                "found a cluster"
            )
        return partial(Rewards, **self._how), (self._given or self.name, self.packages)

    def of(self, key: ModuleKey) -> Reward:
        """The reward of a module's package.

        Raises:
            WorkloadError: its workloads cannot be used.
            ModuleError: a module of one cannot be read.
        """
        with self._alone:
            if key.package not in self._made:
                corpus = self._corpora[key.package]
                measure = measure_named(self.name, corpus, jobs=self._jobs, **self._how)
                self._stack.callback(measure.close)
                same = {"programs_sha256": None, **measure.context()}
                self._made[key.package] = Reward(measure, same)
            return self._made[key.package]
