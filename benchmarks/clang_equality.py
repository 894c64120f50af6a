"""How near the embedded LLVM is to clang-22, and the advisor to LLVM left alone, on Lua 5.4.

For each level: how many objects are equal byte for byte when every decision is answered with
LLVM's default and the growth limit is lifted; how many have clang's own code (``.text*``); and the
totals in ``size``'s text column, which counts read-only data and unwind tables too. Lua as one
large file at -O3 shows what the growth limit does.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
from pathlib import Path

from benchmarks.recipes import built
from mlgo_gym import Compiler, Corpus, InliningForSize, Module
from mlgo_gym.llvm.worker import _binding as binding
from mlgo_gym.problems._inlining_for_size import default

CLANG = "clang-22"
SIZE = "llvm-size-22"


def run() -> None:
    with Compiler() as compiler:
        for level in ("Oz", "O3"):
            compare(compiler, level, built("lupa", level))
        show_growth_limit(compiler, built("lupa", "O3", whole_program=True))


def compare(compiler: Compiler, level: str, corpus: Corpus) -> None:
    equal_objects = equal_code = ours = clangs = decisions = 0
    lifted = InliningForSize(size_increase_threshold=math.inf)
    for name in corpus:
        module = corpus[name]
        plain = compiler.compile_module(module, keep_object=True)
        asked = compiler.compile_module(module, problem=lifted, policy=default, keep_object=True)
        native = by_clang(module)
        decisions += asked.decisions
        equal_objects += plain.object_bytes == asked.object_bytes
        equal_code += code(plain.object_bytes or b"") == code(native)
        ours += text_column(plain.object_bytes or b"")
        clangs += text_column(native)
    print(
        f"-{level}: {decisions} decisions; equal to LLVM left alone: {equal_objects} of "
        f"{len(corpus)} objects; code equal to {CLANG}'s: {equal_code}; size's text column: "
        f"{ours:,} against {clangs:,} bytes ({100 * (ours / clangs - 1):+.3f} %)"
    )


def show_growth_limit(compiler: Compiler, corpus: Corpus) -> None:
    (name,) = corpus
    plain = compiler.compile_module(corpus[name])
    print(f"{name} at -O3, bytes of code: LLVM left alone {plain.text_size_bytes:,}", end="")
    for limit in (2.0, math.inf):
        problem = InliningForSize(size_increase_threshold=limit)
        asked = compiler.compile_module(corpus[name], problem=problem, policy=default)
        print(f"; default answers, limit {limit:g}: {asked.text_size_bytes:,}", end="")
    print()


def by_clang(module: Module) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "x.bc"), Path(folder, "x.o")
        source.write_bytes(module.data)
        command = [CLANG, *(module.command or ()), "-x", "ir", str(source), "-o", str(output)]
        subprocess.run(command, check=True)
        return output.read_bytes()


def text_column(data: bytes) -> int:
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(data)
        file.flush()
        done = subprocess.run([SIZE, file.name], check=True, capture_output=True, text=True)
    return int(done.stdout.splitlines()[1].split()[0])


def code(data: bytes) -> bytes:
    return b"".join(binding.section_contents(data, ".text"))
