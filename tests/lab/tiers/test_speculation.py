"""Loops that are entered while they run, and code that is made for values."""

from __future__ import annotations

import pytest

from mlgo_gym.lab.tiers import Replay, oracle_s, played, schedule_named
from mlgo_gym.lab.tiers._jit_program import JitProgram
from mlgo_gym.lab.tiers._recorder import check_recording, known, record_program
from mlgo_gym.lab.tiers._recording import (
    BACK_EDGE,
    CALL,
    DECISIONS,
    ENTERED,
    GUARD,
    PROFILED,
    PRUNED,
    SPECIAL,
    SPECIALISE,
)
from tests.lab.programs.conftest import MakeCorpus, sha256

LOOPS = r"""
#include <stdio.h>
struct pair { double x; int n; };
struct wide { long a, b, c; double d; };
static int calls;
__attribute__((noinline)) static void noted(int *where, int value) { *where += value; calls++; }
__attribute__((noinline)) static struct wide returned(struct wide given, int n, float scale) {
  struct wide sum = {0, 0, 0, 0};
  if (n < 0) return returned(given, -n, scale);   /* what calls itself is not inlined */
  for (int i = 0; i < n; i++) {          /* an argument in memory, and a result there */
    sum.a += given.a * i; sum.b ^= given.b + i; sum.d += scale * given.d;
  }
  sum.c = given.c;
  return sum;
}
__attribute__((noinline)) static long double nested(int n, long double start) {
  long double total = start;
  int seen = 0, table[16] = {0};
  for (int i = 0; i < n; i++) {
    for (int j = i; j > 0; j /= 2) {     /* the address of a variable is known elsewhere */
      table[j & 15] += j;
      if (j % 3 == 0) continue;
      noted(&seen, j);
      total += table[i & 15] * 0.5L;
    }
    if (seen > 1000000) break;
  }
  return total + seen;
}
__attribute__((noinline)) static struct pair chosen(int n, int kind, const char *text) {
  struct pair made = {0, 0};
  int i = 0;
  do {
    switch (kind + i % 4) {
    case 0: made.x += text[i % 5]; break;
    case 1: made.n += i; break;
    case 2: made.x *= i % 2 ? 1.0 : 0.5; break;
    default: made.n ^= kind ? i : (i > 50 && made.n > 3);
    }
  } while (++i < n);
  return made;
}
__attribute__((noinline)) static unsigned many(int a, int b, int c, int d, int e, int f,
                                               int g, int h) {
  unsigned sum = 0;
  if (a < 0) return many(-a, b, c, d, e, f, g, h);
  while (a-- > 0) sum = sum * 31 + (b ^ c) + (d - e) * f + g / (h | 1);
  return sum;
}
__attribute__((noinline)) static unsigned sized(unsigned n) {
  unsigned room[n], sum = 0;             /* the stack grows while it runs: not entered */
  for (unsigned i = 0; i < n; i++) room[i] = i * i;
  for (unsigned i = 0; i < n; i++) sum += room[n - 1 - i] * i;
  return sum;
}
int main(void) {
  struct wide given = {3, 4, 5, 0.25};
  for (int round = 1; round < 5; round++) {
    struct wide w = returned(given, 4000 * round, 1.5f);
    struct pair p = chosen(5000, round % 2, "words");
    printf("%ld %ld %ld %.2f %.1f %d\n", w.a, w.b, w.c, w.d, p.x, p.n);
    printf("%.1Lf %u %u\n", nested(900 * round, round), many(6000, 1, 2, 3, 4, 5, 6, round),
           sized(1200 * round));
  }
  printf("%d\n", calls);
  return 0;
}
"""
SAID = """\
23994000 0 5 1500.00 0.0 3122500
50826215.0 1850039296 425907960
95988000 0 5 3000.00 110.9 3122512
142082541.0 0 2825395568
215982000 0 5 4500.00 0.0 3122500
142082542.0 0 1134850920
383976000 0 5 6000.00 110.9 3122512
142082543.0 611232000 437156064
29823
"""
DESCRIBED = """
sources = ["main.c"]
[workload.w]
about = "has loops of many kinds"
stdout_sha256 = "{}"
"""
ONE = {"one.c": "int one(void) { return 1; }\n"}


