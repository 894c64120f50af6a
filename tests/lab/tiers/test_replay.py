"""Replays, policies and what is best in hindsight."""

from __future__ import annotations

import itertools

import pytest

from mlgo_gym.errors import OptionsError
from mlgo_gym.lab.tiers import SAMPLE_RECORDING
from mlgo_gym.lab.tiers._recording import TIERS, Recording
from mlgo_gym.lab.tiers._replay import Replay
from mlgo_gym.lab.tiers._schedules import oracle_s, played, schedule_named
from tests.lab.tiers.conftest import small

PER = 0.5
NAMES = ("O0", "O1", "O2", "O3", "O2@4", "O1@1000000", "hotspot", "v8", "ski-rental", "random")


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


def every_total(recording: Recording) -> list[float]:
    """The seconds of every possible sequence of decisions."""
    totals = []
    for answers in itertools.product(range(4), repeat=len(recording.events)):
        replay = Replay(recording)
        for answer in answers:
            if replay.is_over or not replay.is_allowed(answer):
                break
            replay.decide(answer)
        if replay.is_over:
            totals.append(replay.total_s)
    return totals


@pytest.mark.parametrize("costs", [(5.0, 12.0, 30.0), (1.0, 1.0, 1.5), (9.0, 9.0, 9.0)])
def test_the_oracle_is_the_least_of_all(costs: tuple[float, float, float]) -> None:
    recording = small()
    recording.compile_s[1:, 1] = costs
    assert oracle_s(recording) == pytest.approx(min(every_total(recording)))


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


@pytest.mark.parametrize("tier", [-1, 4, 1])
def test_a_decision_that_cannot_be(tier: int) -> None:
    replay = Replay(small())
    for answer in (0, 2, 0):
        replay.decide(answer)
    assert (replay.function, replay.tier[1]) == (1, 2)
    with pytest.raises(OptionsError, match="decision: expected 0, or a tier above the function's"):
        replay.decide(tier)


def test_a_decision_after_the_end() -> None:
    done = played(small(), schedule_named("O0"))
    with pytest.raises(OptionsError, match="found a program that has ended"):
        done.decide(0)


@pytest.mark.parametrize("name", ["O4", "O0@3", "O2@", "ski", "O2@-1", ""])
def test_a_policy_that_there_is_not(name: str) -> None:
    with pytest.raises(OptionsError, match="policy: expected one of O0, O1, .*, found"):
        schedule_named(name)


def test_random_is_of_its_seed() -> None:
    recording = Recording.load(SAMPLE_RECORDING)
    totals = [played(recording, schedule_named("random", seed)).total_s for seed in (1, 1, 2)]
    assert totals[0] == totals[1] != totals[2]
