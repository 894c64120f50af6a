"""How many workers one caller carries: simulated ones, with times of real compilations.

``python -m benchmarks.cluster_simulation``: the real `Dispatch` hands out batches to workers that
are simulated, each of which takes as long for a module as it took here. The caller does one thing
at a time: a call takes it `--call-us`, each item of it `--item-us`, which `benchmarks.cluster`
measures. What share of the time workers are busy is printed, and what `Dispatch` itself takes.
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus
from mlgo_gym.lab.cluster._dispatch import Dispatch, ItemBatch
from mlgo_gym.llvm._schedule import Made

WORKERS: Final = [100, 250, 500, 1000, 2000]
_DONE: Final[Made[None]] = Made(None, (None,))


def recorded(corpus: Corpus) -> list[float]:
    """How long each module takes here, compiled plainly twice in a worker that runs, in seconds."""
    seconds = []
    with Compiler() as compiler:
        for name in corpus:
            module = corpus[name]
            compiler.compile_module(module)
            start = time.perf_counter()
            compiler.compile_module(module)
            compiler.compile_module(module)
            seconds.append(time.perf_counter() - start)
    return seconds


def simulate(
    item_s: Sequence[float], workers: int, call_s: float, each_s: float
) -> tuple[float, float]:
    """The share of the time that workers are busy, and the seconds of `Dispatch` for a result."""
    dispatch = Dispatch(sorted(item_s, reverse=True), in_order=False)
    free = [0.0] * workers  # when each is through with what it has
    events: list[tuple[float, int, int]] = []
    batches: dict[int, ItemBatch[float]] = {}
    now = busy = 0.0
    own = time.perf_counter()

    def finish() -> None:
        _, worker, key = heapq.heappop(events)
        batch = batches.pop(key)
        dispatch.finish(worker, batch, [_DONE] * len(batch.items), sum(batch.items))

    for worker in range(workers):
        dispatch.join(worker)
    while True:
        for worker, batch in dispatch.hand_out():
            now += call_s + each_s * len(batch.items)
            start, length = max(now, free[worker]), sum(batch.items)
            free[worker] = start + length
            busy += length
            batches[id(batch)] = batch
            heapq.heappush(events, (free[worker], worker, id(batch)))
            while events and events[0][0] <= now:
                finish()
        if not dispatch.is_finished:
            now = max(now, events[0][0]) if events else now
        while events and events[0][0] <= now:
            finish()
        for _ in dispatch.take():
            pass
        if dispatch.is_finished:
            break
    own = (time.perf_counter() - own) / len(item_s)
    return busy / (workers * max(free)), own


def run(item_s: Sequence[float], each_us: float, options: argparse.Namespace) -> None:
    scale = 1e-3 * options.mean_ms / (sum(item_s) / len(item_s))
    random = Random(0)  # noqa: S311
    print(f"{options.mean_ms:g} ms, {options.call_us:g} us a call and {each_us:g} us a result:")
    for workers in options.workers:
        drawn = [scale * random.choice(item_s) for _ in range(options.modules * workers)]
        share, own = simulate(drawn, workers, 1e-6 * options.call_us, 1e-6 * each_us)
        print(
            f"  {workers:5,} workers: {share:6.1%} busy; the schedule {1e6 * own:.1f} us a result"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster_simulation", description=__doc__
    )
    parser.add_argument("--corpus", type=Path, default=SAMPLE_CORPUS)
    parser.add_argument("--mean-ms", type=float, default=70.0, help="of a module")
    parser.add_argument("--call-us", type=float, default=400.0)
    parser.add_argument("--item-us", type=float, nargs="+", default=[40.0, 20.0])
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    parser.add_argument("--modules", type=int, default=1000, help="a worker")
    options = parser.parse_args()
    item_s = recorded(Corpus.load(options.corpus))
    for each_us in options.item_us:
        run(item_s, each_us, options)


if __name__ == "__main__":
    main()
