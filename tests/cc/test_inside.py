"""Answers in clang's own process: what they are worth, and where they cannot be given."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mlgo_gym.cc._kept import keep
from tests.cc.conftest import (
    AS_DEFAULT,
    CHANNEL,
    MODELS,
    NEVER,
    NOTHING,
    SOURCE,
    Driver,
    compile_file,
    folder_of,
    only,
)
from tests.cc.test_answers import MANY_LIVE
from tests.cc.test_sanitizers import mutations, stream
from tests.cc.test_streams import in_place_of_clang, speaking
from tests.conftest import require
from tests.waiting import wait_for

# FIFOs have no place there, and that is an error.
INSIDE = {"TMPDIR": "/proc", "MLGO_STRICT": "1"}
SHIPPED = {"MLGO_INLINING_MODEL": "inlining-for-size", "MLGO_REGALLOC_MODEL": "regalloc-eviction"}
WITHOUT = 'exec env -u LD_PRELOAD $clang "$@"\n'
WITH = 'exec $clang "$@"\n'
UNLOADING = """
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {{
  unsetenv("LD_PRELOAD");
  words[0] = "{clang}";
  return execv(words[0], words);
}}
"""
# As Python does that starts a program.
CLOSING = (
    f"exec {sys.executable} -c 'import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))' "
    '$clang "$@"\n'
)

# A library that a user preloads: it counts what is opened and written through it.
USERS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
static void count(const char *name) {
  int (*open_next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
  long (*write_next)(int, const void *, unsigned long) = dlsym(RTLD_NEXT, "write");
  int file = getenv(name) ? open_next(getenv(name), 02001, 0600) : -1;
  if (file >= 0) { write_next(file, "x", 1); close(file); }
}
int open64(const char *path, int flags, ...) {
  va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more);
  int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
  count("OPENED");
  return next(path, flags, mode);
}
int open(const char *path, int flags, ...) {
  va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more);
  int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
  count("OPENED");
  return next(path, flags, mode);
}
long write(int file, const void *data, unsigned long size) {
  long (*next)(int, const void *, unsigned long) = dlsym(RTLD_NEXT, "write");
  count("WRITTEN");
  return next(file, data, size);
}
"""

# One that leaves no memory to be mapped with others.
FULL = """
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
void *mmap(void *at, size_t size, int access, int flags, int file, off_t from) {
  if (flags & MAP_SHARED) { errno = ENOMEM; return MAP_FAILED; }
  return (void *)syscall(SYS_mmap, at, size, access, flags, file, from);
}
"""


def made_by(
    driver: Driver, folder: Path, line: tuple[str, ...], settings: Mapping[str, str]
) -> dict[str, bytes]:
    """What a command line makes of the sources in a folder, which are left alone."""
    before = {each.name for each in folder.iterdir()}
    done = driver.run(*line, cwd=folder, settings={"MLGO_STRICT": "1", **settings})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    found = {each.name: each.read_bytes() for each in folder.iterdir() if each.name not in before}
    for name in found:
        (folder / name).unlink()
    return found


@pytest.mark.parametrize(
    "line",
    [
        ("-Oz", "-c", "f.c", "many.c"),
        ("-O3", "-fno-vectorize", "-g", "-grecord-command-line", "-c", "many.c"),
        ("-O2", "-save-temps", "-c", "f.c"),
        ("-O2", "--target=aarch64-linux-gnu", "-fno-slp-vectorize", "-c", "many.c"),
    ],
    ids=" ".join,
)
def test_both_ways_make_the_same(driver: Driver, work: Path, line: tuple[str, ...]) -> None:
    (work / "many.c").write_text(MANY_LIVE + SOURCE.replace(" f(", " h("))
    settings = SHIPPED | {"MLGO_INLINING_MODEL": str(MODELS / "never")}
    inside = made_by(driver, work, line, settings)
    assert inside == made_by(driver, work, line, settings | CHANNEL)
    plain = driver.plain(*line, cwd=work)
    assert plain.returncode == 0
    assert inside != {name: (work / name).read_bytes() for name in inside}


