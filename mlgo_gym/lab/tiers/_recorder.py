"""Recording a program: it is split, and run under a JIT once for each number that is asked."""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from mlgo_gym.base import WorkloadError
from mlgo_gym.corpus import Corpus
from mlgo_gym.lab.programs import check_machine
from mlgo_gym.lab.tiers._jit_program import JitProgram
from mlgo_gym.lab.tiers._recording import (
    BACK_EDGE,
    CACHED,
    CALL,
    ENTER,
    ENTERED,
    GUARD,
    MOST_EVENTS,
    PROFILED,
    PRUNED,
    RESTED,
    RESTS,
    SPECIAL,
    TABLES,
    TIERS,
    VERSIONS,
    Event,
    Recording,
)
from mlgo_gym.lab.tiers._schedules import TierPolicy, schedule_named, sometimes
from mlgo_gym.lab.tiers._tier_replay import Replay
from mlgo_gym.llvm import embedded_version

_REPEATS: Final = 2
_LEAST_ENTERED: Final = 10
"""The power of two of the jumps back from which on loops are entered."""
_LEAST_SPECIALISED: Final = 64
"""Calls of a function that can be specialised."""
_MOST_OTHERS: Final = 10
"""One in so many of its calls may have another value than the first ones."""

RANDOM_SHARE: Final = 0.1


