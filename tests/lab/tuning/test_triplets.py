"""Triplets by LLVM's own tool: what they say of a module, and what holds the tool."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from corpus_tools import sandbox
from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import EnvironmentSetupError, ModuleError
from mlgo_gym.lab.tuning import _seed_vocabulary
from mlgo_gym.lab.tuning._seed_vocabulary import TripletRun, TripletTool, _counted
from mlgo_gym.llvm._limits import Limits
from tests.conftest import require

HELD = sys.platform == "linux" and sandbox._landlock_abi() > 0
MISSING = "; on Debian or Ubuntu: apt-get install llvm-22"


@pytest.fixture
def tool() -> TripletTool:
    require("llvm-ir2vec-22", "llvm-22")
    return TripletTool.find()


@pytest.fixture
def run(tool: TripletTool) -> TripletRun:
    return TripletRun(tool.path, 60)


def assembled(opt: str, text: str) -> Module:
    done = subprocess.run([opt, "-"], input=text.encode(), capture_output=True, check=True)
    return Module("m", done.stdout)


def test_what_follows_is_typed_by_and_takes_what(
    tool: TripletTool, run: TripletRun, opt22: str
) -> None:
    text = "define i32 @f(i32 %x) {\n %y = add i32 %x, 1\n %z = add i32 %y, %x\n ret i32 %z\n}"
    found = run.count(assembled(opt22, text))
    assert {(tool.names[h], tool.names[t], r): n for (h, t, r), n in found.items()} == {
        ("Add", "IntegerTy", 0): 2,
        ("Add", "Variable", 2): 2,
        ("Add", "Constant", 3): 1,
        ("Add", "Variable", 3): 1,
        ("Add", "Add", 1): 1,
        ("Add", "Ret", 1): 1,
        ("Ret", "VoidTy", 0): 1,
        ("Ret", "Variable", 2): 1,
    }


def test_many_arguments_share_the_last_relation(run: TripletRun, opt22: str) -> None:
    taken, given = ", ".join(["i32"] * 40), ", ".join(["i32 7"] * 40)
    text = f"declare void @g({taken})\ndefine void @f() {{\n call void @g({given})\n ret void\n}}"
    found = run.count(assembled(opt22, text))
    relations: Counter[int] = Counter()
    for (_, _, relation), count in found.items():
        relations[relation] += count
    # The call and the return have types, the call a next; it takes 40 numbers and the function.
    assert relations == {0: 2, 1: 1, **dict.fromkeys(range(2, 33), 1), 33: 41 - 31}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected bitcode, found something else"),
        (b"define void @f() { ret void }", "expected bitcode, found something else"),
        (slice(500), "llvm-ir2vec ended with status 1: llvm-ir2vec: <stdin>: error: can't skip "),
    ],
)
def test_what_the_tool_refuses(
    run: TripletRun, small: Corpus, data: bytes | slice, message: str
) -> None:
    whole = small["frame_stream.c"].data
    with pytest.raises(ModuleError) as caught:
        run.count(Module("m", whole[data] if isinstance(data, slice) else data))
    assert str(caught.value).startswith(f"module 'm': {message}")


def test_its_answer_memory_and_time_are_bounded(
    run: TripletRun, small: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = small["frame_stream.c"]
    monkeypatch.setattr(_seed_vocabulary, "MAX_OUTPUT_BYTES", 4096)
    with pytest.raises(ModuleError) as caught:
        run.count(module)
    reason = "expected at most 4096 bytes of triplets, found more"
    assert str(caught.value) == f"module 'frame_stream.c': llvm-ir2vec: {reason}"
    run._limits = Limits(1 << 20)
    with pytest.raises(ModuleError) as caught:
        run.count(module)
    assert str(caught.value) == (
        "module 'frame_stream.c': llvm-ir2vec: expected to need at most 1 MiB of memory, found a "
        "need for more; peak_memory_bytes or MLGO_MEMORY (in MiB) lifts the limit"
    )


def test_of_a_crash_nothing_is_told_that_changes(small: Corpus, tmp_path: Path) -> None:
    crashing = tmp_path / "crashing"
    crashing.write_text("#!/bin/sh\necho Crashed. >&2\necho at $$ >&2\nkill -SEGV $$\n")
    crashing.chmod(0o755)
    with pytest.raises(ModuleError) as caught:
        TripletRun(crashing, 60).count(small["frame_stream.c"])
    reason = "llvm-ir2vec ended with status -11: Crashed."
    assert str(caught.value) == f"module 'frame_stream.c': {reason}"


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A tool that never answers."""
    path = tmp_path / "stopped"
    path.write_text("#!/bin/sh\nexec sleep 600\n")
    path.chmod(0o755)
    return path


def test_it_is_not_waited_for_for_ever(stopped: Path, small: Corpus) -> None:
    with pytest.raises(ModuleError) as caught:
        TripletRun(stopped, 0.01).count(small["frame_stream.c"])
    reason = "not done within 0.01 s; --timeout lifts the limit"
    assert str(caught.value) == f"module 'frame_stream.c': llvm-ir2vec: {reason}"


def test_it_ends_where_it_is_interrupted(stopped: Path, small: Corpus) -> None:
    run = TripletRun(stopped, 600)
    interrupting = threading.Timer(0.05, run.interrupt)  # before it starts, or after: both end it
    interrupting.start()
    with pytest.raises(ModuleError, match="llvm-ir2vec ended with status -9"):
        run.count(small["frame_stream.c"])
    interrupting.join()


@pytest.mark.skipif(not HELD, reason="the kernel has no Landlock")
def test_it_starts_nothing(small: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first argument is a program to ``env``, which is not allowed to start it."""
    script = tmp_path / "triplets"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(ModuleError) as caught:
        TripletRun(Path("/usr/bin/env"), 60).count(small["frame_stream.c"])
    assert "ended with status 126" in str(caught.value)
    assert "Permission denied" in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_an_answer_that_is_none() -> None:
    with pytest.raises(ModuleError) as caught:
        _counted(io.BytesIO(b"MAX_RELATION=1\n1\t2\t0\n1\tx\t0\n"), "m")
    assert str(caught.value) == "module 'm': llvm-ir2vec: no triplet: b'1\\tx\\t0\\n'"


def test_no_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    expected = "vocabulary: expected llvm-ir2vec of LLVM 22 on PATH, found "
    with pytest.raises(EnvironmentSetupError) as caught:
        TripletTool.find()
    assert str(caught.value) == f"{expected}none{MISSING}"
    other = tmp_path / "llvm-ir2vec"
    for said, found in (
        ("echo LLVM version 21.1.0", f"{other} of LLVM version 21.1.0"),
        ("echo hello", f"{other} of no known LLVM"),
        ("exit 3", f"{other}, which does not run: Command '['{other}', '--version']' returned "
         "non-zero exit status 3."),
    ):  # fmt: skip
        other.write_text(f"#!/bin/sh\n{said}\n")
        other.chmod(0o755)
        with pytest.raises(EnvironmentSetupError) as caught:
            TripletTool.find()
        assert str(caught.value) == f"{expected}{found}{MISSING}"
