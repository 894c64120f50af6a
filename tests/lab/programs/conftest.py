"""Corpora of a module and a program that drives it, and programs by themselves."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpus_tools.workloads import Workload
from mlgo_gym.corpus._corpus import Corpus
from tests.conftest import require

MODULE = "int twice(int x) { return 2 * x; }\nint unused(int x) { return x; }\n"
MAIN = """#include <stdio.h>
int twice(int);
int main(void) { printf("%d\\n", twice(21)); return 0; }
"""
CALLS = """
static volatile int sink;
static int add(int x, int y) { return x * 3 + y / (x | 1) - (x ^ y) * 7; }
int twice(int x) { sink = add(x, 3); sink = add(x, 5); sink = add(3, sink); return 2 * x; }
"""
ADDRESS = """
int twice(int);
static int is_called(void) {
  long from = (long)__builtin_return_address(0);
  return from > (long)twice && from < (long)twice + 64;
}
int twice(int x) { return is_called() ? x : 2 * x; }
"""
"""The program tells its own inlining by the address that it returns to."""
OUTPUT = "42\n"

MakeProgram = Callable[..., tuple[Workload, Path]]
MakeCorpus = Callable[..., Corpus]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def program(clang22: str, tmp_path: Path) -> MakeProgram:
    """A program of a main function's source, and a workload of it, which prints nothing."""

    def make(body: str, **settings: Any) -> tuple[Workload, Path]:
        source, made = tmp_path / "main.c", tmp_path / "main"
        source.write_text(body)
        command = [clang22, "-w", "-O1", "-static", str(source), "-o", str(made)]
        subprocess.run(command, check=True)
        settings = {"name": "w", "about": "a test", "stdout_sha256": sha256("")} | settings
        return Workload(folder=tmp_path, **settings), made

    return make


@pytest.fixture
def corpus(clang22: str, tmp_path: Path) -> MakeCorpus:
    """A corpus of modules by name, and its `workload.toml`, beside which there is a `main.c`."""

    def make(description: str, modules: dict[str, str] | None = None, main: str = MAIN) -> Corpus:
        require("ld", "binutils")
        folder = tmp_path / "corpus"
        (folder / "workloads").mkdir(parents=True)
        for name, text in (modules or {"twice.c": MODULE}).items():
            source = tmp_path / name
            source.write_text(text)
            flags = ("-Oz", "-Xclang", "-disable-llvm-optzns", "-c", "-emit-llvm")
            command = [clang22, *flags, name, "-o", str(folder / f"{name}.bc")]
            subprocess.run(command, check=True, cwd=tmp_path)
        names = ", ".join(f'"{name}"' for name in modules or {"twice.c": MODULE})
        manifest = f'{{"has_thinlto": false, "modules": [{names}]}}'
        (folder / "corpus_description.json").write_text(manifest)
        (folder / "workloads" / "main.c").write_text(main)
        (folder / "workloads" / "workload.toml").write_text(description)
        return Corpus.load(folder)

    return make


DESCRIPTION = f"""
sources = ["main.c"]
[workload.twice]
about = "prints twice a number"
stdout_sha256 = "{sha256(OUTPUT)}"
"""
