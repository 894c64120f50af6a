"""The driver's tests once more, with a driver built with sanitizers: they report nothing.

What a policy computes is not looked at: its code is LLVM IR of ours, not C. Leaks are not either:
each process is for one compilation, ends in ``execv`` or ``_exit``, and leaves most of what it has
to the kernel.
"""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.problems._inlining_for_size import DEFAULT_ADVICE, InliningForSize
from mlgo_gym.stream._training_log import Header, TrainingLogWriter
from tests.cc.conftest import (
    AS_DEFAULT,
    CHANNEL,
    ROOT,
    SANITIZED,
    SANITIZERS,
    Driver,
    build_sanitized,
)
from tests.cc.test_streams import speaking

pytestmark = pytest.mark.e2e

FAULTS = {
    "address": "int main(int n, char **all) { char a[4] = {0}; return a[n + 3] + !all; }",
    "undefined": "int main(int n, char **all) { return (2147483647 + n < 0) + !all; }",
}
DEFAULT = TensorSpec(DEFAULT_ADVICE, "int64_t", (1,))
ELSEWHERE = {
    "test_forks.py": "as test_inside.py",
    "test_inside.py": "a library with sanitizers cannot be loaded into a clang without",
    "test_project.py": "as test_inside.py",
    "test_shipped_models.py": "each makes a driver of its own",
}
"""What does not run the driver that `cache` holds, or hardly."""

# A clang that says what it is told to, and ends when all of it was read.
SAYS = """
import array, fcntl, termios, time
with open("said", "rb") as said, open(f"{base}.out", "wb") as out:
    out.write(said.read())
    out.flush()
    unread = array.array("i", [1])
    while unread[0]:
        time.sleep(0.001)
        fcntl.ioctl(out, termios.FIONREAD, unread)
"""
WORDS = (b"", b'"', b"\n", b"]", b"-1", b"0", b"1048576", b"9" * 30, b"a" * 200, b'{"features":')


def sanitizing(reports: Path) -> dict[str, str]:
    options = f"log_path={reports / 'report'}:detect_leaks=0"
    return {**os.environ, "ASAN_OPTIONS": options, "UBSAN_OPTIONS": options, SANITIZED: "1"}


def found(reports: Path) -> str:
    return "\n".join(each.read_text(errors="replace") for each in sorted(reports.iterdir()))


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_reported(clang22: str, tmp_path: Path, reports: Path, kind: str) -> None:
    (tmp_path / "fault.c").write_text(FAULTS[kind])
    program = tmp_path / "fault"
    command = [clang22, *SANITIZERS, str(tmp_path / "fault.c"), "-o", str(program)]
    subprocess.run(command, check=True)
    done = subprocess.run([program], env=sanitizing(reports), capture_output=True, check=False)
    assert done.returncode
    assert "fault.c:1" in found(reports)


@pytest.fixture
def sanitized(driver: Driver, tmp_path: Path, reports: Path) -> Driver:
    build_sanitized(tmp_path / "cache", tmp_path)
    settings = {"MLGO_CACHE": str(tmp_path / "cache")}
    return Driver(driver.clang, {**driver.environment, **sanitizing(reports), **settings})


