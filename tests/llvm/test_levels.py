"""The level of a command and the code: that of clang, whatever level the bitcode was made at."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.curation._functions import split_module
from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm.worker._binding import section_contents
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from tests.cli.command import run
from tests.conftest import require

LIFTED = InliningForSize(size_increase_threshold=math.inf)
LEVELS = ("O0", "O1", "O2", "O3", "Os", "Oz")

# Each function shows one difference between -O2 and -Os or -Oz: the inliner's thresholds, the
# rotation of loops, specialised functions, wrapped calls, and loops that have to be vectorised.
C_SOURCE = """
double sqrt(double), pow(double, double), log(double);
static int step(int x, int y) {
  for (int i = 0; i < 4; i++) x = x * 31 + (y >> i);
  return x > 7 ? x : y;
}
int calls(int x) { return step(x, 1) + step(x + 1, 2) + step(x, 3); }
int find(const char *s, int n) {
  for (int i = 0; i < n; i++) if (s[i] == ' ') return i;
  return -1;
}
static int one(int x) { return x + 1; }
static int two(int x) { return x * x; }
static int apply(int (*f)(int), int n) {
  int s = 0;
  for (int i = 0; i < n; i++) s += f(i) * 7 + i;
  for (int i = 0; i < n; i++) s ^= f(i);
  return s;
}
int specialised(int n) { return apply(one, n) + apply(two, n); }
void unused(double x) { sqrt(x); pow(2.0, x); log(x); }
void forced(float *a, const float *b, int n) {
#pragma clang loop vectorize(enable)
  for (int i = 0; i < n; i++) a[i] += b[i];
}
#pragma clang optimize off
int plain(int x) { return x * 3; }
"""
OPENMP_SOURCE = """
static int helper(double *a) {
#pragma omp parallel
  { a[0] += 1; }
  return 1;
}
int loop(double *a, int n) {
  int r = 0;
#pragma omp parallel for reduction(+ : r)
  for (int i = 0; i < n; i++) r += a[i] > 1;
  return r + helper(a) + helper(a + 1);
}
"""
RUST_SOURCE = """
pub fn words(s: &str) -> Vec<String> {
    let mut v: Vec<String> = s.split_whitespace().map(|w| w.to_uppercase()).collect();
    v.sort();
    v
}
"""


@pytest.fixture
def compiler(own_compiler: Compiler) -> Compiler:
    return own_compiler


def from_c(source: str, level: str, folder: Path, clang22: str, *options: str) -> Path:
    (folder / "m.c").write_text(source)
    bitcode = folder / f"{level}.bc"
    command = [clang22, f"-{level}", *options, "-w", "-Xclang", "-disable-llvm-passes"]
    subprocess.run([*command, "-emit-llvm", "-c", folder / "m.c", "-o", bitcode], check=True)
    return bitcode


def from_rust(folder: Path) -> Path:
    (folder / "l.rs").write_text(RUST_SOURCE)
    options = ["--crate-type=lib", "-Copt-level=2", "-Cno-prepopulate-passes", "--emit=llvm-bc"]
    rustc = require("rustc", "rustc")
    subprocess.run([rustc, *options, folder / "l.rs", "-o", folder / "rust.bc"], check=True)
    return folder / "rust.bc"


def by_clang(clang22: str, bitcode: Path, level: str) -> bytes:
    made = bitcode.with_suffix(".o")
    command: list[str | Path] = [
        clang22,
        "-cc1",
        f"-{level}",
        "-w",
        "-x",
        "ir",
        bitcode,
        "-emit-obj",
        "-o",
        made,
    ]
    subprocess.run(command, check=True)
    return made.read_bytes()


def check_objects(compiler: Compiler, bitcode: Path, clang22: str) -> dict[str, int]:
    """Compare whole objects at each level; returns the bytes of text."""
    sizes = {}
    for level in LEVELS:
        module = Module("m", bitcode.read_bytes(), ("-cc1", f"-{level}"))
        result = compiler.compile_module(module, keep_object=True)
        assert result.object_bytes == by_clang(clang22, bitcode, level), level
        assert result.settings["opt_level"] == level
        sizes[level] = result.text_size_bytes
    return sizes


@pytest.mark.parametrize("made", ["O2", "Oz"])
def test_bitcode_of_clang(made: str, compiler: Compiler, clang22: str, tmp_path: Path) -> None:
    bitcode = from_c(C_SOURCE, made, tmp_path, clang22)
    sizes = check_objects(compiler, bitcode, clang22)
    if made == "O2":
        assert sizes["Oz"] < sizes["Os"] < sizes["O2"]


def test_bitcode_with_openmp(compiler: Compiler, clang22: str, tmp_path: Path) -> None:
    check_objects(compiler, from_c(OPENMP_SOURCE, "O2", tmp_path, clang22, "-fopenmp"), clang22)


def test_bitcode_of_rust(compiler: Compiler, clang22: str, tmp_path: Path) -> None:
    sizes = check_objects(compiler, from_rust(tmp_path), clang22)
    assert sizes["Oz"] < sizes["Os"] < sizes["O2"]


def test_another_level_than_the_command(compiler: Compiler, clang22: str, tmp_path: Path) -> None:
    """With the driver's switches for vectorisers, as a level has that no command goes with."""
    bitcode = from_c(C_SOURCE, "O2", tmp_path, clang22)
    module = Module("m", bitcode.read_bytes(), ("-cc1", "-O2"))
    subprocess.run(
        [clang22, "-Oz", "-fPIC", "-w", "-c", bitcode, "-o", tmp_path / "m.o"], check=True
    )
    result = compiler.compile_module(module, options_of(module, "Oz"), keep_object=True)
    assert result.object_bytes
    clangs = (tmp_path / "m.o").read_bytes()
    ours, theirs = (section_contents(each, ".text") for each in (result.object_bytes, clangs))
    assert ours == theirs


