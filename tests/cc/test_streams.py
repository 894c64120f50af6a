"""Pipes among clang's files: what can be read or written only once is, and nothing is lost."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.cc.conftest import CHANNEL, MODELS, SOURCE, Driver
from tests.waiting import wait_for

NEVER = {"MLGO_INLINING_MODEL": str(MODELS / "never")}
BAD = 'static int g(int x) { return x; }\nint f(int x) { asm("bogus"); return g(x); }\n'


def in_place_of_clang(driver: Driver, folder: Path, script: str) -> dict[str, str]:
    """Settings under which a script stands for clang, which is ``$clang`` in it."""
    program = folder / "clang"
    program.write_text(f"#!/bin/sh\nclang={driver.clang}\n{script}")
    program.chmod(0o755)
    return {**NEVER, "MLGO_CLANG": str(program)}


# Where the program begins that speaks in clang's place: it finds its channel.
_CHANNEL = """
import sys
option = "-interactive-channel-base="
base = next(word.partition(option)[2] for word in sys.argv if option in word)
"""


def speaking(driver: Driver, folder: Path, program: str) -> dict[str, str]:
    """Settings under which a Python program, with `base` in it, speaks to us in clang's place."""
    (folder / "speaks.py").write_text(_CHANNEL + program)
    script = (
        f'case "$*" in *channel-base*) exec {sys.executable} -IS speaks.py "$@";; esac\n'
        'exec $clang "$@"\n'
    )
    return in_place_of_clang(driver, folder, script)


@pytest.mark.parametrize("name", ["/dev/stdin", "/dev/fd/0"])
@pytest.mark.parametrize("text", [SOURCE, BAD], ids=["good", "bad"])
def test_a_source_that_is_a_pipe(driver: Driver, work: Path, name: str, text: str) -> None:
    command = ("-O2", "-x", "c", "-c", name, "-o", "m.o")
    plain = driver.plain(*command, cwd=work, stdin=text.encode())
    (work / "m.o").unlink(missing_ok=True)
    done = driver.run(*command, cwd=work, stdin=text.encode(), settings=NEVER)
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)
    assert (work / "m.o").exists() == (text == SOURCE)


def test_our_side_fails_where_nothing_can_be_had_twice(driver: Driver, work: Path) -> None:
    script = (
        f'case "$*" in *-###*) ;; *enable-ml-inliner*) echo $PPID > {work}/new; '
        f"mv {work}/new {work}/server; exec sleep infinity;; esac; "
        'exec $clang "$@"\n'
    )
    settings = in_place_of_clang(driver, work, script) | CHANNEL
    os.mkfifo(work / "pipe.c")
    process = subprocess.Popen(
        driver.command("-O2", "-c", "pipe.c"), cwd=work, stderr=subprocess.PIPE,
        env={**driver.environment, **settings},
    )  # fmt: skip
    wait_for((work / "server").exists)
    os.kill(int((work / "server").read_text()), signal.SIGKILL)
    _, stderr = process.communicate()
    assert (process.returncode, stderr.decode()) == (
        1,
        "mlgo-cc: error: the process that answers clang was killed; "
        "a pipe among clang's files cannot be had twice\n",
    )


