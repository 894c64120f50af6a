"""How exact meters of programs are, what they cost, and how they go with seconds.

::

    python -m benchmarks.meters counts CORPUS... [--busy 5]
    python -m benchmarks.meters noise CORPUS... [--pairs 100]
    python -m benchmarks.meters layouts CORPUS... [--pairs 100]
    python -m benchmarks.meters overhead CORPUS MODULE
    python -m benchmarks.meters ranks FILE...
    python -m benchmarks.meters work FILE...

The same program counted twice, the second time beside busy processes; seconds of programs against
themselves, in one layout, and in 16 against 16 others, which are drawn from 256; an episode with a
reward of instructions beside valgrind's own time. Of what ``mlgo-gym measure --json`` has printed:
rank correlations with seconds, and changes of instructions, loads and stores together.

Corpora are folders with workloads, or folders of them.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.measuring import mean_interval, rank_correlation, timed
from mlgo_gym.corpus import Packages
from mlgo_gym.envs import make_env
from mlgo_gym.lab.programs import Programs, corpora_with_workloads
from mlgo_gym.lab.programs._meters import Cost, Instructions, Seconds, count, valgrind_tool
from mlgo_gym.lab.programs._program_scores import LAYOUTS, layouts_change, paired_change

BUSY = "while True: sum(range(1000000))"
BASELINE = "LLVM"
WORK = ("instructions", "accesses")


def counts(corpora: list[Path], busy: int) -> None:
    """The largest difference of two counts of a program, the second beside busy processes."""
    differences: dict[str, list[float]] = {"instructions": [], "cost": []}
    for programs in opened(corpora):
        for name, workload in programs.workloads.items():
            with programs.linked(workload) as program:
                for meter in (Instructions(), Cost()):
                    alone = meter.value(count(workload, program, meter.options))
                    with beside(busy):
                        again = meter.value(count(workload, program, meter.options))
                    differences[meter.name].append(abs(again / alone - 1))
                    print(f"{name:16} {meter.name:12} {alone:14,} {again - alone:+,}", flush=True)
    for name, found in differences.items():
        print(f"{name}: {len(found)} programs, {sum(not each for each in found)} equal to the last "
              f"digit, at most {100 * max(found):.6f} % apart")  # fmt: skip


def noise(corpora: list[Path], pairs: int) -> None:
    """How often a program differs from itself, as its interval has it."""
    found: list[bool] = []
    while len(found) < pairs:
        for programs in opened(corpora):
            for workload in list(programs.workloads.values())[: pairs - len(found)]:
                with programs.linked(workload) as program:
                    (reading,) = Seconds().read(workload, [program])
                change = paired_change(reading.again, reading.samples, seed=len(found))
                low, high = change.interval or (0.0, 0.0)
                found.append(low > 0 or high < 0)
                print(f"{workload.name:16} {100 * change.value:+.2f} % [{100 * low:+.2f}, "
                      f"{100 * high:+.2f}]", flush=True)  # fmt: skip
    print(f"{len(found)} pairs of the same program, {sum(found)} of them different at 95 %")


def layouts(corpora: list[Path], pairs: int, pool: int) -> None:
    """How often a program differs from itself in other layouts: one against one, 16 against 16."""
    for programs in opened(corpora):
        for workload in programs.workloads.values():
            with programs.linked(workload, links=pool) as program:
                (reading,) = Seconds().read(workload, [program])
            seconds = np.array(reading.samples)
            random = np.random.default_rng(0)
            outside, alone, widths = 0, [], []
            for number in range(pairs):
                drawn = seconds[random.permutation(pool)[: 2 * LAYOUTS]].tolist()
                change = layouts_change(drawn[:LAYOUTS], drawn[LAYOUTS:], seed=number)
                low, high = change.interval or (0.0, 0.0)
                outside += low > 0 or high < 0
                alone.append(abs(drawn[0] / drawn[LAYOUTS] - 1))
                widths.append(high - low)
            moved, most = 100 * np.log(seconds).std(), 100 * max(alone)
            print(
                f"{workload.name:16} {pool} layouts move it by {moved:.2f} % (one against one "
                f"{most:.1f} % at most); of {pairs} pairs of {LAYOUTS} layouts {outside} differ "
                f"at 95 %, intervals {100 * median(widths):.2f} points wide",
                flush=True,
            )


def overhead(corpus: Path, module: str, rounds: int) -> None:
    """Episodes whose rewards are instructions, beside valgrind on the same programs."""
    env = make_env("inlining-for-size", corpus, reward="instructions")
    with ExitStack() as stack:
        stack.callback(env.close)
        (programs,) = opened([corpus], stack)
        episodes, alone = [], []
        for number in range(rounds):
            start = perf_counter()
            _, info = env.reset(options={"module": module})
            generator = np.random.default_rng(number)
            is_over = False
            while not is_over:  # no two alike, so that none is known already
                flip = generator.random() < 0.1
                action = int(info["default_advice"]) ^ int(flip)
                _, _, is_over, _, info = env.step(action)
            episodes.append(perf_counter() - start)
            alone.append(sum(valgrind_s(programs, name) for name in reached(programs, module)))
    episodes, alone = episodes[1:], alone[1:]  # the first compiles all that is compiled once
    ratios = [one / other for one, other in zip(episodes, alone, strict=True)]
    print(f"{module}: an episode {median(episodes):.2f} s, valgrind {median(alone):.2f} s: "
          f"{median(ratios):.3f}")  # fmt: skip


def reached(programs: Programs, module: str) -> list[str]:
    return [name for name in programs.workloads if module in programs.modules(name)]


def valgrind_s(programs: Programs, name: str) -> float:
    """Valgrind on a program, as from a shell."""
    workload = programs.workloads[name]
    with programs.linked(workload) as program, tempfile.TemporaryDirectory() as folder:
        for each in workload.files:
            shutil.copy(workload.folder / each, folder)
        command = ["valgrind", "--tool=cachegrind", *Instructions.options, "--vgdb=no"]
        command += ["--cachegrind-out-file=/dev/null", str(program.path), *workload.arguments]
        run = partial(subprocess.run, command, cwd=folder, capture_output=True, check=True)
        return timed(run)[0]


def ranks(files: list[Path]) -> None:
    """Rank correlations of exact meters with seconds, of changes against LLVM's own programs."""
    changes: dict[tuple[str, str, str], dict[str, float]] = {}
    for file in files:  # what was exact may have been read at another time than seconds
        for program in json.loads(file.read_text())["programs"]:
            readings: dict[str, Any] = program["readings"]
            for policy, found in readings.items():
                if policy != BASELINE and not program["error"]:
                    plain = readings[BASELINE]
                    row = changes.setdefault((program["package"], program["workload"], policy), {})
                    row |= {m: r["value"] / plain[m]["value"] for m, r in found.items()}
    rows = list(changes.values())
    for meter in ("instructions", "cost", "accesses", "size"):
        known = [row for row in rows if meter in row and "seconds" in row]
        changed = [row for row in known if row["instructions"] != 1 or row["size"] != 1]
        for what, some in (("all", known), ("programs that differ", changed)):
            if len(some) > 1:
                one, other = (np.array([row[key] for row in some]) for key in (meter, "seconds"))
                print(f"{meter:12} with seconds, {what}: {len(some)} pairs, "
                      f"{rank_correlation(one, other):.3f}")  # fmt: skip


