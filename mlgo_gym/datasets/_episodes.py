"""Episodes: the decisions of one compilation that are scored together, as arrays.

An episode is a module for the inliner, and a function for register allocation. What is not known
is ``""`` where it is a text, and NaN where it is a number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np

from corpus_tools.reading import shaped
from mlgo_gym.base import SpecError, TraceError, parse_json
from mlgo_gym.llvm import Site, read_sites
from mlgo_gym.problems import Layout, Problem
from mlgo_gym.rollout import Attempt, ModuleReport, Trace, measure_of, problem_of

LABELS: Final = ("saved_bytes", "saved_linked_bytes", "sample_weight", "saved_share")
"""The labels that a decision may have; ``float64``, NaN where it has none."""

MAX_EPISODE_BYTES: Final = 1 << 27
"""The most that the observations of an episode may take that is read."""

MAX_ARRAY_BYTES: Final = 1 << 29
"""The most that all arrays of an episode of a set of Minari may take that is read."""

MAX_SETTINGS_LENGTH: Final = 1 << 20
"""The most characters that the settings of an episode may take that are read."""

_Array = np.ndarray[Any, Any]


class SourceKey(NamedTuple):
    """The key of an episode: one policy on one module, which a dataset has once."""

    package: str
    module: str
    module_sha256: str
    policy: str


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of episodes: corpus, module, policy, and `CompilationResult.settings`."""

    package: str = ""
    module: str = ""
    module_sha256: str = ""
    policy: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name, value in self.key._asdict().items():
            _check_text(name, value)

    @property
    def key(self) -> SourceKey:
        """The key that a dataset has once."""
        return SourceKey(self.package, self.module, self.module_sha256, self.policy)

    @property
    def opt_level(self) -> str:
        """The level that the module was compiled at; ``""`` where that is not known."""
        return str(self.settings.get("opt_level") or "")


@dataclass(frozen=True, eq=False)
class Episode:
    """The decisions that are scored together, in order: T of them, at least one.

    Attributes:
        observations: ``[T]``, rows of the layout's dtype.
        actions: ``[T]``, the answers, in the advice's type.
        outcomes: ``float32 [T]``, what the training log has for each decision (0 but for the
            last); ``None`` where it has nothing.
        reward: the share of the baseline's score that was saved, positive is better.
        score: what came out: bytes of code, or LLVM's score of register allocation.
        baseline_score: the same of LLVM's own heuristic.
        labels: ``float64 [T]`` by name, of `LABELS`: the bytes of code that the other answer would
            have saved in the object and in the linked program, how much the decision counts, and
            what share of a reward's baseline would have been saved.
        sites: where each decision is; empty where that is not known.

    Raises:
        SpecError: the arrays do not fit each other or the layout.
    """

    source: Source
    layout: Layout
    observations: _Array = field(repr=False)
    actions: _Array = field(repr=False)
    context: str = ""
    outcomes: _Array | None = field(default=None, repr=False)
    reward: float = math.nan
    score: float = math.nan
    baseline_score: float = math.nan
    labels: Mapping[str, _Array] = field(default_factory=dict, repr=False)
    sites: tuple[Site, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        _check_text("context", self.context)
        if len(self.observations) == 0:
            raise self._error("decisions", "at least 1", 0)
        self._check("observations", self.observations, self.layout.dtype)
        self._check("actions", self.actions, self.layout.advice.dtype)
        if self.outcomes is not None:
            self._check("outcomes", self.outcomes, np.dtype(np.float32))
        if self.sites and len(self.sites) != len(self):
            raise self._error("sites", f"{len(self)}, or none", len(self.sites))
        for name, values in self.labels.items():
            if name not in LABELS:
                raise self._error("labels", f"one of {', '.join(LABELS)}", repr(name))
            self._check(name, values, np.dtype(np.float64))

    def __len__(self) -> int:
        return len(self.observations)

    def label(self, name: str) -> _Array:
        """One of `LABELS`, ``float64 [T]``; NaN where there is none."""
        return self.labels[name] if name in self.labels else np.full(len(self), np.nan)

    def _check(self, name: str, array: _Array, dtype: np.dtype[Any]) -> None:
        expected = (len(self.observations),)
        if array.shape != expected or array.dtype != dtype:
            raise self._error(name, f"{dtype} {expected}", f"{array.dtype} {array.shape}")

    def _error(self, name: str, expected: str, found: object) -> SpecError:
        where = self.context or self.source.module
        return SpecError(f"episode {where!r}: {name}: expected {expected}, found {found}")


def episodes_of_report(
    report: ModuleReport, attempt: Attempt, problem: Problem, source: Source
) -> Iterator[Episode]:
    """The episodes of an attempt of a rollout that kept its decisions; none where it failed."""
    rewards = report.rewards(attempt)
    if not rewards or report.baseline is None or attempt.result is None:
        return
    scores = report.measure.parts(attempt.result)
    baselines = report.measure.parts(report.baseline)
    layout, recorded = attempt.recorded(problem)
    for context, group in groupby(recorded, lambda decision: decision.context):
        decisions = tuple(group)
        outcomes = np.zeros(len(decisions), np.float32)
        outcomes[-1] = rewards[context]
        yield Episode(
            source,
            layout,
            layout.array(each.payload for each in decisions),
            np.frombuffer(b"".join(each.advice for each in decisions), layout.advice.dtype),
            context,
            outcomes=outcomes,
            reward=rewards[context],
            score=scores.get(context, math.nan),
            baseline_score=baselines.get(context, math.nan),
            sites=tuple(each.site for each in decisions if each.site),
        )


def episodes_of_trace(
    trace: Trace,
    *,
    package: str = "",
    policy: str = "trace",
    labels: Mapping[str, _Array] | None = None,
) -> tuple[Source, tuple[Episode, ...]]:
    """One episode of a trace with observations, without a reward; none where it has no decision."""
    problem = problem_of(trace)
    layout = problem.layout
    source = Source(package, trace.module, trace.module_sha256, policy, dict(trace.settings))
    if trace.decisions == 0:
        return source, ()
    if trace.features != layout.specs:
        found = [spec.name for spec in trace.features] or "none: record them with --observations"
        raise TraceError(
            trace.module,
            f"observations: expected the {len(layout.specs)} features of {layout.name}, "
            f"found {found}",
        )
    episode = Episode(
        source,
        layout,
        np.frombuffer(trace.observations, layout.dtype),
        np.frombuffer(trace.advice, layout.advice.dtype),
        score=trace.text_size_bytes if measure_of(problem).makes_objects else math.nan,
        labels=labels or {},
        sites=trace.sites,
    )
    return source, (episode,)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings as JSON of one form: equal settings, equal text."""
    return json.dumps(settings, sort_keys=True, separators=(",", ":"))


def settings_of(text: str) -> dict[str, Any]:
    """Read what `settings_text` has written.

    Raises:
        ValueError: it is something else, or too long.
    """
    if len(text) > MAX_SETTINGS_LENGTH:
        limit = f"expected at most {MAX_SETTINGS_LENGTH} characters"
        raise SpecError(f"settings: {limit}, found {len(text)}")
    settings: dict[str, Any] = shaped(parse_json(text), dict, "settings")
    return settings


def sites_of(texts: Sequence[str]) -> tuple[Site, ...]:
    """Read the sites of an episode, as `mlgo_gym.llvm.read_sites` does."""
    return read_sites(texts, "the sites of an episode")


def _check_text(name: str, value: object) -> None:
    try:
        valid = isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise SpecError(f"episode: {name}: expected text, found {value!r}")