def test_no_fifo_is_needed(driver: Driver, work: Path, never: bytes) -> None:
    assert compile_file(driver, work, {**NEVER, **INSIDE}) == (never, b"")
    done = driver.run("-O2", "-c", "f.c", cwd=work, settings={**NEVER, **INSIDE, **CHANNEL})
    assert done.stderr.startswith(b"mlgo-cc: error: cannot make a folder in '/proc'")


@pytest.mark.e2e
def test_threads_of_a_link_have_a_session_each(driver: Driver, tmp_path: Path) -> None:
    require("ld.lld-22", "lld-22")
    count = 12
    for number in range(count):
        calls = "\n".join(
            f"int f{number}_{each}(int x) {{ return s(x, {each}) + s(x + {each}, x) "
            f"+ f{(number + 1) % count}_{(each + 1) % 30}(x - 1); }}"
            for each in range(30)
        )
        more = "".join(f"int f{(number + 1) % count}_{each}(int);" for each in range(30))
        start = "int main(void) { return f0_0(9) & 1; }" if number == 0 else ""
        (tmp_path / f"m{number}.c").write_text(
            f"static int s(int x, int y) {{ return x > y ? x * y + s(x - 1, y) : {number}; }}\n"
            f"{more}\n{calls}\n{start}\n"
        )
    sources = [f"m{number}.c" for number in range(count)]
    assert driver.plain("-flto=thin", "-O2", "-c", *sources, cwd=tmp_path).returncode == 0
    objects = [f"m{number}.o" for number in range(count)]
    link = ("-flto=thin", "-O2", "--ld-path=/usr/bin/ld.lld-22", *objects, "-o", "program")
    assert driver.plain(*link, cwd=tmp_path).returncode == 0
    expected = (tmp_path / "program").read_bytes()
    threads = (*link, "-Wl,--thinlto-jobs=8")
    for _ in range(3):
        assert made_by(driver, tmp_path, threads, AS_DEFAULT) == {}
        assert (tmp_path / "program").read_bytes() == expected
    programs = set()
    for way in (NOTHING, NOTHING, CHANNEL):
        settings = {**SHIPPED, **way}
        assert driver.run(*threads, cwd=tmp_path, settings=settings).returncode == 0
        programs.add((tmp_path / "program").read_bytes())
    assert len(programs) == 1
    assert expected not in programs