def work(files: list[Path]) -> None:
    """Instructions, loads and stores together: geometric means with intervals, and the worst."""
    for file in files:
        programs = [each for each in json.loads(file.read_text())["programs"] if not each["error"]]
        packages = [each["package"] for each in programs]
        for policy in programs[0]["readings"]:
            sums = [
                [
                    sum(each["readings"][who][meter]["value"] for meter in WORK)
                    for who in (policy, BASELINE)
                ]
                for each in programs
            ]
            logs = np.array([math.log(own / plain) for own, plain in sums])
            low, high = mean_interval(logs, packages)
            mean, worst = (100 * math.expm1(each) for each in (logs.mean(), logs.max()))
            if policy != BASELINE:
                print(f"{file.stem} {policy}: {mean:+.2f} % [{100 * math.expm1(low):+.2f}, "
                      f"{100 * math.expm1(high):+.2f}], the worst {worst:+.2f} %")  # fmt: skip


def opened(corpora: list[Path], stack: ExitStack | None = None) -> Iterator[Programs]:
    for corpus in corpora_with_workloads(Packages.load(corpora).named).values():
        if stack is not None:
            yield stack.enter_context(Programs(corpus, jobs=2))
        else:
            with Programs(corpus, jobs=2) as programs:
                yield programs


@contextmanager
def beside(busy: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        yield
    finally:
        for each in processes:
            each.kill()
            each.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.meters",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("counts", "noise", "layouts"):
        commands.add_parser(name).add_argument("corpora", nargs="+", type=Path)
    commands.choices["counts"].add_argument("--busy", type=int, default=5)
    for name in ("noise", "layouts"):
        commands.choices[name].add_argument("--pairs", type=int, default=100)
    commands.choices["layouts"].add_argument("--pool", type=int, default=256)
    one = commands.add_parser("overhead")
    one.add_argument("corpus", type=Path)
    one.add_argument("module")
    one.add_argument("--rounds", type=int, default=6)
    for name in ("ranks", "work"):
        commands.add_parser(name).add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    valgrind_tool()
    if options.command == "counts":
        counts(options.corpora, options.busy)
    elif options.command == "noise":
        noise(options.corpora, options.pairs)
    elif options.command == "layouts":
        layouts(options.corpora, options.pairs, options.pool)
    elif options.command == "overhead":
        overhead(options.corpus, options.module, options.rounds)
    else:
        {"ranks": ranks, "work": work}[options.command](options.files)


if __name__ == "__main__":
    main()
