"""How many more episodes a second two workers make than one, in turns, on two cores.

An episode is a module compiled under LLVM's default answers, every decision answered from Python,
beside its plain compilation.
"""

from __future__ import annotations

import os
import time
from statistics import median

from mlgo_gym import Corpus, InliningForSize
from mlgo_gym.problems._inlining_for_size import default
from mlgo_gym.rollout import rollout
from mlgo_gym.runners import BatchedPolicy

ROUNDS = 3


def run(whole: Corpus) -> None:
    corpus = whole.only(sorted(whole, key=whole.size_bytes)[::3])
    problem = InliningForSize()
    batched = BatchedPolicy(lambda asked: [default(observation) for observation in asked])
    ways = {"a policy for each worker": InliningForSize.policy("default"), "batches": batched}
    print(f"{len(corpus)} modules, load average {os.getloadavg()[0]:.2f} before")
    for title, policy in ways.items():
        rates: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(ROUNDS):
            for jobs, found in rates.items():
                start = time.perf_counter()
                policies = {"default": policy}
                reports = rollout(corpus, policies, problem, jobs=jobs, in_order=False)
                found.append(len(list(reports)) / (time.perf_counter() - start))
        one, two = median(rates[1]), median(rates[2])
        print(
            f"{title}: {one:.2f} episodes a second with one worker, {two:.2f} with two: "
            f"{two / one:.2f} x; by round "
            + ", ".join(f"{b / a:.2f}" for a, b in zip(rates[1], rates[2], strict=True))
        )
