"""Instructions that a call of a method executes behind inline caches of 1, 10 and 20 types.

python -m benchmarks.inline_caches

A method is looked up in the classes of a receiver's type, one selector after the other, as `send`
does. Where the type is one that a cache knows, its code was compiled for that type.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from pathlib import Path

from corpus_tools import Manifest, find_clang
from corpus_tools.clang import SourceFile
from mlgo_gym.corpus import Corpus
from mlgo_gym.lab.tiers._jit_program import JitProgram
from mlgo_gym.lab.tiers._recorder import marks_of
from mlgo_gym.lab.tiers._recording import PRUNED, RESTED

CALLS = 2000
SOURCE = """
#include <stdio.h>
#include <stdlib.h>
struct method { int selector; unsigned factor; };
struct type { int parent, count; struct method methods[6]; };
#define OWN(n) {n / 3, 5, {{10, 1}, {11, 2}, {12 + n % 2, 3}, {40 + n, n + 5}, {14, 7}}}
static const struct type types[] = {
  {-1, 6, {{1, 3}, {2, 5}, {3, 7}, {4, 9}, {5, 11}, {6, 13}}},
  OWN(1), OWN(2), OWN(3), OWN(4), OWN(5), OWN(6), OWN(7), OWN(8), OWN(9), OWN(10), OWN(11), OWN(12),
  OWN(13), OWN(14), OWN(15), OWN(16), OWN(17), OWN(18), OWN(19), OWN(20), OWN(21), OWN(22),
};
unsigned send(int type, unsigned x) {
  if (x == 0xdeadbeef) return send(type, 1);
  for (int each = type; each >= 0; each = types[each].parent)
    for (int i = 0; i < types[each].count; i++)
      if (types[each].methods[i].selector == 6) return x * types[each].methods[i].factor + type;
  abort();
}
"""
MAIN = f"""
#include <stdio.h>
#include <stdlib.h>
unsigned send(int type, unsigned x);
int main(int argc, char **argv) {{
  unsigned x = 1;
  int first = atoi(argv[1]), count = atoi(argv[2]);
  for (int i = 0; i < {CALLS}; i++) x = send(first + i % count, x);
  fprintf(stderr, "%u", x);
  return 0;
}}
"""
CASES = (
    ("no cache", 0, 1, 20),
    ("1 type, that", 1, 1, 1),
    ("10 types, the first", 10, 1, 1),
    ("10 types, all in turn", 10, 1, 10),
    ("10 types, the last", 10, 10, 1),
    ("20 types, all in turn", 20, 1, 20),
    ("20 types, the last", 20, 20, 1),
    ("1 type, another", 1, 20, 1),
    ("20 types, another", 20, 21, 1),
)


def corpus_at(folder: Path, first: int, count: int) -> Corpus:
    """A corpus of the look-up, and a program that calls it with types in turn."""
    own = folder / "workloads"
    own.mkdir()
    (folder / "send.c").write_text(SOURCE)
    SourceFile(find_clang(), "send.c", folder).compile(folder / "send.c.bc")
    Manifest(("send.c",)).write(folder)
    (own / "main.c").write_text(MAIN)
    (own / "workload.toml").write_text(
        'sources = ["main.c"]\n[workload.send]\nabout = "looks a method up"\n'
        f'arguments = ["{first}", "{count}"]\n'
        f'stdout_sha256 = "{hashlib.sha256(b"").hexdigest()}"\n'
    )
    return Corpus.load(folder)


def instructions(known: int, first: int, count: int) -> float:
    """Instructions of the look-up, a call."""
    with (
        tempfile.TemporaryDirectory() as folder,
        JitProgram(corpus_at(Path(folder), first, count), "send") as program,
    ):
        send = program.functions.index("send")
        program.special = [(send, 0, list(range(1, known + 1)))] if known else []
        marks = marks_of(program.events()["events"])
        found = program.counts(marks, PRUNED - 1 if known else RESTED)
        return float(sum(n for _, function, n in found["counts"] if function == send) / CALLS)


def main() -> None:
    """Print instructions a call of each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=len(CASES), help="so many only")
    for name, *case in CASES[: parser.parse_args().cases]:
        print(f"{name}: {instructions(*case):,.1f} instructions a call")


if __name__ == "__main__":
    main()
