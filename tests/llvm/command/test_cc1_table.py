"""The table of -cc1 options, row by row: what the embedded compiler makes of it, beside clang."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import lief
import pytest

from corpus_tools.allowed.cc1_table import TABLE, Effect, Row
from corpus_tools.code import code_sections
from mlgo_gym.corpus._corpus import Module
from mlgo_gym.errors import CompilerCrashError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm.command._options import read_arguments
from tests.conftest import one_in

SOURCES = Path(__file__).parent / "sources"
DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"

# Flags of clang's driver whose code must be clang's own, byte for byte.
HONOURED = """
-O2 -Xclang -disable-llvm-passes
-O0 | -O1 | -O2 | -O3 | -Os | -Oz | -Og | -Ofast | -O2 -fPIC | -O2 -fno-pic | -Oz -fPIE
-O2 -mcmodel=large | -O2 -mcmodel=kernel -fno-pic
-O3 -march=haswell | -O2 -march=haswell -mtune=znver4 | -O2 -mtune=atom | -O2 -mavx2 | -O2 -mno-sse4
-O2 -fno-vectorize | -O2 -fno-slp-vectorize | -O1 -funroll-loops | -O2 -fno-unroll-loops
-O2 -fno-omit-frame-pointer | -O2 -fno-asynchronous-unwind-tables -fno-unwind-tables
-O2 -ffast-math | -O2 -mfma -ffp-contract=fast | -O2 -mfma -ffp-contract=off | -O2 -fno-math-errno
-O2 -frounding-math | -O2 -ffp-model=strict | -O2 -fno-builtin | -O2 -fno-builtin-memset
-O2 -ffreestanding | -O2 -fstack-protector-all | -O2 -fstack-clash-protection
-O2 -fcf-protection | -O2 -fno-plt -fPIC | -O2 -fvisibility=hidden
-O2 -fsemantic-interposition -fPIC | -O2 -ftls-model=initial-exec | -O2 -fno-jump-tables
-O2 -fwrapv | -O2 -fno-strict-aliasing
-O2 -fno-delete-null-pointer-checks | -O2 -fno-optimize-sibling-calls | -O2 -fno-inline
-O2 -fno-inline-functions | -O2 -fstrict-vtable-pointers | -O2 -fno-threadsafe-statics
-O2 -fmerge-all-constants | -O2 -fcommon | -O2 -falign-functions=32 | -O2 -mstackrealign
-O2 -mno-red-zone | -O2 -pg | -O2 -finstrument-functions | -O2 -fpatchable-function-entry=4
-O2 -fxray-instrument -fxray-instruction-threshold=1 | -O2 -ftrivial-auto-var-init=pattern
-O2 -fzero-call-used-regs=used | -O2 -mretpoline | -O2 -mspeculative-load-hardening
-O2 -mharden-sls=all | -O2 -mfunction-return=thunk-extern | -O2 -fsanitize=undefined
-O2 -fsanitize=signed-integer-overflow -fsanitize-trap=all | -O2 -fsanitize=safe-stack
-O2 -fsanitize=kcfi | -O2 -g | -O2 -g1 | -O2 -fno-use-cxa-atexit | -O2 -fno-use-init-array
-O2 -fdata-sections | -O2 -ffunction-sections -fdata-sections -faddrsig
-O2 -gsplit-dwarf -g | -O2 -fstack-size-section | -O2 -fno-common -pthread
-O2 -fno-zero-initialized-in-bss | -O2 -Wa,-mrelax-relocations=no | -O2 -fno-verbose-asm
-O2 -mllvm -inline-threshold=5 | -O2 -mllvm -align-all-functions=6
-O2 -mbranches-within-32B-boundaries | -O2 -mllvm -enable-gvn-hoist -mllvm -unroll-threshold=7
"""

IMPURE = "it is not one of those known to run, read, write and show nothing"

# Flags, and the options of -cc1 that are reported for them, and no other.
NOT_HONOURED = [
    ("-O2 -mcmodel=medium", "-mcmodel=medium"),
    ("-O2 -femulated-tls", "-femulated-tls"),
    ("-O2 -falign-loops=32", "-falign-loops="),
    ("-O2 -mrelax-all", "-mrelax-all"),
    ("-O2 -ffast-math -fveclib=libmvec", "-fveclib="),
    ("-O2 -fbasic-block-sections=all", "-fbasic-block-sections="),
    ("-O2 -fsanitize=address", "-fsanitize=address | -fsanitize-address-"),
    ("-O2 -fsanitize=thread", "-fsanitize=thread"),
    ("-O2 -fsanitize=memory", "-fsanitize=memory | -fsanitize-memory-"),
    ("-O2 -fsanitize-coverage=trace-pc-guard", "-fsanitize-coverage-"),
    ("-O2 -fprofile-generate", "-fprofile-instrument="),
    ("-O2 --coverage", "-coverage-data-file= | -coverage-notes-file="),
    ("-O2 -fmemory-profile", "-fmemory-profile"),
    ("-O2 -mllvm -force-attribute=cold", "-mllvm -force-attribute=cold"),
]


def compiled(clang: str, source: str, flags: str, folder: Path) -> tuple[bytes, Module]:
    """Clang's object, and the module that is embedded in it."""
    output = folder / "output.o"
    command = [clang, "-c", "-w", "-Xclang", "-fembed-bitcode=all", *flags.split()]
    subprocess.run([*command, str(SOURCES / source), "-o", str(output)], cwd=folder, check=True)
    data = output.read_bytes()
    parsed = lief.ELF.parse(data)
    assert parsed is not None
    contents = {str(each.name): bytes(each.content) for each in parsed.sections}
    arguments = contents[".llvmcmd"].decode().removesuffix("\0").split("\0")
    return data, Module(source, contents[".llvmbc"], tuple(arguments))


