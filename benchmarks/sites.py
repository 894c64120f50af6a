"""What it costs that decisions say where they are, and that it changes no code.

Every module of a corpus is compiled with LLVM's own answers given from here: plainly, with names of
caller and callee, with sites, and with debug information besides, in turns. Times are processors',
of this process and the worker, the least of the rounds, summed over the modules.
"""

from __future__ import annotations

import time

import psutil

from mlgo_gym import Compiler, Corpus, InliningForSize
from mlgo_gym.corpus import function_code, function_sizes
from mlgo_gym.llvm import Task
from mlgo_gym.problems import Problem

WAYS = {
    "plain": Task(),
    "names": Task(names=True),
    "sites": Task(sites=True),
    "debug information": Task(sites=True, debug_info=True),
}


def run(corpus: Corpus, rounds: int) -> None:
    times: dict[str, dict[str, float]] = {way: {} for way in WAYS}
    equal = same = decisions = 0
    problem = InliningForSize()
    compilers = {way: Compiler() for way in WAYS}
    try:
        for index in range(rounds + 1):  # what the first one starts is not of this
            for name in corpus:
                objects = {}
                for way, task in WAYS.items():
                    start = spent_s(compilers[way])
                    asked, objects[way] = compiled(compilers[way], corpus, name, task, problem)
                    spent = spent_s(compilers[way]) - start
                    if index:
                        times[way][name] = min(spent, times[way].get(name, spent))
                if not index:
                    decisions += asked
                    equal += objects["plain"] == objects["sites"]
                    same += are_same(objects["plain"], objects["debug information"])
    finally:
        for compiler in compilers.values():
            compiler.close()
    print(f"{len(corpus)} modules, {decisions:,} decisions")
    print(f"objects equal with sites: {equal};", end=" ")
    print(f"functions of one size with debug information: {same}")
    plain = sum(times["plain"].values())
    for way, found in times.items():
        print(f"{way:<18} {sum(found.values()):7.3f} s   {sum(found.values()) / plain:.3f} x plain")


def spent_s(compiler: Compiler) -> float:
    """The processors' time so far; of a worker that has not begun there is none."""
    own = time.process_time()
    if compiler.worker_pid is None:
        return own
    times = psutil.Process(compiler.worker_pid).cpu_times()
    return own + times.user + times.system


def compiled(
    compiler: Compiler, corpus: Corpus, name: str, task: Task, problem: Problem
) -> tuple[int, bytes]:
    with compiler.start(corpus[name], problem, task=task, keep_object=True) as compilation:
        while (observation := compilation.next_observation()) is not None:
            compilation.answer(int(observation["inlining_default"][0]))
        return compilation.decisions, compilation.result.object_bytes or b""


def are_same(plain: bytes, described: bytes) -> bool:
    sizes = {name: found.size_bytes for name, found in function_sizes(plain).items()}
    return all(sizes[name] == found.size_bytes for name, found in function_code(described).items())
