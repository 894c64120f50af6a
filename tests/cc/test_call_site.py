"""Models that look at the call site: in clang's process its module is there to be looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus_tools.code import code_sections
from mlgo_gym.corpus import function_sizes
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.stream._training_log import Observation
from tests.cc.conftest import MODELS, Driver
from tests.llvm.test_hotness import counted

SOURCE = (
    "static int once(int x) { return x > 9 ? (x / 3) * (x - 7) : (x * 2) ^ (x << 3); }\n"
    "static int twice(int x) { return x * x; }\n"
    "int f(int x) { return once(x) + twice(x) + twice(x + 1); }\n"
)
MODEL = str(MODELS / "last_use")
STRICT = {"MLGO_STRICT": "1", "MLGO_INLINING_MODEL": MODEL}


def last_use(observation: Observation) -> int:
    return int(observation["callee_call_sites"][0] == observation["callee_is_local"][0])


@pytest.mark.e2e
def test_what_is_called_once_is_inlined(driver: Driver, work: Path) -> None:
    (work / "f.c").write_text(SOURCE)
    done = driver.run("-Oz", "-S", "f.c", cwd=work, settings=STRICT)
    assert (done.returncode, done.stderr) == (0, b"")
    text = (work / "f.s").read_text()
    assert [name for name in ("once", "twice") if f"\n{name}:" in text] == ["twice"]


@pytest.mark.e2e
def test_decisions_are_those_of_the_embedded_llvm(
    driver: Driver, work: Path, sample: Corpus
) -> None:
    """The same features come of the same module, so the code has the same size."""
    problem = InliningForSize(derived=True)
    for name in ("scene.cpp", "expr_compile.c", "graph.cpp"):
        bitcode = sample.folder / f"{name}.bc"
        with Compiler() as compiler:
            expected = compiler.compile_module(
                sample[name], CompileOptions(opt_level="Oz"), problem=problem, policy=last_use
            )
        command = ("-w", "-Oz", "-x", "ir", "-c", str(bitcode), "-o", "f.o")
        done = driver.run(*command, cwd=work, settings=STRICT)
        assert (done.returncode, done.stderr) == (0, b"")
        sections = code_sections((work / "f.o").read_bytes(), name)
        assert sum(len(each.content) for each in sections) == expected.text_size_bytes


@pytest.mark.e2e
def test_what_is_hot_is_inlined(driver: Driver, work: Path) -> None:
    (work / "counted.ll").write_bytes(counted().data)
    settings = STRICT | {"MLGO_INLINING_MODEL": str(MODELS / "hot")}
    command = ("-w", "-Oz", "-x", "ir", "-c", "counted.ll", "-o", "f.o")
    done = driver.run(*command, cwd=work, settings=settings)
    assert (done.returncode, done.stderr) == (0, b"")
    sizes = function_sizes((work / "f.o").read_bytes())
    assert {"work", "rarely", "often"} & {*sizes} == {"rarely", "often"}


@pytest.mark.e2e
def test_over_fifos_nothing_is_known_of_it(driver: Driver, work: Path) -> None:
    command = ("-Oz", "-c", "f.c", "-o", "f.o")
    plain = driver.plain(*command, cwd=work)
    done = driver.run(
        *command,
        cwd=work,
        settings={"MLGO_INLINING_MODEL": MODEL, "MLGO_IN_PROCESS": "0"},
    )
    words = (
        b"mlgo-cc: warning: the inlining model needs inputs that this clang does not offer: "
        b"'callee_is_local'; compiled by plain clang\n"
    )
    assert (done.returncode, done.stderr) == (plain.returncode, words)
