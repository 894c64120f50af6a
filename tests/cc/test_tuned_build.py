"""``mlgo-gym tune --build``: a project of CMake's, built by the commands that it prints."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from corpus_tools.code import code_sections
from mlgo_gym.cc._builds import read_build
from mlgo_gym.rollout._trace import Trace, trace_path
from tests.cc.conftest import Driver
from tests.cc.test_traces import database
from tests.cli.command import run
from tests.cli.test_tune import SET
from tests.conftest import require

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

NAMES = "abcde"
PART = """
#include <map>
#include <string>
#include <vector>
static int mix(int x, int y) { return x > y ? x * 31 + y : y * 17 - x; }
std::string name_@(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += std::to_string(mix(i, n));
  return text;
}
int count_@(const std::vector<std::string> &all) {
  std::map<std::string, int> found;
  for (auto &each : all) ++found[each];
  int sum = 0;
  for (auto &[key, count] : found) sum += mix(count, int(key.size()));
  return sum;
}
"""
DECLARED = "".join(
    f"std::string name_{each}(int); int count_{each}(const std::vector<std::string> &);"
    for each in NAMES
)
USED = "".join(f"sum += count_{each}({{name_{each}(3), name_{each}(5)}});" for each in NAMES)
SOURCES = {
    "main.cpp": "#include <cstdio>\n#include <string>\n#include <vector>\n"
    f'{DECLARED}\nint main() {{ int sum = 0; {USED} std::printf("%d\\n", sum); }}\n',
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.13)\nproject(names CXX)\n"
    "add_library(parts STATIC a.cpp b.cpp c.cpp)\nadd_library(shared SHARED d.cpp e.cpp)\n"
    "add_executable(app main.cpp)\ntarget_link_libraries(app parts shared)\n",
    **{f"{each}.cpp": PART.replace("@", each) for each in NAMES},
}


def test_from_a_build_to_a_smaller_one(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cmake = require("cmake", "cmake")
    for name, text in driver.environment.items():
        monkeypatch.setenv(name, text)
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text)
    compiler = driver.clang.replace("clang-", "clang++-")
    how = ("-DCMAKE_BUILD_TYPE=MinSizeRel", "-DCMAKE_CXX_FLAGS=-Oz")
    more = ("-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", f"-DCMAKE_CXX_COMPILER={compiler}")
    line = (cmake, "-S", ".", "-B", "build", *how, *more)
    subprocess.run(line, cwd=tmp_path, check=True, capture_output=True)
    subprocess.run((cmake, "--build", "build"), cwd=tmp_path, check=True, capture_output=True)
    # What training does not take is searched, too.
    times = ("--budget", "4m", "--search", "2m", "--verify")
    done = run("tune", "--build", "build", "--output", "out", *times, "--json", *SET, cwd=tmp_path)
    assert done.returncode == 0
    # A slow machine has no time to search all.
    assert all("not searched for want of time" in each for each in done.stderr.splitlines())
    record = json.loads(done.stdout)
    assert list(record["targets"]) == ["app", "libshared.so"]
    assert record["chosen"] != "LLVM"  # the shipped model makes a fifth less of such code
    for command in record["build"]:
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, shell=True)  # noqa: S602
    before, after = (read_build(tmp_path / name) for name in ("build", "build-tuned"))
    lines = (tmp_path / "out" / "traces" / "answers.txt").read_text().splitlines()[1:-1]
    assert record["searched"] == len(lines) > 0
    for name in (line.split(" ", 4)[4] for line in lines):
        data = (tmp_path / "build-tuned" / name).read_bytes()
        size = sum(len(each.content) for each in code_sections(data, name))
        assert size == Trace.load(trace_path(tmp_path / "out" / "traces", name)).text_size_bytes
    assert (tmp_path / "out" / "project.txt").read_text().count("\ntarget ") == 2
    assert all("--mlgo-project=" in command for command in record["build"][:1])
    for name, sizes in record["targets"].items():
        assert sizes["built"] < sizes["LLVM"] <= sizes["plain"]
        assert after[name].code_bytes < before[name].code_bytes
        verified = record["verified"][name]
        assert verified["why"] == ""
        assert all(size <= verified["plain"][key] for key, size in verified["built"].items())
    assert "\nplain\n" not in (tmp_path / "out" / "project.txt").read_text()
    said = {
        subprocess.run((tmp_path / name / "app",), check=True, capture_output=True).stdout
        for name in ("build", "build-tuned")
    }
    assert len(said) == 1


@pytest.mark.parametrize("lto", ["", " -flto"])
def test_a_makefile(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lto: str
) -> None:
    """All modules are verified as one target; objects of LTO have no code to compare."""
    for name, text in driver.environment.items():
        monkeypatch.setenv(name, text)
    make = require("make", "make")
    compiler = driver.clang.replace("clang-", "clang++-")
    build = tmp_path / "build"
    build.mkdir()
    for name in "ab":
        (build / f"{name}.cpp").write_text(PART.replace("@", name))
    flags = f"-Oz{lto}"
    database(
        build, {f"{name}.cpp": f"{compiler} {flags} -c -o {name}.o {name}.cpp" for name in "ab"}
    )
    (build / "Makefile").write_text(f"CXX = {compiler}\nCXXFLAGS = {flags}\nall: a.o b.o\n")
    subprocess.run((make,), cwd=build, check=True, capture_output=True)
    before = {name: (build / f"{name}.o").read_bytes() for name in "ab"}
    line = ("tune", "--build", "build", "--output", "out", "--verify", "--json")
    done = run(*line, cwd=tmp_path)
    assert done.returncode == 0
    assert ("\nmlgo-gym: --verify: nothing is verified: " in done.stderr) == bool(lto)
    said = "mlgo-gym: 2 of 2 modules are compiled with -flto: all sizes are of objects compiled "
    assert done.stderr.startswith(said) == bool(lto)
    record = json.loads(done.stdout)
    assert record["chosen"] != "LLVM"
    (command,) = record["build"]
    assert command.startswith(f"make -C {build} -B CC='mlgo-cc --mlgo-project=")
    assert ("--mlgo-keep-smaller" in command) == (not lto)
    if not lto:
        verified = record["verified"].pop("all")
        assert verified["why"] == ""
        assert all(0 < size < verified["plain"][key] for key, size in verified["built"].items())
    assert record["verified"] == {}
    made = subprocess.run(command, check=True, capture_output=True, text=True, shell=True)  # noqa: S602
    assert made.stderr == ""
    assert all((build / f"{name}.o").read_bytes() != data for name, data in before.items())
