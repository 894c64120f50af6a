"""Named policies that decide when to compile, and the best decisions in hindsight.

A policy is a function of a `Replay` that returns what `Replay.decide` takes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlgo_gym.base import OptionsError
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
from mlgo_gym.lab.tiers._replay import Replay

TierPolicy = Callable[[Replay], int]

_AT: Final = re.compile(r"O([123])@(\d{1,18})")
_NAMES: Final = "O0, O1, O2, O3, O2@COUNT, hotspot, v8, ski-rental, random"
_V8_BUDGETS: Final = ((3, 66 << 10), (1, 30 << 10))
_RENTED: Final = 2
_MOST_FAILURES: Final = 8


def schedule_named(name: str, seed: int = 0) -> TierPolicy:
    """The policy of a name.

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
    """A recording played to its end under a policy.

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
    """The least seconds that any decisions give, for a program that waits for compilations.

    Functions do not depend on each other there: what each costs between two of its own events is
    a matter of its tier, and dynamic programming over its events finds the least. It adds in
    another order than `Replay` does: the two can differ by a rounding of the last digit.

    Args:
        recording: the program.
        waits: off, compilations but the first at O0 cost nothing and have no delay, which is a
            bound for compiler threads.

    >>> from mlgo_gym.lab.tiers import SAMPLE_RECORDING
    >>> recording = Recording.load(SAMPLE_RECORDING)
    >>> oracle_s(recording, waits=False) < oracle_s(recording)
    True
    """
    per = recording.seconds_per_instruction
    events = recording.events
    entries = dict(
        zip(recording.entries[:, 0].tolist(), range(len(recording.entries)), strict=True)
    )
    special, prunable = (set(each[:, 0].tolist()) for each in (recording.values, recording.kept))
    total = recording.library_s
    for function in range(len(recording.functions)):
        own = np.flatnonzero(events[:, 0] == function)
        rows = recording.counts[recording.counts[:, 1] == function]
        places = np.searchsorted(own, rows[:, 0], side="right") - 1
        spans = np.zeros((len(own), len(VERSIONS)))
        np.add.at(spans, places, rows[:, 2:] * per)
        costs = recording.compile_s[:, function].copy()
        if not waits:
            costs[1:] = 0
        entered = [
            (recording.entries[entries[each], 1] * per + recording.entry_s[entries[each]])
            if waits and each in entries
            else np.inf
            for each in own.tolist()
        ]
        first = costs[: len(TIERS)] if waits else np.full(len(TIERS), costs[0])
        asked = events[own, 1:3].tolist()
        guessed = _guesses(asked, is_special=function in special, is_prunable=function in prunable)
        total += _least(asked, spans, first, costs, entered, guesses=guessed)
    return total


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


def _least(
    asked: Sequence[Sequence[int]],
    spans: NDArray[np.float64],
    first: NDArray[np.float64],
    costs: NDArray[np.float64],
    entered: Sequence[float],
    *,
    guesses: Sequence[tuple[int, ...]],
) -> float:
    """The least seconds of one function, by dynamic programming from its last event to its first.

    Args:
        asked: its events: kind and power.
        spans: seconds between them, by version.
        first: seconds of compiling its first code, by tier.
        costs: seconds of compiling later, by version.
        entered: seconds that entering the loop at an event takes more, besides the code of its
            later calls.
        guesses: versions that guess and can be compiled at each event.
    """
    dropped = len(VERSIONS)
    later = np.zeros(dropped + 1)
    for place in range(len(asked) - 1, -1, -1):
        kind = asked[place][0]
        stay = later + np.append(spans[place], spans[place][0])
        if place == 0:
            return float((stay[:SPECIAL] + first).min())
        begun = costs + stay[:dropped]
        higher = [begun[tier + 1 : SPECIAL].min(initial=np.inf) for tier in range(SPECIAL)]
        later = stay.copy()
        if kind == CALL:
            later[:SPECIAL] = np.minimum(later[:SPECIAL], higher)
            later[dropped] = min(later[dropped], higher[0])
        elif kind == BACK_EDGE:
            later[0] = min(later[0], higher[0], begun[RESTED] + entered[place])
        if kind <= BACK_EDGE:
            later[0] = min(later[0], *(begun[each] for each in guesses[place]), np.inf)
        for version in range(SPECIAL, dropped):
            if kind == CALL or kind - GUARD == version - SPECIAL:
                more = [begun[each] for each in guesses[place] if version < each < PRUNED]
                later[version] = min(later[version], higher[0], stay[dropped], *more)
    return 0.0
