"""Recording a program: it is split, and run under a JIT once for each number that is asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from mlgo_gym.corpus import Corpus
from mlgo_gym.lab.programs import check_machine
from mlgo_gym.lab.tiers._jit_program import JitProgram
from mlgo_gym.lab.tiers._recording import (
    BACK_EDGE,
    CACHED,
    CALL,
    ENTERED,
    GUARD,
    PROFILED,
    PRUNED,
    RESTED,
    RESTS,
    SPECIAL,
    TIERS,
    VERSIONS,
    Recording,
)
from mlgo_gym.llvm import embedded_version

_REPEATS: Final = 2
_LEAST_ENTERED: Final = 10
"""The power of two of the jumps back from which on loops are entered."""
_LEAST_SPECIALISED: Final = 64
"""Calls of a function that can be specialised."""
_MOST_OTHERS: Final = 10
"""One in so many of its calls may have another value than the first ones."""


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
        progress("looking for events")
        found = program.events()
        progress("watching values and blocks")
        watched = program.watched()
        values = _specialisable(found["events"], watched)
        program.special = [(f, place, known(own, n)) for f, place, n, own, _ in values]
        program.kept = watched["kept"]
        progress("looking for blocks that are reached late")
        guards = [*_failures(values), *_reached_late(program)]
        events, place_of = _merged(found["events"], guards)
        entries = [
            _Entry(i, f, power, loop)
            for i, (f, kind, power, _, loop) in enumerate(events)
            if kind == BACK_EDGE and loop >= 0 and power >= _LEAST_ENTERED
        ]
        tables, entered = _counted(
            program, events, found["calls"], values, entries=entries, progress=progress
        )
        called = sorted({function for function, *_ in events})
        seconds, costs = _timed(program, values, entries, progress)
        per, library = _fitted([sum(each.values()) for each in tables[: len(TIERS)]], seconds)
        number = {function: place for place, function in enumerate(called)}
        places = sorted(set().union(*tables))
        units = program.units["functions"]
        rows = {
            "events": [[number[f], *rest[:3]] for f, *rest in events],
            "counts": [
                [i, number[f], *(each.get((i, f), 0) for each in tables)] for i, f in places
            ],
            "spent": [[place_of[i - 1], number[f], n] for i, f, n in found["spent"]],
            "entries": [*zip([each.event for each in entries], entered, strict=True)],
            "values": [[number[f], place, n, *own] for f, place, n, own, _ in values],
            "kept": [[number[f], block] for f, block in program.kept],
        }
        widths = (4, 2 + len(VERSIONS), 3, 2, 3 + CACHED[-1], 2)
        arrays = {
            name: np.array(own, np.int64).reshape(-1, width)
            for (name, own), width in zip(rows.items(), widths, strict=True)
        }
        versions = range(len(VERSIONS))
        return Recording(
            program=program.name,
            rounds=rounds,
            stdout_sha256=program.stdout_sha256 or program.workload.stdout_sha256,
            llvm=embedded_version(),
            program_sha256=program.sha256,
            functions=tuple(program.functions[each] for each in called),
            sizes=np.array([units[each]["instructions"] for each in called], np.int64),
            **arrays,
            compile_s=np.array([[costs.get((f, each), 0.0) for f in called] for each in versions]),
            entry_s=np.array([costs[each.function, RESTS + each.loop] for each in entries]),
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


_Values = tuple[int, int, int, list[int], list[tuple[int, int, int]]]
"""A function, the place of an argument, how many values it has, the first of them, and the events
of its guards: the place in `CACHED`, the power, and the call."""


def _specialisable(events: Sequence[Sequence[int]], watched: Mapping[str, Any]) -> list[_Values]:
    """Functions that are called often, and the argument of each that has the fewest values."""
    calls: dict[int, int] = {}
    for function, kind, power, *_ in events:
        if kind == CALL:
            calls[function] = 1 << power
    found: dict[int, _Values] = {}
    room = CACHED[-1]
    for function, place, count, *words in watched["values"]:
        others = words[room + CACHED.index(room)]
        many = calls.get(function, 0)
        if many < _LEAST_SPECIALISED or others * _MOST_OTHERS > many:
            continue
        own = count + (others > 0)
        if function not in found or own < found[function][2]:
            found[function] = function, place, own, words[:room], []
    for function, place, cached, many, call in watched["later"]:
        if function in found and found[function][1] == place:
            found[function][4].append((cached, many.bit_length() - 1, call))
    return [found[function] for function in sorted(found)]


def _failures(values: Sequence[_Values]) -> Iterator[tuple[int, int, int, int, int]]:
    """Events of the guards of specialised code."""
    for function, _, _, _, own in values:
        yield from ((function, GUARD + cached, power, call, -1) for cached, power, call in own)


def _reached_late(program: JitProgram) -> list[Sequence[int]]:
    """Events of the guards of pruned code, in a run where all such functions have it at once."""
    if not program.kept:
        return []
    functions = sorted({function for function, _ in program.kept})
    plan = [[[function, CALL, PROFILED], PRUNED] for function in functions]
    events = program.executed(plan=plan)["events"]
    return [each for each in events if each[1] == GUARD + PRUNED - SPECIAL]


def _merged(
    events: Sequence[Sequence[int]], guards: Sequence[Sequence[int]]
) -> tuple[list[Sequence[int]], list[int]]:
    """Events with those of guards, and the places that the former have among them.

    A guard fails in its call: behind the event of the call, and before jumps back in it.
    """
    order = {CALL: 0, BACK_EDGE: 2}
    all_ = [(each[3], order.get(each[1], 1), each, i) for i, each in enumerate([*events, *guards])]
    all_.sort(key=lambda each: each[:2])
    places = {i: place for place, (_, _, _, i) in enumerate(all_)}
    return [each for _, _, each, _ in all_], [places[i] for i in range(len(events))]


_Table = Mapping[tuple[int, int], int]
"""Instructions by interval and function."""


def _counted(
    program: JitProgram,
    events: Sequence[Sequence[int]],
    calls: int,
    values: Sequence[_Values],
    *,
    entries: Sequence[_Entry],
    progress: Callable[[str], None],
) -> tuple[list[_Table], list[int]]:
    """Instructions in each version, and what entering a loop executes more.

    Counts are exact whatever else runs, so as many runs go on at once as there are processors.
    """
    marks = marks_of(events)
    turns = _turns(entries)
    most = max((count for _, _, count, _, _ in values), default=0)
    needed = [*range(len(TIERS))]
    needed += [SPECIAL + j for j, fewer in enumerate((0, *CACHED[:-1])) if most > fewer]
    needed += [PRUNED] if program.kept else []
    first = sorted(needed, key=lambda version: version != RESTED)  # whose code others have, too
    runs = [partial(program.counts, marks, version) for version in first]
    runs += [partial(program.executed, RESTED, _entering(each, entries)) for each in turns]
    done = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        try:
            for number, found in enumerate(pool.map(lambda run: run(), runs), 1):
                progress(f"counting, {number} of {len(runs)} runs")
                program.check_calls(calls, found["calls"])
                done.append(found["counts"])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    made = {
        version: {(i - 1, f): n for i, f, n in counts}
        for version, counts in zip(first, done, strict=False)
    }
    tables: list[_Table] = []
    for version in range(len(VERSIONS)):
        is_more = SPECIAL < version < PRUNED
        tables.append(made.get(version, tables[-1] if is_more else made[RESTED]))
    own: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for tier in (0, RESTED):
        for (i, f), n in tables[tier].items():
            own.setdefault((tier, f), []).append((i, n))
    entered = [0] * len(entries)
    for turn, counts in zip(turns, done[len(needed) :], strict=True):
        total = {function: n for _, function, n in counts}
        for place in turn:
            event, function, *_ = entries[place]
            slow, fast = (own.get((tier, function), ()) for tier in (0, RESTED))
            before, after = (n for i, n in slow if i < event), (n for i, n in fast if i >= event)
            entered[place] = total[function] - sum(before) - sum(after)
    return tables, entered


def _turns(entries: Sequence[_Entry]) -> list[list[int]]:
    """Places of entries that one run can have: what functions execute depends on no other's."""
    turns: list[list[int]] = []
    own: dict[int, int] = {}
    for place, entry in enumerate(entries):
        turn = own.get(entry.function, 0)
        own[entry.function] = turn + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(place)
    return turns


