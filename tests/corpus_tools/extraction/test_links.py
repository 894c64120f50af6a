"""What a build links: as Ninja writes it down, and as CMake does for makefiles; also broken."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from corpus_tools.clang import Clang
from corpus_tools.errors import BuildListError
from corpus_tools.extraction import Outcome, inputs, links, list_compile_commands
from corpus_tools.extraction.links import list_links
from tests.conftest import require

SOURCES = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.13)
project(shapes C)
add_library(parts STATIC a.c "b c.c")
add_library(shared SHARED d.c)
add_library(alone STATIC e.c)
add_executable(app main.c)
target_link_libraries(app parts shared)
add_subdirectory(tools)
""",
    "tools/CMakeLists.txt": "add_executable(tool ../main.c)\ntarget_link_libraries(tool parts)\n",
    **{f"{name}.c": f"int {name[0]}(void) {{ return 1; }}\n" for name in ("a", "b c", "d", "e")},
    "main.c": "int a(void); int main(void) { return a() - 1; }\n",
}


def found(build: Path) -> dict[str, list[str]]:
    """The links, with their objects' names below the folder of the build."""
    return {
        each.name: sorted(os.path.relpath(path, build) for path in each.objects)
        for each in list_links(build)
    }


@pytest.mark.e2e
@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_what_cmake_links(generator: str, clang22: Clang, tmp_path: Path) -> None:
    cmake = require("cmake", "cmake")
    require("ninja", "ninja-build")
    (tmp_path / "tools").mkdir()
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text)
    build = tmp_path / "build"
    compiler = f"-DCMAKE_C_COMPILER={clang22.path}"
    line = (cmake, "-G", generator, "-S", tmp_path, "-B", build, compiler)
    subprocess.run(line, check=True, capture_output=True)
    parts = ["CMakeFiles/parts.dir/a.c.o", "CMakeFiles/parts.dir/b_c.c.o"]
    links = found(build)
    if "CMakeFiles/parts.dir/b c.c.o" in links["app"]:  # as older ones of CMake call it
        parts[1] = "CMakeFiles/parts.dir/b c.c.o"
    assert links == {
        "app": ["CMakeFiles/app.dir/main.c.o", *parts],
        "libalone.a": ["CMakeFiles/alone.dir/e.c.o"],
        "libshared.so": ["CMakeFiles/shared.dir/d.c.o"],
        "tools/tool": [*parts, next(each for each in links["tools/tool"] if "tool.dir" in each)],
    }
    subprocess.run((cmake, "--build", build), check=True, capture_output=True)
    assert all((build / each).is_file() for objects in links.values() for each in objects)


NINJA = r"""
rule cc
  command = cc -c $in -o $out
build a$ b.o: cc a.c | generated.h || order.o
build c$:d.o: cc c.c
build libx.a: ar a$ b.o
build prog | prog.map: link c$:d.o $
    libx.a | /elsewhere/liby.a $
    || order.o
build all: phony prog c$:d.o
build run: run prog
"""


