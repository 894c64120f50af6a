"""Two workers against ml-compiler-opt's interactive environment, as it ships, in turns.

::

    git clone https://github.com/google/ml-compiler-opt THEIRS
    python3.11 -m venv VENV
    VENV/bin/pip install absl-py==2.1.0 gin-config==0.5.0 psutil==6.1.0 tf-agents==0.19.0 \
        tensorflow==2.15.0
    python -m benchmarks.ml_compiler_opt --source THEIRS --python VENV/bin/python

An episode is one of the modules of Lua 5.4 that ask for decisions, with LLVM's default answers, and
its score. Theirs starts two clang-22 processes for each, one of them for the baseline, every time;
ours is measured with baselines compiled each time and with baselines known, as they are from the
second episode of a module in our environments; answered in batches, and by a policy for each
worker.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.recipes import built
from mlgo_gym import Compiler, InliningForSize
from mlgo_gym.llvm import each
from mlgo_gym.problems import PolicyLike
from mlgo_gym.problems._inlining_for_size import default
from mlgo_gym.runners import BatchedPolicy

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--source", type=Path, required=True, help="ml-compiler-opt's folder")
parser.add_argument("--python", required=True, help="a Python with what it needs")
parser.add_argument("--rounds", type=int, default=3)
options = parser.parse_args()

corpus = built("lupa")
problem = InliningForSize()
with Compiler() as compiler:
    names = [
        name
        for name in corpus
        if compiler.compile_module(corpus[name], problem=problem, policy=default).decisions
    ]
    baselines = {name: compiler.compile_module(corpus[name]) for name in names}
command = [
    options.python,
    str(Path(__file__).with_name("their_environment.py")),
    *(str(folder) for folder in (options.source, corpus.folder)),
    *(str(shutil.which(tool)) for tool in ("clang-22", "llvm-size-22")),
    *names,
]


def episode(compiler: Compiler, name: str, policy: PolicyLike, *, known: bool) -> float:
    baseline = baselines[name] if known else compiler.compile_module(corpus[name])
    result = compiler.compile_module(corpus[name], problem=problem, policy=policy)
    return 1 - result.text_size_bytes / baseline.text_size_bytes


theirs: list[float] = []
batched = BatchedPolicy(lambda asked: [default(observation) for observation in asked])
ways: dict[str, Callable[[Compiler, str], float]] = {
    "in batches, baselines compiled": partial(episode, policy=batched, known=False),
    "in batches, baselines known": partial(episode, policy=batched, known=True),
    "a policy each, baselines known": partial(episode, policy=default, known=True),
}
ours: dict[tuple[int, str], list[float]] = {(jobs, way): [] for way in ways for jobs in (1, 2)}
for _ in range(options.rounds):
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(ended.stdout.splitlines()[-1])
    theirs.append(result["episodes"] / result["seconds"])
    print(f"ml-compiler-opt: {result}, load average {os.getloadavg()[0]:.1f}")
    for (jobs, way), rates in ours.items():
        start = time.perf_counter()
        found = each(names, ways[way], Compiler, jobs=jobs, size=corpus.size_bytes)
        rewards = [done.value for done in found]
        rates.append(len(rewards) / (time.perf_counter() - start))
for (jobs, way), rates in ours.items():
    print(
        f"{len(names)} modules: ml-compiler-opt {median(theirs):.2f} episodes a second, "
        f"{jobs} workers {median(rates):.2f}, {way}: {median(rates) / median(theirs):.2f} x"
    )
