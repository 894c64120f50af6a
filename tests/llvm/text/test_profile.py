"""Profiles in bitcode, made by clang, and judged by LLVM's own ``print-profile-summary``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from corpus_tools.code import code_sections
from mlgo_gym.corpus._corpus import Module
from mlgo_gym.curation._facts import ModuleFacts, describe_module
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm.text._profile import Profile
from tests.conftest import require

SOURCE = """
extern int outside(int);
int often(int x) { return outside(x) + 1; }
int rarely(int x) { return outside(x) + 2; }
int never(int x) { return outside(x) + 3; }
int unknown(int x) { return outside(x) + 4; }
__attribute__((cold)) int marked(int x) { return outside(x) + 5; }
"""
# The hash of a function without branches is 24 in clang's profiles.
COUNTS = {"often": 1_000_000, "rarely": 90, "never": 0}
TEXT_PROFILE = "".join(f"{name}\n24\n1\n{count}\n\n" for name, count in COUNTS.items())


@pytest.fixture
def profdata(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text(SOURCE)
    (tmp_path / "x.proftext").write_text(TEXT_PROFILE)
    tool = require("llvm-profdata-22", "llvm-22")
    subprocess.run([tool, "merge", "x.proftext", "-o", "x.profdata"], cwd=tmp_path, check=True)


def compiled(clang: str, folder: Path, *flags: str) -> Module:
    command = [clang, "-O2", "-fPIC", "-c", "x.c", "-w", "-Xclang", "-fembed-bitcode=all", *flags]
    subprocess.run([*command, "-o", "x.o"], cwd=folder, check=True)
    dump = ["--dump-section", ".llvmbc=x.bc", "--dump-section", ".llvmcmd=x.cmd", "x.o"]
    subprocess.run([require("llvm-objcopy-22", "llvm-22"), *dump], cwd=folder, check=True)
    return Module.from_file(folder / "x.bc")


def described(compiler: Compiler, clang: str, folder: Path, *flags: str) -> ModuleFacts:
    return describe_module(compiler, compiled(clang, folder, *flags))


def judged(opt: str, bitcode: Path) -> dict[str, set[str]]:
    """The functions whose entry LLVM calls hot and cold."""
    done = subprocess.run(
        [opt, "-passes=print-profile-summary", "-disable-output", bitcode],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stderr.splitlines()
    return {
        kind: {line.split()[0] for line in lines if f"{kind} entry" in line}
        for kind in ("hot", "cold")
    }


@pytest.mark.usefixtures("profdata")
def test_a_profile_of_the_front_end_is_in_the_bitcode(
    compiler: Compiler, clang22: str, opt22: str, tmp_path: Path
) -> None:
    facts = described(compiler, clang22, tmp_path, "-fprofile-instr-use=x.profdata")
    assert facts.profile == Profile("InstrProf", 3, hot_functions=1, cold_functions=3)
    assert (facts.profile_path, facts.lacks_named_profile) == ("x.profdata", False)
    assert judged(opt22, tmp_path / "x.bc") == {
        "hot": {"often"},
        "cold": {"rarely", "never", "marked"},
    }


@pytest.mark.usefixtures("profdata")
def test_a_profile_in_the_bitcode_is_honoured(
    compiler: Compiler, clang22: str, tmp_path: Path
) -> None:
    """The code is clang's, and another than without."""
    module = compiled(clang22, tmp_path, "-fprofile-instr-use=x.profdata")
    options = options_of(module)
    assert options.not_honoured == ()
    found = compiler.compile_module(module, options, keep_object=True).object_bytes or b""
    expected = (tmp_path / "x.o").read_bytes()
    assert code_sections(found, "found") == code_sections(expected, "expected")
    compiled(clang22, tmp_path)
    assert code_sections(found, "found") != code_sections((tmp_path / "x.o").read_bytes(), "plain")


def test_a_profile_of_the_pipeline_is_named_and_not_there(
    compiler: Compiler, clang22: str, tmp_path: Path
) -> None:
    (tmp_path / "x.c").write_text(SOURCE)
    tool = require("llvm-profdata-22", "llvm-22")
    header = subprocess.run(
        [clang22, "-O2", "-fprofile-generate", "-S", "-emit-llvm", "x.c", "-o", "-"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (line,) = [line for line in header.splitlines() if line.startswith("@__profd_often ")]
    function_hash = int(line.partition("{ i64 ")[2].split(", i64 ")[1])
    (tmp_path / "x.proftext").write_text(f":ir\noften\n{function_hash}\n1\n5000\n")
    subprocess.run([tool, "merge", "x.proftext", "-o", "x.profdata"], cwd=tmp_path, check=True)
    facts = described(compiler, clang22, tmp_path, "-fprofile-use=x.profdata")
    assert facts.profile == Profile(None, 0, hot_functions=0, cold_functions=1)
    reason = "the pass that counts or reads profiles is not run"
    assert options_of(Module.from_file(tmp_path / "x.bc")).not_honoured == (
        f"-fprofile-instrument-use=: {reason}",
        f"-fprofile-instrument-use-path=: {reason}",
    )
    assert (facts.profile_path, facts.lacks_named_profile) == ("x.profdata", True)
    # The pipeline of clang, given the same command, attaches it.
    after = [clang22, "-O2", "-fprofile-use=x.profdata", "-c", "x.c", "-emit-llvm", "-o", "y.bc"]
    subprocess.run(after, cwd=tmp_path, check=True)
    profile = describe_module(compiler, Module.from_file(tmp_path / "y.bc")).profile
    assert (profile.kind, profile.functions_with_counts) == ("InstrProf", 1)
    assert profile.hot_functions == 1


def test_no_profile(compiler: Compiler, clang22: str, tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text(SOURCE)
    facts = described(compiler, clang22, tmp_path)
    assert facts.profile == Profile(None, 0, hot_functions=0, cold_functions=1)
    assert (facts.profile_path, facts.lacks_named_profile) == (None, False)


def test_a_profile_of_samples(compiler: Compiler, clang22: str, opt22: str, tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text(SOURCE)
    (tmp_path / "x.prof").write_text("often:90000:5000\n 0: 5000\nrarely:10:1\n 0: 1\n")
    flags = ["-gline-tables-only", "-fprofile-sample-use=x.prof"]
    facts = described(compiler, clang22, tmp_path, *flags)
    assert (facts.profile.kind, facts.profile_path) == (None, "x.prof")
    command = [clang22, "-O2", *flags, "-c", "x.c", "-emit-llvm", "-o", "y.bc"]
    subprocess.run(command, cwd=tmp_path, check=True)
    profile = describe_module(compiler, Module.from_file(tmp_path / "y.bc")).profile
    assert profile.kind == "SampleProfile"
    llvms = judged(opt22, tmp_path / "y.bc")
    assert llvms == {"hot": {"often"}, "cold": {"rarely", "marked"}}
    assert profile.hot_functions == len(llvms["hot"])
    assert profile.cold_functions == len(llvms["cold"])
