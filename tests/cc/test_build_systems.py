"""The build systems of docs/guides/compiler-driver.md, with the command lines that stand there.

Built by the driver, with a model that answers as LLVM would, a project's objects are those of plain
clang, byte for byte; with another model they are others, and the program still runs.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mlgo_gym.cc import build_commands
from mlgo_gym.cc._builds import read_build
from tests.cc.conftest import AS_DEFAULT, MODELS, NOTHING, Driver
from tests.conftest import require

pytestmark = pytest.mark.e2e

PROJECT = {
    "main.c": """
int half(int);
int sum(int);
static int third(int x) { return x > 5 ? x / 3 : x + 1; }
int main(void) { return half(8) + third(6) + third(3) + sum(3) == 16 ? 0 : 1; }
""",
    "half.c": """
static int down(int x) { return x / 2; }
int half(int x) { return x & 1 ? down(x - 1) : down(x); }
""",
    "sum.cpp": """
template <typename T> static T add(T first, T second) { return first + second; }
extern "C" int sum(int x) { int all = 0; while (x) all = add(all, x--); return all; }
""",
}


@dataclass(frozen=True)
class BuildSystem:
    """How one builds.

    Attributes:
        tools: the programs, by the packages of Debian that have them.
        files: that describe the project, by name.
        command: for the shell; it makes ``PROGRAM`` somewhere in the folder.
    """

    name: str
    tools: Mapping[str, str]
    files: Mapping[str, str]
    command: str


MAKE = BuildSystem(
    "make",
    {"make": "make"},
    {"Makefile": "CFLAGS = -O2\nCXXFLAGS = -O2\nprogram: main.o half.o sum.o\n\t$(CXX) -o $@ $^\n"},
    'make -s CC="$CC" CXX="$CXX"',
)
AUTOTOOLS = BuildSystem(
    "autotools",
    {"make": "make", "autoreconf": "autoconf", "automake": "automake"},
    {
        "configure.ac": "AC_INIT([program], [1])\nAM_INIT_AUTOMAKE([foreign])\nAC_PROG_CC\n"
        "AC_PROG_CXX\nAC_CONFIG_FILES([Makefile])\nAC_OUTPUT\n",
        "Makefile.am": "bin_PROGRAMS = program\nprogram_SOURCES = main.c half.c sum.cpp\n",
    },
    'autoreconf -i && ./configure -q CC="$CC" CXX="$CXX" && make -s',
)
CMAKE = BuildSystem(
    "CMake",
    {"cmake": "cmake", "make": "make"},
    {
        "CMakeLists.txt": "cmake_minimum_required(VERSION 3.13)\nproject(program C CXX)\n"
        "add_executable(program main.c half.c sum.cpp)\n"
    },
    "cmake -B build -DCMAKE_BUILD_TYPE=Release "
    '-DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" && cmake --build build',
)
LAUNCHER = BuildSystem(
    "CMake's launcher",
    CMAKE.tools,
    CMAKE.files,
    "cmake -B build -DCMAKE_BUILD_TYPE=Release "
    '-DCMAKE_C_COMPILER_LAUNCHER="$LAUNCHER" -DCMAKE_CXX_COMPILER_LAUNCHER="$LAUNCHER" '
    "-DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22 && cmake --build build",
)
MESON = BuildSystem(
    "Meson",
    {"meson": "meson", "ninja": "ninja-build"},
    {
        "meson.build": "project('program', 'c', 'cpp')\n"
        "executable('program', 'main.c', 'half.c', 'sum.cpp')\n"
    },
    "meson setup build --buildtype=release && ninja -C build",
)


@pytest.mark.parametrize(
    "system", [MAKE, AUTOTOOLS, CMAKE, LAUNCHER, MESON], ids=lambda each: each.name
)
def test_builds(driver: Driver, tmp_path: Path, system: BuildSystem) -> None:
    for tool, package in system.tools.items():
        require(tool, package)
    never = {"MLGO_INLINING_MODEL": str(MODELS / "never"), "MLGO_STRICT": "1"}
    plain = build(driver, tmp_path / "project", system, NOTHING, is_plain=True)
    same = build(driver, tmp_path / "project", system, AS_DEFAULT)
    other = build(driver, tmp_path / "project", system, never)
    assert len(plain) == 3
    assert same == plain
    assert other.keys() == plain.keys()
    assert other != plain


def test_meson_builds_again_with_its_settings(driver: Driver, tmp_path: Path) -> None:
    """The commands that a tune prints set up another folder by the options of the first one."""
    for tool, package in MESON.tools.items():
        require(tool, package)
    folder = tmp_path / "project"
    setting = shlex.quote("-Dcpp_args=-O1 -DA='b c'")
    line = MESON.command.replace("build --", f"build {setting} --")
    defined = replace(MESON, command=line)
    build(driver, folder, defined, NOTHING, is_plain=True)
    for command in build_commands(folder / "build", MODELS / "never"):
        done = subprocess.run(
            ["/bin/sh", "-ec", command],
            cwd=tmp_path, env={**environment(driver, is_plain=False), "MLGO_STRICT": "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    lines = json.loads((folder / "build-tuned" / "compile_commands.json").read_text())
    (cxx,) = (each["command"] for each in lines if each["file"].endswith("sum.cpp"))
    for word in ("--mlgo-keep-smaller", f"--mlgo-inlining-model={MODELS / 'never'}", "-O1", "-DA="):
        assert word in cxx
    assert subprocess.run([folder / "build-tuned" / "program"], check=False).returncode == 0


IPO = """cmake_minimum_required(VERSION 3.16)
project(program C)
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
add_library(parts STATIC half.c)
add_executable(program main.c)
target_link_libraries(program parts)
"""
IPO_SOURCES = {
    "main.c": "int half(int);\nint main(void) { return half(8) == 4 ? 0 : 1; }\n",
    "half.c": PROJECT["half.c"],
    "CMakeLists.txt": IPO,
}


def test_cmake_builds_a_static_library_with_lto_again(driver: Driver, tmp_path: Path) -> None:
    """CMake would look for ``mlgo-llvm-ar``; the first build's archiver is taken."""
    for tool, package in {**CMAKE.tools, "llvm-ar-22": "llvm-22"}.items():
        require(tool, package)
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in IPO_SOURCES.items():
        (folder / name).write_text(text)
    subprocess.run(
        [require("cmake", "cmake"), "-G", "Ninja", "-B", folder / "build", "-S", folder],
        env=environment(driver, is_plain=True), check=True, capture_output=True,
    )  # fmt: skip
    settings = tmp_path / "settings.cmake"
    for command in build_commands(folder / "build", None, initial_cache=settings):
        done = subprocess.run(
            ["/bin/sh", "-ec", command],
            cwd=tmp_path, env=environment(driver, is_plain=False),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    assert subprocess.run([folder / "build-tuned" / "program"], check=False).returncode == 0


def build(
    driver: Driver,
    folder: Path,
    system: BuildSystem,
    settings: Mapping[str, str],
    *,
    is_plain: bool = False,
) -> dict[str, bytes]:
    """Builds from scratch, in the same place each time, and runs; returns the objects."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in {**PROJECT, **system.files}.items():
        (folder / name).write_text(text)
    done = subprocess.run(
        ["/bin/sh", "-ec", system.command],
        cwd=folder, env={**environment(driver, is_plain=is_plain), **settings},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (program,) = (each for each in folder.rglob("program") if each.is_file())
    assert subprocess.run([program], check=False).returncode == 0
    names = [name for name, file in read_build(folder).items() if not file.is_linked]
    return {name: (folder / name).read_bytes() for name in names}


def environment(driver: Driver, *, is_plain: bool) -> dict[str, str]:
    if is_plain:
        compilers = {"CC": driver.clang, "CXX": driver.clang.replace("clang-", "clang++-")}
        compilers["LAUNCHER"] = ""
    else:
        compilers = {name: str(driver.command(cxx=name == "CXX")[0]) for name in ("CC", "CXX")}
        compilers["LAUNCHER"] = str(driver.scripts / "mlgo-launch")
    return {**driver.environment, **compilers}
