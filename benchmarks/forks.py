"""What a fork costs: its time and its private memory, after few and after many decisions."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

from benchmarks.measuring import timed
from mlgo_gym import Compiler, Corpus, InliningForSize
from mlgo_gym.problems._inlining_for_size import default

DECISIONS = (10, 1000, 5000)


def run(corpus: Corpus, forks: int) -> None:
    (name,) = corpus
    with Compiler() as compiler:
        compilation = compiler.start(corpus[name], InliningForSize(math.inf))
        while (observation := compilation.next_observation()) is not None:
            if compilation.decisions in DECISIONS:
                times, private = [], []
                for _ in range(forks):
                    seconds, branch = timed(compilation.fork)
                    times.append(seconds)
                    private.append(private_kilobytes(branch.worker_pid))
                    branch.close()
                print(
                    f"{name}, decision {compilation.decisions:5,}: {forks} forks, median "
                    f"{1e3 * median(times):.2f} ms, at most {1e3 * max(times):.2f} ms; private "
                    f"pages of a fresh branch: median {median(private):.0f} kB, at most "
                    f"{max(private)} kB"
                )
            compilation.answer(default(observation))


def private_kilobytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
