"""First uses of the cache: many at once, killed, without room, and behind a lock."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from mlgo_gym.cc._prepare import PROGRAMS, _may_pass
from mlgo_gym.errors import ModelError
from mlgo_gym.model._model import compile_ir
from tests.cc.conftest import (
    NEVER,
    ROOT,
    UNADVISED,
    Driver,
    Objects,
    compile_file,
    elsewhere,
    folder_of,
    only,
    scraps,
)
from tests.cc.test_kills import left_over
from tests.conftest import one_in, require
from tests.waiting import wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: who else mounts")

MANY = 100


def kill_when_seen(driver: Driver, work: Path, word: str) -> bytes:
    """Kill a process of a compilation that has a word in its command line; returns what is said."""
    process = psutil.Popen(
        driver.command("-O2", "-c", "f.c"), cwd=work, env={**driver.environment, **NEVER},
        stderr=subprocess.PIPE,
    )  # fmt: skip
    is_killed = False
    while process.poll() is None:
        for each in () if is_killed else process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if any(word in text for text in each.cmdline()):
                    each.kill()
                    is_killed = True
    _, words = process.communicate()
    assert is_killed, words
    wait_for(lambda: not left_over(work))  # what it had started
    return bytes(words)


def test_a_compiler_that_dies_is_not_the_model_s_fault() -> None:
    with pytest.raises(ModelError, match="the compiler died with status") as caught:
        compile_ir('module asm "no such instruction"', source="test")
    assert _may_pass(caught.value.__cause__)
    with pytest.raises(ModelError) as caught:
        compile_ir("define nonsense", source="test")
    assert not _may_pass(caught.value.__cause__)


def test_the_process_that_freezes_is_killed(own: Driver, work: Path, never: bytes) -> None:
    only(own, "kept/inlining-*.so").unlink()
    words = kill_when_seen(own, work, "mlgo_gym.cc._prepare")
    expected = b"mlgo-cc: warning: the process that compiles the inlining model was killed"
    assert words == expected + UNADVISED
    assert compile_file(own, work, NEVER) == (never, b"")
    assert not scraps(own)


@pytest.mark.e2e
def test_the_process_that_makes_the_driver_is_killed(
    own: Driver, work: Path, plain: bytes, never: bytes
) -> None:
    program = only(own, "bin/mlgo-cc")
    program.unlink()
    words = kill_when_seen(own, work, "mlgo_gym.cc._prepare")
    said = f"mlgo-cc: warning: the process that makes {program} was killed"
    assert words == said.encode() + UNADVISED
    assert (work / "f.o").read_bytes() == plain
    assert compile_file(own, work, NEVER) == (never, b"")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


@pytest.mark.e2e
@pytest.mark.parametrize("pattern", ["bin/mlgo-cc", "kept/inlining-*.so"])
def test_a_lock_is_waited_for_as_long_as_was_said(
    own: Driver, work: Path, plain: bytes, never: bytes, pattern: str
) -> None:
    only(own, pattern).unlink()
    with locked(folder_of(own)):
        found = compile_file(own, work, {**NEVER, "MLGO_TIMEOUT": "0.5"})
    words = (
        f"mlgo-cc: warning: '{folder_of(own)}': expected another process to be done with it within "
        "0.5 s; MLGO_TIMEOUT allows more; compiled by plain clang\n"
    )
    assert found == (plain, words.encode())
    assert compile_file(own, work, NEVER) == (never, b"")


@pytest.mark.e2e
@pytest.mark.parametrize("pattern", one_in(2, ["kept/inlining-*.so", "bin/mlgo-cc"]))
def test_files_that_cannot_be_finished(
    own: Driver, work: Path, objects: Objects, pattern: str
) -> None:
    """A limit stands for a full disk: what compilers leave of theirs goes."""
    only(own, pattern).unlink()
    done = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -f 8 && exec "$@"', "sh", *own.command("-O2", "-c", "f.c")],
        cwd=work, env={**own.environment, **NEVER}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.endswith(UNADVISED)
    assert (work / "f.o").read_bytes() == objects.plain
    assert not scraps(own)
    assert compile_file(own, work, NEVER) == (objects.never, b"")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_is_one_page(name: str) -> None:
    """Its start has read it: a shell that cannot read more would end with 0 and do nothing."""
    assert (ROOT / "scripts" / name).stat().st_size <= 4096


@needs_root
@pytest.mark.e2e
def test_a_full_disk(own: Driver, work: Path, tmp_path: Path, plain: bytes, never: bytes) -> None:
    """Of many sizes: whatever finds no room, nothing is left that is not whole."""
    place, mount = tmp_path / "small", require("mount", "mount")
    place.mkdir()
    full = 0
    for size_kib in range(20, 820, 160):
        options = ["-t", "tmpfs", "-o", f"mode=700,size={size_kib}k"]
        if subprocess.run([mount, *options, "none", place], check=False).returncode:
            pytest.skip("needs leave to mount")
        try:
            driver = elsewhere(own, place)
            made, words = compile_file(driver, work, NEVER)
            assert (made, words) == (never, b"") or (made == plain and words.endswith(UNADVISED))
            full += made == plain
            assert not folder_of(driver).exists() or not scraps(driver)
            subprocess.run([mount, "-o", "remount,size=4m", place], check=True)
            assert compile_file(driver, work, NEVER) == (never, b"")
        finally:
            subprocess.run([require("umount", "mount"), place], check=True)
    assert 0 < full < 5


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_many_first_uses_at_once(own: Driver, work: Path, tmp_path: Path, never: bytes) -> None:
    new = elsewhere(own, tmp_path / "new")
    processes = [
        subprocess.Popen(
            new.command("-O2", "-c", "f.c", "-o", f"{number}.o"),
            cwd=work, env={**new.environment, **NEVER}, stderr=subprocess.PIPE,
        )
        for number in range(MANY)
    ]  # fmt: skip
    said = [each.communicate()[1] for each in processes]
    assert [(each.returncode, words) for each, words in zip(processes, said, strict=True)] == [
        (0, b"")
    ] * MANY
    assert {(work / f"{number}.o").read_bytes() for number in range(MANY)} == {never}
    assert not scraps(new)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "rounds",
    [pytest.param(4, marks=pytest.mark.e2e), pytest.param(200, marks=pytest.mark.stress)],
)
def test_first_uses_that_are_killed(
    own: Driver, work: Path, tmp_path: Path, objects: Objects, rounds: int
) -> None:
    """At any moment, some of its processes or all: the next compilation is whole, nothing stays."""
    chance = random.Random(rounds)  # noqa: S311 - the same kills in every run
    for number in range(rounds):
        cache = tmp_path / str(number)
        if number % 2:
            shutil.copytree(tmp_path / "own", cache)  # only the model is new
        new = elsewhere(own, cache)
        for library in folder_of(new).glob("kept/*.so"):
            library.unlink()
        process = psutil.Popen(
            new.command("-O2", "-c", "f.c"), cwd=work, env={**new.environment, **NEVER},
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        with suppress(psutil.TimeoutExpired):
            process.wait(chance.uniform(0, 2 if number % 2 else 5))
        with suppress(psutil.NoSuchProcess):
            family = [process, *process.children(recursive=True)]
            for each in chance.sample(family, chance.randint(1, len(family))):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        process.wait()
        wait_for(lambda: not left_over(work))
        made, words = compile_file(new, work, NEVER)
        assert objects.allow(made, words), words
        assert compile_file(new, work, NEVER) == (objects.never, b"")
        assert not scraps(new)
        shutil.rmtree(cache)


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"MLGO_CACHE": "/m", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/m"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/mlgo-gym"),
        ({"XDG_CACHE_HOME": "x/y", "HOME": "/h"}, "/h/.cache/mlgo-gym"),
        ({"HOME": "/h"}, "/h/.cache/mlgo-gym"),
        ({"HOME": ""}, "/root/.cache/mlgo-gym"),
        ({}, "/root/.cache/mlgo-gym"),
    ],
)
def test_where_the_driver_is_made(tmp_path: Path, variables: dict[str, str], folder: str) -> None:
    """Never at the top of the file system; where a user without a home cannot write, clang runs."""
    shutil.copy(ROOT / "scripts" / "mlgo-cc", tmp_path)
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\nfor last; do :; done\necho "$last" >&2\nexit 1\n')
    python.chmod(0o755)
    (tmp_path / "clang").symlink_to("/bin/true")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", **variables}
    done = subprocess.run(
        [tmp_path / "mlgo-cc", "-c", "f.c"], env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert f" {folder}/cc-" in done.stderr


SHIFTED = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int fstatat(int folder, const char *path, struct stat *about, int flags) {
  int status = syscall(SYS_newfstatat, folder, path, about, flags);
  const char *end = strstr(path, "/cc/native");
  if (!status && end && !end[strlen("/cc/native")])
    about->st_mtim.tv_sec += 1000000000;
  return status;
}
int stat(const char *path, struct stat *about) { return fstatat(AT_FDCWD, path, about, 0); }
"""


@pytest.mark.parametrize("is_new", [False, True])
def test_where_a_library_shifts_the_times_of_files(
    driver: Driver, work: Path, tmp_path: Path, never: bytes, *, is_new: bool
) -> None:
    """As libfaketime does: the driver is not made again and again."""
    library = tmp_path / "shifted.so"
    (tmp_path / "shifted.c").write_text(SHIFTED)
    subprocess.run(
        [driver.clang, "-shared", "-fPIC", tmp_path / "shifted.c", "-o", library], check=True
    )
    if is_new:
        driver = elsewhere(driver, tmp_path / "new")
    else:
        inode = driver.program().stat().st_ino
    done = subprocess.run(
        driver.command("-O2", "-c", "f.c"),
        env={**driver.environment, **NEVER, "LD_PRELOAD": str(library)},
        cwd=work, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert (work / "f.o").read_bytes() == never
    if not is_new:
        assert driver.program().stat().st_ino == inode


def test_a_folder_whose_name_has_a_percent_sign(
    driver: Driver, work: Path, tmp_path: Path, never: bytes
) -> None:
    """Clang makes names of temporary files of it."""
    there = elsewhere(driver, tmp_path / "a%b%%c")
    assert compile_file(there, work, NEVER) == (never, b"")
