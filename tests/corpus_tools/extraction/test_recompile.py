"""The commands of a build once more: what clang is given of them, and what comes of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from corpus_tools import Clang
from corpus_tools.allowed import driver as allowed
from corpus_tools.bitcode import is_bitcode
from corpus_tools.errors import CompileError, ExtractionError
from corpus_tools.extraction.compile_commands import list_compile_commands
from corpus_tools.extraction.embedded import Extraction
from corpus_tools.extraction.inputs import Outcome
from corpus_tools.extraction.recompile import BuildCommand, list_commands
from corpus_tools.extraction.run import extract_corpus
from tests.conftest import require


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("-O2 -c a.c -o a.o", "-O2 -c a.c"),
        ("-Oz -fPIC -Iinc -I inc -DX=1 -include x.h -c a.cc", None),
        ("-c a.c -MD -MF a.d -MT a.o -MP -MJ a.json -Wall -Werror -w -pipe", "-c a.c"),
        ("-c -x c++ -std=c++17 --sysroot=/x -isystem y -nostdinc -- a.c", "-c -x c++ -std=c++17 "
         "--sysroot=/x -isystem y -nostdinc a.c"),
        ("-c a.c -mllvm -inline-threshold=5 -g -march=native", None),
        ("-c a.c -Wp,-MMD,a.d -Wp,-U_FORTIFY_SOURCE,-D_FORTIFY_SOURCE=3", "-c a.c "
         "-Wp,-U_FORTIFY_SOURCE,-D_FORTIFY_SOURCE=3"),
        ("-c a.c -fdiagnostics-color=always -fdebug-prefix-map=a=b", "-c a.c"),
        ("-c a.cc -Wno-deprecated -Wall -fmacro-prefix-map=a=b", "-c a.cc -Wno-deprecated "
         "-fmacro-prefix-map=a=b"),
        # CMake's precompiled header and Meson's; what Bazel, Chromium and others have on each line.
        ("-c -Winvalid-pch -fpch-instantiate-templates -Xclang -include-pch -Xclang h.pch "
         "-Xclang -include -Xclang h.hxx a.cc", "-c -fpch-instantiate-templates -Xclang "
         "-include-pch -Xclang h.pch -Xclang -include -Xclang h.hxx a.cc"),
        ("-c -include-pch p/h.pch a.cc", None),
        ("-c -no-canonical-prefixes -fmodule-name=//a -fmodule-map-file=a.cppmap "
         "-fmodules-strict-decluse a.cc", "-c -no-canonical-prefixes a.cc"),
        ("-c -Qunused-arguments -fcrash-diagnostics-dir=x -ferror-limit=0 -ftime-trace a.cc "
         "-fstack-usage -fsave-optimization-record -save-temps", "-c a.cc"),
        ("-c -fuse-ld=lld -Wl,-z,now -Llib -lz -Xlinker x -Wa,--noexecstack a.c", "-c a.c"),
        ("-c -x c++-module -fmodule-output=m.pcm -fmodule-file=n=n.pcm m.cppm",
         "-c -x c++-module -fmodule-file=n=n.pcm m.cppm"),
        ("-c -fprofile-use=x.profdata -fsanitize-ignorelist=x.txt a.c", None),
    ],
)  # fmt: skip
def test_what_clang_is_given(line: str, given: str | None) -> None:
    assert allowed.allowed_of_build(line.split()) == (line if given is None else given).split()


@pytest.mark.parametrize(
    "option",
    [
        "-fplugin=x.so", "-fpass-plugin=x.so", "-Xclang -load", "-Xpreprocessor -load", "-B.",
        "-Xclang -include", "-Xclang -emit-pch", "-fmodule-file=x.pcm", "-fpch-codegen",
        "-Wp,-load,x.so", "-Wp,-DX,-load", "-Wp,-D,-load", "-Wp,-MD,x,-load",
        "-Wa,-x", "-Xassembler -x", "-mllvm -exec-on-ir-change=x",
        "-mllvm=-print-after-all", "-fmodules", "-specs=x", "--config=x",
        "@x.rsp", "--target=amdgcn-amd-amdhsa", "-x cuda", "a.cu", "a.hip", "a.s",
        "-fno-integrated-as", "-I @x",
    ],
)  # fmt: skip
def test_what_it_is_not_given(option: str) -> None:
    expected = f"refused to compile: {option!r} is not one of the options known to run nothing"
    with pytest.raises(ExtractionError) as raised:
        allowed.allowed_of_build(["-c", "a.c", *option.split(" ")])
    assert str(raised.value) == f"{expected} and to write nothing"


def test_a_command_that_would_link() -> None:
    with pytest.raises(ExtractionError) as raised:
        allowed.allowed_of_build(["a.c", "-o", "a"])
    assert str(raised.value) == "refused to compile: expected '-c', found none"


def test_modules_of_cxx20(tmp_path: Path) -> None:
    """What exports one and what imports it, as CMake's builds name them in response files."""
    program = require("clang++-22", "clang-22")
    (tmp_path / "m.cppm").write_text("export module m;\nexport inline int f() { return 3; }\n")
    (tmp_path / "a.cpp").write_text("import m;\nint g() { return f(); }\n")
    (tmp_path / "m.rsp").write_text('-x c++-module\n-fmodule-output="m.pcm"\n')
    (tmp_path / "a.rsp").write_text('-fmodule-file="m=m.pcm"\n')
    lines = [
        f"{program} -std=c++20 -Oz @{file[0]}.rsp -o {file}.o -c {file}"
        for file in ("m.cppm", "a.cpp")
    ]
    subprocess.run(lines[0].split(), cwd=tmp_path, check=True)
    entries = [
        {"directory": str(tmp_path), "file": line.split()[-1], "command": line} for line in lines
    ]
    database = tmp_path / "compile_commands.json"
    database.write_text(json.dumps(entries))
    (tmp_path / "m.cppm.o").unlink()
    before = (tmp_path / "m.pcm").stat().st_mtime_ns
    for command in list_commands(database):
        assert isinstance(command, BuildCommand)
        made = command.compile(("", program), tmp_path).module
        assert is_bitcode(made.files[".bc"])
    assert (tmp_path / "m.pcm").stat().st_mtime_ns == before