def code(data: bytes | None) -> list[tuple[str, bytes]]:
    return [(each.name, each.content) for each in code_sections(data or b"", "x")]


@pytest.mark.parametrize(
    "flags", one_in(9, [each.strip() for each in re.split(r"[|\n]", HONOURED.strip())])
)
def test_what_is_honoured_gives_the_code_of_clang(
    clang22: str, compiler: Compiler, tmp_path: Path, flags: str
) -> None:
    for source in ("rich.c", "rich.cpp"):
        native, module = compiled(clang22, source, flags, tmp_path)
        assert options_of(module).not_honoured == ()
        embedded = compiler.compile_module(module, keep_object=True)
        assert code(embedded.object_bytes) == code(native)


@pytest.mark.parametrize(("flags", "options"), NOT_HONOURED)
def test_what_is_not_honoured_is_said_and_changes_code(
    clang22: str, compiler: Compiler, tmp_path: Path, flags: str, options: str
) -> None:
    native, module = compiled(clang22, "rich.c", flags, tmp_path)
    said = options_of(module).not_honoured
    assert {each.partition(": ")[0] for each in said} == set(options.split(" | "))
    embedded = compiler.compile_module(module, keep_object=True)
    assert code(embedded.object_bytes) != code(native)


@pytest.mark.e2e
def test_counters_of_the_front_end_end_in_an_error(
    clang22: str, compiler: Compiler, tmp_path: Path
) -> None:
    _, module = compiled(clang22, "rich.c", "-O2 -fprofile-instr-generate", tmp_path)
    assert options_of(module).not_honoured == (
        "-fprofile-instrument=clang: counters of the front end stay unlowered: LLVM aborts",
    )
    with pytest.raises(CompilerCrashError):
        compiler.compile_module(module)


def test_options_of_llvm_end_with_their_modules(clang22: str, tmp_path: Path) -> None:
    """A module without -mllvm, after one with, is compiled as if alone; the worker is another."""
    _, plain = compiled(clang22, "rich.c", "-O2", tmp_path)
    _, tuned = compiled(clang22, "rich.c", "-O2 -mllvm -inline-threshold=5", tmp_path)
    hashes, workers = [], []
    with Compiler(timeout_s=120) as compiler:
        for module in (plain, tuned, tuned, plain):
            hashes.append(compiler.compile_module(module).object_sha256)
            workers.append(compiler.worker_pid)
    assert hashes[0] == hashes[3] != hashes[1] == hashes[2]
    assert workers[1] == workers[2]
    assert len(set(workers)) == 3