@pytest.fixture
def loops(corpus: MakeCorpus) -> JitProgram:
    made = corpus(DESCRIBED.format(sha256(SAID)), ONE, LOOPS)
    return JitProgram(made, "w")


def test_entering_any_loop_at_any_event_changes_no_output(loops: JitProgram) -> None:
    """The program's output is looked at in each run."""
    with loops as program:
        found = program.executed()
        backs = [each for each in found["events"] if each[1] == BACK_EDGE]
        fit = [each for each in backs if each[4] >= 0]
        names = {program.functions[function] for function, *_ in backs}
        entered = {program.functions[function] for function, *_ in fit}
        assert names - entered == {"sized"}
        assert entered == {"returned", "nested", "chosen", "many", "main"}
        least = found["total"]
        for power in range(0, 13, 3):
            plan = [[each[:3], ENTERED] for each in fit if each[2] >= power]
            counted = program.executed(plan=plan)
            assert counted["calls"] == found["calls"]
            assert counted["total"] < found["total"]
            least = min(least, counted["total"])
            program.timed(plan=plan)
        assert least < 0.6 * found["total"]


PHASES = r"""
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) static unsigned power(unsigned base, int exponent) {
  unsigned product = 1;
  if (exponent < 0) return power(base, -exponent);
  for (int i = 0; i < exponent; i++) product = product * base + (exponent % 3 ? i : -i);
  return product;
}
int main(int argc, char **argv) {
  unsigned sum = 0;
  for (int i = 0; i < 10000; i++) sum += power(i, 24);
  for (int i = 0; i < 10000; i++) sum ^= power(i, 37);
  printf("%u\n", sum);
  return 0;
}
"""


MOST_DIFFERENCE = 1000


def test_two_phases(corpus: MakeCorpus) -> None:
    """What is generalised when the value changes is best, and what never is, worst."""
    made = corpus(DESCRIBED.format(sha256("2885197776\n")), ONE, PHASES)
    recording = record_program(made, "w")
    power = recording.functions.index("power")
    assert recording.values.tolist() == [[power, 1, 2, 24, 37, 0, 0]]
    names = ("O2", "O2@64+trust", "O2@64+specialise")
    generic, never, once = (played(recording, schedule_named(each)).instructions for each in names)
    assert once < 0.8 * generic < 0.5 * never
    policies = (*names, "O2@64+prune", "O2@512+enter", "O3@64+enter+specialise")
    for each in check_recording(made, "w", recording, policies, schedules=4, timings=0):
        assert abs(each.counted - each.instructions) <= MOST_DIFFERENCE, each.policy


@pytest.mark.parametrize(
    ("count", "values"), [(1, [7]), (3, [7, 8, 9]), (4, [7, 8, 9, 0]), (5, [7, 8, 9, 0])]
)
def test_the_values_that_code_knows(count: int, values: list[int]) -> None:
    """A zero may be a value, and is none where there are fewer."""
    assert known([7, 8, 9, 0], count) == values


GUESSES = r"""
#include <stdio.h>
#include <stdlib.h>
static int f(int a) { return a - 1; }
static int g(int a) { return a * a + 7; }
static int both(int x) {
  if (x < 0) return both(-x);
  int y = x + 1;
  int z = x < 100 ? f(y) : g(y);
  return z;
}
static int aborted(int is_fine) {
  int v = 4;
  if (is_fine < 0) return aborted(-is_fine);
  if (is_fine) v = 2;
  return v;
}
static long busy(int n, int *out) {                 /* leaves in a loop, with all kinds of state */
  long kept[8] = {0};
  double scale = 0.5;
  char name[4] = "abc";
  if (n < -1) return busy(-n, out);
  for (int i = 0; i < n; i++) {
    kept[i & 7] += i;
    scale += i;
    if (n > 64 && i == 40) { *out += name[i % 3]; kept[2] = (long)scale; name[0]++; }
    if (n > 70 && i % 9 == 0) { kept[1] ^= *out; continue; }
  }
  for (int i = 0; i < 8; i++) *out ^= (int)kept[i];
  return kept[n & 7] + name[0];
}
int main(int argc, char **argv) {
  int out = argc, found = 0;
  long total = 0;
  for (int i = 0; i < 100; i++) {
    if (both(i) != i || aborted(1) != 2) abort();
    total += busy(i % 60, &out);
  }
  found = both(150);
  printf("%d %d\n", found, both(42));
  printf("%d %d\n", aborted(0), aborted(1));
  for (int i = 60; i < 90; i++) total += busy(i, &out);
  printf("%ld %d\n", total, out);
  return 0;
}
"""
GUESSED = "22808 42\n4 2\n31761 268\n"


