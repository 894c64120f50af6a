"""Killed compilations: nothing hangs or stays behind, and every object that is there is whole.

The driver's processes are the one that the build started, the server that answers over FIFOs,
clang, and where clang forks jobs, those. Each is killed, at random times.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from corpus_tools.code import code_sections
from mlgo_gym.stream._channel import remove_stale_folders
from tests.cc.conftest import CHANNEL, MODELS, WAYS, Driver
from tests.waiting import wait_for


def source(functions: int) -> str:
    lines = (
        f"int f{number}(int x) {{ return g(x + {number}) + g(x - {number}); }}\n"
        for number in range(functions)
    )
    return "static int g(int x) { return x > 9 ? x / 3 : g(x + 1) * 2; }\n" + "".join(lines)


MAIN = "int main(void) { return f1(2) & 1; }\n"
HEADER_BYTES = 1_000  # less than what LLVM writes before its first question


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "f.c").write_text(source(100) + MAIN)
    return folder


def start(
    driver: Driver, work: Path, *arguments: str, way: Mapping[str, str] = CHANNEL
) -> psutil.Popen:
    settings = {
        "MLGO_INLINING_MODEL": str(MODELS / "inliner"),
        "MLGO_REGALLOC_MODEL": str(MODELS / "lowest_density"),
        **way,
    }
    return psutil.Popen(
        driver.command("-O2", "f.c", *arguments),
        cwd=work,
        env={**driver.environment, **settings},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def family(process: psutil.Popen) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def caught(
    driver: Driver, work: Path, *arguments: str, way: Mapping[str, str]
) -> tuple[psutil.Popen, dict[str, psutil.Process]]:
    """A compilation and its processes; one that was through before they were seen is repeated."""
    names = roles(arguments, way)
    while True:
        process = start(driver, work, *arguments, way=way)
        while process.poll() is None:
            if len(processes := family(process)) >= len(names):
                return process, dict(zip(names, processes, strict=False))


def roles(arguments: Sequence[str], way: Mapping[str, str]) -> list[str]:
    """Of a compilation's processes, parents first."""
    server, job = ["server"] if way else [], ["job"] if "-o" in arguments else []
    return ["first", *server, "clang", *job]


def is_ours(process: psutil.Process, work: Path) -> bool:
    try:
        return process.cwd() == str(work) and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def prepare(driver: Driver, work: Path) -> None:
    """Freezes the models, so that the processes of a compilation are all there are."""
    assert start(driver, work, "-c", "-o", os.devnull).wait() == 0


def left_over(work: Path) -> list[int]:
    return [each.pid for each in psutil.process_iter() if is_ours(each, work)]


def wait_until_gone(process: psutil.Popen, work: Path) -> None:
    process.wait()
    wait_for(lambda: not left_over(work))


def kill(processes: Sequence[psutil.Process], number: int) -> None:
    for each in processes:
        try:
            each.send_signal(number)
        except psutil.NoSuchProcess:
            continue


CHOICES = ("first", "server", "clang", "job", "first and clang")
COMMANDS = {"compile": ("-c",), "link": ("-o", "program")}
CASES = [
    (way, command, choice)
    for way in WAYS
    for command in COMMANDS
    for choice in CHOICES
    if set(choice.split(" and ")) <= set(roles(COMMANDS[command], WAYS[way]))
]


@pytest.mark.parametrize("case", CASES, ids=", ".join)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda each: each.name)
def test_each_process_may_be_killed(
    driver: Driver, work: Path, case: tuple[str, str, str], number: int
) -> None:
    way, arguments, chosen = WAYS[case[0]], COMMANDS[case[1]], case[2].split(" and ")
    prepare(driver, work)
    process, processes = caught(driver, work, *arguments, way=way)
    kill([processes[name] for name in chosen], number)
    wait_until_gone(process, work)
    channels = list(Path(driver.environment["TMPDIR"]).glob("mlgo-gym-channel-*"))
    assert not channels
    whole(work)


def whole(work: Path) -> None:
    for each in work.glob("*.o"):
        assert code_sections(each.read_bytes(), each.name)


# A library that a user preloads: clang takes its time to remove what it has begun to write.
SLOW_UNLINK = """
#include <fcntl.h>
#include <unistd.h>
int unlink(const char *path) { usleep(30000); return unlinkat(AT_FDCWD, path, 0); }
"""


def test_clang_is_told_once_to_end(driver: Driver, work: Path, way: Mapping[str, str]) -> None:
    """A second signal would end it before it has removed its files."""
    prepare(driver, work)
    (work.parent / "slow.c").write_text(SLOW_UNLINK)
    library = work.parent / "slow.so"
    assert (
        driver.plain("-shared", "-fPIC", "slow.c", "-o", "slow.so", cwd=work.parent).returncode == 0
    )
    (work / "f.c").write_text(source(3000))
    process = start(driver, work, "-c", way={**way, "LD_PRELOAD": str(library)})
    wait_for(lambda: list(work.glob("f-*.o.tmp")))
    process.send_signal(signal.SIGTERM)
    wait_until_gone(process, work)
    assert [each.name for each in work.iterdir()] == ["f.c"]


