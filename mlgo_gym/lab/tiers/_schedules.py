"""Named policies that decide when to compile, and the best decisions in hindsight.

A policy is a function of a `Replay` that returns what `Replay.decide` takes.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.base import OptionsError, WorkloadError
from mlgo_gym.lab.tiers._recording import (
    BACK_EDGE,
    CACHED,
    CALL,
    DECISIONS,
    ENTER,
    GUARD,
    PROFILED,
    PRUNE,
    PRUNED,
    RESTED,
    SPECIAL,
    SPECIALISE,
    TIERS,
    VERSIONS,
    Recording,
)
from mlgo_gym.lab.tiers._tier_replay import Replay

TierPolicy = Callable[[Replay], int]

_AT: Final = re.compile(r"O([123])@(\d{1,18})")
_NAMES: Final = "O0, O1, O2, O3, O2@COUNT, hotspot, v8, ski-rental, random"
_V8_BUDGETS: Final = ((3, 66 << 10), (1, 30 << 10))
_RENTED: Final = 2
_MOST_FAILURES: Final = 8

_DROPPED: Final = len(VERSIONS)
"""The state of a function behind those that are versions: its code is that of O0 again, and no more
is guessed."""


def schedule_named(name: str, seed: int = 0) -> TierPolicy:
    """Return the policy of a name.

    ``O0`` never compiles again; ``O1``, ``O2`` and ``O3`` compile at the first call; ``O2@8192``
    when calls and jumps back together reach a count; ``hotspot`` and ``v8`` have the thresholds of
    those (``compilationPolicy.cpp`` with ``Tier3InvocationThreshold`` and the like of
    ``compiler_globals.hpp``; ``interrupt_budget`` of ``flag-definitions.h``), the first optimising
    compiler being O1 and the second O3; ``ski-rental`` compiles at O2 when a function has taken as
    long as that takes; ``random`` does anything that is allowed, mostly nothing.

    Behind a name, ``+enter`` goes on in the loop's new code where the policy compiles at a jump
    back; ``+specialise`` and ``+prune`` compile such code instead where that is allowed, and
    code at O2 once its guesses were wrong 8 times; ``+trust`` specialises and never generalises.

    Args:
        name: as above.
        seed: of ``random``.

    Raises:
        OptionsError: there is none.

    >>> from mlgo_gym.lab.tiers import SAMPLE_RECORDING, played
    >>> recording = Recording.load(SAMPLE_RECORDING)
    >>> best = oracle_s(recording)
    >>> played(recording, schedule_named("ski-rental")).total_s >= best
    True
    """
    base, *ways = name.split("+")
    policy = _base(base, seed)
    if unknown := [each for each in ways if each not in _WAYS]:
        raise OptionsError(f"policy: expected +{', +'.join(_WAYS)}, found {unknown[0]!r}")
    for way in ways:
        policy = _WAYS[way](policy)
    return policy


def _base(name: str, seed: int) -> TierPolicy:
    if name in TIERS:
        tier = TIERS.index(name)
        return lambda replay: tier if replay.tier[replay.function] < 0 else 0
    if match := _AT.fullmatch(name):
        return _at(int(match[1]), int(match[2]))
    if name == "random":
        return sometimes(random.Random(seed), 0.2, 0)  # noqa: S311 - not for secrets
    known = {"hotspot": _hotspot, "v8": _v8, "ski-rental": _ski_rental}
    if name not in known:
        raise OptionsError(f"policy: expected one of {_NAMES}, found {name!r}")
    return known[name]


def _entering(policy: TierPolicy) -> TierPolicy:
    def decide(replay: Replay) -> int:
        decision = policy(replay)
        return ENTER if 0 < decision < ENTER and replay.is_allowed(ENTER) else decision

    return decide


def _guessing(guess: int, *, trusts: bool) -> Callable[[TierPolicy], TierPolicy]:
    """Guess where a policy compiles; and no longer, once that was wrong too often."""

    def way(policy: TierPolicy) -> TierPolicy:
        def decide(replay: Replay) -> int:
            function = replay.function
            if replay.kind >= GUARD:
                is_wrong = not trusts and replay.failures[function] >= _MOST_FAILURES
                return _allowed(replay, RESTED) if is_wrong else 0
            if replay.tier[function] >= SPECIAL:
                return 0
            decision = policy(replay)
            return guess if 0 < decision < ENTER and replay.is_allowed(guess) else decision

        return decide

    return way


_WAYS: Final = {
    "enter": _entering,
    "specialise": _guessing(SPECIALISE, trusts=False),
    "prune": _guessing(PRUNE, trusts=False),
    "trust": _guessing(SPECIALISE, trusts=True),
}


def played(
    recording: Recording, policy: TierPolicy, threads: int = 0, *, replay: Replay | None = None
) -> Replay:
    """Play a recording to its end under a policy.

    Args:
        recording: what is played.
        policy: who decides.
        threads: the number of compiler threads.
        replay: one of this recording and number of threads, to be used again.

    >>> from mlgo_gym.lab.tiers import SAMPLE_RECORDING
    >>> recording = Recording.load(SAMPLE_RECORDING)
    >>> played(recording, lambda replay: 0).instructions == recording.totals()[0]
    True
    """
    replay = replay or Replay(recording, threads)
    replay.reset()
    while not replay.is_over:
        replay.decide(policy(replay))
    return replay


def _allowed(replay: Replay, decision: int) -> int:
    return decision if replay.is_allowed(decision) else 0


def _at(tier: int, count: int) -> TierPolicy:
    def decide(replay: Replay) -> int:
        function = replay.function
        is_reached = replay.calls[function] + replay.backs[function] >= count
        return _allowed(replay, tier) if is_reached else 0

    return decide


def sometimes(numbers: random.Random, share: float, least: int) -> TierPolicy:
    """Do anything from a decision on in a share of the events, where that is allowed."""

    def decide(replay: Replay) -> int:
        is_drawn = numbers.random() < share
        return _allowed(replay, numbers.randrange(least, len(DECISIONS))) if is_drawn else 0

    return decide


def _hotspot(replay: Replay) -> int:
    """``CallPredicate::apply_scaled``: enough calls, or some calls and enough of both."""
    calls = replay.calls[replay.function]
    both = calls + replay.backs[replay.function]
    if calls >= 5000 or (calls >= 600 and both >= 15000):
        return _allowed(replay, 3)
    if calls >= 200 or (calls >= 100 and both >= 2000):
        return _allowed(replay, 1)
    return 0


def _v8(replay: Replay) -> int:
    """A budget of bytes of code, used up by calls and jumps back; one instruction counts as one."""
    function = replay.function
    used = replay.calls[function] + replay.backs[function]
    used *= replay.sizes[function]
    return next((_allowed(replay, tier) for tier, budget in _V8_BUDGETS if used >= budget), 0)


def _ski_rental(replay: Replay) -> int:
    """Buy when renting has cost as much: Karlin and others, Competitive Snoopy Caching, 1988."""
    is_due = replay.spent_s[replay.function] >= replay.cost_s(_RENTED)
    return _allowed(replay, _RENTED) if is_due else 0


def oracle_s(recording: Recording, *, waits: bool = True) -> float:
    """Return the least seconds that any decisions take, if the program waits for compilations.

    Functions do not depend on each other there: what each costs between two of its own events is
    a matter of its tier, and dynamic programming over its events finds the least. It adds in
    another order than `Replay` does: the two can differ by a rounding of the last digit.

    Args:
        recording: the program.
        waits: off, compilations but the first at O0 cost nothing and have no delay, which is a
            bound for compiler threads.

    Raises:
        WorkloadError: the program takes no time, so nothing can be compared with it.

    >>> from mlgo_gym.lab.tiers import SAMPLE_RECORDING
    >>> recording = Recording.load(SAMPLE_RECORDING)
    >>> oracle_s(recording, waits=False) < oracle_s(recording)
    True
    """
    gains_s = recording.entries[:, 1] * recording.seconds_per_instruction + recording.entry_s
    entering = dict(zip(recording.entries[:, 0].tolist(), gains_s.tolist(), strict=True))
    total = recording.library_s
    for function, moments in enumerate(_moments(recording, entering if waits else {})):
        costs: list[float] = recording.compile_s[:, function].tolist()
        first = costs[:SPECIAL]
        if not waits:
            first, costs = [costs[0]] * SPECIAL, [0.0] * len(costs)
        total += _least(moments, first, [*costs, 0.0])
    if total <= 0:
        found = f"recording of {recording.name!r}: expected a program that takes time, found one"
        raise WorkloadError(f"{found} of {total:g} s")
    return total


class _Moment(NamedTuple):
    """An event of a function, and what comes until its next one.

    Attributes:
        kind: the event's.
        spans_s: seconds until the next one, by state.
        guesses: the versions that guess and can be compiled, from O0.
        entering_s: seconds that entering the loop takes more, besides the code of later calls.
    """

    kind: int
    spans_s: Sequence[float]
    guesses: tuple[int, ...]
    entering_s: float


def _moments(recording: Recording, entering: Mapping[int, float]) -> Iterator[list[_Moment]]:
    """The events of each function, in their order.

    Args:
        recording: the program.
        entering: `_Moment.entering_s` by event, where a loop can be entered.
    """
    functions = len(recording.functions)
    special = frozenset(recording.values[:, 0].tolist())
    prunable = frozenset(recording.kept[:, 0].tolist())
    places_of = _by_function(recording.events[:, 0], functions)
    rows_of = _by_function(recording.counts[:, 1], functions)
    for function, (own, found) in enumerate(zip(places_of, rows_of, strict=True)):
        rows = recording.counts[found]
        places = np.searchsorted(own, rows[:, 0], side="right") - 1
        spans = np.zeros((len(own), len(VERSIONS)))
        np.add.at(spans, places, rows[:, 2:] * recording.seconds_per_instruction)
        asked = recording.events[own, 1:3].tolist()
        guesses = _guesses(asked, is_special=function in special, is_prunable=function in prunable)
        yield [
            _Moment(kind, [*span, span[0]], guessed, entering.get(event, math.inf))
            for event, (kind, _), span, guessed in zip(
                own.tolist(), asked, spans.tolist(), guesses, strict=True
            )
        ]


def _by_function(numbers: NDArray[np.int64], functions: int) -> list[NDArray[np.intp]]:
    """The places of each function's number in an array, in their order."""
    ends = np.cumsum(np.bincount(numbers, minlength=functions))
    return np.split(np.argsort(numbers, kind="stable"), ends[:-1])


