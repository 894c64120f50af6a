"""Every option that LLVM lists: what becomes of it at each door, and what it makes LLVM do."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from corpus_tools.allowed.llvm import PATTERNS
from corpus_tools.replay import replay_command
from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import OptionsError, TraceError
from mlgo_gym.llvm._compilation import plain_options
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm._launch import child_command, child_environment
from mlgo_gym.llvm._request import CompileRequest
from mlgo_gym.llvm._task import COMPILE
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems import InliningForSize
from mlgo_gym.rollout._replay import options_of_trace, record
from mlgo_gym.rollout._trace import Trace
from tests.conftest import one_in, require

SCRIPT = Path(__file__).parents[3] / "scripts" / "llvm_options.py"
TABLE = Path(__file__).parents[3] / "corpus_tools" / "allowed" / "llvm_options.txt"
VALUES = ("", "=true", "=1", "=0.5", "=touch ran", "=\0")
SHARES = [(1000, 0), *(pytest.param(8, each, marks=pytest.mark.stress) for each in range(8))]


@functools.cache
def listed() -> tuple[str, ...]:
    """The names of all options, whatever their values."""
    command = child_command("mlgo_gym.llvm.command._own_options")
    done = subprocess.run(command, capture_output=True, env=child_environment(), check=True)
    return tuple(re.findall(r"^ +--?([\w.-]+)", done.stdout.decode(), flags=re.MULTILINE))


@pytest.fixture(scope="module")
def trace(small: Corpus) -> Trace:
    with Compiler(timeout_s=120) as compiler:
        return record(compiler, small["frame_stream.c"], InliningForSize(), lambda _: 0)


def is_taken_by_a_trace(trace: Trace, option: str) -> bool:
    settings = {**trace.settings, "llvm_options": [option]}
    try:
        return options_of_trace(replace(trace, settings=settings)).llvm_options == (option,)
    except TraceError as error:
        assert f"settings: llvm_options: {option}: " in str(error)
        return False


def is_taken_by_the_worker(option: str) -> bool:
    own = plain_options(), (option,)
    try:
        CompileRequest(False, True, False, CompileOptions("O2").target(), COMPILE, False, *own)
    except OptionsError as error:
        assert str(error).startswith(f"llvm_options: {option}: ")
        return False
    return True


@pytest.mark.e2e
def test_every_door_takes_what_is_listed_and_nothing_else(trace: Trace) -> None:
    assert len(listed()) > 2500
    table = dict(line.split(" ") for line in TABLE.read_text().splitlines())
    taken = set()
    for name in (*listed(), "no-such-option", ""):
        for value in VALUES:
            option = f"-{name}{value}"
            chosen = options_of(Module("x", b"", ("-cc1", "-mllvm", option))).llvm_options
            expected = chosen == (option,)
            assert is_taken_by_the_worker(option) == expected
            assert is_taken_by_a_trace(trace, option) == expected
            assert (option in replay_command(("-cc1", "-mllvm", option))) == expected
            taken |= {name} if expected else set()
    assert taken <= table.keys()
    fits = {name for name, kind in table.items() if kind in PATTERNS or "1" in kind.split("|")}
    assert taken == fits


@pytest.mark.e2e
@pytest.mark.parametrize(("share", "part"), SHARES)
def test_what_is_listed_makes_llvm_do_nothing_else(share: int, part: int) -> None:
    require("strace", "strace")
    command = [sys.executable, str(SCRIPT), "--check", f"--share={share}", f"--part={part}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d+ listed options tried; more than code: \[\]\n", done.stdout)


@pytest.mark.parametrize(
    "option",
    one_in(4, ["-inline-threshold=5", "-regalloc=basic", "-enable-gvn-hoist", "-unroll-count=4"]),
)
def test_a_listed_option_reaches_llvm(option: str, small: Corpus, compiler: Compiler) -> None:
    module = replace(small["hash_map.c"], command=("-cc1", "-O2", "-mllvm", option))
    chosen = options_of(module)
    assert chosen.llvm_options == (option,)
    assert compiler.compile_module(module).settings["llvm_options"] == (option,)
