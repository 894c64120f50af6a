"""Whether the score is LLVM's: ours, and the allocator's remarks, against LLVM's own function.

``calculateRegAllocScore`` is in LLVM's libraries, though stock compilers never call it; a small C++
program (``regalloc_score.cpp``; needs clang++-22 and llvm-22-dev) calls it on the machine code that
the embedded LLVM leaves. Compared are, for every function that asks for an eviction and under every
policy, the improvement on LLVM's default: by LLVM's function, by mlgo_gym's score, and by what the
allocator's remarks say (4 a reload, 1 a spill, 0.2 a copy, by block frequency).
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.measuring import rank_correlation
from mlgo_gym import Compiler, Corpus, RegallocEviction
from mlgo_gym.llvm import options_of
from mlgo_gym.llvm._task import ALLOCATE_WITH_FREQUENCIES
from mlgo_gym.problems import PolicyLike, Problem
from mlgo_gym.rollout._allocation import Allocator, OptimizedModule

SOURCE = Path(__file__).with_suffix(".cpp")
REMARK_WEIGHTS: Final = {
    "spills": 1.0,
    "folded spills": 1.0,
    "reloads": 4.0,
    "folded reloads": 4.0,
    "copies": 0.2,
}
_COST: Final = re.compile(r"(\S+) total ([a-z ]+?) cost")
_EQUAL: Final = 1e-6
MOST_FUNCTIONS: Final = 1000
RECIPES: Final = ("lupa", "brotli", "zstandard", "lz4", "fasttext", "libsass")
_BATCH: Final = 200


class WithRemarks(RegallocEviction):
    """Eviction, with remarks on what the allocator has added.

    A worker keeps LLVM's options from one compilation to the next, so all have remarks once a first
    one has asked for them.
    """

    def advisor_options(self, channel_base: str) -> tuple[str, ...]:
        """LLVM's options for eviction, and for the remarks."""
        return (
            *RegallocEviction.advisor_options(self, channel_base),
            "-pass-remarks-missed=regalloc",
        )


@dataclass(frozen=True)
class Scored:
    """A function allocated once, and what each source says of it."""

    ours: float
    remarks: float
    machine_code: Path


def run(corpora: Sequence[Corpus]) -> None:
    with tempfile.TemporaryDirectory() as folder, Compiler() as compiler:
        program = built(Path(folder))
        allocator = Allocator(compiler, WithRemarks())
        paths = (Path(folder, f"{index}.mir") for index in itertools.count())
        functions = (
            row
            for corpus in corpora
            for name in corpus
            for row in allocated(allocator, corpus, name, paths)
        )
        rows = list(itertools.islice(functions, MOST_FUNCTIONS))
        llvms = llvm_scores(program, [each.machine_code for row in rows for each in row.values()])
    print(f"{len(rows)} functions, {len(RegallocEviction.policies)} policies")
    everything = [each for row in rows for each in row.values()]
    off = np.array([abs(e.ours / llvms[e.machine_code] - 1) for e in everything
                    if llvms[e.machine_code]])  # fmt: skip
    print(
        f"mlgo_gym's score against LLVM's: median difference {np.median(off):.1e}, largest "
        f"{off.max():.1e}; within 0.1 %: {np.mean(off < 1e-3):.4f}"
    )
    truth = improvements(rows, {each.machine_code: llvms[each.machine_code] for each in everything})
    compare("mlgo_gym", truth, improvements(rows, {e.machine_code: e.ours for e in everything}))
    compare("remarks", truth, improvements(rows, {e.machine_code: e.remarks for e in everything}))


def allocated(
    allocator: Allocator, corpus: Corpus, name: str, paths: Iterator[Path]
) -> Iterator[dict[str, Scored]]:
    """For each function of a module that asks: the baseline, called "", and every policy."""
    module = corpus[name]
    optimized = allocator.find_functions(allocator.optimize(module, options_of(module)))
    for function in allocator.take_apart(optimized).values():
        _, known = allocator.baseline(function)
        row = {"": scored(allocator, known, {}, next(paths))}
        for policy, make in RegallocEviction.policies.items():
            answers: Mapping[Problem, PolicyLike] = {allocator.problem: make(0)}
            row[policy] = scored(allocator, known, answers, next(paths))
        yield row


def scored(
    allocator: Allocator, known: OptimizedModule, answers: Mapping[Problem, PolicyLike], path: Path
) -> Scored:
    product = allocator.compiler.produce(
        known.module, known.options, ALLOCATE_WITH_FREQUENCIES, answers
    )
    path.write_bytes(product.data)
    remarks = 0.0
    for line in product.stderr.splitlines():
        if line.endswith("generated in function"):
            remarks = sum(REMARK_WEIGHTS[kind] * float(cost) for cost, kind in _COST.findall(line))
    return Scored(allocator.result(known, product).score, remarks, path)


def built(folder: Path) -> Path:
    """The C++ program, compiled against LLVM 22's libraries."""
    config = shutil.which("llvm-config-22") or "llvm-config-22"
    asked = ("--cxxflags", "--ldflags", "--libs")
    flags = subprocess.run([config, *asked], check=True, capture_output=True, text=True)
    program = folder / "score"
    command = ["clang++-22", "-O1", str(SOURCE), "-o", str(program), *flags.stdout.split()]
    subprocess.run(command, check=True)
    return program


def llvm_scores(program: Path, paths: Sequence[Path]) -> dict[Path, float]:
    scores: dict[Path, float] = {}
    for start in range(0, len(paths), _BATCH):
        command = [str(program), *map(str, paths[start : start + _BATCH])]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        path = Path()
        for line in done.stdout.splitlines():
            name, _, score = line.partition("\t")
            path = path if score else Path(name)
            if score:
                scores[path] = float(score)
    return scores


def improvements(rows: Sequence[dict[str, Scored]], values: Mapping[Path, float]) -> np.ndarray:
    """The default's value less each policy's."""
    return np.array(
        [
            values[row[""].machine_code] - values[each.machine_code]
            for row in rows
            for policy, each in row.items()
            if policy
        ]
    )


def compare(name: str, truth: np.ndarray, other: np.ndarray) -> None:
    one, two = np.round(truth, 6), np.round(other, 6)
    rank = rank_correlation(one, two)
    agree = np.mean(signs(truth) == signs(other))
    changed = (signs(truth) != 0) | (signs(other) != 0)
    rank_changed = rank_correlation(one[changed], two[changed])
    agree_changed = np.mean(signs(truth[changed]) == signs(other[changed]))
    print(
        f"{name:9} improvements: rank correlation {rank:.4f}, signs agree {agree:.4f}; of the "
        f"{changed.sum()} of {len(truth)} that change: {rank_changed:.4f}, {agree_changed:.4f}"
    )


def signs(values: np.ndarray) -> np.ndarray:
    return np.where(np.abs(values) < _EQUAL, 0, np.sign(values))
