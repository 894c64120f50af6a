"""A call fails in the middle of a command; ``make faults`` tries them all."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from mlgo_gym.cc._prepare import PROGRAMS
from tests.faults.__main__ import KINDS, Bench, build_library
from tests.faults.scenarios import DRIVER, SCENARIOS

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("interposer"), "interpose")


@pytest.mark.parametrize(
    "scenario", [each for each in SCENARIOS if each not in {"train", "driver"}]
)
def test_the_first_calls(library: Path, scenario: str) -> None:
    with Bench(library, scenario, "host") as bench:
        found = [bench.fault(kind, number) for kind in KINDS for number in (1, 3, 8)]
    assert sum(each["fired"] for each in found) > len(KINDS)
    assert [each for each in found if each["bad"]] == []


def test_the_first_calls_of_a_worker(library: Path) -> None:
    with Bench(library, "compile", "children") as bench:
        found = [bench.fault(kind, number) for kind in KINDS for number in (1, 3, 8)]
    assert [each for each in found if each["bad"]] == []


def test_a_fault_is_had(library: Path) -> None:
    with Bench(library, "compile", "host") as bench:
        found = bench.fault("ENOSPC", 8)
    assert found["fired"]
    assert "No space left on device" in found["said"]
    assert not found["bad"]


@pytest.mark.parametrize("kind", ["EMFILE", "ENOMEM"])
@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_shell_of_a_first_use(
    library: Path, tmp_path: Path, kind: str, number: int, program: str
) -> None:
    """It ends with a word, or compiles; and what could not be started was not killed."""
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho one >&2\necho no cache >&2\nexit 1\n")
    python.chmod(0o755)
    fault = {"FAULT": f"{kind}:{number}", "FAULT_SEEN": str(tmp_path / "seen")}
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "MLGO_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [DRIVER.with_name(program), "done"],
        env=os.environ | own | fault | {"LD_PRELOAD": str(library), "MLGO_CLANG": "echo"},
        capture_output=True,
        text=True,
        check=False,
    )
    *_, last = done.stderr.splitlines()
    assert "was killed" not in last
    if done.returncode:
        assert last.startswith(("/bin/sh: ", f"{DRIVER.with_name(program)}: "))
    else:
        assert last.startswith(f"{program}: warning: ")
        assert last.endswith("; compiled by plain clang")
        assert done.stdout.split()[-1] == "done"


_PREPARE: Final = """
import ctypes, sys
from mlgo_gym.cc._prepare import main
shim = ctypes.CDLL(sys.argv[1])
shim.fault_arm(b"ENOSPC", int(sys.argv[2]))
status = main(["driver", sys.argv[3]])
fired = shim.fault_fired()
shim.fault_arm(b"", 0)
print(status, fired)
"""


@pytest.mark.timeout(300)
def test_a_driver_that_is_kept_has_both_names(library: Path, tmp_path: Path) -> None:
    """Wherever there is no room: who finds one of them would not make the other."""
    target = tmp_path / "cc"
    programs = [target / "bin" / name for name in PROGRAMS]
    said = []
    for number in itertools.count(0):  # without a fault at first
        for each in programs:
            each.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", _PREPARE, library, str(number), target],
            env=os.environ | {"LD_PRELOAD": str(library)},
            capture_output=True,
            text=True,
            check=True,
        )
        status, fired = map(int, done.stdout.split())
        assert [each.exists() for each in programs] == [status == 0] * 2
        said += [done.stderr] * fired
        if number and not fired:
            break
    assert programs[0].samefile(programs[1])
    assert f"'{programs[0]}' -> '{programs[1]}'" in said[-1]


@pytest.mark.parametrize(
    ("place", "kind"), [("host", "SIGKILL"), ("host", "SIGINT"), ("children", "SIGKILL")]
)
def test_signals(library: Path, place: str, kind: str) -> None:
    with Bench(library, "fork", place) as bench:
        found: list[dict[str, Any]] = []
        # Where the machine was busier when the run was timed, moments may be after its end.
        while len(found) < 6 or not any(each["fired"] for each in found):
            found.append(bench.fault(kind, len(found) + 1))
    assert [each for each in found if each["bad"]] == []
