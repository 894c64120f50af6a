"""Boxes: what can be boxed, whether policies' code does the same, and what a trial takes.

python -m benchmarks.boxes [--corpus DIR] [--workload NAME ...] [--functions N]
python -m benchmarks.boxes --cover [--corpus DIR] [--workload NAME ...]
python -m benchmarks.boxes --clean

With ``--cover``, only how many functions can be boxed. With ``--clean``, how long calls take in a
box, beside the same calls in a loop of a program.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from corpus_tools.clang import SourceFile, find_clang
from corpus_tools.manifest import Manifest, encode_command
from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
from mlgo_gym.errors import MlgoGymError
from mlgo_gym.lab.boxes import Box, BoxedProgram, Image
from mlgo_gym.lab.programs import find_workloads
from mlgo_gym.problems import PolicyLike, Problem

_INLINING = InliningForSize()
POLICIES: dict[str, dict[Problem, PolicyLike]] = {
    "default": {},
    "always": {_INLINING: lambda _: 1},
    "never": {_INLINING: lambda _: 0},
}
TRIALS, TRIES = 1000, 50
REASON = re.compile(r".* found that it |'[^']*'|.*: (?=expected no)")


def look_at(corpus: Corpus, workload: str, most: int) -> None:
    """Box the median call of each function, and try each policy's code of it."""
    with BoxedProgram.of(corpus, workload) as program:
        calls = program.calls()
        boxes = program.boxes([(n, (calls[n] + 1) // 2) for n in list(calls)[: most or None]])
        refused: Counter[str] = Counter()
        differ: list[str] = []
        tried: list[tuple[Box, Image]] = []
        for box in boxes:
            try:
                for policy, image in candidates(program, box):
                    tried.append((box, image))
                    if said := box.trial(image).difference:
                        differ.append(f"{box.function}, {policy}: {said}")
            except MlgoGymError as error:
                refused[REASON.sub("", str(error))] += 1
        count, boxed = len(boxes), len(boxes) - refused.total()
        print(
            f"{program.workload.name}: {len(program.functions):,} functions, {count:,} executed, "
            f"{boxed:,} boxed ({boxed / count:.1%}); {len(tried) - len(differ):,} of "
            f"{len(tried):,} candidates have equal effects"
        )
        for reason, number in refused.most_common():
            print(f"  refused: {reason}: {number:,}")
        for each in differ:
            print(f"  differ: {each}")
        kept, image = tried[-1]
        for box in boxes:
            if box is not kept:
                box.close()
        repeat(kept, image)
        start = time.perf_counter()
        for _ in range(TRIES):
            kept.trial(program.image(kept.function, program.compiled(kept.function)), counted=True)
        rate = 60 * TRIES / (time.perf_counter() - start)
        print(f"  compiled, linked, tried and counted: {kept.function}, {rate:,.0f} times a minute")


def cover(corpus: Corpus, workload: str) -> None:
    """Say how many of the functions that are executed can be boxed at their median call."""
    with BoxedProgram.of(corpus, workload) as program:
        calls = program.calls()
        refused: Counter[str] = Counter()
        for box in program.boxes([(name, (calls[name] + 1) // 2) for name in calls]):
            try:
                _ = box.original
            except MlgoGymError as error:
                refused[REASON.sub("", str(error))] += 1
            box.close()
        count, boxed = len(calls), len(calls) - refused.total()
        reasons = ", ".join(f"{reason} {number}" for reason, number in refused.most_common())
        print(f"{workload}: {boxed:,} of {count:,} boxed ({boxed / count:.1%}); {reasons or 'all'}")


def candidates(program: BoxedProgram, box: Box) -> Iterator[tuple[str, Image]]:
    _ = box.original
    for policy, answers in POLICIES.items():
        yield policy, program.image(box.function, program.compiled(box.function, answers))


def repeat(box: Box, image: Image) -> None:
    before, took = box.memory_sha256(), []
    for _ in range(TRIALS):
        start = time.perf_counter()
        box.trial(image)
        took.append(time.perf_counter() - start)
    left = "equal" if box.memory_sha256() == before else "another"
    print(
        f"  a trial: {statistics.median(took) * 1e3:.2f} ms, of a box of "
        f"{box.size_bytes / (1 << 20):.1f} MiB; after {TRIALS:,} trials its memory is {left}"
    )


MODULE = """
__attribute__((noinline)) int work(int n) {
  unsigned x = n;
  for (int i = 0; i < n; i++) x = x * 1664525u + (x >> 7);
  return (int)x;
}
"""
LOOP = """
#include <stdio.h>
#include <time.h>
int work(int);
static volatile int none;
static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1e9 + at.tv_nsec;
}
int main(int count, char **words) {
  static const int sizes[] = {1, 30, 60, 120, 250, 500, 1000, 4000};
  for (int i = 0; i < 8; i++) work(sizes[i]);
  if (count < 2) return 0;
  for (int i = 0; i < 8; i++) {
    double least = 1e18;
    for (int round = 0; round < 200; round++) {
      int last = 0;
      double start = now();
      for (int j = 0; j < 400; j++) last = work(sizes[i] + (last & none));
      double took = (now() - start) / 400;
      if (took < least) least = took;
    }
    printf("%.1f\\n", least);
  }
}
"""


HOLDS = """
#include <stdlib.h>
#include <string.h>
int work(int);
int main(void) {{
  char *held = malloc({mib}ul << 20);
  memset(held, 1, {mib}ul << 20);
  return held[work(30) & 1] - 1;
}}
"""


@contextmanager
def of_source(main: str) -> Iterator[BoxedProgram]:
    """A program of a main function, which calls the one to be boxed."""
    clang = find_clang()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        own = folder / "workloads"
        own.mkdir()
        (folder / "work.c").write_text(MODULE)
        source = SourceFile(clang, "work.c", folder, opt_level="O2")
        source.compile(folder / "work.c.bc")
        command = source.driver_command()
        (folder / "work.c.cmd").write_bytes(encode_command(command))
        Manifest(("work.c",)).write(folder)
        (own / "main.c").write_text(main)
        text = 'sources = ["main.c"]\n[workload.loop]\nabout = "a loop"\ntimeout_s = 60\n'
        nothing = hashlib.sha256(b"").hexdigest()
        (own / "workload.toml").write_text(f'{text}stdout_sha256 = "{nothing}"\n')
        with BoxedProgram.of(Corpus.load(folder), "loop") as program:
            yield program


def beside_clean() -> None:
    """The same code in a box, and in a loop of the program itself."""
    with of_source(LOOP) as program:
        clean = cleanly(program)
        for number, (box, expected) in enumerate(
            zip(program.boxes([("work", 1 + i) for i in range(8)]), clean, strict=True)
        ):
            times = [box.trial(timed=True).nanoseconds or 0.0 for _ in range(5)]
            found = min(times)
            print(
                f"call {number + 1}: {expected:,.1f} ns in a loop, {found:,.1f} ns in a box, "
                f"{found / expected - 1:+.1%}"
            )


def with_memory(mib: int) -> None:
    """A trial of a box whose program holds so much memory."""
    with of_source(HOLDS.format(mib=mib)) as program, closing(program.box("work")) as box:
        repeat(box, program.image("work", program.compiled("work")))


def cleanly(program: BoxedProgram) -> list[float]:
    """Nanoseconds of each size, of the same program without anything that looks at it."""
    done = subprocess.run([program.path, "loop"], capture_output=True, text=True, check=True)
    return [float(each) for each in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", default=SAMPLE_CORPUS)
    parser.add_argument("--workload", action="append")
    parser.add_argument("--functions", type=int, default=0)
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--cover", action="store_true")
    parser.add_argument("--mib", type=int, action="append", help="of memory that a program holds")
    options = parser.parse_args()
    for mib in options.mib or ():
        with_memory(mib)
    if options.mib:
        return
    if options.clean:
        beside_clean()
        return
    corpus = Corpus.load(options.corpus)
    for name in find_workloads(corpus, options.workload or ()):
        if options.cover:
            cover(corpus, name)
        else:
            look_at(corpus, name, options.functions)


if __name__ == "__main__":
    main()