def test_what_would_run_more_than_clang_runs_nothing(tmp_path: Path) -> None:
    """Even if it were given to clang: an assembler of the build's own."""
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    tools = tmp_path / "usr" / "lib" / "gcc" / "x86_64-linux-gnu" / "13"
    folder = tmp_path / "usr" / "x86_64-linux-gnu" / "bin"
    for each in (tools, folder):
        each.mkdir(parents=True)
    (tools / "crtbegin.o").touch()
    (folder / "as").write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    (folder / "as").chmod(0o755)
    arguments = ("-c", "a.c", "-fno-integrated-as", f"--sysroot={tmp_path}", "-w")
    command = BuildCommand("a.o", tmp_path, arguments, is_cxx=False)
    programs = (require("clang-22", "clang-22"), "")
    with pytest.raises(CompileError) as raised:
        command.compile(programs, tmp_path)
    assert str(raised.value).startswith("a.o: expected one -cc1 command, found clang, as")
    assert not (tmp_path / "was-run").exists()
    command.run(programs, ["-o", "a.o"])
    assert (tmp_path / "was-run").exists()


def test_a_crash_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.c").write_text("#pragma clang __debug crash\n")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = BuildCommand("a.o", tmp_path, ("-c", "a.c"), is_cxx=False)
    with pytest.raises(CompileError):
        command.run((require("clang-22", "clang-22"), ""), [])
    assert [each.name for each in tmp_path.iterdir()] == ["a.c"]


def test_the_lists_are_about_options_that_are_listed() -> None:
    assert (allowed._SOURCES | allowed._UNSAID) <= allowed._LEFT_OUT
    assert not allowed._SOURCES & allowed._UNSAID
    known = allowed._GIVEN | allowed._LEFT_OUT | allowed._WITH_CHOICES.keys()
    assert not (allowed._PASSED_ON | allowed._OF_LINKS) - known


@pytest.fixture
def database(tmp_path: Path) -> Path:
    (tmp_path / "a.c").write_text("int f(void) { return X; }\n")
    (tmp_path / "bad.c").write_text("int f(void) { return x; }\n")
    lines = {
        "a.c": "ccache mlgo-cc --mlgo-strict=1 -DX=1 -Oz -MD -MF a.d -c a.c -o a.o",
        "sub/../a.c": "clang++ -DX=1 -Oz -x c -c a.c -o b.o",
        "bad.c": "cc -c bad.c -o bad.o",
        "again.c": "cc -DX=1 -c a.c -o a.o",
        "e.c": "cc -E e.c -o e.i",
        "c.c": "cc -c -fplugin=c.so c.c -o c.o",
    }
    entries = [
        {"directory": str(tmp_path), "file": name, "command": line} for name, line in lines.items()
    ]
    path = tmp_path / "compile_commands.json"
    path.write_text(json.dumps(entries))
    return path


