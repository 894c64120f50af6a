"""Runs the measurements: ``make bench`` runs all, ``python -m benchmarks NAME`` one."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import clang_equality, soak, sweep_overhead
from benchmarks.recipes import built
from mlgo_gym import Corpus

parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
parser.add_argument(
    "name", nargs="?", choices=["all", "sweep_overhead", "clang_equality", "soak"], default="all"
)
parser.add_argument("--corpus", type=Path, help="for sweep_overhead (default: Lua 5.4)")
parser.add_argument("--rounds", type=int, default=7, help="for sweep_overhead")
parser.add_argument("--episodes", type=int, default=2000, help="for soak")
options = parser.parse_args()

if options.name in {"all", "clang_equality"}:
    clang_equality.run()
if options.name in {"all", "sweep_overhead"}:
    corpus = Corpus.load(options.corpus) if options.corpus else built("lupa")
    sweep_overhead.run(corpus, options.rounds)
if options.name in {"all", "soak"}:
    soak.run(options.episodes)
