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
from mlgo_gym.rollout import ModuleReport, rollout
from mlgo_gym.rollout._batched import batch_rollout

ROUNDS = 3


def run(corpus: Corpus, names: tuple[str, ...]) -> None:
    problem = InliningForSize()
    policies = {"default": InliningForSize.policy("default")}

    def one_by_one(jobs: int) -> list[ModuleReport]:
        return list(rollout(corpus, policies, problem, names=names, jobs=jobs, in_order=False))

    def in_batches(jobs: int) -> list[ModuleReport]:
        answers = batch_rollout(
            corpus, lambda each: [default(o) for o in each], problem, names=names, jobs=jobs
        )
        return list(answers)

    print(f"{len(names)} modules, load average {os.getloadavg()[0]:.2f} before")
    for title, ways in (("a policy for each worker", one_by_one), ("batches", in_batches)):
        rates: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(ROUNDS):
            for jobs, each in rates.items():
                start = time.perf_counter()
                reports = ways(jobs)
                each.append(len(reports) / (time.perf_counter() - start))
        one, two = median(rates[1]), median(rates[2])
        print(
            f"{title}: {one:.2f} episodes a second with one worker, {two:.2f} with two: "
            f"{two / one:.2f} x; by round "
            + ", ".join(f"{b / a:.2f}" for a, b in zip(rates[1], rates[2], strict=True))
        )
