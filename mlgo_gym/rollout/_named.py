"""Measures by name: what a reward can be, alone or in a mix, and that of each package of several.

`text`, `linked`, `linked_text_gc` and `linked_text_icf` are here. Others come by entry points of
the group ``mlgo_gym.measures``, whose name is what ``--reward`` and ``reward=`` take::

    [project.entry-points."mlgo_gym.measures"]
    doubled = "my_package:DoubledText"
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mlgo_gym.base import (
    ModuleError,
    OptionsError,
    UsageError,
    WorkloadError,
    load,
    missing_parts,
    plugins,
)
from mlgo_gym.corpus import Corpus, ModuleKey, Packages
from mlgo_gym.llvm import DEFAULT_TIMEOUT_S, Jobs
from mlgo_gym.problems import InliningForSize, PolicyLike
from mlgo_gym.rollout._linked_text import LinkedText, LinkedTextGc, LinkedTextIcf
from mlgo_gym.rollout._measures import (
    KeptObjectUnit,
    Measure,
    MeasureSetting,
    Result,
    TextSize,
    Unit,
)
from mlgo_gym.rollout._reward_names import GROUP, OWN_NAMES, reward_names

_PART: Final = re.compile(r"\s*(?P<name>[a-z][a-z0-9_-]*)\s*(:\s*(?P<weight>[0-9.]+)\s*)?")
_OWN_KINDS: Final = (TextSize, LinkedText, LinkedTextGc, LinkedTextIcf)
_OWN: Final[Mapping[str, type[Measure]]] = MappingProxyType(
    dict(zip(OWN_NAMES, _OWN_KINDS, strict=True))
)


class Mix(Measure):
    """The weighted geometric mean of several measures, so that none counts more for its unit.

    For small changes the reward is the weighted mean of theirs.

    >>> Mix({TextSize(): 0.5}).keeps_objects
    True
    """

    key: str = "mix"
    title: str = "mix"
    meaning: str = "the weighted geometric mean of several measures"
    unit: type[Unit] = KeptObjectUnit

    def __init__(self, weights: Mapping[Measure, float]) -> None:
        total = sum(weights.values())
        self._weights = {measure: weight / total for measure, weight in weights.items()}
        self.unit = self.unit_of(weights)

    @staticmethod
    def unit_of(measures: Iterable[Measure | type[Measure]]) -> type[Unit]:
        """The one unit that is compiled for several measures.

        Raises:
            OptionsError: they are compiled in several ways.
        """
        units = {measure.unit_in_mix for measure in measures} - {KeptObjectUnit}
        if len(units) > 1:
            names = ", ".join(sorted(each.__name__ for each in units))
            raise OptionsError(f"reward: expected one way to compile for all, found {names}")
        return units.pop() if units else KeptObjectUnit

    def context(self) -> dict[str, str]:
        """The merged context of all measures in the mix; of equal names the first one's."""
        merged: dict[str, str] = {}
        for measure in self._weights:
            merged |= measure.context() | merged
        return merged

    def score(self, result: Result) -> float:
        """The mean, in no unit; 0 where one is 0."""
        scores = {measure: measure.score(result) for measure in self._weights}
        if not all(scores.values()):
            return 0.0
        return math.exp(sum(self._weights[each] * math.log(scores[each]) for each in scores))

    def scores(self, result: Result) -> dict[str, float]:
        """The mean, and each measure's."""
        parts = (measure.scores(result) for measure in self._weights)
        return {self.key: self.score(result), **{k: v for part in parts for k, v in part.items()}}

    def share(self) -> Measure:
        """Add a user of each measure; every user must call `close`."""
        for measure in self._weights:
            measure.share()
        return self

    def close(self) -> None:
        """Close each measure."""
        for measure in self._weights:
            measure.close()


def measure_named(
    text: str,
    corpus: Corpus,
    policy: tuple[InliningForSize, PolicyLike] | None = None,
    *,
    opt_level: str | None = None,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    exports: tuple[str, ...] = ("*",),
) -> Measure:
    """Return the measure of a reward's name, or a mix such as ``text:0.5,instructions:0.5``.

    Args:
        text: a name of `reward_names`, or several, each with a weight.
        corpus: whose workloads run, and whose objects are linked.
        policy: what LLVM asks and what answers it in the other objects of what is linked; ``None``
            is LLVM's own heuristic. Programs that run have that in any case.
        opt_level: clang's level to compile at; ``None`` takes each module's own.
        jobs: how many modules are compiled at once.
        timeout_s: how long LLVM may take for one module, in seconds.
        exports: patterns of the symbols that the linked package exports: all that can be, as a
            shared library does, or ``("main",)`` for a program.

    Raises:
        OptionsError: the text names no measure.
        EnvironmentSetupError: another package's measure cannot be used.
        WorkloadError: the corpus has no workload, or one cannot be used.

    >>> from mlgo_gym import SAMPLE_CORPUS
    >>> measure_named("text", Corpus.load(SAMPLE_CORPUS)).key
    'text_size_bytes'
    """
    setting = MeasureSetting(corpus, policy, opt_level, jobs, timeout_s, exports)
    weights = _weights(text)
    made = {kind.prepare(setting): weights[name] for name, kind in _kinds(weights).items()}
    return Mix(made) if len(made) > 1 else next(iter(made))


def measure_kinds(text: str) -> tuple[type[Measure], ...]:
    """The classes of a reward's measures.

    Raises:
        OptionsError: it is no reward.

    >>> [kind.key for kind in measure_kinds("text:0.5,linked:0.5")]
    ['text_size_bytes', 'linked_text_bytes']
    """
    return tuple(_kinds(_weights(text)).values())


def runs_programs(text: str) -> bool:
    """Whether programs run for a reward.

    Raises:
        OptionsError: it is no reward.

    >>> runs_programs("text:0.5,cost:0.5"), runs_programs("estimate")
    (True, False)
    """
    return any(kind.runs_programs for kind in measure_kinds(text))


def reward_name(text: str) -> str:
    """A reward's name as all spellings of it have it.

    Raises:
        OptionsError: it is no reward.

    >>> reward_name("instructions:0.50, text"), reward_name("cost:2")
    ('text:1.0,instructions:0.5', 'cost')
    """
    weights = _weights(text)
    parts = [f"{name}:{weights[name]}" for name in reward_names() if name in weights]
    return ",".join(parts) if len(parts) > 1 else next(iter(weights))


def _kinds(names: Iterable[str]) -> dict[str, type[Measure]]:
    others = plugins(GROUP, _OWN)
    return {name: _OWN[name] if name in _OWN else load(others[name], _lacks) for name in names}


def _lacks(kind: Any) -> str | None:
    if not isinstance(kind, type) or not issubclass(kind, Measure):
        return f"expected a subclass of mlgo_gym.rollout.Measure, found {kind!r}"
    problem = missing_parts(kind, ("unit", "key", "title", "meaning"))
    return problem and f"{kind.__name__}: {problem}"


def _weights(text: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    names = reward_names()
    for part in text.split(","):
        found = _PART.fullmatch(part)
        try:
            weight = float((found and found["weight"]) or 1)
        except ValueError:
            weight = 0.0
        if not found or found["name"] not in names or found["name"] in weights or not weight > 0:
            raise OptionsError(
                f"reward: expected measures out of {', '.join(names)}, each once, several with a "
                f"weight above 0 as in 'text:0.5,instructions:0.5', found {text!r}"
            )
        weights[found["name"]] = weight
    return weights


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
