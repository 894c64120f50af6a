"""Named policies that decide when to compile, and the best decisions in hindsight.

A policy is a function of a `Replay` that returns what `Replay.decide` takes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Final

import numpy as np

from mlgo_gym.base import OptionsError
from mlgo_gym.lab.tiers._recording import CALL, TIERS, Recording
from mlgo_gym.lab.tiers._replay import Replay

TierPolicy = Callable[[Replay], int]

_AT: Final = re.compile(r"O([123])@(\d{1,18})")
_NAMES: Final = "O0, O1, O2, O3, O2@COUNT, hotspot, v8, ski-rental, random"
_V8_BUDGETS: Final = ((3, 66 << 10), (1, 30 << 10))
_RENTED: Final = 2


def schedule_named(name: str, seed: int = 0) -> TierPolicy:
    """The policy of a name.

    ``O0`` never compiles again; ``O1``, ``O2`` and ``O3`` compile at the first call; ``O2@8192``
    when calls and jumps back together reach a count; ``hotspot`` and ``v8`` have the thresholds of
    those (``compilationPolicy.cpp`` with ``Tier3InvocationThreshold`` and the like of
    ``compiler_globals.hpp``; ``interrupt_budget`` of ``flag-definitions.h``), the first optimising
    compiler being O1 and the second O3; ``ski-rental`` compiles at O2 when a function has taken as
    long as that takes; ``random`` does anything that is allowed, mostly nothing.

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


def _allowed(replay: Replay, tier: int) -> int:
    return tier if replay.is_allowed(tier) else 0


def _at(tier: int, count: int) -> TierPolicy:
    def decide(replay: Replay) -> int:
        function = replay.function
        is_reached = replay.calls[function] + replay.backs[function] >= count
        return _allowed(replay, tier) if is_reached else 0

    return decide


def sometimes(numbers: random.Random, share: float, least: int) -> TierPolicy:
    """Compile in a share of the decisions, at any tier from one on, where that is allowed."""

    def decide(replay: Replay) -> int:
        is_drawn = numbers.random() < share
        return _allowed(replay, numbers.randrange(least, len(TIERS))) if is_drawn else 0

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
    total = recording.library_s
    for function in range(len(recording.functions)):
        own = np.flatnonzero(events[:, 0] == function)
        rows = recording.counts[recording.counts[:, 1] == function]
        places = np.searchsorted(own, rows[:, 0], side="right") - 1
        spans = np.zeros((len(own), len(TIERS)))
        np.add.at(spans, places, rows[:, 2:] * per)
        costs = recording.compile_s[:, function].copy()
        if not waits:
            costs[1:] = 0
        later = np.zeros(len(TIERS))
        for place in range(len(own) - 1, -1, -1):
            stay = spans[place] + later
            if place == 0:
                total += float((stay + costs).min() if waits else costs[0] + stay.min())
                break
            later = stay.copy()
            for tier in range(len(TIERS) - 1):
                if events[own[place], 1] == CALL or tier == 0:
                    later[tier] = min(stay[tier], (costs + stay)[tier + 1 :].min())
    return total