def test_a_wrong_guess_goes_on_where_it_was(corpus: MakeCorpus) -> None:
    """Pruned code leaves for the code at O0, in the middle of what it does, and all is right.

    The trace of ``both`` is that of small numbers, and 150 leaves it; what is aborted is as it was
    before; ``busy`` leaves its loop with an array, and with what it has computed.
    """
    with JitProgram(corpus(DESCRIBED.format(sha256(GUESSED)), ONE, GUESSES), "w") as program:
        program.kept = program.watched()["kept"]
        names = {program.functions[function] for function, _ in program.kept}
        assert names == {"both", "aborted", "busy"}
        pruned = {program.functions.index(name) for name in names}
        plan = [[[function, CALL, PROFILED], PRUNED] for function in pruned]
        found = program.executed(plan=plan)
        failed = [each[0] for each in found["events"] if each[1] == GUARD + PRUNED - SPECIAL]
        assert set(failed) == pruned
        assert len(failed) > len(pruned)
        plan += [[[function, GUARD + PRUNED - SPECIAL, 2], 0] for function in pruned]
        program.executed(plan=plan)
        program.timed(plan=plan)


def test_any_decisions_execute_what_their_replay_says(corpus: MakeCorpus) -> None:
    made = corpus(DESCRIBED.format(sha256(GUESSED)), ONE, GUESSES)
    recording = record_program(made, "w")
    entered = recording.events[recording.entries[:, 0]]
    assert len(entered) > 0
    assert (entered[:, 1] == BACK_EDGE).all()
    assert (entered[:, 2] >= 10).all()
    assert (recording.entry_s > 0).all()
    seen = set()

    def noted(replay: Replay) -> int:
        allowed = [each for each in range(len(DECISIONS)) if replay.is_allowed(each)]
        seen.update(allowed)
        return SPECIALISE if SPECIALISE in allowed else 0

    played(recording, noted)
    assert seen == set(range(len(DECISIONS)))
    assert oracle_s(recording, waits=False) < oracle_s(recording)
    policies = ("O2@1024+enter", "O2@64+specialise", "O2@64+prune+enter", "O2@64+trust")
    for each in check_recording(made, "w", recording, policies, schedules=4, timings=1):
        assert abs(each.counted - each.instructions) <= MOST_DIFFERENCE, each.policy
        assert each.measured > 0


TYPES = r"""
#include <stdio.h>
#include <stdlib.h>
static unsigned turned(int type, unsigned x) {
  static const unsigned weights[] = {3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
  if (x == 0xdeadbeef) return turned(type, 1);
  for (int i = 0; i <= type % 11; i++) x = (x ^ weights[i]) * (weights[i] + type) + (x >> 7);
  return x;
}
int main(int argc, char **argv) {
  unsigned x = 1;
  for (int i = 0; i < 4000; i++) x += turned(i % COUNT, x);
  printf("%u\n", x);
  return 0;
}
"""


@pytest.mark.parametrize("count", [1, 4, 20])
def test_an_inline_cache_of_types(corpus: MakeCorpus, count: int) -> None:
    """Calls of known types cost less than where all are missed, and the more the later."""
    main = TYPES.replace("COUNT", str(count))
    outputs = {1: "1942196106\n", 4: "531265246\n", 20: "1705819457\n"}
    with JitProgram(corpus(DESCRIBED.format(sha256(outputs[count])), ONE, main), "w") as program:
        function = program.functions.index("turned")
        plan = [[[function, CALL, 5], PRUNED - 1]]
        program.special = [(function, 0, list(range(count)))]
        known = program.executed(plan=plan)
        program.special = [(function, 0, [1000])]
        missed = program.executed(plan=plan)
        assert known["total"] < missed["total"]
        guards = [[each[1] >= GUARD for each in run["events"]] for run in (known, missed)]
        assert [any(each) for each in guards] == [False, True]
