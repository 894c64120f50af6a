"""Replays held against what really happens: the same decisions under a JIT."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mlgo_gym.base import WorkloadError
from mlgo_gym.corpus import Corpus
from mlgo_gym.lab.programs import check_machine
from mlgo_gym.lab.tiers._jit_program import JitProgram
from mlgo_gym.lab.tiers._recorder import known
from mlgo_gym.lab.tiers._recording import ENTER, ENTERED, Recording
from mlgo_gym.lab.tiers._schedules import TierPolicy, schedule_named, sometimes
from mlgo_gym.lab.tiers._tier_replay import Replay

RANDOM_SHARE: Final = 0.1


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
