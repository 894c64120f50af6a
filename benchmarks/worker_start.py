"""What a worker costs to start: as a fork of the zygote and anew, in turns in one run.

- A new worker and one compilation of ``frame_stream.c`` in it, less that in a worker that has
  compiled it before.
- ``gymnasium.make_vec`` and ``reset`` of 16 environments against one, each in a process of its own
  that has imported all before.
- Private memory of the zygote and of workers.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

from benchmarks.forks import private_kilobytes
from benchmarks.measuring import timed
from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus
from mlgo_gym.llvm import _zygote
from mlgo_gym.llvm._zygote import zygote_pid

ENVS: Final = 16
_MAKE: Final = """
import sys, time
import gymnasium
import mlgo_gym.envs
from mlgo_gym.llvm import _zygote
from mlgo_gym.envs import _vector
is_fork, count, module = sys.argv[1] == "fork", int(sys.argv[2]), sys.argv[3]
if not is_fork:
    _zygote.can_fork = lambda: False
start = time.perf_counter()
envs = gymnasium.make_vec("mlgo_gym/InliningForSize-v0", num_envs=count)
envs.reset(seed=1, options={"module": module} if module else None)
print(time.perf_counter() - start)
envs.close()
"""


def run(rounds: int) -> None:
    _one_compilation(rounds)
    for module in ("", "frame_stream.c"):
        _environments(rounds, module)
    _memory()


def _one_compilation(rounds: int) -> None:
    module = Corpus.load(SAMPLE_CORPUS)["frame_stream.c"]
    with Compiler() as lasting:
        lasting.compile_module(module)
        warm, fork, anew = [], [], []
        with Compiler() as compiler:  # the first, which the zygote is started for
            compiler.compile_module(module)
        for _ in range(rounds):
            warm.append(timed(lambda: lasting.compile_module(module))[0])
            with Compiler() as compiler:
                fork.append(timed(lambda: compiler.compile_module(module))[0])
            with _without_zygote(), Compiler() as compiler:
                anew.append(timed(lambda: compiler.compile_module(module))[0])
    base = median(warm)
    print(
        f"frame_stream.c, medians of {rounds}: in a worker that has compiled it {1e3 * base:.1f} "
        f"ms; in a new one {1e3 * (median(fork) - base):.1f} ms more as a fork, "
        f"{1e3 * (median(anew) - base):.1f} ms more anew"
    )


def _environments(rounds: int, module: str) -> None:
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for way in ("fork", "anew"):
            for count in (1, ENVS):
                command = [sys.executable, "-c", _MAKE, way, str(count), module]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                times.setdefault((way, count), []).append(float(done.stdout))
    for way in ("fork", "anew"):
        one, many = median(times[way, 1]), median(times[way, ENVS])
        print(
            f"make_vec and reset, {module or 'modules as drawn'}, medians of {rounds}, {way}: one "
            f"{1e3 * one:.0f} ms, {ENVS} {1e3 * many:.0f} ms, {many / one:.1f} times"
        )


def _memory() -> None:
    module = Corpus.load(SAMPLE_CORPUS)["frame_stream.c"]
    with Compiler() as fork, Compiler() as anew:
        fork.compile_module(module)
        with _without_zygote():
            anew.compile_module(module)
        of = {"the zygote": zygote_pid(), "a fork": fork.worker_pid, "one anew": anew.worker_pid}
        found = [
            f"{name} {private_kilobytes(pid) / 1024:.1f} MiB" for name, pid in of.items() if pid
        ]
        print(f"private memory, of workers after a compilation: {', '.join(found)}")


@contextmanager
def _without_zygote() -> Iterator[None]:
    names = vars(_zygote)
    can_fork, names["can_fork"] = names["can_fork"], lambda: False
    try:
        yield
    finally:
        names["can_fork"] = can_fork