@pytest.mark.stress
@pytest.mark.timeout(3000)
def test_a_thousand_random_kills(driver: Driver, work: Path) -> None:
    """One half of them in each of the ways to be answered."""
    chance = random.Random(20260101)  # noqa: S311 - the same kills in every run
    prepare(driver, work)
    survived = 0
    for _ in range(1000):
        arguments = chance.choice([["-c"], ["-o", "program"]])
        way = WAYS[chance.choice(list(WAYS))]
        process = start(driver, work, *arguments, way=way)
        time.sleep(chance.uniform(0, 0.4))
        number = chance.choice([signal.SIGKILL, signal.SIGTERM])
        processes = dict(zip(roles(arguments, way), family(process), strict=False))
        chosen = chance.choice(CHOICES).split(" and ")
        kill([processes[name] for name in chosen if name in processes], number)
        wait_until_gone(process, work)
        survived += process.returncode == 0
        whole(work)
    assert survived > 0
    # Only what was killed together with its server may leave its folder, for the next to remove.
    remove_stale_folders()
    assert not list(Path(driver.environment["TMPDIR"]).glob("mlgo-gym-channel-*"))


def test_a_stale_folder_is_swept(driver: Driver, work: Path) -> None:
    """Of a driver that was killed together with its server."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    prefix = f"mlgo-gym-channel-{os.getuid()}-{namespace}-"
    stale = Path(driver.environment["TMPDIR"]) / f"{prefix}{gone.pid}-abcdef"
    stale.mkdir()
    os.mkfifo(stale / "inlining.in")
    live = Path(driver.environment["TMPDIR"]) / f"{prefix}{os.getpid()}-abcdef"
    live.mkdir()
    process = start(driver, work, "-c")
    assert process.wait() == 0
    assert not stale.exists()
    assert live.exists()
    live.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: who else gives folders away")
def test_folders_of_others_are_not_swept(driver: Driver, work: Path, tmp_path: Path) -> None:
    """Nor is what a link of that name leads to, nor anything but FIFOs."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    prefix = f"mlgo-gym-channel-{os.getuid()}-{namespace}-{gone.pid}"
    temporary = Path(driver.environment["TMPDIR"])
    given, link, full = (temporary / f"{prefix}-{each}" for each in ("given", "link", "full"))
    for folder in (given, full, tmp_path / "elsewhere"):
        folder.mkdir()
        os.mkfifo(folder / "inlining.in")
    (full / "kept").touch()
    os.chown(given, 65534, -1)
    link.symlink_to(tmp_path / "elsewhere")
    assert start(driver, work, "-c").wait() == 0
    assert [each.name for each in full.iterdir()] == ["kept"]
    assert (given / "inlining.in").exists()
    assert (link / "inlining.in").exists()
    link.unlink()
    for folder in (given, full):
        shutil.rmtree(folder)


@pytest.mark.e2e
def test_a_compilation_that_says_nothing_outruns_its_deadline(
    driver: Driver, work: Path, tmp_path: Path
) -> None:
    """Clang is stopped in the middle of its questions; the deadline ends it."""
    settings = {"MLGO_INLINING_MODEL": str(MODELS / "inliner"), "MLGO_TIMEOUT": "0.5", **CHANNEL}
    prepare(driver, work)
    (work / "f.c").write_text(source(3000))  # so many questions that it can be met at one
    log = tmp_path / "stderr"
    stopped = False
    while not stopped:
        with log.open("wb") as stderr:
            process = psutil.Popen(
                driver.command("-O2", "-c", "f.c"),
                cwd=work,
                env={**driver.environment, **settings},
                stderr=stderr,
            )
        stopped = stop_while_asking(process)
        assert process.wait() == 0
    words = "expected clang's next word within 0.5 s (MLGO_TIMEOUT), found none"
    assert log.read_text() == f"mlgo-cc: warning: {words}; compiled by plain clang\n"
    whole(work)
    assert not left_over(work)


def stop_while_asking(process: psutil.Popen) -> bool:
    """Stops clang between two questions; false where it was through before that was done."""
    while process.poll() is None:
        for each in family(process)[2:3]:
            try:
                if each.io_counters().write_chars < HEADER_BYTES or not has_channel(each):
                    continue
                each.suspend()
                if has_channel(each):
                    return True
                each.resume()
            except psutil.NoSuchProcess:
                break
    return False


def has_channel(process: psutil.Process) -> bool:
    try:
        links = [str(path.readlink()) for path in Path(f"/proc/{process.pid}/fd").iterdir()]
    except OSError:
        return False
    return any(link.endswith(".out") for link in links)
