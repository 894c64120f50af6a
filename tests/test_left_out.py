"""The last line of a run, from runs of pytest on small folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlgo_gym.llvm._launch import installed_llvmlite
from tests.left_out import PACKAGES, what_is_lacking

ROOT = Path(__file__).parents[1]

LACKING = """\
import os, subprocess, sys
import pytest
from tests.conftest import lacking, require
from tests.left_out import PACKAGES

PACKAGES["never_made"] = "Nevermade"

def test_that_runs(): pass

@pytest.mark.parametrize("n", range(12))
def test_of_which_there_are_many(n):
    require("clang-22", "clang-22")

def test_headers():
    lacking("needs LLVM's headers: apt-get install llvm-22-dev")

def test_import(): import never_made.part

def test_command():
    print("mlgo-gym: error: needs Nevermade; run: pip install nevermade", file=sys.stderr)
    assert False

def test_child():
    subprocess.run([sys.executable, "-c", "import never_made"], check=True, capture_output=True)

def test_tool(): subprocess.run(["clang-22", "--version"])

def test_of_a_sunday():
    pytest.skip("it is: Monday")

@pytest.mark.xfail
def test_that_is_to_fail(): assert False
"""


def _run(folder: Path, *options: str, ci: bool = False, **files: str) -> list[str]:
    """The lines of a run where no tool is on PATH."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    (folder / "pytest.ini").touch()
    settings = {"PYTHONPATH": str(ROOT), "PATH": str(folder), "TMPDIR": str(folder)}
    settings |= {"CI": "true"} if ci else {}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.left_out", "-p", "no:randomly", *options],
        cwd=folder, capture_output=True, text=True, check=False, env=settings,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "options",
    [["-p", "no:xdist"], pytest.param(["-n2"], marks=pytest.mark.e2e)],
    ids=["one", "xdist"],
)
def test_all_that_is_lacking_is_counted(tmp_path: Path, options: list[str]) -> None:
    whole = "from tests.left_out import PACKAGES\nPACKAGES['never_made'] = 'Nevermade'\n"
    lines = _run(tmp_path, *options, lacking=LACKING, whole=f"{whole}import never_made")
    assert lines[-1] == (
        "ran 2 of 20 tests; left out: 13 need clang-22, 3 need Nevermade, "
        "1 because 'it is: Monday', 1 needs LLVM's headers, 1 file needs Nevermade"
    )


@pytest.mark.e2e
def test_nothing_is_lacking(tmp_path: Path) -> None:
    each = "import pytest\n@pytest.mark.parametrize('n', range(1000))\ndef test(n): pass\n"
    assert _run(tmp_path, each=each)[-1] == "ran 1,000 of 1,000 tests; none left out"


@pytest.mark.e2e
def test_what_is_lacking_fails_where_all_is_meant_to_be_there(tmp_path: Path) -> None:
    *_, counts, last = _run(tmp_path, ci=True, lacking=LACKING)
    assert "17 failed, 1 passed, 1 skipped, 1 xfailed" in counts
    assert last == "ran 19 of 20 tests; left out: 1 because 'it is: Monday'"


def test_a_run_that_stops_says_what_it_has_not_reached(tmp_path: Path) -> None:
    lines = _run(tmp_path, "-x", stops="def test_a(): assert 0\ndef test_b(): assert 1\n")
    assert lines[-1] == "ran 1 of 2 tests; not reached: 1; none left out"


def test_what_is_there_is_not_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a failure says, and whatever its test did to the settings."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.setitem(PACKAGES, "numpy", "numpy")
    for text in [
        "ModuleNotFoundError: No module named 'numpy'",
        "ModuleNotFoundError: No module named 'nmupy'",
        "mlgo-gym: error: plots: need numpy; run: pip install",
        f"FileNotFoundError: [Errno 2] No such file or directory: '{Path(sys.executable).name}'",
        f"LLVM: expected version 22, found 20.1.8 in llvmlite {installed_llvmlite()}",
    ]:
        assert what_is_lacking(text) is None


def test_another_path_has_the_tools(tmp_path: Path) -> None:
    """As `require` sees it: what is on PATH is used, whatever else is not."""
    path = shutil.which("git") or os.devnull
    (tmp_path / "clang-22").symlink_to(path)
    lines = _run(tmp_path, "-k", "many and 11 or headers", lacking=LACKING)
    assert lines[-1] == "ran 1 of 2 tests; left out: 1 needs LLVM's headers"


ONCE = """\
import pathlib
import pytest

@pytest.mark.e2e
def test_slow():
    marker = pathlib.Path("was_here")
    was_here = marker.exists()
    marker.touch()
    assert was_here

def test_fast(): assert False
"""


def test_a_slow_test_that_passes_the_second_time_is_named(tmp_path: Path) -> None:
    lines = _run(tmp_path, "-p", "no:xdist", once=ONCE)
    assert "1 failed, 1 passed, 1 warning, 1 rerun" in lines[-3]
    assert lines[-2:] == [
        "FLAKY test_once.py::test_slow: failed once, and was tried again",
        "ran 2 of 2 tests; none left out",
    ]