def record_program(
    corpus: Corpus,
    workload: str,
    *,
    rounds: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> Recording:
    """Record a program: its events, its instructions at each tier, and what compiling costs.

    It runs some 20 to 40 times: for its events and values, to count in each version, to enter its
    loops at each power of two, and to be timed twice at each tier.

    Args:
        corpus: whose modules it is linked of.
        workload: the name of the one that says how it is run.
        rounds: how often ``main`` is called, one call after the other, as longer inputs do.
        progress: called with what is done next.

    Raises:
        WorkloadError: the workload cannot be used, the program cannot be split, it does something
            else than it must, or its calls are not the same in each run.
        ToolchainError: there is no clang.
        OptionsError: this machine's code is not that of x86-64.

    >>> from mlgo_gym.corpus import SAMPLE_CORPUS
    >>> record_program(Corpus.load(SAMPLE_CORPUS), "json").name
    'sample/json'
    """
    check_machine("tiers")
    progress("splitting it into functions")
    with JitProgram(corpus, workload, rounds) as program:
        seen = _observed(program, progress)
        tables, gains = _counted(program, seen, progress)
        seconds, costs = _timed(program, seen, progress)
        per, library = _fitted([sum(each.values()) for each in tables[: len(TIERS)]], seconds)
        called = sorted({event.function for event in seen.events})
        units = program.units["functions"]
        return Recording(
            program=program.name,
            rounds=rounds,
            stdout_sha256=program.stdout_sha256 or program.workload.stdout_sha256,
            llvm=embedded_version(),
            program_sha256=program.sha256,
            functions=tuple(program.functions[each] for each in called),
            sizes=np.array([units[each]["instructions"] for each in called], np.int64),
            **_arrays(program, seen, called, tables=tables, gains=gains),
            compile_s=np.array(
                [[costs.get((f, each), 0.0) for f in called] for each in range(len(VERSIONS))]
            ),
            entry_s=np.array([costs[each.function, RESTS + each.loop] for each in seen.entries]),
            seconds_per_instruction=per,
            library_s=library,
        )


def known(values: Sequence[int], count: int) -> list[int]:
    """The values that specialised code knows, of those that a recording has.

    Args:
        values: as they have appeared, and zeros behind them.
        count: how many there are; one more than the most stands for more.
    """
    return list(values[: min(count, CACHED[-1])])


class _Entry(NamedTuple):
    """An event at which a loop is entered: its number, and what it is about."""

    event: int
    function: int
    power: int
    loop: int


class _Argument(NamedTuple):
    """An argument that a function can be specialised on.

    Attributes:
        function: its number.
        place: the argument's.
        distinct: how many values it has; one more than are kept stands for more.
        values: the first of them, and zeros behind them.
    """

    function: int
    place: int
    distinct: int
    values: list[int]


class _Observed(NamedTuple):
    """The findings of runs at O0.

    Attributes:
        events: those of functions, and of the guards of code that guesses.
        places: where the events of functions are among all.
        calls: how many the program makes.
        spent: interval, function and instructions; intervals are those of functions' events alone,
            and count from 1.
        arguments: those of functions that can be specialised.
        entries: the events at which loops are entered.
    """

    events: list[Event]
    places: list[int]
    calls: int
    spent: list[tuple[int, int, int]]
    arguments: list[_Argument]
    entries: list[_Entry]


def _observed(program: JitProgram, progress: Callable[[str], None]) -> _Observed:
    """Find a program's events, and set what can be specialised and pruned in it."""
    progress("looking for events")
    found = program.events()
    progress("watching values and blocks")
    watched = program.watched()
    arguments = _specialisable(found["events"], watched["values"])
    program.special = [(f, place, known(values, count)) for f, place, count, values in arguments]
    program.kept = watched["kept"]
    progress("looking for blocks that are reached late")
    guards = [*_failures(arguments, watched["later"]), *_reached_late(program)]
    events, places = _merged(found["events"], guards)
    if len(events) > MOST_EVENTS:
        raise WorkloadError(
            f"{program.name}: expected at most {MOST_EVENTS} events, found {len(events)}"
        )
    entries = [
        _Entry(i, each.function, each.power, each.loop)
        for i, each in enumerate(events)
        if each.kind == BACK_EDGE and each.loop >= 0 and each.power >= _LEAST_ENTERED
    ]
    return _Observed(events, places, found["calls"], found["spent"], arguments, entries)


def _specialisable(events: Sequence[Event], watched: Sequence[tuple[int, ...]]) -> list[_Argument]:
    """Functions that are called often, and the argument of each that has the fewest values.

    Args:
        events: those of functions.
        watched: function, place and number of values of each argument, the first of these, and for
            each of `CACHED` how many calls have a value that is not among as many first ones.
    """
    calls = {each.function: 1 << each.power for each in events if each.kind == CALL}
    found: dict[int, _Argument] = {}
    room = CACHED[-1]
    for function, place, count, *words in watched:
        others = words[room + CACHED.index(room)]
        many = calls.get(function, 0)
        if many < _LEAST_SPECIALISED or others * _MOST_OTHERS > many:
            continue
        own = count + (others > 0)
        if function not in found or own < found[function].distinct:
            found[function] = _Argument(function, place, own, words[:room])
    return [found[function] for function in sorted(found)]


def _failures(
    arguments: Sequence[_Argument], later: Sequence[tuple[int, int, int, int, int]]
) -> Iterator[Event]:
    """Events of the guards of specialised code.

    Args:
        arguments: what is specialised on.
        later: function and place of an argument, the place in `CACHED`, how many calls have had
            a value that is not among as many first ones, and the last of these calls.
    """
    places = {each.function: each.place for each in arguments}
    for function, place, cached, many, call in sorted(later, key=lambda each: each[0]):
        if places.get(function) == place:
            yield Event(function, GUARD + cached, many.bit_length() - 1, call)


def _reached_late(program: JitProgram) -> list[Event]:
    """Events of the guards of pruned code, in a run where all such functions have it at once."""
    if not program.kept:
        return []
    functions = sorted({function for function, _ in program.kept})
    plan = [[[function, CALL, PROFILED], PRUNED] for function in functions]
    events: list[Event] = program.executed(plan=plan)["events"]
    return [each for each in events if each.kind == GUARD + PRUNED - SPECIAL]


def _merged(events: Sequence[Event], guards: Sequence[Event]) -> tuple[list[Event], list[int]]:
    """Events with those of guards, and the places that the former have among them.

    A guard fails in its call: behind the event of the call, and before jumps back in it.
    """
    order = {CALL: 0, BACK_EDGE: 2}
    given = [*events, *guards]
    by_place = sorted(range(len(given)), key=lambda i: (given[i].call, order.get(given[i].kind, 1)))
    places = {i: place for place, i in enumerate(by_place)}
    return [given[i] for i in by_place], [places[i] for i in range(len(events))]


_Table = Mapping[tuple[int, int], int]
"""Instructions by interval and function."""


def _counted(
    program: JitProgram, seen: _Observed, progress: Callable[[str], None]
) -> tuple[list[_Table], dict[_Entry, int]]:
    """Instructions in each version, and what entering a loop executes more."""
    marks = marks_of(seen.events)
    versions, turns = _needed(program, seen.arguments), _turns(seen.entries)
    runs: dict[_Key, Callable[[], dict[str, Any]]] = {
        **{version: partial(program.counts, marks, version) for version in versions},
        **{turn: partial(program.executed, RESTED, _entering(turn)) for turn in turns},
    }
    found = _run_all(program, seen.calls, runs, progress)
    tables = _tables(
        {version: {(i - 1, f): n for i, f, n in found[version]} for version in versions}
    )
    totals = {turn: {f: n for _, f, n in found[turn]} for turn in turns}
    return tables, _gains(tables, totals)


_Turn = tuple[_Entry, ...]
_Key = int | _Turn
"""The subject of a run that counts: a version, or loops that are entered."""


def _needed(program: JitProgram, arguments: Sequence[_Argument]) -> list[int]:
    """The versions to count, in this order: others execute the same as one of them."""
    most = max((each.distinct for each in arguments), default=0)
    special = [SPECIAL + j for j, fewer in enumerate((0, *CACHED[:-1])) if most > fewer]
    needed = [*range(len(TIERS)), *special, *([PRUNED] if program.kept else [])]
    return sorted(needed, key=lambda version: version != RESTED)  # whose code others have, too


def _run_all(
    program: JitProgram,
    calls: int,
    runs: Mapping[_Key, Callable[[], dict[str, Any]]],
    progress: Callable[[str], None],
) -> dict[_Key, list[tuple[int, int, int]]]:
    """Interval, function and instructions that each run has counted.

    Counts are exact whatever else runs, so as many runs go on at once as there are processors.
    """
    done = {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        try:
            results = pool.map(lambda run: run(), runs.values())
            for number, (key, found) in enumerate(zip(runs, results, strict=True), 1):
                progress(f"counting, {number} of {len(runs)} runs")
                program.check_calls(calls, found["calls"])
                done[key] = found["counts"]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return done


def _tables(counted: Mapping[int, _Table]) -> list[_Table]:
    """The counts of all versions, from those of `_needed`.

    Code for more values than an argument has is the code for as many as it has; a function that is
    not specialised or pruned has its code of `RESTED` instead.
    """
    tables: list[_Table] = []
    for version in range(len(VERSIONS)):
        is_more = SPECIAL < version < PRUNED
        tables.append(counted.get(version, tables[-1] if is_more else counted[RESTED]))
    return tables


def _gains(
    tables: Sequence[_Table], totals: Mapping[_Turn, Mapping[int, int]]
) -> dict[_Entry, int]:
    """The instructions that entering a loop adds to those at O0 before it and at `RESTED` after.

    Args:
        tables: by version.
        totals: instructions of each function where the loops of a turn are entered.
    """
    own: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for tier in (0, RESTED):
        for (interval, function), n in tables[tier].items():
            own[tier, function].append((interval, n))
    gains = {}
    for turn, total in totals.items():
        for entry in turn:
            before = sum(n for i, n in own[0, entry.function] if i < entry.event)
            after = sum(n for i, n in own[RESTED, entry.function] if i >= entry.event)
            gains[entry] = total[entry.function] - before - after
    return gains


def _turns(entries: Sequence[_Entry]) -> list[_Turn]:
    """Entries that one run can have: what functions execute depends on no other's."""
    turns: list[list[_Entry]] = []
    own: Counter[int] = Counter()
    for entry in entries:
        turn = own[entry.function]
        own[entry.function] += 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(entry)
    return [tuple(each) for each in turns]


def _entering(turn: _Turn) -> list[Any]:
    """The plan of a run that enters one loop of each function."""
    plan: list[Any] = [[[each.function, CALL, 0], 0] for each in turn]
    return plan + [[[each.function, BACK_EDGE, each.power], ENTERED] for each in turn]


def _timed(
    program: JitProgram, seen: _Observed, progress: Callable[[str], None]
) -> tuple[list[float], dict[tuple[int, int], float]]:
    """Seconds of the program at each tier, and the least that compiling each version takes."""
    guessing = [(each.function, SPECIAL + j) for each in seen.arguments for j in range(len(CACHED))]
    guessing += sorted({(f, PRUNED) for f, _ in program.kept})
    guessing += sorted({(each.function, RESTS + each.loop) for each in seen.entries})
    seconds: list[float] = []
    costs: dict[tuple[int, int], float] = {}
    for tier, name in enumerate(TIERS):
        progress(f"timing {name}")
        runs = [program.timed(tier, behind=() if tier else guessing) for _ in range(_REPEATS)]
        seconds.append(min(each.seconds for each in runs))
        for key in runs[0].costs:
            least = min(each.costs[key] for each in runs)
            costs[key] = min(costs.get(key, least), least)
    return seconds, costs


def _arrays(
    program: JitProgram,
    seen: _Observed,
    called: Sequence[int],
    *,
    tables: Sequence[_Table],
    gains: Mapping[_Entry, int],
) -> dict[str, Any]:
    """The tables of a recording, in which functions have the numbers of those that are called."""
    number = {function: place for place, function in enumerate(called)}
    rows: dict[str, list[Sequence[int]]] = {
        "events": [(number[f], kind, power, call) for f, kind, power, call, _ in seen.events],
        "counts": [
            (i, number[f], *(each.get((i, f), 0) for each in tables))
            for i, f in sorted(set().union(*tables))
        ],
        "spent": [(seen.places[i - 1], number[f], n) for i, f, n in seen.spent],
        "entries": [(each.event, gains[each]) for each in seen.entries],
        "values": [(number[f], place, n, *own) for f, place, n, own in seen.arguments],
        "kept": [(number[f], block) for f, block in program.kept],
    }
    return {name: TABLES[name].array(own) for name, own in rows.items()}


def _fitted(instructions: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Seconds per instruction and seconds besides, neither below zero, by least squares."""
    x, y = np.array(instructions, float), np.array(seconds)
    per, besides = np.polyfit(x, y, 1).tolist() if np.ptp(x) else (0.0, 0.0)
    return (per, besides) if per > 0 and besides >= 0 else (float(x @ y / (x @ x)), 0.0)


def marks_of(events: Sequence[Event]) -> list[list[int]]:
    """The call that each event's interval begins at, then its function, kind and power."""
    return [
        [each.call + (each.kind != CALL), each.function, each.kind, each.power] for each in events
    ]


@dataclass(frozen=True, slots=True)
class CheckedSchedule:
    """One schedule of decisions, as replayed and as it happened.

    Attributes:
        policy: who decided.
        instructions: of the replay.
        counted: instructions that the program executed, counted.
        seconds: of the replay, compilations included.
        measured: seconds of the processor that it took, compilations included; the least of some.
    """

    policy: str
    instructions: int
    counted: int
    seconds: float
    measured: float


def check_recording(
    corpus: Corpus,
    workload: str,
    recording: Recording,
    policies: Sequence[str],
    *,
    schedules: int = 10,
    timings: int = 3,
    seed: int = 0,
) -> Iterator[CheckedSchedule]:
    """Run schedules of decisions under a JIT, and compare each with its replay.

    Each program must write what its workload says, whatever is compiled when.

    Args:
        corpus: the recorded program's.
        workload: its name.
        recording: of it.
        policies: names, as `schedule_named` takes them.
        schedules: how many random schedules are checked as well.
        timings: how often each is timed; 0 does not time.
        seed: of the random schedules.

    Raises:
        WorkloadError: the recording is of another program, or the program does something else.

    >>> from mlgo_gym import SAMPLE_CORPUS
    >>> from mlgo_gym.lab.tiers import SAMPLE_RECORDING
    >>> sample, recording = Corpus.load(SAMPLE_CORPUS), Recording.load(SAMPLE_RECORDING)
    >>> checks = check_recording(sample, "json", recording, ["O2"], schedules=0, timings=0)
    >>> [each.counted - each.instructions for each in checks]
    [0]
    """
    check_machine("tiers")
    with JitProgram(corpus, workload, recording.rounds, recording.stdout_sha256) as program:
        if program.sha256 != recording.program_sha256:
            raise WorkloadError(
                f"recording of {recording.name}: expected a program of hash "
                f"{recording.program_sha256[:12]}, found {program.sha256[:12]}; record it again"
            )
        called = [program.functions.index(name) for name in recording.functions]
        program.special = [
            (called[f], place, known(own, count))
            for f, place, count, *own in recording.values.tolist()
        ]
        program.kept = [(called[f], block) for f, block in recording.kept.tolist()]
        numbers = random.Random(seed)  # noqa: S311 - not for secrets
        chosen: list[tuple[str, TierPolicy]] = [(name, schedule_named(name)) for name in policies]
        chosen += [(f"random {i}", sometimes(numbers, RANDOM_SHARE, 1)) for i in range(schedules)]
        for name, policy in chosen:
            replay, plan = _planned(recording, policy, called)
            counted = program.executed(plan=plan)["total"]
            runs = [program.timed(plan=plan) for _ in range(timings)]
            measured = min((each.seconds + sum(each.costs.values()) for each in runs), default=0.0)
            yield CheckedSchedule(name, replay.instructions, counted, replay.total_s, measured)


def _planned(
    recording: Recording, policy: TierPolicy, called: Sequence[int]
) -> tuple[Replay, list[Any]]:
    """A replay under a policy, and its decisions as a program's host takes them."""
    replay = Replay(recording)
    plan: list[Any] = []
    while not replay.is_over:
        decision, function = policy(replay), replay.function
        asked = [called[function], replay.kind, replay.power]
        replay.decide(decision)
        if decision:
            version = ENTERED if decision == ENTER else replay.tier[function]
            plan.append([asked, version])
    return replay, plan