def test_it_is_built_with_sanitizers(sanitized: Driver, tmp_path: Path) -> None:
    """The program that `Driver` runs, with `prepare`'s own flags beside the sanitizers'."""
    content = sanitized.program().read_bytes()
    assert b"__asan_init" in content
    assert b"__ubsan_handle" in content
    assert b"MLGO_TIMEOUT" in content
    (tmp_path / "f.c").write_text("int f(void) { return 1; }")
    done = sanitized.run("-c", "f.c", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def stream() -> bytes:
    """What LLVM's inliner says of two call sites."""
    file = io.BytesIO()
    features = (*(each.spec for each in InliningForSize().layout.features), DEFAULT)
    log = TrainingLogWriter(file, Header(features, advice=InliningForSize.advice))
    log.start_context("f")
    for _ in range(2):
        log.log_observation(b"".join(bytes(each.size_bytes) for each in features))
    return file.getvalue()


def mutations(whole: bytes, count: int) -> Iterator[bytes]:
    """The same with another word in one or two places, or in place of what stood there, or cut."""
    chance = random.Random(0)  # noqa: S311 - no secrets
    for _ in range(count):
        said = whole
        for _ in range(chance.randint(1, 2)):
            start = chance.randrange(len(said))
            end = start + chance.choice((0, 1, 8, 300, len(said)))
            said = said[:start] + chance.choice(WORDS) + said[end:]
        yield said


def test_whatever_clang_says(sanitized: Driver, work: Path, reports: Path) -> None:
    settings = speaking(sanitized, work, SAYS) | AS_DEFAULT | CHANNEL
    refused = 0
    for said in (stream(), *mutations(stream(), 200)):
        (work / "said").write_bytes(said)
        done = sanitized.run("-O2", "-c", "f.c", cwd=work, settings=settings)
        assert found(reports) == "", said
        assert done.returncode in {0, 1}, (said, done.stderr)
        assert done.stderr.startswith(b"mlgo-cc: error: ") == bool(done.returncode), said
        assert b"was killed" not in done.stderr, said
        refused += done.returncode
        assert said != stream() or done.returncode == 0, done.stderr
    assert 50 < refused < 200


def test_whatever_answers_hold(sanitized: Driver, work: Path, reports: Path) -> None:
    traces = f"--mlgo-traces={work}"
    asked = sanitized.run("-O2", "-c", "f.c", "--mlgo-traces-key", cwd=work, settings=CHANNEL)
    line = asked.stdout.strip() + b" " + b"1" * 32 + b" 2 3 f.c\n"
    whole = b"mlgo-gym answers 1\n" + b"0" * 32 + line[32:] + line + b"end\n"
    refused = 0
    for content in (whole, *mutations(whole, 100)):
        (work / "answers.txt").write_bytes(content)
        line_of_clang = ("-O2", "-c", "f.c", traces, "--mlgo-strict=1")
        done = sanitized.run(*line_of_clang, cwd=work, settings=CHANNEL)
        assert found(reports) == "", content
        assert done.returncode in {0, 1}, (content, done.stderr)
        assert done.stderr.startswith(b"mlgo-cc: error: traces ") == bool(done.returncode), content
        refused += done.returncode
        assert content != whole or done.returncode == 0, done.stderr
    assert 30 < refused < 100


def test_whatever_project_files_hold(sanitized: Driver, work: Path, reports: Path) -> None:
    project = f"--mlgo-project={work / 'project.txt'}"
    lines = ["target a", "object f.o", "A" * 8, "target b", "exported", "object x/f.o", "_" * 8]
    whole = "\n".join(["mlgo-gym project 1", *lines, "end", ""]).encode()
    refused = 0
    for content in (whole, *mutations(whole, 100)):
        (work / "project.txt").write_bytes(content)
        done = sanitized.run("-O2", "-c", "f.c", project, cwd=work, settings=CHANNEL)
        assert found(reports) == "", content
        assert done.returncode == 0, (content, done.stderr)
        is_refused = done.stderr.endswith(b"; compiled by plain clang\n")
        assert not is_refused or done.stderr.startswith(b"mlgo-cc: warning: project "), content
        refused += is_refused
        assert content != whole or not is_refused, done.stderr
    assert 30 < refused < 100


@pytest.mark.timeout(1200)
def test_the_drivers_tests_pass(tmp_path: Path, reports: Path) -> None:
    tests = [each.name for each in Path(__file__).parent.glob("test_*.py")]
    assert set(tests) > ELSEWHERE.keys()
    chosen = sorted(set(tests) - ELSEWHERE.keys() - {Path(__file__).name})
    command = [
        *(sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider"),
        *("-m", "not (network or e2e or stress)", f"--basetemp={tmp_path / 'tests'}"),
        *("-k", "not in-process"),  # so that all of them take the channel
        *(f"tests/cc/{name}" for name in chosen),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=sanitizing(reports), capture_output=True, text=True, check=False
    )
    assert found(reports) == ""
    assert done.returncode == 0, done.stdout
