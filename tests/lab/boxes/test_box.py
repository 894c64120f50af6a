"""Calls of real programs, boxed and repeated."""

from __future__ import annotations

import os
import signal
import time

import pytest

from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize, Module
from mlgo_gym.errors import WorkloadError
from mlgo_gym.lab.boxes import BoxedProgram
from mlgo_gym.lab.boxes import _box as box_module
from mlgo_gym.lab.boxes._traced_run import Counted
from mlgo_gym.lab.boxes._tracing import Tracee
from mlgo_gym.problems import PolicyLike, Problem
from tests.lab.boxes.conftest import MakeBoxed, described
from tests.lab.programs.conftest import MakeCorpus

INLINING = InliningForSize()
POLICIES: dict[str, dict[Problem, PolicyLike]] = {
    "default": {},
    "always": {INLINING: lambda _: 1},
    "never": {INLINING: lambda _: 0},
}

EVERYTHING = r"""
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

struct wide { long a, b, c; };
struct pair { double x; long y; };
struct node { struct node *next; int value; };
static int count;
static const char *last;
static int numbers[4] = {1, 2, 3, 4};
int (*chosen)(int);

static int small(int x) { return x * 3 + count; }
int integers(int a, int b, int c, int d, int e, int f, int g, int h) {
  count += a;
  return small(a + b) - small(c * d) + e - f + g * h;
}
double floats(double a, float b) { return sqrt(a) + b * small(2); }
struct wide by_memory(int x) { struct wide made = {x, small(x), count}; return made; }
struct pair mixed(struct pair p) { p.x += p.y; p.y *= 2; return p; }
long large(struct wide w, int x) { return w.a * w.b - w.c + x; }
char byte(int x) { return (char)(x * 77); }
int variadic(int n, ...) {
  va_list words;
  int total = 0;
  va_start(words, n);
  while (n--) total += va_arg(words, int);
  va_end(words);
  return total;
}
int recursive(int n) { return n < 2 ? n : recursive(n - 1) + recursive(n - 2); }
int by_pointer(int n) { chosen = by_pointer; return n ? chosen(n - 1) + 1 : 0; }
const char *text(int x) { last = x ? "one" : "none"; return last; }
void copied(char *to, const char *from, size_t size) { memcpy(to, from, size); to[0]++; }
int listed(struct node *n) {
  int total = 0;
  for (struct node here = {n, 0}; here.next; here = *here.next) total += here.next->value;
  return total + numbers[count & 3];
}
int machine(const char *code) {
  static const void *const steps[] = {&&add, &&twice, &&end};
  int value = 1;
  goto *steps[*code - '0'];
add: value += 3; goto *steps[*++code - '0'];
twice: value *= 2; goto *steps[*++code - '0'];
end: return value + count;
}
"""
DRIVES = r"""
#include <stdio.h>
#include <stddef.h>
struct wide { long a, b, c; };
struct pair { double x; long y; };
struct node { struct node *next; int value; };
int integers(int, int, int, int, int, int, int, int);
double floats(double, float);
struct wide by_memory(int);
struct pair mixed(struct pair);
long large(struct wide, int);
char byte(int);
int variadic(int, ...);
int recursive(int), by_pointer(int), listed(struct node *), machine(const char *);
const char *text(int);
void copied(char *, const char *, size_t);
int main(void) {
  char to[100];
  for (int i = 0; i < 3; i++) {
    struct node second = {NULL, 4 + i}, first = {&second, 3};
    struct pair p = mixed((struct pair){1.5, i});
    struct wide w = by_memory(i);
    copied(to, "some text that is long enough to be copied", 40);
    printf("%d %f %ld %f %ld %ld\n", integers(1, 2, 3, 4, 5, 6, 7, i), floats(i, 2), w.b, p.x,
           p.y, large(w, i));
    printf("%d %d %d %d %s %s %d %d\n", byte(i), variadic(3, 1, 2, i), recursive(6 + i),
           by_pointer(i), text(i), to, listed(&first), machine("0101102"));
  }
}
"""
LIBRARIES = 'libraries = ["m"]'


def test_every_kind_of_function_does_the_same(boxed: MakeBoxed) -> None:
    program = boxed(EVERYTHING, DRIVES, more=LIBRARIES)
    assert len(program.functions) == 14
    for box in program.boxes([(name, 2) for name in program.functions]):
        for policy, answers in POLICIES.items():
            image = program.image(box.function, program.compiled(box.function, answers))
            trial = box.trial(image, counted=True)
            assert (box.function, policy, trial.difference) == (box.function, policy, "")
            assert trial.instructions is not None