def test_answers_at_a_level(compiler: Compiler, clang22: str, tmp_path: Path) -> None:
    """LLVM's own answers are those of the level; the levels before and after have theirs."""
    bitcode = from_c(C_SOURCE, "O2", tmp_path, clang22)
    for level in ("O2", "Oz", "O1", "Os", "O2"):
        module = Module("m", bitcode.read_bytes(), ("-cc1", f"-{level}"))
        result = compiler.compile_module(module, problem=LIFTED, policy=default, keep_object=True)
        assert result.object_bytes == by_clang(clang22, bitcode, level), level
        assert result.decisions > 0


def test_functions_of_a_module(compiler: Compiler, clang22: str, tmp_path: Path) -> None:
    bitcode = from_c(C_SOURCE, "O2", tmp_path, clang22)
    counts = {
        level: sum(
            each.instructions
            for each in split_module(compiler, Module("m", bitcode.read_bytes(), ("-cc1", level)))
        )
        for level in ("-O2", "-Oz")
    }
    assert counts["-Oz"] < counts["-O2"]


def test_the_command_line(clang22: str, tmp_path: Path) -> None:
    """Rollouts, and verification against clang."""
    (tmp_path / "in").mkdir()
    bitcode = from_c(C_SOURCE, "O2", tmp_path, clang22)
    shutil.copy(bitcode, tmp_path / "in" / "m.bc")
    corpus = tmp_path / "corpus"
    run_tool(
        "mlgo-make-corpus",
        "--input_dir",
        str(tmp_path / "in"),
        "--output_dir",
        str(corpus),
        "--default_args",
        "-cc1 -Oz",
    )
    done = run_tool(
        "mlgo-gym", "corpus", "verify", "--corpus", str(corpus), "--clang", clang22, "--json"
    )
    assert json.loads(done.stdout)["modules"][0]["clang"]["outcome"] == "equal"


