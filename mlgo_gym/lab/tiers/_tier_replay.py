"""A recording played again under other decisions: what is compiled when, and at which tier."""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np

from mlgo_gym.base import OptionsError
from mlgo_gym.lab.tiers._recording import (
    BACK_EDGE,
    CACHED,
    CALL,
    DROP,
    ENTER,
    GUARD,
    PROFILED,
    PRUNE,
    PRUNED,
    RESTED,
    SPECIAL,
    SPECIALISE,
    VERSIONS,
    Recording,
)

MOST_THREADS: Final = 4
_ORDER: Final = (0, *(each + PRUNED for each in range(1, SPECIAL)), *range(SPECIAL, PRUNED + 1))
"""By version: a compilation that ends late does not replace one that was asked for later."""

_KNOWING: Final = {
    0: 0,
    **{count: SPECIAL + place for place, count in enumerate(CACHED)},
    CACHED[-1] + 1: 0,
}
"""The versions that know as many values; 0 where there is none."""
_MORE: Final = (*CACHED[1:], CACHED[-1] + 1)
"""How many values there are once those that a version knows are not all."""


class Replay:
    """A run of a recorded program, which stops at each event that is a decision.

    A decision is an event of `function`: its calls, its jumps back while it was never compiled
    above O0, or the wrong guesses of its specialised or pruned code, have reached a power of two.
    `decide` answers it, and goes on to the next.

    A function is specialised on the values that an argument has had until then, and only from O0;
    code for fewer values can be replaced by code for more. It is pruned, once its profile is
    complete, to the blocks that it has reached, and only while it has reached no other. Once such
    code is dropped, or the function compiled at a tier, no more is guessed.

    Without compiler threads the program waits for each compilation. With them, a request goes to
    a queue, first come first served, and a function's next interval after its end uses the new
    code; a function's first code, at O0, is always waited for, and no loop can be entered.

    Args:
        recording: what is played.
        threads: the number of compiler threads, 0 to 4.

    Attributes:
        recording: what is played.
        sizes: of functions, in instructions of LLVM's IR.
        costs: seconds that compiling takes, of each function by version.
        last_s: `now_s` when an environment last observed each function.
        is_over: whether the program has ended.
        event: the number of the event that is asked about; that of events, at the end.
        function: whose event it is.
        kind: `CALL`, `BACK_EDGE`, or from `GUARD` on.
        power: its count is two to this.
        tier: the version of each function's code (a tier, or specialised from `SPECIAL` on), -1
            before its first call.
        wanted: the version that each function will have once its compilation ends.
        calls: each function's calls that events have told of.
        backs: its jumps back, likewise.
        failures: wrong guesses of its present code, likewise.
        values: how many values an argument has had, for those that can be specialised: 1, 2, 4,
            or 5 for more; 0 for others.
        spent_s: seconds that each function has executed so far, about: what a profiler that looks
            at the program sees, in the proportions of O0.
        now_s: seconds since the program's start, by the same clock.
        compiling_s: seconds that the program waited for compilations.
        compiled_s: seconds of all compilations, in the program's thread and in others.
        instructions: that the program executes, exact at the end.

    Raises:
        OptionsError: the number of threads cannot be.

    >>> from mlgo_gym.lab.tiers import SAMPLE_RECORDING
    >>> replay = Replay(Recording.load(SAMPLE_RECORDING))
    >>> while not replay.is_over:
    ...     replay.decide(0)
    >>> replay.instructions == replay.recording.totals()[0]
    True
    """

    def __init__(self, recording: Recording, threads: int = 0) -> None:
        if type(threads) is not int or not 0 <= threads <= MOST_THREADS:
            raise OptionsError(f"threads: expected 0 to {MOST_THREADS}, found {threads!r}")
        self.recording: Final = recording
        self.threads: Final = threads
        self._events: Final[list[list[int]]] = recording.events[:, :3].tolist()
        self.sizes: Final[list[int]] = recording.sizes.tolist()
        self.costs: Final[list[list[float]]] = recording.compile_s.T.tolist()
        self._count: Final = len(self._events)
        count, functions = self._count, len(recording.functions)
        rows: list[list[tuple[int, list[int]]]] = [[] for _ in range(count)]
        for interval, function, *tiers in recording.counts.tolist():
            rows[interval].append((function, tiers))
        totals = np.zeros((functions, len(VERSIONS)))
        np.add.at(totals, recording.counts[:, 1], recording.counts[:, 2:])
        per = recording.seconds_per_instruction
        speed = totals / np.maximum(totals[:, :1], 1) * per
        seen: list[list[tuple[int, list[float]]]] = [[] for _ in range(count)]
        for interval, function, spent in recording.spent.tolist():
            seen[interval].append((function, (spent * speed[function]).tolist()))
        self._spans = [*zip(rows, seen, strict=True)]
        entries = zip(recording.entries.tolist(), recording.entry_s.tolist(), strict=True)
        self._entries: Final[dict[int, tuple[int, float]]] = {
            event: (gain, seconds) for (event, gain), seconds in entries
        }
        self._special = frozenset(recording.values[:, 0].tolist())
        self._prunable = frozenset(recording.kept[:, 0].tolist())
        self.reset()

    def reset(self) -> None:
        """Begin again, at the first event."""
        functions = len(self.recording.functions)
        self.event = 0
        self.is_over = False
        self.tier = [-1] * functions
        self.wanted = [-1] * functions
        self.calls = [0] * functions
        self.backs = [0] * functions
        self.failures = [0] * functions
        self.values = [int(each in self._special) for each in range(functions)]
        self._counts = [True] * functions
        self._guessed = [False] * functions
        self._reached_late = [False] * functions
        self.spent_s = [0.0] * functions
        self.last_s = [0.0] * functions
        self.now_s = self.compiling_s = self.compiled_s = 0.0
        self.instructions = 0
        self._free = [0.0] * self.threads
        self._running: list[tuple[float, int, int]] = []
        self._look()

    @property
    def total_s(self) -> float:
        """Seconds of the program, waiting for compilations included; exact at the end."""
        recording = self.recording  # its libraries take the same time at any tier
        program_s = self.instructions * recording.seconds_per_instruction + recording.library_s
        return program_s + self.compiling_s

    @property
    def queue(self) -> int:
        """The number of compilations that are under way or wait."""
        return len(self._running)

    def cost_s(self, decision: int) -> float:
        """The seconds of compiling that a decision takes; 0 where it is not allowed.

        >>> from mlgo_gym.lab.tiers import SAMPLE_RECORDING
        >>> replay = Replay(Recording.load(SAMPLE_RECORDING))
        >>> replay.cost_s(1) < replay.cost_s(2), replay.cost_s(ENTER)
        (True, 0.0)
        """
        costs = self.costs[self.function]
        if decision < ENTER:
            return costs[decision]
        if decision == DROP or not self.is_allowed(decision):
            return 0.0
        if decision == ENTER:
            return costs[RESTED] + self._entries[self.event][1]
        return costs[self._cached() if decision == SPECIALISE else PRUNED]

    def is_allowed(self, decision: int) -> bool:
        """Tell whether a decision is allowed now, as `DECISIONS` has them by number.

        Tiers only go up. A loop is entered at a jump back of code at O0.
        """
        function = self.function
        tier, wanted = self.tier[function], self.wanted[function]
        if decision < ENTER:
            is_higher = tier == wanted if wanted >= SPECIAL else decision > max(tier, wanted)
            return decision == 0 or (decision > 0 and is_higher)
        if decision == DROP or tier != wanted or tier < 0:
            return decision == DROP and tier == wanted >= SPECIAL
        if decision == ENTER:
            return not (self.threads or tier) and self.event in self._entries
        if self._guessed[function] or 0 < tier < SPECIAL or tier == PRUNED:
            return False
        return self._cached() > tier if decision == SPECIALISE else self._is_profiled()

    def _is_profiled(self) -> bool:
        """Whether the function has a profile that it can be pruned by, and kept to it since."""
        function = self.function
        is_like_it = function in self._prunable and not self._reached_late[function]
        return is_like_it and self.tier[function] == 0 and self.calls[function] >= 1 << PROFILED

    def _cached(self) -> int:
        """The version for the values that there have been; 0 where there is none."""
        return _KNOWING[self.values[self.function]]

    def decide(self, decision: int) -> None:
        """Answer the event, as `DECISIONS` has it by number; and play on to the next.

        A function that is called for the first time is compiled at O0 where nothing else is said.

        Raises:
            OptionsError: the decision is not allowed now, or the program has ended.
        """
        if self.is_over or (decision and not self._can_be(decision)):
            allowed = [str(each) for each in range(DROP + 1) if self.is_allowed(each)]
            expected = f"one that is allowed now: {', '.join(allowed)}"
            found = "a program that has ended" if self.is_over else repr(decision)
            raise OptionsError(f"decision: expected {expected}, found {found}")
        function = self.function
        if self.tier[function] < 0 and (self.threads or not decision):
            self._wait_for(function, 0)
        if decision == DROP:
            self.tier[function] = self.wanted[function] = 0
            self._guessed[function], self._counts[function] = True, False
        elif decision:
            special = {ENTER: RESTED, SPECIALISE: self._cached(), PRUNE: PRUNED}
            version = special.get(decision, decision)
            self._guessed[function] |= version < SPECIAL
            self.failures[function] = 0
            if decision == ENTER:
                gain, seconds = self._entries[self.event]
                self.instructions += gain
                self._wait(seconds)
            if self.threads:
                self._ask_for(function, version)
            else:
                self._wait_for(function, version)
        self._play()

    def _can_be(self, decision: int) -> bool:
        return 0 < decision <= DROP and self.is_allowed(decision)

    def _wait(self, seconds: float) -> None:
        self.compiling_s += seconds
        self.compiled_s += seconds
        self.now_s += seconds

    def _wait_for(self, function: int, version: int) -> None:
        self._wait(self.costs[function][version])
        self.tier[function] = self.wanted[function] = version

    def _ask_for(self, function: int, tier: int) -> None:
        start = max(heapq.heappop(self._free), self.now_s)
        end = start + self.costs[function][tier]
        heapq.heappush(self._free, end)
        heapq.heappush(self._running, (end, function, tier))
        self.compiled_s += end - start
        self.wanted[function] = tier

    def _play(self) -> None:
        """Play intervals until the next event that is a decision."""
        tier, spent_s, event = self.tier, self.spent_s, self.event
        now_s, instructions = self.now_s, self.instructions
        while True:
            if self._running:
                self.now_s = now_s
                self._finish()
            rows, seen = self._spans[event]
            for function, counts in rows:
                instructions += counts[tier[function]]
            for function, seconds in seen:
                spent = seconds[tier[function]]
                spent_s[function] += spent
                now_s += spent
            event += 1
            if event == self._count:
                break
            function, kind, power = self._events[event]
            if kind == CALL or (
                kind == BACK_EDGE and tier[function] == 0 and self._counts[function]
            ):
                break
            if kind >= GUARD and self._is_caught(function, kind - GUARD, power):
                break
        self.event, self.now_s, self.instructions = event, now_s, instructions
        self.is_over = event == self._count
        if self.is_over:
            return
        if self._running:
            self._finish()
        self._look()

    def _is_caught(self, function: int, guess: int, power: int) -> bool:
        """Note that a version would have guessed wrong, and tell whether it is there to do so."""
        if not power and guess == PRUNED - SPECIAL:
            self._reached_late[function] = True
        elif not power:  # there are more values than it knows
            self.values[function] = _MORE[guess]
        return self.tier[function] == SPECIAL + guess

    def _finish(self) -> None:
        while self._running and self._running[0][0] <= self.now_s:
            _, function, version = heapq.heappop(self._running)
            self.tier[function] = max(version, self.tier[function], key=_ORDER.__getitem__)

    def _look(self) -> None:
        self.function, self.kind, self.power = self._events[self.event]
        counts = self.failures
        if self.kind <= BACK_EDGE:
            counts = self.calls if self.kind == CALL else self.backs
        counts[self.function] = 1 << self.power
