"""A recording played again under other decisions: what is compiled when, and at which tier."""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np

from mlgo_gym.base import OptionsError
from mlgo_gym.lab.tiers._recording import CALL, TIERS, Recording

MOST_THREADS: Final = 4


class Replay:
    """A run of a recorded program, which stops at each event that is a decision.

    A decision is an event of `function`: its calls, or its jumps back while it is at O0, have
    reached a power of two. `decide` answers it, and goes on to the next.

    Without compiler threads the program waits for each compilation. With them, a request goes to
    a queue, first come first served, and a function's next interval after its end uses the new
    code; a function's first code, at O0, is always waited for.

    Args:
        recording: what is played.
        threads: the number of compiler threads, 0 to 4.

    Attributes:
        recording: what is played.
        sizes: of functions, in instructions of LLVM's IR.
        costs: seconds that compiling takes, of each function by tier.
        last_s: `now_s` when an environment last observed each function.
        is_over: whether the program has ended.
        event: the number of the event that is asked about; that of events, at the end.
        function: whose event it is.
        kind: `CALL` or `BACK_EDGE`.
        power: its count is two to this.
        tier: the tier of each function's code, -1 before its first call.
        wanted: the tier that each function will have once its compilation ends.
        calls: each function's calls that events have told of.
        backs: its jumps back, likewise.
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
        self._rows: list[list[tuple[int, list[int]]]] = [[] for _ in range(count)]
        for interval, function, *tiers in recording.counts.tolist():
            self._rows[interval].append((function, tiers))
        totals = np.zeros((functions, len(TIERS)))
        np.add.at(totals, recording.counts[:, 1], recording.counts[:, 2:])
        per = recording.seconds_per_instruction
        speed = totals / np.maximum(totals[:, :1], 1) * per
        self._seen: list[list[tuple[int, list[float]]]] = [[] for _ in range(count)]
        for interval, function, spent in recording.spent.tolist():
            self._seen[interval].append((function, (spent * speed[function]).tolist()))
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

    def cost_s(self, tier: int) -> float:
        """The seconds that compiling the function takes at a tier."""
        return self.costs[self.function][tier]

    def is_allowed(self, tier: int) -> bool:
        """Tell whether the function can be compiled at a tier now: tiers only go up, 0 goes on."""
        return tier == 0 or tier > max(self.tier[self.function], self.wanted[self.function])

    def decide(self, tier: int) -> None:
        """Compile the function at a tier, or go on (0); and play on to the next decision.

        A function that is called for the first time is compiled at O0 where nothing else is said.

        Raises:
            OptionsError: the tier is not allowed now, or the program has ended.
        """
        if self.is_over or not (0 <= tier < len(TIERS) and self.is_allowed(tier)):
            highest = len(TIERS) - 1
            expected = f"0, or a tier above the function's up to {highest}"
            found = "a program that has ended" if self.is_over else repr(tier)
            raise OptionsError(f"decision: expected {expected}, found {found}")
        function = self.function
        if self.tier[function] < 0 and (self.threads or not tier):
            self._wait_for(function, 0)
        if tier and self.threads:
            self._ask_for(function, tier)
        elif tier:
            self._wait_for(function, tier)
        self._play()

    def _wait_for(self, function: int, tier: int) -> None:
        cost = self.costs[function][tier]
        self.compiling_s += cost
        self.compiled_s += cost
        self.now_s += cost
        self.tier[function] = self.wanted[function] = tier

    def _ask_for(self, function: int, tier: int) -> None:
        start = max(heapq.heappop(self._free), self.now_s)
        end = start + self.costs[function][tier]
        heapq.heappush(self._free, end)
        heapq.heappush(self._running, (end, function, tier))
        self.compiled_s += end - start
        self.wanted[function] = tier

    def _play(self) -> None:
        """Play intervals until the next event that is a decision."""
        tier = self.tier
        while True:
            if self._running:
                self._finish()
            for function, counts in self._rows[self.event]:
                self.instructions += counts[tier[function]]
            for function, seconds in self._seen[self.event]:
                spent = seconds[tier[function]]
                self.spent_s[function] += spent
                self.now_s += spent
            self.event += 1
            if self.event == self._count:
                self.is_over = True
                return
            function, kind, _ = self._events[self.event]
            if kind == CALL or tier[function] == 0:
                break
        if self._running:
            self._finish()
        self._look()

    def _finish(self) -> None:
        while self._running and self._running[0][0] <= self.now_s:
            _, function, tier = heapq.heappop(self._running)
            self.tier[function] = max(tier, self.tier[function])

    def _look(self) -> None:
        self.function, self.kind, self.power = self._events[self.event]
        counts = self.calls if self.kind == CALL else self.backs
        counts[self.function] = 1 << self.power