def test_ninja_s_escapes(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text(NINJA)
    assert found(tmp_path) == {"prog": ["a b.o", "c:d.o"]}


def test_nothing_is_written_down(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all: app\n")
    assert found(tmp_path) == {}


def test_an_archive_in_itself(tmp_path: Path) -> None:
    text = "build a.a: ar a.a b.a a.o\nbuild b.a: ar a.a\nbuild app: link a.a b.a x.o\n"
    (tmp_path / "build.ninja").write_text(text)
    assert found(tmp_path) == {"app": ["a.o", "x.o"]}


def test_many_archives_in_each_other(tmp_path: Path) -> None:
    """Each is looked at once: their paths through each other are 2 to the power of their number."""
    lines = ["build 0.a: ar 0.o"]
    lines += [f"build {n}.a: ar {n - 1}.a | {n - 1}.a" for n in range(1, 60)]
    (tmp_path / "build.ninja").write_text("\n".join([*lines, "build app: link 59.a"]))
    assert found(tmp_path) == {"app": ["0.o"]}


@pytest.mark.parametrize("name", ["build.ninja", "CMakeFiles/app.dir/link.txt"])
def test_what_lies_outside_of_the_build(tmp_path: Path, name: str) -> None:
    """It is not read, and not shown."""
    (tmp_path / "secret").write_text("build app: link 'secret\n")
    path = tmp_path / "build" / name
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(BuildListError) as caught:
        found(tmp_path / "build")
    assert str(caught.value).endswith(f", found a link to {tmp_path / 'secret'}")
    path.unlink()
    (tmp_path / "build" / "inside").write_text("link -o app a.o" if "link" in name else "")
    path.symlink_to(tmp_path / "build" / "inside")
    assert set(found(tmp_path / "build")) == ({"app"} if "link" in name else set())


def test_a_response_file_with_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names that file, not the folder."""
    (tmp_path / "CMakeFiles" / "app.dir").mkdir(parents=True)
    (tmp_path / "CMakeFiles" / "app.dir" / "link.txt").write_text("link -o app @objects")
    (tmp_path / "objects").write_text("a.o b.o c.o")
    assert found(tmp_path) == {"app": ["a.o", "b.o", "c.o"]}
    monkeypatch.setattr(inputs, "_MOST_ARGUMENTS", 2)
    with pytest.raises(BuildListError, match="objects.*: expected at most 2 arguments in all"):
        found(tmp_path)


@pytest.mark.parametrize(
    ("limit", "most", "what"),
    [("_MOST_OF_ALL", 8, "arguments"), ("_MOST_CHARACTERS", 16, "characters")],
)
def test_a_response_file_that_many_name(
    limit: str, most: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short list can name a long file as often as it likes."""
    (tmp_path / "flags").write_text("-c -D1 a.c")
    (tmp_path / "CMakeFiles" / "app.dir").mkdir(parents=True)
    (tmp_path / "CMakeFiles" / "app.dir" / "link.txt").write_text("link -o app @flags\n" * 4)
    entry = {"directory": str(tmp_path), "file": "a.c", "arguments": ["cc", "@flags"]}
    commands = tmp_path / "compile_commands.json"
    commands.write_text(json.dumps([entry] * 4))
    assert not any(isinstance(each, Outcome) for each in list_compile_commands(commands))
    monkeypatch.setattr(inputs, limit, most)
    listed = list_compile_commands(commands)
    assert [isinstance(each, Outcome) for each in listed] == [False, False, True, True]
    for each in listed[2:]:
        assert isinstance(each, Outcome)
        assert each.reason.endswith(f"flags: expected at most {most} {what} in all, found more")
    with pytest.raises(BuildListError, match=f"expected at most {most} {what} in all"):
        found(tmp_path)


def test_links_that_are_more_than_anybody_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs times objects: each of three links has the four of one archive."""
    lines = ["build a.a: ar 0.o 1.o 2.o 3.o", *(f"build p{n}: link a.a" for n in range(3))]
    (tmp_path / "build.ninja").write_text("\n".join(lines))
    monkeypatch.setattr(links, "_MOST_OBJECTS", 12)
    assert len(found(tmp_path)) == 3
    monkeypatch.setattr(links, "_MOST_OBJECTS", 11)
    with pytest.raises(BuildListError, match="expected at most 11 objects of links in all"):
        found(tmp_path)


def test_commands_of_makefiles(tmp_path: Path) -> None:
    folder = tmp_path / "sub" / "CMakeFiles" / "app.dir"
    folder.mkdir(parents=True)
    (folder / "link.txt").write_text(
        "c++ -O2 @CMakeFiles/app.dir/objects1 -o '../bin/my app' x.a\n"
    )
    (folder / "objects1").write_text("CMakeFiles/app.dir/a.o\nCMakeFiles/app.dir/b.o\n")
    other = tmp_path / "CMakeFiles" / "x.dir"
    other.mkdir(parents=True)
    (other / "link.txt").write_text("ar qc sub/x.a CMakeFiles/x.dir/c.o\nranlib sub/x.a\n")
    assert found(tmp_path) == {
        "bin/my app": [
            "CMakeFiles/x.dir/c.o",
            "sub/CMakeFiles/app.dir/a.o",
            "sub/CMakeFiles/app.dir/b.o",
        ]
    }
    (folder / "link.txt").write_text("c++ a.o -o 'app\n")
    with pytest.raises(BuildListError) as error:
        list_links(tmp_path)
    assert (
        str(error.value) == f"{folder / 'link.txt'}: expected a command, found No closing quotation"
    )


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "CMakeFiles" / "x.dir" / "link.txt"
    file.parent.mkdir(parents=True)
    os.mkfifo(file)
    with pytest.raises(BuildListError) as error:
        list_links(tmp_path)
    reason = "cannot be read: expected a regular file, found a FIFO"
    assert str(error.value) == f"{file}: {reason}"


@pytest.mark.parametrize(
    ("option", "is_exported"),
    [
        ("-rdynamic", True),
        ("-Wl,--version-script=l.map", True),
        ("-Wl,-z,now,--dynamic-list=list", True),
        ("-Wl,-E", True),
        ("-Xlinker --export-dynamic", True),
        ("-Wl,-soname,libl.so -fPIC", False),
        ("", False),
    ],
)
def test_a_link_may_say_what_is_exported(tmp_path: Path, option: str, is_exported: bool) -> None:
    lines = ["build libl.so: link a.o", f"  LINK_FLAGS = {option}", "", "build p: link b.o", ""]
    (tmp_path / "build.ninja").write_text("\n".join(lines))
    assert [each.is_exported for each in list_links(tmp_path)] == [is_exported, False]
    (tmp_path / "build.ninja").unlink()
    place = tmp_path / "CMakeFiles" / "l.dir"
    place.mkdir(parents=True)
    (place / "link.txt").write_text(f"clang {option} -shared -o libl.so a.o\n")
    assert [each.is_exported for each in list_links(tmp_path)] == [is_exported]


def test_options_of_a_link_without_end(tmp_path: Path) -> None:
    """In time that grows with their length."""
    lines = ["build p: link a.o", f"  FLAGS = {'-Wl,' * 250_000}", ""]
    (tmp_path / "build.ninja").write_text("\n".join(lines))
    start_s = time.process_time()
    assert [each.is_exported for each in list_links(tmp_path)] == [False]
    assert time.process_time() - start_s < 20