def test_commands_of_a_build(database: Path, tmp_path: Path) -> None:
    a, b, bad, again, e, c = list_commands(database)
    assert a == BuildCommand("a.o", tmp_path, ("-DX=1", "-Oz", "-c", "a.c"), is_cxx=False)
    arguments = ("-DX=1", "-Oz", "-x", "c", "-c", "a.c")
    assert b == BuildCommand("b.o", tmp_path, arguments, is_cxx=True)
    assert isinstance(bad, BuildCommand)
    reasons = [each.reason for each in (again, e, c) if isinstance(each, Outcome)]
    assert reasons[:2] == ["listed twice", "makes no object (-E)"]
    assert reasons[2].startswith("refused to compile: '-fplugin=c.so'")


def test_what_clang_itself_writes_down(clang22: Clang, tmp_path: Path) -> None:
    """With -MJ: a program without its ++, and --driver-mode=g++."""
    (tmp_path / "a.cpp").write_text("int f(void) { return 1; }\n")
    line = [require("clang++-22", "clang-22"), "-Oz", "-flto", "-c", "a.cpp", "-o", "a.o"]
    subprocess.run([*line, "-MJ", "a.json"], cwd=tmp_path, check=True)
    entry = json.loads((tmp_path / "a.json").read_text().rstrip(",\n"))
    assert "--driver-mode=g++" in entry["arguments"]
    path = tmp_path / "compile_commands.json"
    path.write_text(json.dumps([entry]))
    (command,) = list_commands(path)
    assert isinstance(command, BuildCommand)
    assert command.is_cxx
    extraction = Extraction(clang=lambda: clang22)
    report = extract_corpus(list_compile_commands(path), tmp_path / "corpus", extraction)
    assert report.modules == ("a.o",)


def test_objects_of_one_name(tmp_path: Path) -> None:
    folders = ("one", "two", "..", "../other")
    (tmp_path / "build").mkdir()
    for folder in folders:
        (tmp_path / "build" / folder).mkdir(exist_ok=True)
    path = tmp_path / "build" / "compile_commands.json"
    line = "cc -c a.c -o a.o"
    path.write_text(
        json.dumps([{"directory": each, "file": "a.c", "command": line} for each in folders])
    )
    listed = list_commands(path)
    names = [each.name for each in listed if isinstance(each, BuildCommand)]
    assert names == ["one/a.o", "two/a.o", "a.o"]
    (left,) = (each for each in listed if isinstance(each, Outcome))
    other = tmp_path / "build" / ".." / "a.o"
    assert left.reason == f"expected a name of its own, found that of {other}"


def test_modules_of_a_build(database: Path, tmp_path: Path) -> None:
    programs = (require("clang-22", "clang-22"), require("clang++-22", "clang-22"))
    folder = tmp_path / "scratch"
    folder.mkdir()
    a, b, bad = (each for each in list_commands(database) if isinstance(each, BuildCommand))
    for each in (a, b):
        module, reads = each.compile(programs, folder)
        assert reads[0] in each.arguments  # the source
        assert module.name == each.name
        assert is_bitcode(module.files[".bc"])
        words = module.files[".cmd"].split(b"\0")
        assert (words[0], b"-Oz" in words, b"-D" in words) == (b"-cc1", True, False)
    with pytest.raises(CompileError) as raised:
        bad.compile(programs, folder)
    assert "bad.o: clang exited with 1" in str(raised.value)
    assert "use of undeclared identifier 'x'" in str(raised.value)
    two = BuildCommand("a.o", tmp_path, ("-DX=1", "-c", "a.c", "a.c"), is_cxx=False)
    with pytest.raises(CompileError):
        two.compile(programs, folder)
    with pytest.raises(CompileError, match="none does not run: No such file or directory"):
        a.compile((str(folder / "none"), ""), folder)
    with pytest.raises(CompileError, match="clang ran past its deadline of 1e-06 s"):
        a.compile(programs, folder, 1e-6)
    assert {each.name for each in tmp_path.iterdir()} == {
        "a.c", "bad.c", "compile_commands.json", "scratch",
    }  # fmt: skip
