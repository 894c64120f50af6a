"""Runs the measurements that are listed here: one by its name, or all, as ``make bench`` does.

Corpora are taken from ``build/corpora``, and built there where they are missing. Of all,
runner_latency and emitted_c run only with ``--model``. Other files of the folder are commands of
their own, ``python -m benchmarks.FILE``, with arguments that their first lines describe.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.recipes import built
from mlgo_gym import Corpus

_Run = Callable[[Any, argparse.Namespace], None]


def _corpus(options: argparse.Namespace, level: str | None = None) -> Corpus:
    if options.corpus:
        return Corpus.load(options.corpus)
    return built("lupa", level) if level else built("lupa")


RUNS: Final[dict[str, _Run]] = {
    "clang_equality": lambda module, _: module.run(),
    "confinement": lambda module, options: module.run(options.rounds),
    "sweep_overhead": lambda module, options: module.run(_corpus(options), options.rounds),
    "embeddings": lambda module, options: module.run(_corpus(options), options.rounds),
    "sites": lambda module, options: module.run(_corpus(options), options.rounds),
    "regalloc_baselines": lambda module, _: module.run(
        {name: built(name, "O3") for name in module.RECIPES}
    ),
    "regalloc_headroom": lambda module, options: module.run(
        {name: built(name) for name in module.RECIPES}, options.tries
    ),
    "regalloc_score": lambda module, _: module.run([built(name, "O3") for name in module.RECIPES]),
    "regalloc_sweep": lambda module, options: module.run(_corpus(options, "O3"), options.rounds),
    "soak": lambda module, options: module.run(options.episodes),
    "labels": lambda module, options: module.run(
        built("sentencepiece"), options.modules, options.rounds
    ),
    "forks": lambda module, _: module.run(built("lupa", "O3", whole_program=True), forks=30),
    "worker_start": lambda module, options: module.run(options.rounds),
    "step_time": lambda module, options: module.run(options.rounds),
    "scaling": lambda module, _: module.run(built("libsass")),
    "oracle": lambda module, options: module.run(
        [[built("libsass")], [built("fasttext"), built("sentencepiece")]],
        options.seconds,
        options.modules,
    ),
    "runner_latency": lambda module, options: module.run(options.model),
    "emitted_c": lambda module, options: module.run(options.model),
    "extraction_throughput": lambda module, options: module.run(
        options.objects, rounds=3, workers=2
    ),
    "real_builds": lambda module, options: module.run(options.build),
    "driver_builds": lambda module, options: module.run(cache=options.sdists),
    "driver_modules": lambda module, _: module.run(),
}
"""What runs each, with the options of the command line."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=["all", *RUNS], default="all")
    parser.add_argument("--corpus", type=Path, help="for the sweeps (default: Lua 5.4)")
    parser.add_argument("--rounds", type=int, default=7, help="for the sweeps")
    parser.add_argument("--episodes", type=int, default=2000, help="for soak")
    parser.add_argument("--model", type=Path, help="for runner_latency, emitted_c")
    parser.add_argument("--sdists", type=Path, help="for driver_builds: where sdists are kept")
    parser.add_argument("--seconds", type=float, default=60.0, help="a module, for oracle")
    parser.add_argument("--modules", type=int, default=10, help="of each set, for oracle")
    parser.add_argument("--tries", type=int, default=200, help="a function, for regalloc_headroom")
    parser.add_argument("--objects", type=int, default=1000, help="for extraction_throughput")
    parser.add_argument("--build", help="for real_builds: only those with this in their names")
    options = parser.parse_args()
    names = list(RUNS) if options.name == "all" else [options.name]
    if options.name == "all" and not options.model:
        names = [name for name in names if name not in {"runner_latency", "emitted_c"}]
    for name in names:
        RUNS[name](importlib.import_module(f"benchmarks.{name}"), options)


if __name__ == "__main__":
    main()
