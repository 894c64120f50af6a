"""Fuzzing: readers, in a child, are given files that are nearly sound; they take or refuse them.

An input is made from the seed, the reader's name and the input's number alone. A run goes on where
one of the same seed stopped. What a reader should not have done (an exception that is not the
project's own, one that does not name the file, a death, more than the memory or the time there
is) is a finding, kept as a file under ``tests/fuzz/findings`` that `make test` reads again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

FINDINGS = Path(__file__).parent / "findings"
STATE = Path("build/fuzz")
DEADLINE_S = 20.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="inputs of each reader; by default a whole run")
    parser.add_argument("--seconds", type=float, help="for each reader, however many inputs")
    parser.add_argument("--target", action="append", help="a reader; by default all")
    parser.add_argument("--jobs", type=int, default=1, help="how many readers at once")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        numbers = range(options.child, min(options.child + options.count, sys.maxsize))
        _child(options.target[0], options.seed, numbers, options.seconds)
        return 0
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - it loads LLVM and LIEF

    STATE.mkdir(parents=True, exist_ok=True)
    names = options.target or list(TARGETS)

    def fuzzed(name: str) -> dict[str, Any]:
        count = TARGETS[name].whole if options.count is None else options.count
        found = _fuzz(name, options.seed, count, options.seconds)
        print(f"{name}: {' '.join(f'{key} {value}' for key, value in found.items())}", flush=True)
        return found

    with ThreadPoolExecutor(options.jobs) as threads:
        results = dict(zip(names, threads.map(fuzzed, names), strict=True))
    (STATE / "summary.json").write_text(json.dumps({"seed": options.seed} | results, indent=2))
    return 1 if any(each["findings"] for each in results.values()) else 0


def _fuzz(name: str, seed: int, count: int, seconds: float | None) -> dict[str, Any]:
    """Let children read until there have been so many inputs, or until the time is over."""
    state = STATE / f"{name.replace(' ', '-')}.{seed}.json"
    done: dict[str, Any] = {"inputs": 0, "taken": 0, "refused": 0, "findings": 0, "seconds": 0.0}
    if state.exists():
        done = json.loads(state.read_text())
    end = done["seconds"] + seconds if seconds is not None else float("inf")
    goal = count if seconds is None else sys.maxsize
    while done["inputs"] < goal and done["seconds"] < end:
        until = ["--count", str(goal - done["inputs"]), "--seconds", str(end - done["seconds"])]
        with tempfile.TemporaryDirectory(dir=_memory()) as folder:
            _watch(name, seed, Path(folder), done, until)
        state.write_text(json.dumps(done))
    return done | {"seconds": round(done["seconds"], 1)}


def _memory() -> Path | None:
    """Where files are in memory: to write one on a disk takes longer than to read it."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else None


def _watch(name: str, seed: int, folder: Path, done: dict[str, Any], until: Sequence[str]) -> None:
    """A child, from its start to its end or to its death."""
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - it loads LLVM and LIEF

    arguments = ["--target", name, "--seed", str(seed), "--child", str(done["inputs"]), *until]
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    environment = os.environ | {"FUZZ_FOLDER": str(folder)}
    with (folder / "error").open("wb") as log:
        child = subprocess.Popen(command, env=environment, stderr=log, stdout=log)
    reason = ""
    while child.poll() is None:
        time.sleep(0.1)
        with contextlib.suppress(FileNotFoundError):
            if time.time() - (folder / "state").stat().st_mtime > DEADLINE_S:
                reason = f"not done after {DEADLINE_S} s"
                child.kill()
    if not (folder / "state").exists():
        raise SystemExit(f"{name}: {(folder / 'error').read_text()[-2000:]}")
    found = json.loads((folder / "state").read_text())
    for key in done:
        done[key] += found[key]
    if child.returncode == -signal.SIGABRT and TARGETS[name].may_abort and not reason:
        done["inputs"] += 1
        done["refused"] += 1
    elif child.returncode:
        data = (folder / "in" / TARGETS[name].name).read_bytes()
        last = (folder / "error").read_text(errors="replace").strip().splitlines()[-1:]
        _keep(name, data, reason or f"ended with {child.returncode}: {''.join(last)[:200]}")
        done["inputs"] += 1
        done["findings"] += 1


def _keep(name: str, data: bytes, reason: str) -> None:
    digest = f"{zlib.crc32(data):08x}"
    folder = FINDINGS / name.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / digest).write_bytes(data)
    print(f"{name}: {folder / digest}: {reason}", flush=True)


def _child(name: str, seed: int, numbers: Iterable[int], seconds: float) -> None:
    from tests.fuzz.targets import OWN, TARGETS  # noqa: PLC0415 - it loads LLVM and LIEF

    target = TARGETS[name]
    folder = Path(os.environ["FUZZ_FOLDER"])
    inside = folder / "in"
    inside.mkdir()
    target.around(inside)
    path = inside / target.name
    seeds = target.seeds()
    path.write_bytes(seeds[0])
    with contextlib.suppress(*OWN):
        target.read(path)  # what it loads does not count
    _limit_memory(target.memory_bytes)
    state = os.open(folder / "state", os.O_WRONLY | os.O_CREAT)
    start = time.monotonic()
    done: dict[str, Any] = {"inputs": 0, "taken": 0, "refused": 0, "findings": 0, "seconds": 0.0}
    for number in numbers:
        done["seconds"] = time.monotonic() - start
        _note(state, done)
        if done["seconds"] > seconds:
            break
        random = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
        data = target.mutate(random, seeds[int(random.integers(0, len(seeds)))])
        path.write_bytes(data)
        before = time.process_time()
        reason = ""
        try:
            target.read(path)
            done["taken"] += 1
        except OWN as error:
            done["refused"] += 1
            text = str(error)
            if target.names_it and path.name not in text and str(inside) not in text:
                reason = f"does not name the file: {text[:200]}"
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a finding
            reason = f"{type(error).__name__}: {str(error)[:200]}"
        if (spent := time.process_time() - before) > target.slow_s:
            reason = reason or f"took {spent:.1f} s"
        done["inputs"] += 1
        if reason:
            done["findings"] += 1
            _keep(name, data, reason)
            with (Path.cwd() / STATE / "findings.txt").open("a") as log:
                log.write(f"{name} {number}: {reason}\n")
    _note(state, done)


def _note(state: int, done: dict[str, Any]) -> None:
    """Written at once, over what it was: it is read while this goes on."""
    os.pwrite(state, json.dumps(done).encode().ljust(200), 0)


def _limit_memory(more_bytes: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    sys.exit(main())