def test_a_response_file_that_is_a_pipe(driver: Driver, work: Path) -> None:
    command = shlex.join(map(str, driver.command()))
    done = subprocess.run(
        ["/bin/bash", "-c", f"{command} @<(echo -O2 -c f.c)"],
        cwd=work, env={**driver.environment, **NEVER}, check=False, capture_output=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert (work / "f.o").exists()


def test_a_response_file_counts_beside_a_pipe(driver: Driver, work: Path) -> None:
    """It says that somebody else advises: this side must not."""
    (work / "words").write_text("-mllvm -enable-ml-inliner=default f.c")
    done = driver.run("-O2", "-S", "-o", "/dev/stdout", "@words", cwd=work, settings=NEVER)
    plain = driver.plain("-O2", "-S", "-o", "-", "f.c", cwd=work)
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    assert b"found '-enable-ml-inliner'" in done.stderr


@pytest.mark.parametrize("output", [["-o", "-"], ["--output", "-"], ["-o", "/dev/stdout"]])
def test_assembly_on_standard_output(driver: Driver, work: Path, output: list[str]) -> None:
    command = ["-O2", "-S", *output, "f.c"]
    driver.run("-O2", "-S", "-o", "f.s", "f.c", cwd=work, settings=NEVER)
    readable, writable = os.pipe()  # standard input stays open: nobody may read it to its end
    try:
        done = subprocess.run(
            driver.command(*command), cwd=work, env={**driver.environment, **NEVER}, check=False,
            capture_output=True, stdin=readable,
        )  # fmt: skip
    finally:
        os.close(readable)
        os.close(writable)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == (work / "f.s").read_bytes()


def test_output_of_a_failed_run_is_taken_back(driver: Driver, work: Path) -> None:
    """Clang dies when half of it is written; what comes out is plain clang's, once."""
    script = '$clang "$@" || exit\ncase "$*" in *enable-ml-inliner*) kill -SEGV $$;; esac\n'
    settings = in_place_of_clang(driver, work, script)
    plain = driver.plain("-O2", "-S", "-o", "-", "f.c", cwd=work)
    done = driver.run("-O2", "-S", "-o", "-", "f.c", cwd=work, settings=settings)
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    words = "mlgo-cc: warning: clang failed with advice; compiled by plain clang\n"
    assert done.stderr.decode() == words


def test_messages_through_a_pipe_that_does_not_block(driver: Driver, work: Path) -> None:
    lines = "".join(f"static int unused_{number};\n" for number in range(3_000))
    (work / "f.c").write_text(SOURCE + lines)
    command = ("-O2", "-Wall", "-ferror-limit=0", "-c", "f.c")
    expected = driver.plain(*command, cwd=work).stderr
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    process = subprocess.Popen(
        driver.command(*command), cwd=work, env={**driver.environment, **NEVER}, stderr=writable
    )
    wait_for(lambda: not select.select([], [writable], [], 0)[1])  # the pipe is full
    os.close(writable)
    with open(readable, "rb") as stream:
        found = stream.read()
    assert process.wait() == 0
    assert len(expected) > 1 << 16
    assert found == expected


def test_a_word_for_the_linker_is_not_clang_s(driver: Driver, work: Path) -> None:
    (work / "f.c").write_text(SOURCE + "int main(void) { return f(3); }\n")
    command = ("-O2", "f.c", "-v", "-Xlinker", "-E", "-o", "program")
    done = driver.run(*command, cwd=work, settings=NEVER | {"MLGO_STRICT": "1"})
    assert done.returncode == 0
    assert b"-enable-ml-inliner=" in done.stderr


def names_of_children(process: psutil.Popen) -> set[str]:
    found = set()
    for each in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found.add(each.name())
    return found


@pytest.mark.parametrize("when", ["*enable-ml-inliner*) kill -SEGV $$", "--nothing) :"])
def test_clang_ends_with_the_driver(driver: Driver, work: Path, when: str) -> None:
    """The plain one does, and one that is asked for its version."""
    version = "--version) exec $clang --version;;" if "SEGV" in when else ""
    script = f'case "$*" in {version} {when};; *) exec sleep infinity;; esac\n'
    assert driver.run("-O2", "-c", "f.c", cwd=work, settings=NEVER).returncode == 0  # freezes
    settings = in_place_of_clang(driver, work, script)
    process = psutil.Popen(
        driver.command("-O2", "-c", "f.c"), cwd=work, env={**driver.environment, **settings}
    )
    wait_for(lambda: "sleep" in names_of_children(process))
    children = process.children(recursive=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM
    psutil.wait_procs(children)
