"""What a run of the benchmark costs: modules under a model, decisions kept, against LLVM alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from mlgo_gym import Compiler, InliningForSize
from mlgo_gym.corpus import Packages
from mlgo_gym.llvm import options_of
from mlgo_gym.model import find_model
from mlgo_gym.rollout import Trace
from mlgo_gym.rollout._rollout import RecordingPolicy
from mlgo_gym.runners import model_policies

REPEATS = 3


def run(packages: Packages, model: str) -> None:
    problem, decisions = InliningForSize(), 0
    alone, under = 0.0, 0.0
    with (
        model_policies([find_model(model)], "release", problem) as policies,
        Compiler() as compiler,
    ):
        (policy,) = policies.values()
        for key in packages:
            module = packages[key]
            options = options_of(module, None)

            def plain() -> int:
                compiler.compile_module(module, options, keep_object=True)  # noqa: B023
                return 0

            def kept() -> int:
                found: list = []  # type: ignore[type-arg]
                watched = RecordingPolicy(policy, problem, found)
                made = compiler.compile_module(
                    module,  # noqa: B023
                    options,  # noqa: B023
                    problem=problem,
                    policy=watched,
                    keep_object=True,
                )
                Trace.of(made, problem, [each.advice for each in found]).to_bytes()
                return len(found)

            plain()  # what only the first has to do
            alone += min(timed(plain)[0] for _ in range(REPEATS))
            times = [timed(kept) for _ in range(REPEATS)]
            under += min(seconds for seconds, _ in times)
            decisions += times[0][1]
    print(
        f"{len(packages)} modules, {decisions:,} decisions: under {model} {under / alone:.2f} x "
        "the time that LLVM takes alone"
    )


def timed(work: Callable[[], int]) -> tuple[float, int]:
    start = time.perf_counter()
    count = work()
    return time.perf_counter() - start, count


if __name__ == "__main__":
    run(Packages.load(sys.argv[1:]), "inlining-for-size")