@pytest.mark.e2e
def test_a_library_without_symbols(clang22: str, tmp_path: Path) -> None:
    """There no size level can be set: what needs one is refused, and the rest compiles."""
    packages = tmp_path / "packages"
    spec = find_spec("llvmlite")
    assert spec
    assert spec.origin
    shutil.copytree(Path(spec.origin).parent, packages / "llvmlite")
    subprocess.run(
        [require("strip", "binutils"), packages / "llvmlite" / "binding" / "libllvmlite.so"],
        check=True,
    )
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    for made in ("O2", "Oz"):
        (tmp_path / made).mkdir()
        shutil.copy(from_c(C_SOURCE, made, tmp_path, clang22), tmp_path / made / "m.bc")
    message = (
        "-Oz: not honoured: expected a libllvmlite with its table of symbols, since function "
        "'calls' has no attribute for size; install llvmlite's wheel or compile at -O2"
    )
    for made, status in (("O2", 1), ("Oz", 0)):
        corpus = str(tmp_path / f"corpus-{made}")
        folders = ("--input_dir", str(tmp_path / made), "--output_dir", corpus)
        run_tool("mlgo-make-corpus", *folders, "--default_args", "-cc1 -Oz")
        for command in (("corpus", "verify"), ("rollout", "--policy", "default")):
            arguments = (*command, "--corpus", corpus, "--json")
            done = run_tool("mlgo-gym", *arguments, environment=environment, status=status)
            assert (message in done.stdout) is bool(status)


def run_tool(
    name: str, *arguments: str, environment: dict[str, str] | None = None, status: int = 0
) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name(name)
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.mark.parametrize("level", ["Os", "Oz"])
def test_attributes_as_clang_puts_them(
    level: str, compiler: Compiler, clang22: str, tmp_path: Path
) -> None:
    """Bitcode made at -O2, marked, is what bitcode made at the level is; `plain` has optnone."""
    bitcode = {each: from_c(C_SOURCE, each, tmp_path, clang22) for each in ("O2", level)}
    modules = {each: Module("m", path.read_bytes(), ("-cc1",)) for each, path in bitcode.items()}
    options = {each: options_of(modules["O2"], each) for each in (level, f"{level}+attributes")}
    marked = compiler.compile_module(modules["O2"], options[f"{level}+attributes"])
    plainly = compiler.compile_module(modules["O2"], options[level])
    made = compiler.compile_module(modules[level], options[level])
    assert marked.object_sha256 == made.object_sha256
    assert marked.text_size_bytes < plainly.text_size_bytes
    assert marked.settings["opt_level"] == f"{level}+attributes"


def test_a_level_with_attributes_that_is_none(compiler: Compiler) -> None:
    module = Module.from_ir("define void @f() { ret void }")
    with pytest.raises(OptionsError) as error:
        compiler.compile_module(module, options_of(module, "O2+attributes"))
    assert str(error.value) == (
        "opt_level: expected one of O0, O1, O2, O3, Os, Oz, Os+attributes, Oz+attributes, found "
        "'O2+attributes'"
    )


def test_the_command_line_marks(clang22: str, tmp_path: Path) -> None:
    from_c(C_SOURCE, "O2", tmp_path, clang22)
    folder = ["--traces", "traces", "--json", "--corpus"]
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    shutil.copy(tmp_path / "O2.bc", corpus / "m.c.bc")
    (corpus / "m.c.cmd").write_bytes(b"-cc1\0-O2")
    (corpus / "corpus_description.json").write_text('{"has_thinlto": false, "modules": ["m.c"]}')
    line = ["rollout", "--policy", "default", "--opt-level", "Oz+attributes", *folder, "corpus"]
    done = run(*line, cwd=tmp_path)
    assert done.returncode == 0
    (trace,) = (tmp_path / "traces").rglob("*.trace*")
    again = run("replay", trace, "--corpus", "corpus", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
