"""Programs split, recorded and checked under LLVM's own JIT."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.errors import WorkloadError
from mlgo_gym.lab.tiers import SAMPLE_RECORDING
from mlgo_gym.lab.tiers._jit_program import JitProgram
from mlgo_gym.lab.tiers._recorder import check_recording, record_program
from mlgo_gym.lab.tiers._recording import Recording
from tests.cli.command import run
from tests.lab.programs.conftest import MakeCorpus, sha256

EVERYTHING = r"""
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wide { long a, b, c; double d; };
static const int nothing;
static int count;
static jmp_buf place;
extern const int *marker(void);
const int *same(void) { return &nothing; }

static int less(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static struct wide widened(int x, double y) {
  struct wide made = {x, x + 1, x + 2, y * 2};
  for (int i = 0; i < x; i++) made.d += sqrt(i);
  return made;
}
static int sum(int n, ...) {
  va_list words;
  int total = 0;
  va_start(words, n);
  while (n--) total += va_arg(words, int);
  va_end(words);
  return total;
}
static int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
static int odd(int n);
static int even(int n) { return n == 0 ? 1 : odd(n - 1); }
static int odd(int n) { return n == 0 ? 0 : even(n - 1); }
static int machine(const char *code) {
  static const void *const steps[] = {&&add, &&twice, &&end};
  int value = 1;
  goto *steps[*code - '0'];
add: value += 3; goto *steps[*++code - '0'];
twice: value *= 2; goto *steps[*++code - '0'];
end: return value;
}
static void thrown(int depth) {
  if (depth == 0) longjmp(place, 7);
  thrown(depth - 1);
  count++;
}
static void last(void) { printf("the last of %d\n", count); }
int main(int argc, char **argv) {
  int numbers[64], caught;
  atexit(last);
  for (int i = 0; i < 64; i++) numbers[i] = i * 37 % 64;
  qsort(numbers, 64, sizeof *numbers, less);
  struct wide made = widened(200, 0.5);
  printf("%d %ld %.3f %d\n", numbers[5], made.c, made.d, sum(3, 1, 2, 3));
  printf("%d %d %d\n", fibonacci(15), even(40), machine("0101102"));
  for (int i = 0; i < 20; i++) {
    if ((caught = setjmp(place)) == 0) thrown(i);
    count += caught;
  }
  printf("%d %s %d\n", same() == marker(), argv[1], argc);
  if (argc == 2) exit(3);
  return 1;
}
"""
MARKER = "extern const int *same(void);\nconst int *marker(void) { return same(); }\n"
SAID = "5 202 1879.342 6\n610 1 47\n1 word 2\nthe last of 140\n"
DESCRIBED = f"""
sources = ["main.c"]
[workload.w]
about = "uses much of C"
arguments = ["word"]
exit_status = 3
libraries = ["m"]
stdout_sha256 = "{sha256(SAID)}"
"""


@pytest.mark.parametrize("schedules", [4])
def test_a_recording_tells_what_any_schedule_executes(corpus: MakeCorpus, schedules: int) -> None:
    made = corpus(DESCRIBED, {"marker.c": MARKER}, EVERYTHING)
    recording = record_program(made, "w")
    assert recording.program == "corpus/w"
    assert {"main", "fibonacci", "even"} <= set(recording.functions)
    o0, *higher = recording.totals()
    assert all(each < o0 for each in higher)
    policies = ["O0", "O1", "O2", "O3"]
    found = list(check_recording(made, "w", recording, policies, schedules=schedules, timings=0))
    assert len(found) == len(policies) + schedules
    for each in found:
        # Behind each of the 20 longjmps some instructions count as those of what was left.
        assert abs(each.counted - each.instructions) <= 20 * 20, each.policy


COUNTING = """
#include <stdio.h>
__attribute__((noinline)) static int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }
int main(void) {
  static int rounds;
  printf("%d\\n", f(10 + rounds++));
  return 0;
}
"""


def test_several_rounds(corpus: MakeCorpus) -> None:
    described = DESCRIPTION.replace(sha256(""), sha256("55\n"))
    made = corpus(described, ONE, COUNTING)
    once, thrice = (record_program(made, "w", rounds=rounds) for rounds in (1, 3))
    assert (once.name, thrice.name) == ("corpus/w", "corpus/w x 3")
    assert thrice.stdout_sha256 == sha256("55\n89\n144\n")
    assert thrice.totals()[0] > 4 * once.totals()[0]
    assert once.sha256() != thrice.sha256()
    (found,) = check_recording(made, "w", thrice, ["O3"], schedules=0, timings=0)
    assert found.counted == found.instructions


def test_what_several_rounds_write_is_looked_at(corpus: MakeCorpus) -> None:
    main = COUNTING.replace("f(10 + rounds++)", "rounds++ ? getpid() : 55")
    described = DESCRIPTION.replace(sha256(""), sha256("55\n"))
    made = corpus(described, ONE, f"#include <unistd.h>\n{main}")
    with pytest.raises(WorkloadError, match="expected standard output of SHA-256.*--rounds 1"):
        record_program(made, "w", rounds=2)


def test_a_main_that_ends_when_it_is_called_again(corpus: MakeCorpus) -> None:
    main = COUNTING.replace("f(10 + rounds++)", "rounds++ ? (abort(), 0) : 55")
    described = DESCRIPTION.replace(sha256(""), sha256("55\n"))
    made = corpus(described, ONE, f"#include <stdlib.h>\n{main}")
    record_program(made, "w")
    with pytest.raises(WorkloadError, match=r"'main' was called 2 times.*try --rounds 1"):
        record_program(made, "w", rounds=2)


@pytest.mark.e2e
def test_two_recordings_are_equal_and_are_the_one_that_ships() -> None:
    sample = Corpus.load(SAMPLE_CORPUS)
    first, again = (record_program(sample, "json") for _ in range(2))
    assert first.sha256() == again.sha256() == Recording.load(SAMPLE_RECORDING).sha256()


@pytest.mark.e2e
def test_the_sample_executes_what_its_replay_says() -> None:
    sample = Corpus.load(SAMPLE_CORPUS)
    recording = Recording.load(SAMPLE_RECORDING)
    names = ["O2", "ski-rental", "hotspot", "O2@1000000"]
    found = list(check_recording(sample, "json", recording, names, schedules=10, timings=1))
    assert [each.counted - each.instructions for each in found] == [0] * 14
    assert all(each.measured > 0 for each in found)


DESCRIPTION = f"""
sources = ["main.c"]
[workload.w]
about = "a program that cannot be recorded"
timeout_s = 1
stdout_sha256 = "{sha256("")}"
"""
ONE = {"one.c": "int one(void) { return 1; }\n"}


@pytest.mark.parametrize(
    ("main", "message"),
    [
        ("_Thread_local int x; int main(void) { return x; }", "without thread-local variables"),
        (
            "#include <pthread.h>\nstatic void *f(void *p) { return p; }\n"
            "int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); return 0; }",
            "without threads, found some",
        ),
        (
            'int f(void) { return 0; } int g(void) __attribute__((alias("f")));'
            "int main(void) { return g(); }",
            "without aliases or resolvers",
        ),
        ('asm(".data"); int main(void) { return 0; }', "without assembly, found some"),
        (
            "__attribute__((constructor)) static void f(void) {} int main(void) { return 0; }",
            "without code that runs before 'main'",
        ),
        ("int other(void) { return 0; }", "expected a function 'main', found none"),
        (
            "#include <unistd.h>\n__attribute__((noinline)) void f(void) {}\n"
            "static int n; int main(void) { _exit(0); }",
            "expected to end by 'exit' or at the end of 'main'",
        ),
        ("int main(void) { return *(volatile int *)8; }", "found signal 11"),
        ("int main(void) { return 5; }", "expected exit status 0, found 5"),
    ],
)
def test_programs_that_are_refused(corpus: MakeCorpus, main: str, message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        record_program(corpus(DESCRIPTION, ONE, main), "w")
    assert message in str(caught.value)
    assert str(caught.value).startswith("workload 'w': ")


def test_a_program_whose_calls_are_not_the_same_each_time(corpus: MakeCorpus) -> None:
    main = """
    #include <stdio.h>
    #include <time.h>
    __attribute__((noinline)) static int f(int n) { return n < 1 ? 0 : f(n - 1) + 1; }
    int main(void) {
      struct timespec now;
      clock_gettime(CLOCK_MONOTONIC, &now);
      if (f(now.tv_nsec / 1000 % 4096) < 0) return 1;
      puts("the end");
      return 3;
    }
    """
    # That it ended early, with another status and less output, is not what is wrong.
    described = DESCRIPTION.replace(sha256(""), sha256("the end\n")) + "exit_status = 3\n"
    with pytest.raises(WorkloadError, match="it may look at a clock, or at addresses"):
        record_program(corpus(described, ONE, main), "w")


def test_a_recording_of_another_program(corpus: MakeCorpus) -> None:
    made = corpus(DESCRIPTION, ONE, "int main(void) { return 0; }")
    recording = Recording.load(SAMPLE_RECORDING)
    with pytest.raises(WorkloadError, match="expected a program of hash .*; record it again"):
        list(check_recording(made, "w", recording, ["O0"]))


def test_a_module_that_is_damaged(corpus: MakeCorpus) -> None:
    made = corpus(DESCRIPTION, ONE, "int main(void) { return 0; }")
    (path,) = made.folder.glob("*.bc")
    path.write_bytes(b"no bitcode")
    with pytest.raises(WorkloadError, match=rf"{path.stem}: LLVM bitcode parsing error"):
        record_program(Corpus.load(made.folder), "w")


def test_a_split_is_the_same_each_time(corpus: MakeCorpus) -> None:
    made = corpus(DESCRIBED, {"marker.c": MARKER}, EVERYTHING)
    hashes = set()
    for _ in range(2):
        with JitProgram(made, "w") as program:
            hashes.add(program.sha256)
    assert len(hashes) == 1


@pytest.mark.smoke
@pytest.mark.e2e
def test_the_commands(tmp_path: Path) -> None:
    made = ("--workload", "json", "--output", "json.npz")
    assert run("tiers", "record", *made, cwd=tmp_path).returncode == 0
    names = ("--policy", "O0", "--policy", "ski-rental")
    done = run("tiers", "play", "json.npz", *names, "--json", cwd=tmp_path)
    (record,) = json.loads(done.stdout)
    rounding = 1 + 1e-12
    assert record["best_seconds"] <= min(record["seconds"].values()) * rounding
    few = ("--policy", "O2", "--schedules", "1", "--repeats", "1")
    done = run("tiers", "check", "json.npz", "--workload", "json", *few, cwd=tmp_path)
    assert "largest difference: 0 instructions" in done.stdout
