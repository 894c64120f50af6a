"""Replaying a module's command with clang: what is run, and what comes of it."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import lief
import pytest

from corpus_tools import Clang
from corpus_tools.code import code_sections, difference
from corpus_tools.errors import CompileError, LayoutError
from corpus_tools.object_file import ObjectFile
from corpus_tools.replay import replay, replay_command
from tests.conftest import one_in, require
from tests.corpus_tools.conftest import Traced

SOURCE = """
int external(int);
int counter;
static int helper(int a) { return a > 3 ? external(a) : counter++; }
int first(int a) { int s = 0; for (int i = 0; i < a; i++) s += helper(i); return s; }
int second(int a) { return helper(a) + first(a); }
"""


def embedded(data: bytes) -> tuple[bytes, tuple[str, ...]]:
    parsed = lief.ELF.parse(data)
    assert parsed is not None
    contents = {str(each.name): bytes(each.content) for each in parsed.sections}
    command = contents[".llvmcmd"].decode().removesuffix("\0").split("\0")
    return contents[".llvmbc"], tuple(command)


@pytest.mark.parametrize(
    "flags",
    [
        "-O2",
        "-Oz -ffunction-sections -fdata-sections",
        "-O2 -g -gsplit-dwarf -MD -MF a.d",
        "-O2 --coverage",
        "-O2 -fprofile-instr-generate -fcoverage-mapping",
        "-O2 -fsanitize=undefined,safe-stack",
        "-O3 -mllvm -inline-threshold=3 -femulated-tls -falign-loops=32",
        "-O2 -fsplit-machine-functions -fstack-size-section -ftime-trace",
    ],
)
def test_clang_makes_the_original_code_again(clang22: Clang, tmp_path: Path, flags: str) -> None:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "a.c").write_text(SOURCE)
    command = [str(clang22.path), "-c", "-Xclang", "-fembed-bitcode=all", *flags.split()]
    subprocess.run([*command, "a.c", "-o", "a.o"], cwd=folder, check=True)
    original = (folder / "a.o").read_bytes()
    bitcode, arguments = embedded(original)
    (tmp_path / "m.bc").write_bytes(bitcode)
    for path in folder.iterdir():
        path.unlink()
    again = replay(clang22, "m", tmp_path / "m.bc", arguments)
    assert difference(code_sections(original, "m"), code_sections(again, "m")) is None
    assert list(folder.iterdir()) == [], "the command wrote beside the sources"
    assert not Path("a.d").exists()


def test_a_module_of_thinlto(clang22: Clang, tmp_path: Path) -> None:
    """A distributed build: the back end's object comes out again from bitcode and index."""
    lld = require("ld.lld-22", "lld-22")
    (tmp_path / "a.c").write_text("int b(int); int a(int x) { return b(x) + b(x + 1); }\n")
    (tmp_path / "b.c").write_text("int b(int x) { return x * 3 + 1; }\n")
    clang = str(clang22.path)
    run = [clang, "-O2", "-c", "-flto=thin"]
    for name in ("a", "b"):
        source = [str(tmp_path / f"{name}.c"), "-o", str(tmp_path / f"{name}.o")]
        subprocess.run([*run, *source], check=True)
    objects = [str(tmp_path / "a.o"), str(tmp_path / "b.o")]
    link = [lld, "-shared", "--thinlto-index-only", *objects, "-o", str(tmp_path / "out.so")]
    subprocess.run(link, check=True)
    index = tmp_path / "a.o.thinlto.bc"
    backend = [clang, "-O2", "-c", "-x", "ir", objects[0], f"-fthinlto-index={index}"]
    embed = ["-mllvm", "-lto-embed-bitcode=post-merge-pre-opt"]
    subprocess.run([*backend, *embed, "-o", str(tmp_path / "native.o")], check=True)
    native = (tmp_path / "native.o").read_bytes()
    file = ObjectFile.parse(native)
    bitcode = tmp_path / "merged.bc"
    bitcode.write_bytes(file.contents(".llvmbc") or b"")
    command = (file.contents(".llvmcmd") or b"").decode().rstrip("\0").split("\0")
    again = replay(clang22, "a", bitcode, command, index=index)
    assert difference(code_sections(native, "a"), code_sections(again, "a")) is None
    # What was imported is inlined, so it was in the bitcode.
    assert "b" not in "".join(code_sections(again, "a")[0].relocations)