def unknown_to_clang(clang: str, rows: Sequence[Row], folder: Path) -> list[str]:
    """Names that clang does not take; some options end clang before it complains of others."""
    arguments = [
        part
        for row in rows
        for part in (row.name + "1" * row.option.endswith("*"), *["1"] * (" " in row.option))
    ]
    command = [clang, "-cc1", *arguments, "-no-such-option", "-fsyntax-only", "-x", "c", os.devnull]
    done = subprocess.run(command, capture_output=True, cwd=folder, check=False)
    unknown = re.findall(rb"unknown argument: '(.*?)'", done.stderr)
    if unknown == [b"-no-such-option"] or (len(rows) == 1 and not unknown):
        return []
    if len(rows) == 1:
        return [rows[0].name]
    middle = len(rows) // 2
    halves = rows[:middle], rows[middle:]
    return [name for half in halves for name in unknown_to_clang(clang, half, folder)]


def test_every_row_is_an_option_of_clang(clang22: str, tmp_path: Path) -> None:
    """Names of families stand for several options and are left out."""
    whole = [row for row in TABLE if not row.option.endswith("*") or row.name.endswith("=")]
    invented = Row("-fno-such-thing", Effect.OTHER, "")
    assert unknown_to_clang(clang22, [*whole, invented], tmp_path) == ["-fno-such-thing"]


def test_names_are_unique() -> None:
    spelled = [row.option for row in TABLE]
    assert len(spelled) == len(set(spelled))


def test_the_document_has_every_row_but_those_of_the_front_end() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    missing = [
        row.option
        for row in TABLE
        if row.effect is not Effect.FRONT_END and f"`{row.option}`" not in text
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-no-such=thing"], ["-no-such=: not known to mlgo_gym"]),
        (["-no-such", "value", "-Oz"], ["-no-such: not known to mlgo_gym"]),
        (["-no-such", "-no-such"], ["-no-such: not known to mlgo_gym"]),
        (["-fsanitize=null,address"], ["-fsanitize=address: the pass that instruments is not run"]),
        (["-fsanitize=other"], ["-fsanitize=other: the pass that instruments is not run"]),
        (["-I", "-ffunction-sections", "-D", "-flto"], []),
        (["-main-file-name", "-flto", "-Wall", "-DX=1", "-fno-show-column"], []),
        (
            ["-coverage-data-file=/a.gcda"],
            ["-coverage-data-file=: the pass that counts or reads profiles is not run"],
        ),
        (
            ["-mllvm", "-enable-ml-inliner=release"],
            ["-mllvm -enable-ml-inliner=release: mlgo_gym sets up LLVM's advisors itself"],
        ),
        (
            ["-mllvm", "-view-isel-dags"],
            [f"-mllvm -view-isel-dags: {IMPURE}"],
        ),
        (
            ["-mllvm", "-info-output-file=x"],
            [f"-mllvm -info-output-file=x: {IMPURE}"],
        ),
        (["-mllvm", "--stats"], [f"-mllvm --stats: {IMPURE}"]),
        (["-mllvm", "-no-such-option"], [f"-mllvm -no-such-option: {IMPURE}"]),
        (["-mllvm", "text"], ["-mllvm text: expected an option of LLVM"]),
        (
            ["-mllvm", "-regalloc=best"],
            ["-mllvm -regalloc=best: its value is not one that LLVM lists"],
        ),
        (["-mllvm", "-regalloc=basic", "-mllvm", "--inline-threshold=-1"], []),
        (["-mllvm", "-enable-gvn-hoist", "-mllvm", "-enable-gvn-hoist=false"], []),
    ],
)
def test_what_is_reported(arguments: list[str], expected: list[str]) -> None:
    module = Module("x", b"", ("-cc1", *arguments))
    assert list(options_of(module).not_honoured) == expected


def test_options_of_llvm_are_passed_with_one_dash() -> None:
    module = Module("x", b"", ("-cc1", "-mllvm", "--enable-gvn-hoist", "-mllvm", "-unroll-count=7"))
    assert options_of(module).llvm_options == ("-enable-gvn-hoist", "-unroll-count=7")


def test_the_value_of_an_option_is_not_taken_for_one() -> None:
    arguments = read_arguments(["-cc1", "-mllvm", "-O3", "-target-cpu", "-flto", "-Oz"])
    assert [each.name for each in arguments] == ["-mllvm", "-target-cpu", "-O"]
