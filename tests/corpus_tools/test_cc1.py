"""What a corpus keeps of a -cc1 command, compared with what clang itself embeds."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from corpus_tools import Clang, read_command
from corpus_tools.cc1 import embedded_command, parse_driver_output, portable_command
from corpus_tools.clang import SourceFile

# One flag of every kind: warnings, macros, headers, code generation, LLVM's own, debug info.
_FLAGS = (
    *("-Wall", "-Wno-unused", "-Wformat=2", "-pedantic", '-DTEXT=a"b$c\\d e', "-UNDEBUG", "-Isub"),
    *("-isystem", "sys", "-iquote", "quoted", "-include", "sub/first.h", "-fno-strict-aliasing"),
    *("-mavx2", "-mllvm", "-inline-threshold=7", "-g", "-MD", "-MF", "a.d", "-ffunction-sections"),
)


def _sources(root: Path) -> None:
    (root / "sub").mkdir()
    (root / "sub" / "first.h").write_text("int other(void);\n")
    (root / "a.c").write_text("int first(void) { return 1; }\n")
    (root / "a.cpp").write_text('extern "C" int first() { return 1; }\n')


@pytest.mark.parametrize("source", ["a.c", "a.cpp"])
@pytest.mark.parametrize("flags", [(), _FLAGS])
def test_the_driver_command_is_what_clang_embeds(
    clang22: Clang, llvm_objcopy: Path, tmp_path: Path, source: str, flags: tuple[str, ...]
) -> None:
    _sources(tmp_path)
    own = ("-w", "-Oz", "-fPIC", "-ffile-compilation-dir=.", *flags)
    compiled = [*own, "-Xclang", "-fembed-bitcode=all", "-c", source, "-o", "output.o"]
    # The same clock as corpus_tools gives clang: it is part of the command.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}
    subprocess.run([str(clang22.path), *compiled], cwd=tmp_path, env=environment, check=True)
    dump = [str(llvm_objcopy), "--dump-section", ".llvmcmd=a.cmd", "output.o"]
    subprocess.run(dump, cwd=tmp_path, check=True)
    embedded = list(read_command(tmp_path / "a.cmd"))
    embedded.remove("-fembed-bitcode=all")
    assert list(SourceFile(clang22, source, tmp_path, flags).driver_command()) == embedded


def test_a_portable_command_has_no_path_and_keeps_what_generates_code(
    clang22: Clang, tmp_path: Path
) -> None:
    _sources(tmp_path)
    command = SourceFile(clang22, "a.c", tmp_path, _FLAGS).driver_command()
    portable = portable_command(command)
    assert not [argument for argument in portable if "/" in argument]
    assert {"-Oz", "-relaxed-aliasing", "-inline-threshold=7", "+avx2"} <= set(portable)
    assert set(portable) < set(command)


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("", []),
        ('clang version 22\n (in-process)\n "c" "-cc1" "-Oz"\n', [("-cc1", "-Oz")]),
        (' "c" "-cc1" "-D" "A=\\"x y\\""', [("-cc1", "-D", 'A="x y"')]),
        (' "c" "-cc1" "-D" "A=\\$\\\\n"', [("-cc1", "-D", "A=$\\n")]),
        (' "c" "-cc1" ""', [("-cc1", "")]),
        (' "as" "-o" "a.o"\n "c" "-cc1"\n "d" "-cc1"', [("-cc1",), ("-cc1",)]),
    ],
)
def test_driver_output_is_parsed(text: str, commands: list[tuple[str, ...]]) -> None:
    assert parse_driver_output(text) == commands


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("-cc1 -o a.o -x c a.c", "-cc1"),
        ("-cc1 -Wall -w -o a.o -x c a.c", "-cc1 -w"),
        ("-cc1 -main-file-name a.c -x c a.c", "-cc1 -main-file-name a.c"),
        ("-cc1 -mllvm -x -x c a.c", "-cc1 -mllvm -x"),
    ],
)
def test_input_output_language_and_warnings_are_dropped(command: str, kept: str) -> None:
    assert embedded_command(command.split(), "a.c") == tuple(kept.split())


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("-cc1 -I sub -Isub -D A=1 -UB -Oz", "-cc1 -Oz"),
        ("-cc1 -mllvm -Dangerous -mllvm", "-cc1 -mllvm -Dangerous -mllvm"),
        ("-cc1 -fdebug-compilation-dir=/home -resource-dir /usr/lib -O2 -I", "-cc1 -O2"),
        (
            "-cc1 -dependency-file a.d -MT a.o -sys-header-deps -target-cpu x86-64",
            "-cc1 -target-cpu x86-64",
        ),
    ],
)
def test_what_names_the_machine_is_dropped(command: str, kept: str) -> None:
    assert portable_command(command.split()) == tuple(kept.split())
