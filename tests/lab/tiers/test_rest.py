"""The rest of a function from a block on, and functions that leave what was never reached."""

from __future__ import annotations

import ctypes
import random
import struct
import subprocess
from pathlib import Path

import pytest

from mlgo_gym.lab.tiers._rest import Framed, Guard
from tests.lab.tiers import jit

CLOSEST = """
#include <stdlib.h>
int closest(const int *v, int q, int n) {
  int d = 0x7fffffff, c = -1;
  for (int i = 0; i < n; i++) {
    if (i >= 1000) abort();
    int e = abs(v[i] - q);
    if (e < d) { d = e; c = i; }
  }
  return c;
}
"""
BOTH = """
static int f(int a) { return a - 1; }
static int g(int a) { return a * a + 7; }
int both(int x) {
  int y = x + 1;
  int z = x < 100 ? f(y) : g(y);
  return z;
}
"""
SLOTS = ("v", "q", "n", "d", "c", "i", "e")
GUARD = Guard(code=0x10000, countdown=0x20000, ask=0x30000)


def text_of(clang: str, source: str, folder: Path) -> str:
    """LLVM's assembly of C, as a corpus has it."""
    path = folder / "source.c"
    path.write_text(source)
    flags = ("-O1", "-Xclang", "-disable-llvm-optzns", "-S", "-emit-llvm", "-o", "-")
    return subprocess.run([clang, *flags, path], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def closest(clang22: str, tmp_path: Path) -> Framed:
    framed = jit.framed(text_of(clang22, CLOSEST, tmp_path), "closest")
    assert [each.kind for each in framed.slots] == ["ptr", *["i32"] * 6]
    return framed


OFFSETS = [8 * place for place in range(len(SLOTS))]


@pytest.mark.parametrize("tier", [0, 1, 2, 3])
def test_the_rest_of_a_loop_finds_what_the_whole_does(closest: Framed, tier: int) -> None:
    """Whatever the loop has done before: 2,500 inputs at each tier."""
    made = jit.Jit()
    head = closest.heads[0]
    rest = made.function(
        closest.rest(head, OFFSETS, "rest"), "rest", ctypes.c_int, ctypes.c_char_p, tier=tier
    )
    numbers = random.Random(tier)  # noqa: S311 - not for secrets
    for _ in range(2500):
        n, q = numbers.randrange(1, 30), numbers.randrange(-50, 50)
        v = [numbers.randrange(-100, 100) for _ in range(n)]
        i = numbers.randrange(n + 1)
        distances = [abs(each - q) for each in v]
        d = min(distances[:i], default=0x7FFFFFFF)
        c = distances.index(d) if i else -1
        array = (ctypes.c_int * n)(*v)
        state = struct.pack("<Q", ctypes.addressof(array))
        state += b"".join(struct.pack("<ii", each, 0) for each in (q, n, d, c, i, 0))
        assert rest(state) == distances.index(min(distances))


def test_what_is_known_of_a_running_loop_shortens_its_rest(closest: Framed) -> None:
    """With 42, 100 elements, and the 40th to come, no bounds check is left, nor the beginning."""
    known = {"v": "%v", "q": "42", "n": "100", "d": str(0x0FFFFFFF), "c": "7", "i": "40", "e": "0"}
    rest = closest.rest(closest.heads[0], OFFSETS, "rest").replace("define ", "define internal ", 1)
    lines = [
        f"  %at.{name} = getelementptr i8, ptr %frame, i64 {offset}\n"
        f"  store {each.kind} {known[name]}, ptr %at.{name}"
        for name, offset, each in zip(SLOTS, OFFSETS, closest.slots, strict=True)
    ]
    body = "\n".join(("  %frame = alloca [64 x i8], align 16", *lines))
    entered = f"define i32 @entered(ptr %v) {{\n{body}\n  %c = call i32 @rest(ptr %frame)\n"
    code = jit.assembly(f"{rest}{entered}  ret i32 %c\n}}\n")
    whole = jit.assembly(str(closest.module), tier=2)
    assert "abort" in whole
    assert str(0x7FFFFFFF) in whole
    assert "abort" not in code
    assert str(0x7FFFFFFF) not in code
    assert "$268435455" in code
    assert "rest" not in code.replace("entered", "")


def test_a_trace_folds_to_its_argument(clang22: str, tmp_path: Path) -> None:
    """Below 100, ``x + 1 - 1`` is left, under a guard."""
    both = jit.framed(text_of(clang22, BOTH, tmp_path), "both")
    entry, *_ = both.blocks
    near, far, last = both.heads
    assert far in "".join(both.blocks[entry])
    offsets = [-8 * (place + 1) for place in range(len(both.slots))]
    code = jit.assembly(both.pruned((near, last), offsets, 128, GUARD))
    hot = code.partition("both.impl:")[2].partition("pushq")[0]
    lines = [line.split()[0] for line in hot.splitlines() if line.strip()]
    assert [each for each in lines if not each.startswith(".")] == ["movl", "cmpl", "jle"]
    assert "imul" not in code
    assert "imul" in jit.assembly(str(both.module))


@pytest.mark.parametrize(
    "body",
    [
        "int a[n]; for (int i = 0; i < n; i++) a[i] = i; return a[n - 1];",
        "__builtin_va_list l; __builtin_va_start(l, n); while (n--) __builtin_va_arg(l, int);"
        "return n;",
        "void *to[] = {&&a, &&b}; a: if (n--) goto *to[n & 1]; b: return n;",
        "static long place[8]; return _setjmp(place) ? n : n + 1;",
        "return n + 1;",
    ],
    ids=["sized", "variadic", "addresses", "setjmp", "one block"],
)
def test_functions_whose_blocks_share_more_than_a_frame(
    clang22: str, tmp_path: Path, body: str
) -> None:
    more = ", ..." if "va_list" in body else ""
    declared = "int _setjmp(void *) __attribute__((returns_twice));\n"
    text = text_of(clang22, f"{declared}int f(int n{more}) {{ {body} }}\n", tmp_path)
    own = jit.unit(text, "f")
    assert Framed.of(own.text, own.code) is None
