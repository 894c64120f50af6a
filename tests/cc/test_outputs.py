"""``-o`` names a device, a pipe, a link or a file in a read-only folder.

The smallest object is kept in regular files, and nothing else is ever removed.

All of it runs in a mount namespace of its own with devices of its own: what goes wrong here could
remove the machine's ``/dev/null``.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from mlgo_gym.model import shipped_models
from tests.cc.conftest import MODELS, Driver
from tests.conftest import lacking, require

NEVER, OLD = str(MODELS / "never"), b"an older object\n"
NO_MODEL = (
    f"model 'no-such-model': expected a folder, or one of {', '.join(sorted(shipped_models()))}; "
    "found neither"
)
SOURCE = """
static int g(int x, int y) { while (x > y) { x = x * y - 7; y += x >> 3; } return x ^ y; }
int f(int x) { return g(x, 3) + g(4, x) + g(x + 1, x); }
"""
DEVICES = """
set -e
mount -t tmpfs tmpfs /dev
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/zero c 1 5
"""


def in_namespace(
    driver: Driver, work: Path, script: str, settings: Mapping[str, str]
) -> tuple[int, bytes]:
    """Run a script as root of a namespace; the status and what was said."""
    unshare = [require("unshare", "util-linux"), "--mount", "--propagation", "private"]
    if subprocess.run([*unshare, "sh", "-c", DEVICES], check=False).returncode:
        lacking("needs a mount namespace with devices: run as root")
    done = subprocess.run(
        [*unshare, "sh", "-c", DEVICES + script],
        cwd=work, env={**driver.environment, **settings}, capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def line(driver: Driver, *words: str) -> str:
    return shlex.join([*map(str, driver.command("-O2", "-c", "f.c")), *words])


@pytest.fixture(autouse=True)
def source(work: Path) -> None:
    (work / "f.c").write_text(SOURCE)


@pytest.fixture
def plain(driver: Driver, work: Path) -> bytes:
    assert driver.plain("-O2", "-c", "f.c", cwd=work).returncode == 0
    made = (work / "f.o").read_bytes()
    (work / "f.o").unlink()
    return made


@pytest.mark.parametrize("name", ["/dev/null", "link"])
@pytest.mark.parametrize("model", ["no-such-model", NEVER, str(MODELS / "unknown_feature")])
def test_what_is_thrown_away(
    driver: Driver, work: Path, way: Mapping[str, str], name: str, model: str
) -> None:
    (work / "link").symlink_to("/dev/null")
    settings = {"MLGO_KEEP_SMALLER": model, "MLGO_STRICT": "1", **way}
    script = (
        f"{line(driver, '-o', name)} || status=$?\ntest -c /dev/null || echo gone\nexit $status"
    )
    status, said = in_namespace(driver, work, script, settings)
    is_bad = model == "no-such-model"
    expected = f"mlgo-cc: error: {NO_MODEL}\n" if is_bad else ""
    assert (status, said.decode()) == (int(is_bad), expected)
    assert {each.name for each in work.iterdir()} == {"f.c", "link"}


def test_a_trace_that_is_thrown_away(driver: Driver, work: Path, way: Mapping[str, str]) -> None:
    key = driver.run("-O2", "-c", "f.c", "--mlgo-traces-key", cwd=work).stdout.strip().decode()
    answers = f"mlgo-gym answers 1\n{key} {'1' * 32} 2 3 f.c\nend\n"
    (work / "answers.txt").write_text(answers)
    settings = {"MLGO_TRACES": str(work), **way}
    script = f"{line(driver, '-o', '/dev/null')}\ntest -c /dev/null"
    assert in_namespace(driver, work, script, settings) == (0, b"")


def test_a_device(driver: Driver, work: Path, way: Mapping[str, str]) -> None:
    settings = {"MLGO_KEEP_SMALLER": NEVER, **way}
    script = f"{line(driver, '-o', '/dev/zero')}\ntest -c /dev/zero"
    reason = "keep-smaller: an input or output is a pipe or a device"
    said = f"mlgo-cc: warning: {reason}; compiled by plain clang\n".encode()
    assert in_namespace(driver, work, script, settings) == (0, said)
    said = f"mlgo-cc: error: {reason}\n".encode()
    assert in_namespace(driver, work, script, settings | {"MLGO_STRICT": "1"}) == (1, said)


def test_a_fifo(driver: Driver, work: Path, plain: bytes, way: Mapping[str, str]) -> None:
    settings = {"MLGO_KEEP_SMALLER": NEVER, **way}
    script = (
        f"mkfifo pipe.o\ncat pipe.o > got &\n{line(driver, '-o', 'pipe.o')}\nwait\ntest -p pipe.o"
    )
    status, said = in_namespace(driver, work, script, settings)
    assert (status, said.count(b"\n")) == (0, 1)
    assert said.endswith(b"; compiled by plain clang\n")
    assert (work / "got").read_bytes() == plain


def test_a_link_gives_way_as_to_plain_clang(
    driver: Driver, work: Path, plain: bytes, way: Mapping[str, str]
) -> None:
    target, link = work / "old.o", work / "f.o"
    target.write_bytes(OLD)
    link.symlink_to("old.o")
    assert driver.plain("-O2", "-c", "f.c", cwd=work).returncode == 0
    assert (link.is_symlink(), target.read_bytes()) == (False, OLD)
    link.unlink()
    link.symlink_to("old.o")
    settings = {"MLGO_KEEP_SMALLER": NEVER, **way}
    assert in_namespace(driver, work, line(driver), settings) == (0, b"")
    assert (link.is_symlink(), target.read_bytes()) == (False, OLD)
    assert link.read_bytes() != plain


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_link_that_clang_writes_through(
    driver: Driver, work: Path, plain: bytes, way: Mapping[str, str], *, is_strict: bool
) -> None:
    target, link = work / "old.o", work / "f.o"
    target.write_bytes(OLD)
    link.symlink_to("old.o")
    settings = {"MLGO_KEEP_SMALLER": NEVER, "MLGO_STRICT": str(int(is_strict)), **way}
    status, said = in_namespace(driver, work, line(driver, "-fno-temp-file"), settings)
    assert status == is_strict
    assert b"keep-smaller: expected a file at 'f.o', found a link" in said
    assert (link.is_symlink(), target.read_bytes()) == (True, plain)


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_read_only_folder(
    driver: Driver, work: Path, plain: bytes, way: Mapping[str, str], *, is_strict: bool
) -> None:
    """Its file may be written to, and clang does; a smaller object could not take its place."""
    (work / "real.o").write_bytes(OLD)
    (work / "sub").mkdir()
    settings = {"MLGO_KEEP_SMALLER": NEVER, "MLGO_STRICT": str(int(is_strict)), **way}
    script = (
        "mount -t tmpfs tmpfs sub\ntouch sub/f.o\nmount --bind real.o sub/f.o\n"
        f"mount -o remount,ro sub\n{line(driver, '-o', 'sub/f.o')}"
    )
    status, said = in_namespace(driver, work, script, settings)
    reason = "keep-smaller: cannot make files beside 'sub/f.o': Read-only file system"
    ending = "; compiled by plain clang" if not is_strict else ""
    kind = "error" if is_strict else "warning"
    assert (status, said.decode()) == (int(is_strict), f"mlgo-cc: {kind}: {reason}{ending}\n")
    assert (work / "real.o").read_bytes() == (OLD if is_strict else plain)


def test_an_older_object_survives_a_bad_model(
    driver: Driver, work: Path, plain: bytes, way: Mapping[str, str]
) -> None:
    """It is looked at before anything compiles."""
    (work / "f.o").write_bytes(OLD)
    settings = {"MLGO_KEEP_SMALLER": f"{NEVER},no-such-model", "MLGO_STRICT": "1", **way}
    status, said = in_namespace(driver, work, line(driver, "-MD"), settings)
    assert (status, said.decode()) == (1, f"mlgo-cc: error: {NO_MODEL}\n")
    assert {each.name for each in work.iterdir()} == {"f.c", "f.o"}
    assert (work / "f.o").read_bytes() == OLD
    settings["MLGO_STRICT"] = "0"
    status, said = in_namespace(driver, work, line(driver), settings)
    assert (status, said.decode()) == (0, f"mlgo-cc: warning: {NO_MODEL}; not compared\n")
    assert (work / "f.o").read_bytes() not in {OLD, plain}
