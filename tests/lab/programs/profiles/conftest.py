"""Corpora of small C programs whose counts are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlgo_gym.corpus import Corpus
from mlgo_gym.lab.programs import attach_profile, collect_profile
from tests.conftest import require
from tests.lab.programs.conftest import MakeCorpus, corpus, sha256

__all__ = ["corpus"]

LOOPS = """
__attribute__((noinline)) void bar(int i) { __asm__ volatile("" : : "r"(i)); }
__attribute__((noinline)) void one(void) { for (int i = 0; i < 1000000; i++) bar(i); }
__attribute__((noinline)) void two(void) {
  for (int i = 0; i < 1000; i++) for (int j = 0; j < 1000; j++) bar(j);
}
__attribute__((noinline)) void three(void) {
  for (int i = 0; i < 100; i++)
    for (int j = 0; j < 100; j++)
      for (int k = 0; k < 100; k++) bar(k);
}
"""
LOOPS_MAIN = "void one(void), two(void), three(void); int main(void) { one(); two(); three(); }"
RACY = """
#include <pthread.h>
static __attribute__((noinline)) void bar(long i) { __asm__ volatile("" : : "r"(i)); }
static pthread_barrier_t start;
static void *work(void *p) {
  pthread_barrier_wait(&start);
  for (long i = 0; i < 5000000; i++) bar(i);
  return p;
}
void all(void) {
  pthread_t threads[4];
  pthread_barrier_init(&start, 0, 4);
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
}
"""
RACY_MAIN = "void all(void); int main(void) { all(); return 0; }"


def description(*, modules: str = "*") -> str:
    return f"""
sources = ["main.c"]
modules = ["{modules}"]
[workload.w]
about = "a test"
stdout_sha256 = "{sha256("")}"
"""


@pytest.fixture
def tools() -> None:
    require("clang-22", "clang-22")
    require("llvm-profdata-22", "llvm-22")
    require("opt-22", "llvm-22")


@pytest.fixture
def loops(corpus: MakeCorpus, tools: None) -> Corpus:  # noqa: ARG001
    """Three loops that each call a function a million times."""
    return corpus(description(), {"loops.c": LOOPS}, LOOPS_MAIN)


@pytest.fixture
def racy(corpus: MakeCorpus, tools: None) -> Corpus:  # noqa: ARG001
    """Four threads that each call a function five million times."""
    return corpus(description(), {"racy.c": RACY}, RACY_MAIN)


def counted(plain: Corpus, folder: Path, *, atomic: bool = False) -> Corpus:
    """The corpus with the counts of its own workloads."""
    attach_profile(plain, collect_profile(plain, atomic=atomic).profile, folder)
    return Corpus.load(folder)
