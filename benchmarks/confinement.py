"""What it costs that workers confine themselves: when they start, and while they compile.

Processes begin as workers do, every other one without the limits and the sandbox, and compile the
sample corpus. Times are medians over the processes, of a compilation the sum over the modules.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from statistics import median

from mlgo_gym import SAMPLE_CORPUS, Corpus
from mlgo_gym.llvm import options_of
from mlgo_gym.llvm._launch import child_command, child_environment
from mlgo_gym.llvm._limits import Limits
from mlgo_gym.llvm.worker import _binding as binding


def run(rounds: int) -> None:
    times: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(rounds):
        for confined, samples in times.items():
            command = child_command("benchmarks.confinement", repr(confined))
            done = subprocess.run(
                command, env=child_environment(), stdout=subprocess.PIPE, check=True
            )
            samples.append(json.loads(done.stdout))
    holding, _ = (1000 * median(each) for each in zip(*times[True], strict=True))
    free, bound = (median(each for _, each in times[kind]) for kind in (False, True))
    print(f"limits and sandbox   {holding:7.3f} ms a start")
    print(f"compiling without    {free:7.3f} s")
    print(f"compiling confined   {bound:7.3f} s   {bound / free:.3f} x without")


def main(confined: bool) -> None:
    """What each process does; it prints how long holding itself took, and how long compiling."""
    binding.Session()
    corpus = Corpus.load(SAMPLE_CORPUS)
    modules = [(corpus[name].data, options_of(corpus[name]).target()) for name in corpus]
    start = time.perf_counter()
    if confined:
        Limits().hold()
    held = time.perf_counter()
    for data, target in modules:
        with binding.parse(data, is_text=False, verify=True) as module:
            binding.emit_object(module, target, binding.optimize(module, target))
    json.dump((held - start, time.perf_counter() - held), sys.stdout)
