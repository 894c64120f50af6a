"""Processor time of a step of an environment, beside a round trip of two processes that only talk.

In turns, an episode of ``digest.c`` under LLVM's own answers, and as many round trips between two
bare Python processes: 8 bytes there, 400 back, waited for by ``poll``. The time is that of this
process's main thread, without the episode's ``reset``.
"""

from __future__ import annotations

import os
import resource
import select
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final

from mlgo_gym.envs import make_env

MODULE: Final = "digest.c"
ADVICE: Final = bytes(8)
OBSERVATION: Final = bytes(400)
EPISODES: Final = 10
"""Of each round."""

Seconds = tuple[float, float]
"""In the interpreter, and in the kernel."""


def run(rounds: int) -> None:
    found: dict[str, list[Seconds]] = {"a step": [], "a round trip": []}
    with make_env("inlining-for-size") as env, _echo() as ends:
        for _ in range(EPISODES * rounds):
            steps, time = _episode(env)
            found["a step"].append(time)
            found["a round trip"].append(_round_trips(*ends, steps))
    for name, times in found.items():
        inside, kernel = (1e6 * median(part) for part in zip(*times, strict=True))
        totals = [1e6 * sum(each) for each in times]
        print(
            f"{name}: {median(totals):.0f} us, least {min(totals):.0f} us of {len(times)} "
            f"episodes; in the interpreter {inside:.0f} us, in the kernel {kernel:.0f} us"
        )


def _episode(env: Any) -> tuple[int, Seconds]:
    """The number of an episode's steps, and the time of one."""
    _, info = env.reset(options={"module": MODULE})
    steps, is_over, start = 0, False, _now()
    while not is_over:
        *_, terminated, truncated, info = env.step(info["default_advice"])
        is_over = terminated or truncated
        steps += 1
    return steps, _each(start, steps)


def _round_trips(to: int, back: int, count: int) -> Seconds:
    poll = select.poll()
    poll.register(back, select.POLLIN)
    start = _now()
    for _ in range(count):
        os.write(to, ADVICE)
        poll.poll()
        os.read(back, len(OBSERVATION))
    return _each(start, count)


def _now() -> Seconds:
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_utime, used.ru_stime


def _each(start: Seconds, count: int) -> Seconds:
    inside, kernel = _now()
    return (inside - start[0]) / count, (kernel - start[1]) / count


@contextmanager
def _echo() -> Iterator[tuple[int, int]]:
    """Descriptors to and from a process that answers."""
    from_us, to = os.pipe()
    back, to_us = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(to)
        while os.read(from_us, len(ADVICE)):
            os.write(to_us, OBSERVATION)
        os._exit(0)
    os.close(from_us)
    os.close(to_us)
    try:
        yield to, back
    finally:
        os.close(to)
        os.close(back)
        os.waitpid(pid, 0)