@pytest.mark.parametrize("policy", list(POLICIES))
def test_every_function_of_the_sample_does_the_same(policy: str) -> None:
    with BoxedProgram.of(Corpus.load(SAMPLE_CORPUS), "json") as program:
        calls = program.calls()
        assert len(calls) == 30
        boxes = program.boxes([(name, (count + 1) // 2) for name, count in calls.items()])
        for box in boxes:
            image = program.image(box.function, program.compiled(box.function, POLICIES[policy]))
            assert box.trial(image).difference == ""


NESTED = """
static volatile int kept;
__attribute__((noinline)) int bar(int x) { return x + 1; }
int foo(int x) { return bar(x) * 2 + bar(x + 1); }
"""
CALLS_FOO = "int foo(int); int main(void) { for (int i = 0; i < 9; i++) foo(i); }"


def test_two_functions_in_one_run_without_each_others_instrumentation(boxed: MakeBoxed) -> None:
    """The instructions of each are those of the code alone, which are counted by hand."""
    program = boxed(NESTED, CALLS_FOO)
    foo, bar = program.boxes([("foo", 4), ("bar", 7)])
    (alone,) = program.boxes([("foo", 4)])
    counts = []
    for box in (foo, bar, alone):
        image = program.image(box.function, program.compiled(box.function))
        trial = box.trial(image, counted=True)
        assert trial.difference == ""
        counts.append(trial.instructions)
        assert box.trial(counted=True).instructions == trial.instructions
    with_both, of_bar, without = counts
    assert with_both == without
    assert of_bar == 2  # lea, ret
    assert with_both is not None
    assert with_both > 2 * of_bar


def test_trials_leave_the_box_as_it_is(boxed: MakeBoxed) -> None:
    program = boxed(EVERYTHING, DRIVES, more=LIBRARIES)
    box = program.box("copied")
    image = program.image("copied", program.compiled("copied"))
    before = box.memory_sha256()
    for _ in range(50):
        assert box.trial(image).difference == ""
    box.trial(image, counted=True, timed=True)
    assert box.memory_sha256() == before


WRONG = {
    "another value": ("ret i32 41", "return value: expected 0x2a, found 0x29"),
    "another variable": (
        "store i32 7, ptr @other\n  store i32 42, ptr @counted\n ret i32 42",
        "(other): expected ",
    ),
    "no variable": ("ret i32 42", "(counted): expected "),
    "another register": (
        'store i32 42, ptr @counted\n  call void asm sideeffect "mov $$1, %r12", ""()\n ret i32 42',
        "register r12: expected",
    ),
    "a crash": ("store i32 1, ptr null\n  ret i32 42", "found that it ends by SIGSEGV at"),
    "a trap": ("call void @llvm.trap()\n  ret i32 42", "found that it ends by SIGILL at"),
    "the system": (
        'call void asm sideeffect "mov $$39, %eax; syscall", "~{rax},~{rcx},~{r11}"()\n'
        "  ret i32 42",
        "found that it calls the system: getpid",
    ),
    "the clock": (
        'call void asm sideeffect "rdtsc", "~{rax},~{rdx}"()\n  ret i32 42',
        "found that it reads the clock",
    ),
    "no end": ("br label %again\nagain:\n  br label %again", "does not end within 1 s"),
}
COUNTED = "int counted, other; int f(void) { counted = 42; return counted; }"
CALLS_F = "int f(void); int main(void) { return f() - 42; }"


def compiled(body: str) -> bytes:
    text = (
        "@counted = external global i32\n@other = external global i32\ndeclare void @llvm.trap()\n"
        f'define i32 @f() noredzone "target-cpu"="x86-64" {{\n  {body}\n}}\n'
    )
    with Compiler() as compiler:
        made = compiler.compile_module(Module.from_ir(text), keep_object=True)
    return made.object_bytes or b""


@pytest.mark.parametrize("kind", list(WRONG))
def test_a_wrong_candidate_is_told(
    boxed: MakeBoxed, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(box_module, "_TRIAL_S", 1)
    body, message = WRONG[kind]
    program = boxed(COUNTED, CALLS_F)
    box = program.box("f")
    trial = box.trial(program.image("f", compiled(body)), counted=True, timed=True)
    assert message in trial.difference
    right = program.image("f", program.compiled("f"))
    assert box.trial(right).difference == ""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('puts("x"); fflush(stdout);', "calls the system: newfstatat"),
        ("kept = malloc(1 << 24);", "calls the system: mmap"),
        ("time_ = clock();", "calls the system: clock_gettime"),
        ("if (setjmp(place)) return;", "calls setjmp"),
        ("longjmp(place, 1);", "calls longjmp"),
        ("time_ = __builtin_ia32_rdtsc();", "reads the clock"),
    ],
)
def test_a_call_that_cannot_be_repeated(boxed: MakeBoxed, body: str, reason: str) -> None:
    headers = "".join(f"#include <{each}.h>\n" for each in ("setjmp", "stdio", "stdlib", "time"))
    module = f"{headers}jmp_buf place; void *kept; long time_;\nvoid f(void) {{ {body} }}\n"
    main = """
    #include <setjmp.h>
    extern jmp_buf place;
    void f(void);
    int main(void) { if (!setjmp(place)) f(); return 0; }
    """
    program = boxed(module, main)
    with pytest.raises(WorkloadError, match=rf"function 'f', call 1: .* found that it ({reason})"):
        _ = program.box("f").original


def test_what_is_not_there(boxed: MakeBoxed) -> None:
    program = boxed(COUNTED, CALLS_F)
    with pytest.raises(WorkloadError, match="function 'g': expected one of 1, such as f; found"):
        program.box("g")
    with pytest.raises(WorkloadError, match="function 'f': expected call 2, found 1"):
        program.box("f", 2)
    with pytest.raises(WorkloadError, match="function 'f': expected call 1 or more, found 0"):
        program.box("f", 0)
    with pytest.raises(WorkloadError, match="needs in the program, found no 'missing'"):
        program.image(
            "f",
            compiled(
                "store i32 1, ptr @missing\n  ret i32 1\n}\n@missing = "
                "external global i32\ndefine void @unused() {\n ret void"
            ),
        )


def test_a_program_that_cannot_be_boxed(corpus: MakeCorpus) -> None:
    module = 'asm(".globl here\\nhere:"); int f(void) { return 0; }'
    made = corpus(described(), {"m.c": module}, "int f(void); int main(void) { return f(); }")
    with pytest.raises(
        WorkloadError, match=r"expected modules without assembly, found some in m.c"
    ):
        BoxedProgram.of(made, "w")


def test_a_program_of_several_threads(boxed: MakeBoxed) -> None:
    main = """
    #include <pthread.h>
    int f(void);
    static void *run(void *none) { return none; }
    int main(void) {
      pthread_t thread;
      pthread_create(&thread, 0, run, 0);
      pthread_join(thread, 0);
      return f() - 42;
    }
    """
    program = boxed(COUNTED, main)
    with pytest.raises(WorkloadError, match="expected a program of one thread"):
        program.box("f")


def test_a_thread_local_variable(boxed: MakeBoxed) -> None:
    program = boxed(
        "static _Thread_local int x; int f(void) { return ++x; }",
        "int f(void); int main(void) { return f() - 1; }",
    )
    box = program.box("f")
    with pytest.raises(WorkloadError, match="expected no thread-local variable in what is boxed"):
        box.trial(program.image("f", program.compiled("f")))


def test_a_program_that_does_not_end(boxed: MakeBoxed) -> None:
    module = "int f(void) { return 0; }"
    program = boxed(
        module,
        "int f(void); int main(void) { for (;;) if (f()) return 1; }",
    )
    box = program.box("f", 1000)
    assert box.trial(counted=True).instructions == 2
    with pytest.raises(WorkloadError, match="expected to end within 5 s, found it still running"):
        program.calls()


def test_the_time_that_boxing_takes_is_not_the_programs(
    boxed: MakeBoxed, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = boxed(COUNTED, CALLS_F, timeout_s=1)
    fork = Counted.boxed

    def slowly(counted: Counted, number: int) -> Tracee:
        time.sleep(1.1)
        return fork(counted, number)

    monkeypatch.setattr(Counted, "boxed", slowly)
    assert program.box("f").trial().difference == ""


def test_nothing_is_left(corpus: MakeCorpus) -> None:
    made = corpus(described(), {"m.c": COUNTED}, CALLS_F)
    with BoxedProgram.of(made, "w") as program:
        pids = [program.box("f")._process.pid for _ in range(3)]
        for pid in pids:
            os.kill(pid, 0)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_trial_of_a_box_that_was_killed(boxed: MakeBoxed) -> None:
    program = boxed(COUNTED, CALLS_F)
    box = program.box("f")
    os.kill(box._process.pid, signal.SIGKILL)
    with pytest.raises(WorkloadError, match="expected the box's process, found that it has ended"):
        box.trial()