def _entering(places: Sequence[int], entries: Sequence[_Entry]) -> list[Any]:
    """The plan of a run that enters one loop of each function."""
    chosen = [entries[each] for each in places]
    plan: list[Any] = [[[each.function, CALL, 0], 0] for each in chosen]
    return plan + [[[each.function, BACK_EDGE, each.power], ENTERED] for each in chosen]


def _timed(
    program: JitProgram,
    values: Sequence[_Values],
    entries: Sequence[_Entry],
    progress: Callable[[str], None],
) -> tuple[list[float], dict[tuple[int, int], float]]:
    """Seconds of the program at each tier, and the least that compiling each version takes."""
    guessing = [(f, SPECIAL + j) for f, *_ in values for j in range(len(CACHED))]
    guessing += sorted({(f, PRUNED) for f, _ in program.kept})
    guessing += sorted({(each.function, RESTS + each.loop) for each in entries})
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


def _fitted(instructions: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Seconds per instruction and seconds besides, neither below zero, by least squares."""
    x, y = np.array(instructions, float), np.array(seconds)
    spread = ((x - x.mean()) ** 2).sum()
    per = float(((x - x.mean()) * (y - y.mean())).sum() / spread) if spread else 0.0
    besides = float(y.mean() - per * x.mean())
    if per <= 0 or besides < 0:
        per, besides = float((x * y).sum() / (x * x).sum()), 0.0
    return per, besides


def marks_of(events: Sequence[Sequence[int]]) -> list[list[int]]:
    """The call that each event's interval begins at, then its function, kind and power."""
    return [
        [call + (kind != CALL), function, kind, power] for function, kind, power, call, *_ in events
    ]
