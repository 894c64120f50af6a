"""What a run of the benchmark costs: modules under a model, decisions kept, against LLVM alone."""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.measuring import timed
from mlgo_gym import Compiler, InliningForSize
from mlgo_gym.corpus import Packages
from mlgo_gym.llvm import options_of
from mlgo_gym.model import find_model
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout import Decision, KeptObjectUnit, RecordingPolicy, Trace
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
            unit = KeptObjectUnit(compiler, module, options_of(module, None), problem)
            unit.baseline()  # what only the first has to do
            alone += min(timed(unit.baseline)[0] for _ in range(REPEATS))
            times = [timed(partial(kept, unit, problem, policy)) for _ in range(REPEATS)]
            under += min(seconds for seconds, _ in times)
            decisions += times[0][1]
    print(
        f"{len(packages)} modules, {decisions:,} decisions: under {model} {under / alone:.2f} x "
        "the time that LLVM takes alone"
    )


def kept(unit: KeptObjectUnit, problem: Problem, policy: PolicyLike) -> int:
    """Compile, and make a trace's file; how many decisions there are."""
    found: list[Decision] = []
    made = unit.attempt(RecordingPolicy(policy, problem, found))
    Trace.of(made, problem.layout, [each.advice for each in found]).to_bytes()
    return len(found)


if __name__ == "__main__":
    run(Packages.load(sys.argv[1:]), "inlining-for-size")
