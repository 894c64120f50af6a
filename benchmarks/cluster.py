"""Work on a Ray cluster of this machine: against workers here, and what it costs the caller.

``python -m benchmarks.cluster``: an evaluation with two workers, here and on Ray, in turns; the CPU
that the caller needs for a result whose work takes no time, its memory meanwhile, and how long it
takes from a node's start to its first result.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import logging
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

from benchmarks.measuring import in_turns
from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize, Module
from mlgo_gym.evaluation import evaluate
from mlgo_gym.evaluation._evaluate import Setting, module_scores
from mlgo_gym.evaluation._summary import ModuleScores
from mlgo_gym.lab.cluster import RayCluster, _dispatch, _ray_executor
from mlgo_gym.llvm import each

WORKERS: Final = 2
_STORE_BYTES: Final = 100 << 20
_PARTS: Final = 4
_SETTINGS: Final = {
    "RAY_AUTH_TOKEN": secrets.token_hex(),
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_TMPDIR": "/tmp",  # noqa: S108 - sockets have short names
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # as workers here
}


class Desk:
    """A state that needs no LLVM."""

    def interrupt(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing is held."""


class Recorded:
    """Work that takes no time: the scores of another time."""

    def __init__(self, scores: Mapping[str, ModuleScores]) -> None:
        self._scores = scores

    def __call__(self, _: Desk, module: Module) -> ModuleScores:
        """The module's scores."""
        return self._scores[module.name]


def compare(corpus: Corpus, cluster: RayCluster, rounds: int) -> None:
    """An evaluation here and there, in turns."""
    measure = partial(evaluate, "inlining-for-size", {"libsass": corpus})
    ways = {"here": partial(measure, jobs=WORKERS), "on Ray": partial(measure, jobs=cluster)}
    seconds = in_turns(ways, rounds)
    here, there = (median(found) for found in seconds.values())
    shares = [b / a for a, b in zip(*seconds.values(), strict=True)]
    print(f"evaluate, {len(corpus)} modules, {WORKERS} workers, {rounds} rounds:")
    print(f"  here {here:.2f} s, on Ray {there:.2f} s: {median(shares):.3f} x")


def costs(cluster: RayCluster, results: int, batch: int, *, travels: bool) -> None:
    """What a result costs the caller, in batches of so many, whose modules nodes read or get."""
    corpus = Corpus.load(SAMPLE_CORPUS)
    read: Any = corpus.__getitem__ if travels else corpus.file
    problem = InliningForSize()
    policies = {"never": problem.policy("never")}
    known = module_scores({"": corpus}, policies, Setting(problem))
    work = Recorded({scores.module: scores for scores in known})
    names = itertools.islice(itertools.cycle(corpus.names), results)
    vars(_ray_executor)["Dispatch"] = fixed(batch)
    resident = []
    with closing(each(list(names), work, Desk, read=read, jobs=cluster)) as found:
        for count, _ in enumerate(found):
            if not count:
                start, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
            if count % (results // _PARTS) == 0:
                resident.append(psutil.Process().memory_info().rss / (1 << 20))
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - start
    own = time.thread_time() - own
    vars(_ray_executor)["Dispatch"] = _dispatch.Dispatch
    way = "travel" if travels else "are there"
    print(
        f"batches of {batch}, modules {way}: {1e6 * cpu / results:.0f} us of the caller's CPU "
        f"a result, {1e6 * own / results:.0f} of its one thread, "
        f"{results / seconds:,.0f} results a second; resident "
        + ", ".join(f"{each:.0f}" for each in resident)
        + " MiB by quarter"
    )


def fixed(count: int) -> Any:
    """A dispatch with batches of one size."""

    class Fixed(_dispatch.Dispatch[Any]):
        def _most(self, grown: int) -> int:
            del grown
            return count

    return Fixed


def join(cluster: RayCluster, nodes: Any) -> None:
    """How long a node takes from its start to its first result."""
    ray = importlib.import_module("ray")
    corpus = Corpus.load(SAMPLE_CORPUS)
    known = {node["NodeID"] for node in ray.nodes()}
    modules = itertools.cycle(corpus.names)
    found = each(modules, where, Compiler, read=corpus.file, jobs=cluster)
    with closing(found):
        next(found)
        start = time.perf_counter()
        nodes.add_node(num_cpus=1, object_store_memory=_STORE_BYTES)
        there = time.perf_counter() - start
        first = next(done for done in found if done.value not in known)
        del first
    seconds = time.perf_counter() - start
    print(f"a node: there after {there:.1f} s, its first result {seconds - there:.1f} s later")


def where(compiler: Compiler, module: Module) -> str:
    """The node that a module was compiled on."""
    ray = importlib.import_module("ray")
    compiler.compile_module(module)
    return str(ray.get_runtime_context().get_node_id())


def connected() -> Iterator[tuple[RayCluster, Any]]:
    """A cluster of one node."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    cluster_utils = importlib.import_module("ray.cluster_utils")
    head = {"num_cpus": WORKERS, "include_dashboard": False, "object_store_memory": _STORE_BYTES}
    nodes = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    logging.getLogger("ray").setLevel(logging.ERROR)
    with RayCluster(nodes.address) as cluster:
        yield cluster, nodes
    nodes.shutdown()


def run(corpus: Corpus, rounds: int, results: int) -> None:
    for cluster, nodes in connected():
        for batch, travels in itertools.product((1, 8, 32, 128), (False, True)):
            costs(cluster, results, batch, travels=travels)
        compare(corpus, cluster, rounds)
        join(cluster, nodes)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=SAMPLE_CORPUS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=int, default=100_000)
    options = parser.parse_args()
    run(Corpus.load(options.corpus), options.rounds, options.results)


if __name__ == "__main__":
    main()