@pytest.mark.parametrize(
    ("command", "run"),
    [
        ("-cc1 -Oz -o a.o -x c -main-file-name a.c a.c", "-cc1 -Oz"),
        ("-cc1 -mllvm -o -mllvm -inline-threshold=3 -O2", "-cc1 -mllvm -inline-threshold=3 -O2"),
        ("-cc1 -I a -DX -dependency-file a.d -MT a.o -O1", "-cc1 -O1"),
        (
            "-cc1 -coverage-notes-file=/src/a.gcno -coverage-data-file=/src/a.gcda",
            "-cc1 -coverage-data-file=/src/a.gcda",
        ),
        (
            "-cc1 -target-cpu -o -dwarf-debug-flags -mllvm -x hip",
            "-cc1 -target-cpu -o -dwarf-debug-flags -mllvm",
        ),
        ("-cc1 -fthinlto-index=elsewhere.bc -O2", "-cc1 -O2"),
        (
            "-cc1 -O2 -stats-file=x -ast-dump -no-such y -fmemory-profile=/x -analyze",
            "-cc1 -O2",
        ),
        (
            "-cc1 -fbasic-block-sections=list=/etc/x -fbasic-block-sections=all",
            "-cc1 -fbasic-block-sections=all",
        ),
    ],
)
def test_what_is_run(command: str, run: str) -> None:
    assert replay_command(command.split()) == tuple(run.split())


HARMFUL = """
-mllvm -exec-on-ir-change=/bin/true
-mllvm -info-output-file=FOLDER/stats -mllvm -stats
-mllvm -ir-dump-directory=FOLDER -mllvm -print-changed
-mllvm -pass-remarks-output=FOLDER/r
-mllvm -time-passes -mllvm --info-output-file=FOLDER/t
-mllvm -dot-cfg-mssa=FOLDER/x
-mllvm -opt-bisect-limit=1
-dependency-file FOLDER/d -MT x -sys-header-deps
-header-include-file FOLDER/h -H
-serialize-diagnostic-file FOLDER/s
-diagnostic-log-file FOLDER/l
-opt-record-file FOLDER/r -opt-record-format yaml
-stats-file=FOLDER/s
-ftime-trace=FOLDER/t
-split-dwarf-output FOLDER/x.dwo -split-dwarf-file FOLDER/x.dwo -debug-info-kind=limited
-stack-usage-file FOLDER/su
-coverage-notes-file=FOLDER/n.gcno -coverage-data-file=FOLDER/n.gcda
-fprofile-instrument=llvm -fprofile-instrument-path=FOLDER/p
-o FOLDER/o
-emit-llvm-bc -o FOLDER/o
-ast-dump-all=json
-dump-coverage-mapping
-fmodules -fmodules-cache-path=FOLDER/m
-fcrash-diagnostics-dir=FOLDER
--info-output-file=FOLDER/i
-print-stats
"""


@pytest.mark.parametrize("arguments", one_in(5, HARMFUL.strip().split("\n")))
def test_a_command_makes_clang_do_nothing_else(
    clang22: Clang, traced: Traced, tmp_path: Path, arguments: str
) -> None:
    bitcode, folder = tmp_path / "m.bc", tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "a.c").write_text(SOURCE)
    own = ["-c", "-emit-llvm", "-Xclang", "-disable-llvm-optzns", "-O2"]
    subprocess.run([clang22.path, *own, tmp_path / "a.c", "-o", bitcode], check=True)
    command = ("-cc1", "-O2", *arguments.replace("FOLDER", str(folder)).split())
    assert replay(traced.clang, "m", bitcode, command)
    assert traced.programs() == {str(clang22.path)}
    assert traced.changed() == set()
    assert not [path for path in traced.opened() if path.startswith(str(folder))]


@pytest.mark.parametrize(
    "argument",
    ["-load", "-fpass-plugin=x.so", "-add-plugin", "-plugin", "-fplugin=x.so", "@file", "-load=x"],
)
def test_what_would_load_code_is_refused(argument: str) -> None:
    with pytest.raises(LayoutError) as caught:
        replay_command(["-cc1", "-mllvm", argument])
    assert str(caught.value) == f"command: expected no plugins, found {argument!r}"


def test_clang_that_makes_nothing(clang22: Clang, tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 0\n")
    silent.chmod(0o755)
    with pytest.raises(CompileError) as caught:
        replay(replace(clang22, path=silent), "m", tmp_path / "m.bc", ["-cc1", "-O2"])
    assert str(caught.value) == "m: expected an object, found none"


def test_clang_that_fails(clang22: Clang, tmp_path: Path) -> None:
    (tmp_path / "m.bc").write_bytes(b"BC\xc0\xdejunk")
    with pytest.raises(CompileError, match=r"^m: clang exited with 1\n"):
        replay(clang22, "m", tmp_path / "m.bc", ["-cc1", "-O2"])
    assert list(tmp_path.iterdir()) == [tmp_path / "m.bc"]
