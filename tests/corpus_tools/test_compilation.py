"""Compiling many sources at a time: order, interrupts, and what is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from corpus_tools import Clang, read_command
from corpus_tools.compilation import Compilation, compile_sources

_SLOW_FAILURE = """\
import pathlib, sys
if "a.c" in sys.argv:
    pathlib.Path(sys.argv[0]).with_name("b.c has failed").read_text()
sys.exit(3)
"""


def _stop(done: int, total: int, source: str) -> None:
    raise KeyboardInterrupt(done, total, source)


def test_each_source_leaves_its_bitcode_and_command_under_its_own_name(
    clang22: Clang, tmp_path: Path
) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "a.c").write_text("int a;\n")
    output = tmp_path / "out"
    output.mkdir()
    compilation = Compilation(clang=clang22, root=tmp_path / "src", opt_level="Os")
    assert compile_sources(compilation, ["deep/a.c"], output) == ()
    assert sorted(path.name for path in (output / "deep").iterdir()) == ["a.c.bc", "a.c.cmd"]
    assert "-Os" in read_command(output / "deep" / "a.c.cmd")


def test_failures_come_sorted_however_long_each_took(tmp_path: Path) -> None:
    def progress(_done: int, _total: int, source: str) -> None:
        order.append(source)
        if source == "b.c":
            fifo.write_text("")

    fifo = tmp_path / "b.c has failed"
    os.mkfifo(fifo)
    program = tmp_path / "clang"
    program.write_text(f"#!{sys.executable}\n{_SLOW_FAILURE}")
    program.chmod(0o755)
    clang = Clang(program, (22, 0, 0), "clang version 22.0.0")
    compilation = Compilation(clang=clang, root=tmp_path, jobs=2)
    order: list[str] = []
    failures = compile_sources(compilation, ["a.c", "b.c"], tmp_path, progress=progress)
    assert order == ["b.c", "a.c"]
    assert [failure.source for failure in failures] == ["a.c", "b.c"]
    assert failures[0].reason == "a.c: clang exited with 3"


def test_an_interrupt_does_not_wait_for_what_has_not_started(
    clang22: Clang, tmp_path: Path
) -> None:
    sources = [f"a{number}.c" for number in range(160)]
    for source in sources:
        (tmp_path / source).write_text("int a;\n")
    output = tmp_path / "out"
    output.mkdir()
    with pytest.raises(KeyboardInterrupt):
        compile_sources(Compilation(clang=clang22, root=tmp_path), sources, output, progress=_stop)
    assert 1 <= len(list(output.glob("*.cmd"))) < 40
