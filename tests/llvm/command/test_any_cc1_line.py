"""Any -cc1 line means the same as the one that clang itself writes for what it understood."""

from __future__ import annotations

import re
import shlex
import subprocess
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.llvm.command._options import CompileOptions
from tests.conftest import require
from tests.generated import examples

GENERATED = re.compile(rb"^remark: generated arguments #1 in round-trip: (.*)$", re.MULTILINE)
ENDING = ("-fsyntax-only", "-x", "c", "/dev/null")

# What stands for a choice; of those of a line the last counts, or all do.
CHOICES = [
    *([each] for each in ("-O0", "-O1", "-O2", "-O3", "-Os", "-Oz", "-O", "-Og")),
    *([each] for each in ("-vectorize-loops", "-vectorize-slp", "-funroll-loops")),
    *([each] for each in ("-fno-unroll-loops", "-disable-llvm-passes", "-disable-llvm-optzns")),
    *(["-mrelocation-model", each] for each in ("static", "pic", "dynamic-no-pic")),
    *(["-target-cpu", each] for each in ("haswell", "core2", "x86-64-v3")),
    *(["-target-feature", each] for each in ("+avx2", "-sse4a", "-avx2", "+fma", "-fma")),
    *(["-mllvm", each] for each in ("-inline-threshold=5", "--stats", "-inline-threshold=9",
                                    "-align-all-functions=4", "-no-such", "-view-isel-dags")),
]  # fmt: skip
MODELS = [*([f"-mcmodel={each}"] for each in ("tiny", "small", "kernel", "medium", "large")), []]
# The embedded compiler does not honour these.
LACKING = [
    *([each] for each in ("-ffunction-sections", "-femulated-tls", "-mrelax-all", "-flto=full")),
    *([each] for each in ("-falign-loops=16", "-falign-loops=32", "-fveclib=libmvec")),
    *([each] for each in ("-fsanitize=address,null", "-fsanitize=null,alignment")),
    *([each] for each in ("-fsanitize=thread", "-fbasic-block-sections=all")),
    *([each] for each in ("-fmerge-functions", "-fsplit-lto-unit", "-fprofile-update=atomic")),
]  # fmt: skip
# These say nothing of the code from bitcode on; values that look like options are values.
OTHERS = [
    ["-pic-level", "2"], ["-pic-is-pie"], ["-mframe-pointer=all"], ["-fno-builtin"], ["-w"],
    ["-tune-cpu", "generic"], ["-ffreestanding"], ["-fwrapv"], ["-stack-protector", "2"],
    ["-D", "O3"], ["-DX=-O3"], ["-I", "-flto"], ["-I-flto"], ["-include", "/dev/null"], ["-Wall"],
    ["-main-file-name", "-O3"], ["-isystem", "-ffunction-sections"], ["-ferror-limit", "19"],
    ["-fdebug-compilation-dir=-O3"], ["-debug-info-kind=limited"], ["-std=c11"], ["-faddrsig"],
    ["-o", "-Oz"], ["-MT", "-O3"], ["-resource-dir", "-mllvm"], ["-fvisibility=hidden"],
]  # fmt: skip


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    parts = draw(st.lists(st.sampled_from(CHOICES), max_size=9))
    parts += draw(st.lists(st.sampled_from(LACKING), max_size=3))
    parts += draw(st.lists(st.sampled_from(OTHERS), max_size=4))
    parts += [draw(st.sampled_from(MODELS))]
    return [word for part in draw(st.permutations(parts)) for word in part]


@cache
def written_by_clang(*line: str) -> tuple[str, ...]:
    """The line that clang makes of what it understood of another."""
    command = [require("clang-22", "clang-22"), "-cc1", "-round-trip-args"]
    command += ["-Rround-trip-cc1-args", *line, *ENDING]
    done = subprocess.run(command, capture_output=True, check=False)
    found = GENERATED.search(done.stderr)
    assert found, done.stderr
    return tuple(shlex.split(found[1].decode()))


def reported(options: CompileOptions) -> set[str]:
    """What is not honoured; of what clang spells out in every line, nothing is known here."""
    always = CompileOptions.from_command(written_by_clang()).not_honoured
    return set(options.not_honoured) - set(always)


def unrolls(options: CompileOptions) -> bool:
    """Clang leaves out what the level says."""
    by_level = options.opt_level not in {"O0", "O1"}
    return by_level if options.unroll_loops is None else options.unroll_loops


@examples(25, is_dear=True)
@given(lines())
def test_as_clang_understands_it(line: list[str]) -> None:
    mine = CompileOptions.from_command(["-cc1", *line])
    clangs = CompileOptions.from_command(written_by_clang(*line))
    for name in ("opt_level", "relocation_model", "code_model", "vectorize_loops", "vectorize_slp",
                 "cpu", "features", "abi", "llvm_options", "run_passes"):  # fmt: skip
        assert getattr(mine, name) == getattr(clangs, name), name
    assert unrolls(mine) == unrolls(clangs)
    assert reported(mine) == reported(clangs)