def test_what_a_user_preloads_stays(
    driver: Driver, work: Path, tmp_path: Path, never: bytes
) -> None:
    folder = tmp_path / "with spaces"
    folder.mkdir()
    (tmp_path / "users.c").write_text(USERS)
    built = driver.plain("-shared", "-fPIC", "-w", "users.c", "-o", "users.so", cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    counts = {name: tmp_path / name for name in ("OPENED", "WRITTEN")}
    for each in counts.values():
        each.touch()
    settings = {name: str(path) for name, path in counts.items()}
    settings |= {"LD_PRELOAD": str(tmp_path / "users.so"), **NEVER, **INSIDE}
    assert compile_file(driver, work, settings) == (never, b"")
    assert all(path.stat().st_size for path in counts.values())


def test_a_clang_that_cannot_be_preloaded(own: Driver, work: Path, never: bytes) -> None:
    only(own, "kept/clang-*").unlink()
    settings = in_place_of_clang(own, work, WITHOUT)
    assert compile_file(own, work, settings) == (never, b"")
    assert list(folder_of(own).glob("kept/clang-*")) == []  # a script is asked each time
    (work / "clang.c").write_text(UNLOADING.format(clang=own.clang))
    program = work / "program"
    assert own.plain("-w", "clang.c", "-o", str(program), cwd=work).returncode == 0
    settings |= {"MLGO_CLANG": str(program)}
    assert compile_file(own, work, settings) == (never, b"")
    assert only(own, "kept/clang-*").read_bytes()[:-64] == b"22"
    done = own.run("-O2", "-c", "f.c", cwd=work, settings=settings | INSIDE)
    assert done.stderr.startswith(b"mlgo-cc: error: cannot make a folder in '/proc'")


@pytest.mark.parametrize("trouble", ["kill -9 $$", "LD_PRELOAD=./full.so:$LD_PRELOAD"])
def test_a_clang_in_trouble(own: Driver, work: Path, never: bytes, trouble: str) -> None:
    """What it cannot be loaded into this once, it is asked about again."""
    only(own, "kept/clang-*").unlink()
    (work / "full.c").write_text(FULL)
    assert own.plain("-shared", "-fPIC", "-w", "full.c", "-o", "full.so", cwd=work).returncode == 0
    asked = 'test "$1" = --version && test "$LD_PRELOAD" && test -e full.so'
    settings = in_place_of_clang(own, work, f"{asked} && {trouble}\n{WITH}")
    assert compile_file(own, work, settings) == (never, b"")
    assert list(folder_of(own).glob("kept/clang-*")) == []
    (work / "full.so").unlink()
    assert compile_file(own, work, settings | INSIDE) == (never, b"")


def test_a_wrapper_that_closes_descriptors(own: Driver, work: Path, never: bytes) -> None:
    only(own, "kept/clang-*").unlink()
    settings = in_place_of_clang(own, work, CLOSING)
    assert compile_file(own, work, settings | INSIDE) == (never, b"")


def test_a_clang_that_is_replaced(own: Driver, work: Path, never: bytes) -> None:
    """Or what it starts: that it can be preloaded holds no more."""
    only(own, "kept/clang-*").unlink()
    for script in (WITH, WITHOUT, WITH):
        settings = in_place_of_clang(own, work, script)
        assert compile_file(own, work, settings) == (never, b"")
    target = work / "target"
    settings = in_place_of_clang(own, work, f'exec sh {target} "$@"\n')
    for script in (WITH, WITHOUT, "exit 127\n", WITH):
        target.write_text(f"clang={own.clang}\n{script}")
        if "127" in script:
            words = own.run("-O2", "-c", "f.c", cwd=work, settings=settings).stderr
            assert words.startswith(b"mlgo-cc: warning: clang: expected a version from ")
        else:
            assert compile_file(own, work, settings) == (never, b"")


@pytest.mark.parametrize("kind", ["full", "thin"])
def test_a_linker_that_cannot_be_preloaded(driver: Driver, work: Path, kind: str) -> None:
    """Nothing was written, and the channel is tried before any other, without a word."""
    lld = require("ld.lld-22", "lld-22")
    (work / "f.c").write_text(MANY_LIVE + "int main(void) { return f(table, table) & 1; }\n")
    linker = work / "ld.lld"
    linker.write_text('#!/bin/sh\nexec env -u LD_PRELOAD ld.lld-22 "$@"\n')
    linker.chmod(0o755)
    line = (f"-flto={kind}", "-O3", "-fno-slp-vectorize", "f.c", "-o", "program")
    expected = made_by(driver, work, (*line, f"--ld-path={lld}"), SHIPPED)
    assert set(expected) == {"program"}
    assert made_by(driver, work, (*line, f"--ld-path={linker}"), SHIPPED) == expected


@pytest.mark.parametrize("is_known", [True, False], ids=["clang is known", "clang is not known"])
def test_a_library_that_cannot_be_loaded(
    own: Driver, work: Path, tmp_path: Path, never: bytes, *, is_known: bool
) -> None:
    """It is whole, and needs what nobody has."""
    (tmp_path / "bad.c").write_text("int none(void); int has(void) { return none(); }\n")
    flags = ("-shared", "-fPIC", "-Wl,-z,now", "bad.c", "-o", "bad.so")
    assert own.plain(*flags, cwd=tmp_path).returncode == 0
    keep(folder_of(own) / "kept" / "inside.so", (tmp_path / "bad.so").read_bytes())
    if not is_known:
        only(own, "kept/clang-*").unlink()
    for _ in range(2):
        assert compile_file(own, work, NEVER) == (never, b"")


@pytest.mark.e2e
def test_a_damaged_library_is_made_anew(own: Driver, work: Path, never: bytes) -> None:
    library = folder_of(own) / "kept" / "inside.so"
    expected = library.read_bytes()
    library.write_bytes(expected[:-1])
    assert compile_file(own, work, NEVER) == (never, b"")
    assert compile_file(own, work, {**NEVER, **INSIDE}) == (never, b"")
    assert library.read_bytes() == expected


def test_features_that_this_clang_lacks(driver: Driver, way: Mapping[str, str], work: Path) -> None:
    settings = {"MLGO_INLINING_MODEL": str(MODELS / "unknown_feature"), **way}
    words = "the inlining model needs inputs that this clang does not offer: 'moon_phase'"
    done = driver.run("-O2", "f.c", "-c", cwd=work, settings=settings)
    expected = f"mlgo-cc: warning: {words}; compiled by plain clang\n"
    assert (done.returncode, done.stderr.decode()) == (0, expected)
    # With jobs of their own, which are ended and make no report of a crash.
    (work / "g.c").write_text("int h(void) { return 1; }\n")
    settings["MLGO_STRICT"] = "1"
    done = driver.run("-O2", "f.c", "g.c", "-c", cwd=work, settings=settings)
    assert (done.returncode, done.stderr.decode()) == (1, f"mlgo-cc: error: {words}\n")
    assert not list(Path(driver.environment["TMPDIR"]).iterdir())


def test_a_model_is_no_good_where_nothing_can_be_had_twice(driver: Driver, work: Path) -> None:
    settings = {"MLGO_INLINING_MODEL": str(MODELS / "unknown_feature")}
    line = ("-O2", "-x", "c", "/dev/stdin", "-c", "-o", "f.o")
    source = (work / "f.c").read_bytes()
    done = driver.run(*line, cwd=work, stdin=source, settings=settings)
    assert (done.returncode, done.stderr.decode()) == (
        1,
        "mlgo-cc: error: the inlining model needs inputs that this clang does not offer: "
        "'moon_phase'; a pipe among clang's files cannot be had twice\n",
    )


# A clang that says what it is told to, and takes what it is answered.
SAYS = """
import os
ends = [os.open(f"{base}.in", os.O_RDONLY), os.open(f"{base}.out", os.O_WRONLY)]
with open("said", "rb") as said:
    while piece := said.read(1000):
        os.write(ends[1], piece)
for each in ends:
    os.close(each)
"""


@pytest.mark.e2e
def test_whatever_clang_says(driver: Driver, work: Path) -> None:
    settings = speaking(driver, work, SAYS) | AS_DEFAULT | INSIDE
    refused = 0
    for said in (stream(), *mutations(stream(), 60)):
        (work / "said").write_bytes(said)
        done = driver.run("-O2", "-c", "f.c", cwd=work, settings=settings)
        assert done.returncode in {0, 1}, (said, done.stderr)
        assert done.stderr.startswith(b"mlgo-cc: error: ") == bool(done.returncode), said
        refused += done.returncode
        assert said != stream() or done.returncode == 0, done.stderr
    assert 15 < refused < 60


@pytest.mark.e2e
def test_only_what_is_clang_s_is_ended(driver: Driver, work: Path) -> None:
    """A shell that becomes the driver may have children of its own."""
    settings = {"MLGO_INLINING_MODEL": str(MODELS / "unknown_feature")}
    command = 'sleep 100 & echo $! > pid; exec "$@"'
    done = subprocess.run(
        ["/bin/bash", "-c", command, "bash", *driver.command("-O2", "-c", "f.c")],
        cwd=work, env={**driver.environment, **settings}, check=False, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0
    sleeper = int((work / "pid").read_text())
    wait_for(lambda: Path(f"/proc/{sleeper}/comm").read_text() == "sleep\n")
    subprocess.run([str(shutil.which("kill")), str(sleeper)], check=True)
