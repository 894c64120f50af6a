"""Runs the measurements: ``make bench`` runs all, ``python -m benchmarks NAME`` one."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import (
    advantages,
    clang_equality,
    driver_builds,
    driver_modules,
    extraction_throughput,
    forks,
    oracle,
    real_builds,
    regalloc_baselines,
    regalloc_headroom,
    regalloc_score,
    regalloc_sweep,
    runner_latency,
    scaling,
    soak,
    sweep_overhead,
)
from benchmarks.recipes import built
from mlgo_gym import Corpus

NAMES = (
    "clang_equality",
    "sweep_overhead",
    "regalloc_baselines",
    "regalloc_headroom",
    "regalloc_score",
    "regalloc_sweep",
    "soak",
    "forks",
    "scaling",
    "advantages",
    "oracle",
    "runner_latency",
    "extraction_throughput",
    "real_builds",
    "driver_builds",
    "driver_modules",
)

parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
parser.add_argument("name", nargs="?", choices=["all", *NAMES], default="all")
parser.add_argument("--corpus", type=Path, help="for the sweeps (default: Lua 5.4)")
parser.add_argument("--rounds", type=int, default=7, help="for the sweeps")
parser.add_argument("--episodes", type=int, default=2000, help="for soak")
parser.add_argument("--model", type=Path, help="for runner_latency; see benchmarks.latency_model")
parser.add_argument("--sdists", type=Path, help="for driver_builds: where sdists are kept")
parser.add_argument("--budget", type=float, default=60.0, help="seconds a module, for oracle")
parser.add_argument("--tries", type=int, default=200, help="of a function, for regalloc_headroom")
parser.add_argument("--objects", type=int, default=1000, help="for extraction_throughput")
parser.add_argument("--build", help="for real_builds: only those with this in their names")
options = parser.parse_args()

if options.name in {"all", "clang_equality"}:
    clang_equality.run()
if options.name in {"all", "sweep_overhead"}:
    corpus = Corpus.load(options.corpus) if options.corpus else built("lupa")
    sweep_overhead.run(corpus, options.rounds)
if options.name in {"all", "regalloc_baselines"}:
    regalloc_baselines.run({name: built(name, "O3") for name in regalloc_baselines.RECIPES})
if options.name in {"all", "regalloc_headroom"}:
    regalloc_headroom.run({name: built(name) for name in regalloc_headroom.RECIPES}, options.tries)
if options.name in {"all", "regalloc_score"}:
    regalloc_score.run([built(name, "O3") for name in regalloc_score.RECIPES])
if options.name in {"all", "regalloc_sweep"}:
    regalloc_sweep.run(
        Corpus.load(options.corpus) if options.corpus else built("lupa", "O3"), options.rounds
    )
if options.name in {"all", "soak"}:
    soak.run(options.episodes)
if options.name in {"all", "forks"}:
    forks.run(built("lupa", "O3", whole_program=True), forks=30)
if options.name in {"all", "scaling"}:
    corpus = built("libsass")
    scaling.run(corpus, tuple(sorted(corpus, key=corpus.size_bytes)[::3]))
if options.name in {"all", "advantages"}:
    advantages.run(built("libsass"), "libsass/src/listize.cpp")
if options.name in {"all", "oracle"}:
    oracle.run([[built("libsass")], [built("fasttext"), built("sentencepiece")]], options.budget)
if options.name == "runner_latency" or (options.name == "all" and options.model):
    runner_latency.run(options.model)
if options.name in {"all", "extraction_throughput"}:
    extraction_throughput.run(options.objects, rounds=3, workers=2)
if options.name in {"all", "driver_builds"}:
    driver_builds.run(cache=options.sdists)
if options.name in {"all", "driver_modules"}:
    driver_modules.run()
if options.name in {"all", "real_builds"}:
    real_builds.run(options.build)