def _guesses(
    asked: Sequence[Sequence[int]], *, is_special: bool, is_prunable: bool
) -> list[tuple[int, ...]]:
    """The versions that guess and can be compiled at each of a function's events, from O0."""
    values = calls = 0
    found: list[tuple[int, ...]] = []
    for kind, power in asked:
        if kind == CALL:
            calls = 1 << power
        elif kind == GUARD + PRUNED - SPECIAL:
            is_prunable = False
        elif kind >= GUARD and not power:
            values += 1
        own = (SPECIAL + values,) if is_special and values < len(CACHED) else ()
        found.append((*own, *((PRUNED,) if is_prunable and calls >= 1 << PROFILED else ())))
    return found


@cache
def _transitions(kind: int, guesses: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The changes of a function's state that are allowed at an event, as pairs from and to.

    States are versions and `_DROPPED`. Tiers only go up. Code that guesses can be compiled at a
    tier, dropped, or replaced by code for more values.
    """
    higher = range(1, SPECIAL)
    found: list[tuple[int, int]] = []
    if kind == CALL:
        found += combinations(range(SPECIAL), 2)
        found += product([_DROPPED], higher)
    elif kind == BACK_EDGE:
        found += product([0], higher)
    if kind <= BACK_EDGE:
        found += product([0], guesses)
    for version in range(SPECIAL, _DROPPED):
        if kind in {CALL, GUARD + version - SPECIAL}:
            more = [each for each in guesses if version < each < PRUNED]
            found += product([version], [*higher, _DROPPED, *more])
    return tuple(found)


def _least(moments: Sequence[_Moment], first: Sequence[float], costs: Sequence[float]) -> float:
    """The least seconds of one function, by dynamic programming from its last event to its first.

    Args:
        moments: its events, the first call before the others.
        first: seconds of compiling its first code, by tier.
        costs: seconds of getting into a state later.
    """
    later = [0.0] * len(costs)  # the least seconds from an event on, by state before it
    for moment in reversed(moments[1:]):
        stay = [span + rest for span, rest in zip(moment.spans_s, later, strict=True)]
        begun = [cost + stayed for cost, stayed in zip(costs, stay, strict=True)]
        later = stay.copy()
        for old, new in _transitions(moment.kind, moment.guesses):
            later[old] = min(later[old], begun[new])
        if moment.kind == BACK_EDGE:
            later[0] = min(later[0], begun[RESTED] + moment.entering_s)
    spans = zip(first, moments[0].spans_s, later, strict=False)  # the first code is of a tier
    return min(cost + (span + rest) for cost, span, rest in spans)
