"""All advantages of a module by forking, against compiling again for each, on one core.

The bound: with a compilation's decisions at times t_1 to t_n and its end at T, compiling again
takes n T in all, and branches cannot take less than the sum of T - t_i.
"""

from __future__ import annotations

import os
import time

import numpy as np

from mlgo_gym import Compiler, Corpus, InliningForSize
from mlgo_gym.problems._inlining_for_size import default
from mlgo_gym.problems._policy import Answer
from mlgo_gym.search import advantages
from mlgo_gym.stream import Observation


def run(corpus: Corpus, name: str) -> None:
    module, problem = corpus[name], InliningForSize()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # workers inherit it
    with Compiler() as compiler:
        compiler.compile_module(module, problem=problem, policy=default)
        stamps: list[float] = []

        def stamped(observation: Observation) -> int:
            stamps.append(time.perf_counter())
            return default(observation)

        start = time.perf_counter()
        plain = compiler.compile_module(module, problem=problem, policy=stamped)
        end = time.perf_counter()
        bound = len(stamps) * (end - start) / sum(end - stamp for stamp in stamps)

        start = time.perf_counter()
        forked = advantages(compiler, module, default, problem)
        by_forks_s = time.perf_counter() - start

        start = time.perf_counter()
        again = []
        for flipped in range(plain.decisions):
            result = compiler.compile_module(
                module,
                problem=problem,
                policy=flip_at(flipped),
            )
            again.append(plain.text_size_bytes - result.text_size_bytes)
        again_s = time.perf_counter() - start
    if not np.array_equal(forked.saved_bytes, np.array(again, float)):
        raise RuntimeError("the two ways disagree")
    print(
        f"{name}: {plain.decisions} decisions; forks {by_forks_s:.1f} s, compiling again "
        f"{again_s:.1f} s: {again_s / by_forks_s:.2f} x faster, bound {bound:.2f}; both agree"
    )


def flip_at(index: int) -> Answer:
    return lambda observation: default(observation) ^ (observation.index == index)
