"""Replays, policies and what is best in hindsight."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from mlgo_gym.errors import OptionsError, WorkloadError
from mlgo_gym.lab.tiers import SAMPLE_RECORDING
from mlgo_gym.lab.tiers._recording import (
    DECISIONS,
    DROP,
    ENTER,
    GUARD,
    PRUNE,
    PRUNED,
    SPECIAL,
    SPECIALISE,
    TIERS,
    Recording,
)
from mlgo_gym.lab.tiers._schedules import oracle_s, played, schedule_named
from mlgo_gym.lab.tiers._tier_replay import Replay
from tests.lab.tiers.conftest import profiled, small

PER = 0.5
WAYS = (
    "O2@64+prune",
    "ski-rental+enter",
    "O2@4+specialise",
    "O2@4+trust",
    "O1@64+enter+specialise",
)
NAMES = (
    "O0",
    "O1",
    "O2",
    "O3",
    "O2@4",
    "O1@1000000",
    "hotspot",
    "v8",
    "ski-rental",
    "random",
    *WAYS,
)


def test_going_on_is_all_at_o0() -> None:
    done = played(small(), schedule_named("O0"))
    assert done.instructions == 47
    assert done.compiling_s == 2.0
    assert done.total_s == 47 * PER + 2.0


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_at_the_first_call_nothing_is_compiled_twice(tier: int) -> None:
    recording = small()
    done = played(recording, schedule_named(TIERS[tier]))
    assert done.instructions == recording.totals()[tier]
    assert done.compiling_s == recording.compile_s[tier].sum()


def test_an_activation_stays_in_its_code() -> None:
    """What began before a decision is charged as it was, and what begins with it is not."""
    replay = Replay(small())
    for answer in (0, 0, 0, 3, 0, 0):
        replay.decide(answer)
    assert replay.is_over
    assert replay.instructions == 7 + 10 + 2 + 1


def test_jumps_back_are_events_at_o0_alone() -> None:
    replay = Replay(small())
    replay.decide(1)
    functions = []
    while not replay.is_over:
        functions.append(replay.recording.functions[replay.function])
        replay.decide(0)
    assert functions == ["f", "f", "f"]


def every_total(replay: Replay) -> Iterator[float]:
    """The seconds of every possible sequence of decisions."""
    if replay.is_over:
        yield replay.total_s
        return
    for decision in filter(replay.is_allowed, range(len(DECISIONS))):
        after = deepcopy(replay)
        after.decide(decision)
        yield from every_total(after)


@pytest.mark.parametrize("costs", [(5.0, 12.0, 30.0), (1.0, 1.0, 1.5), (9.0, 9.0, 9.0)])
@pytest.mark.parametrize("special", [(6.0, 7.0), (0.5, 0.5), (0.1, 9.0)])
@pytest.mark.parametrize("rest", [0.5, -58.5])
def test_the_oracle_is_the_least_of_all(
    costs: tuple[float, float, float], special: tuple[float, float], rest: float
) -> None:
    recording = small(entry_s=np.array([rest]))
    recording.compile_s[1:, 1] = (*costs, *special, special[1], 0.0)
    assert oracle_s(recording) == pytest.approx(min(every_total(Replay(recording))))


def test_a_program_that_takes_no_time() -> None:
    none = {name: np.zeros_like(getattr(small(), name)) for name in ("compile_s", "entry_s")}
    counts = small().counts * [1, 1, *[0] * 8]
    recording = small(counts=counts, **none)
    with pytest.raises(WorkloadError, match="'a/b': expected a program that takes time, found"):
        oracle_s(recording)


def test_the_oracle_may_prune() -> None:
    recording = profiled()
    assert oracle_s(recording) == pytest.approx(min(every_total(Replay(recording))))


def test_no_policy_is_better_than_the_oracle() -> None:
    recording = Recording.load(SAMPLE_RECORDING)
    best, bound = oracle_s(recording), oracle_s(recording, waits=False)
    assert bound <= best
    for name in NAMES:
        assert played(recording, schedule_named(name)).total_s >= best * (1 - 1e-12)
        assert played(recording, schedule_named(name), 2).total_s >= bound * (1 - 1e-12)


def test_the_clock_of_what_is_seen_ends_where_the_exact_one_does() -> None:
    recording = Recording.load(SAMPLE_RECORDING)
    done = played(recording, schedule_named("O0"))
    assert done.now_s + recording.library_s == pytest.approx(done.total_s)


def test_a_compilers_thread_does_not_stop_the_program() -> None:
    recording = small()
    waiting = played(recording, schedule_named("O3"))
    beside = played(recording, schedule_named("O3"), 1)
    assert waiting.compiling_s == 100.0
    assert beside.compiling_s == 2.0
    assert beside.compiled_s == 102.0
    assert beside.instructions == recording.totals()[0]  # none ended in time


def test_new_code_is_used_once_it_is_there() -> None:
    recording = small()
    recording.compile_s[3, 1] = 9.0
    replay = Replay(recording, 1)
    replay.decide(0)
    replay.decide(3)
    assert (replay.tier[1], replay.wanted[1], replay.queue) == (0, 3, 1)
    while not replay.is_over:
        assert not replay.is_allowed(3) or replay.function == 0
        replay.decide(0)
    assert replay.tier[1] == 3
    assert replay.instructions < recording.totals()[0]


def test_more_threads_are_not_slower() -> None:
    recording = Recording.load(SAMPLE_RECORDING)
    totals = [played(recording, schedule_named("O2"), threads).total_s for threads in range(1, 5)]
    assert totals == sorted(totals, reverse=True)


@pytest.mark.parametrize("threads", [-1, 5, True, 1.0])
def test_threads_that_cannot_be(threads: int) -> None:
    with pytest.raises(OptionsError, match="threads: expected 0 to 4, found"):
        Replay(small(), threads)


@pytest.mark.parametrize("decision", [-1, 1, 4, 5, 6, 7, 8])
def test_a_decision_that_cannot_be(decision: int) -> None:
    replay = Replay(small())
    for answer in (0, 2, 0):
        replay.decide(answer)
    assert (replay.function, replay.tier[1]) == (1, 2)
    expected = "decision: expected one that is allowed now: 0, 3, found"
    with pytest.raises(OptionsError, match=expected):
        replay.decide(decision)


def at(event: int, *answers: int, threads: int = 0) -> Replay:
    """A replay of the small recording at an event, after decisions."""
    replay = Replay(small(), threads)
    for answer in answers:
        replay.decide(answer)
    assert replay.event == event
    return replay


def allowed(replay: Replay) -> list[int]:
    return [each for each in range(len(DECISIONS)) if replay.is_allowed(each)]


def test_a_loop_that_runs_is_entered() -> None:
    replay = at(4, 0, 0, 0, 0)
    assert allowed(replay) == [0, 1, 2, 3, ENTER]
    assert replay.cost_s(ENTER) == 60.5
    replay.decide(ENTER)
    assert (replay.tier[0], replay.compiling_s) == (2, 62.5)
    replay.decide(0)
    assert replay.instructions == 47 - 4


@pytest.mark.parametrize("answers", [(0, 0), (0, 0, 0), (0, 0, 1, 0)])
def test_a_loop_is_entered_at_o0_and_where_it_was_recorded(answers: tuple[int, ...]) -> None:
    replay = Replay(small())
    for answer in answers:
        replay.decide(answer)
    assert ENTER not in allowed(replay)
    assert replay.cost_s(ENTER) == 0


def test_with_compiler_threads_no_loop_is_entered() -> None:
    assert allowed(at(4, 0, 0, 0, 0, threads=1)) == [0, 1, 2, 3]


def test_a_function_is_specialised_on_the_values_so_far() -> None:
    replay = at(3, 0, 0, 0)
    assert (replay.values, replay.cost_s(SPECIALISE)) == ([0, 1], 6.0)
    assert allowed(replay) == [0, 1, 2, 3, SPECIALISE]
    replay.decide(SPECIALISE)
    replay.decide(0)
    assert (replay.event, replay.tier[1]) == (5, SPECIAL)
    assert allowed(replay) == [0, 1, 2, 3, DROP]


@pytest.mark.parametrize(
    ("answer", "instructions", "seconds"),
    [(0, 7 + 10 + 2 + 13, 8), (2, 7 + 10 + 2 + 2, 20), (DROP, 7 + 10 + 2 + 10, 8)],
)
def test_a_value_that_is_not_known_yet(answer: int, instructions: int, seconds: float) -> None:
    """What is decided at the call holds for it; its guard fails otherwise, which is asked about."""
    replay = at(5, 0, 0, 0, SPECIALISE, 0)
    replay.decide(answer)
    asked = not answer
    assert replay.is_over != asked
    if asked:
        assert (replay.kind, replay.failures, replay.values[1]) == (GUARD, [0, 1], 2)
        assert allowed(replay) == [0, 1, 2, 3, SPECIALISE, DROP]
        replay.decide(SPECIALISE)
        assert (replay.tier[1], replay.failures[1]) == (SPECIAL + 1, 0)
        seconds += 7
    assert (replay.instructions, replay.compiling_s) == (instructions, seconds)


@pytest.mark.parametrize("answers", [(0, 0, 0, SPECIALISE, 0, DROP), (0, 1), (0, 0, 0, 1)])
def test_what_was_general_stays_so(answers: tuple[int, ...]) -> None:
    events = np.vstack((small().events, [(1, 0, 3, 9)]))
    replay = Replay(small(events=events))
    for answer in answers:
        replay.decide(answer)
    while not replay.is_over:
        assert SPECIALISE not in allowed(replay)
        assert DROP not in allowed(replay)
        replay.decide(0)


def test_a_function_is_pruned_once_it_has_a_profile() -> None:
    replay = Replay(profiled())
    for _ in range(7):
        assert PRUNE not in allowed(replay)
        replay.decide(0)
    assert (replay.power, replay.cost_s(PRUNE)) == (6, 4.0)
    assert allowed(replay) == [0, 1, 2, 3, SPECIALISE, PRUNE]
    replay.decide(PRUNE)
    assert (replay.tier[1], allowed(replay)) == (PRUNED, [0, 1, 2, 3, DROP])
    replay.decide(0)
    assert (replay.event, replay.kind, replay.failures[1]) == (9, GUARD + 3, 1)
    replay.decide(0)
    assert (replay.event, replay.failures[1]) == (10, 2)
    replay.decide(DROP)
    assert replay.is_over
    assert replay.instructions == 7 + 10 * 63 + 64 + 15 * 22 + 10 * 51


def test_what_was_reached_late_is_pruned_no_more() -> None:
    events = np.vstack((profiled().events, [(1, 0, 8, 257)]))
    replay = Replay(replace(profiled(), events=events))
    while replay.power < 8:
        replay.decide(0)
    assert allowed(replay) == [0, 1, 2, 3, SPECIALISE]


def test_specialised_code_that_is_under_way_comes_first() -> None:
    recording = small()
    recording.compile_s[SPECIAL, 1] = 12.0
    replay = Replay(recording, 2)
    for answer in (0, 0, 0, SPECIALISE, 0):
        replay.decide(answer)
    assert (replay.tier[1], replay.wanted[1]) == (0, SPECIAL)
    assert allowed(replay) == [0]


def test_general_code_replaces_specialised() -> None:
    recording = small()
    recording.compile_s[SPECIAL:, 1] = 0.0
    recording.compile_s[3, 1] = 1.0
    replay = Replay(recording, 1)
    for answer in (0, 0, 0, SPECIALISE, 0, 3):
        assert not replay.is_over
        replay.decide(answer)
    assert (replay.tier[1], replay.compiled_s) == (3, 3.0)


def test_a_decision_after_the_end() -> None:
    done = played(small(), schedule_named("O0"))
    with pytest.raises(OptionsError, match="found a program that has ended"):
        done.decide(0)


@pytest.mark.parametrize("name", ["O4", "O0@3", "O2@", "ski", "O2@-1", "", "+enter"])
def test_a_policy_that_there_is_not(name: str) -> None:
    with pytest.raises(OptionsError, match="policy: expected one of O0, O1, .*, found"):
        schedule_named(name)


def test_a_way_that_there_is_not() -> None:
    expected = r"policy: expected \+enter, \+specialise, \+prune, \+trust, found 'osr'"
    with pytest.raises(OptionsError, match=expected):
        schedule_named("O2+osr")


def test_random_is_of_its_seed() -> None:
    recording = Recording.load(SAMPLE_RECORDING)
    totals = [played(recording, schedule_named("random", seed)).total_s for seed in (1, 1, 2)]
    assert totals[0] == totals[1] != totals[2]
