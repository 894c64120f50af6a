"""What is said about options that the driver added ends in plain clang, and is not heard."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cc.conftest import MODELS, SOURCE, Driver
from tests.cc.test_streams import in_place_of_clang
from tests.conftest import require

NEVER = {"MLGO_INLINING_MODEL": str(MODELS / "never")}
WARNING = b"mlgo-cc: warning: clang failed with advice; compiled by plain clang\n"


@pytest.mark.parametrize(
    "option", ["-fembed-bitcode", "-fembed-bitcode=all", "-fembed-bitcode=bitcode"]
)
def test_what_clang_s_driver_refuses(driver: Driver, work: Path, option: str) -> None:
    """No ``-mllvm`` beside it."""
    command = (option, "-O2", "-c", "f.c", "-o", "f.o")
    assert driver.plain(*command, cwd=work).returncode == 0
    expected = (work / "f.o").read_bytes()
    (work / "f.o").unlink()
    done = driver.run(*command, cwd=work, settings=NEVER)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", WARNING)
    assert (work / "f.o").read_bytes() == expected


def test_what_clang_s_driver_refuses_beside_a_pipe(driver: Driver, work: Path) -> None:
    command = ("-fembed-bitcode", "-O2", "-x", "c", "-c", "/dev/stdin", "-o", "f.o")
    done = driver.run(*command, cwd=work, stdin=SOURCE.encode(), settings=NEVER)
    assert (done.returncode, done.stderr) == (0, WARNING)
    assert (work / "f.o").is_file()


def test_errors_in_the_source_are_all_that_is_said(driver: Driver, work: Path) -> None:
    (work / "f.c").write_text("int f(int x) { return y; }\n")
    command = ("-fembed-bitcode", "-O2", "-c", "f.c")
    plain = driver.plain(*command, cwd=work)
    done = driver.run(*command, cwd=work, settings=NEVER)
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)


def test_what_a_linker_refuses(driver: Driver, work: Path, way: Mapping[str, str]) -> None:
    require("ld.lld-22", "lld-22")
    linker = work / "old.lld"
    linker.write_text(
        '#!/bin/sh\ncase "$*" in *--lto-partitions*) echo unknown argument >&2; exit 1;; esac\n'
        'exec ld.lld-22 "$@"\n'
    )
    linker.chmod(0o755)
    (work / "f.c").write_text(SOURCE + "int main(int x, char **y) { return f(x); }\n")
    command = ("-flto", "-O2", f"--ld-path={linker}", "f.o", "-o", "program")
    assert driver.plain("-flto", "-O2", "-c", "f.c", cwd=work).returncode == 0
    done = driver.run(*command, cwd=work, settings={**NEVER, **way})
    # In clang's own process threads need not be forbidden.
    assert (done.returncode, done.stderr) == (0, WARNING if way else b"")
    assert subprocess.run([work / "program"], check=False).returncode == 1 + 4


def test_errors_in_a_source_are_found_once(driver: Driver, work: Path) -> None:
    count = work / "count"
    settings = in_place_of_clang(driver, work, f'echo "$*" >> {count}\nexec $clang "$@"\n')
    for text in ("int f(void) { return y; }\n", '#include "none.h"\n'):
        (work / "f.c").write_text(text)
        assert driver.run("-O2", "-c", "f.c", cwd=work, settings=settings).returncode == 1
        kinds = [line for line in count.read_text().splitlines() if line != "--version"]
        assert len(kinds) == 1
        count.unlink()


def on_a_terminal(
    command: list[str | bytes | Path], work: Path, environment: dict[str, str]
) -> bytes:
    """What a command says on a terminal in colours, of 60 columns."""
    reader, writer = pty.openpty()
    kind = environment | {"TERM": "xterm", "COLUMNS": "60"}
    process = subprocess.Popen(command, cwd=work, env=kind, stdout=writer, stderr=writer)
    os.close(writer)
    said = b""
    try:
        while data := os.read(reader, 1 << 16):
            said += data
    except OSError:  # the terminal is gone
        pass
    finally:
        os.close(reader)
        process.wait()
    return said


@pytest.mark.parametrize(
    "text",
    [
        "int f(int x) { int unused; return x ? f(x - 1) : a_name_that_nobody_has_declared; }\n",
        SOURCE + "int not_defined(int);\nint main(void) { return not_defined(1); }\n",
    ],
    ids=["a source", "a link"],
)
def test_a_terminal_hears_it_once_and_in_colours(driver: Driver, work: Path, text: str) -> None:
    (work / "f.c").write_text(text)
    environment = dict(driver.environment)
    command: list[str | bytes | Path] = ["-O2", "-Wall", "f.c"]
    plain = on_a_terminal([driver.clang, *command], work, environment)
    said = on_a_terminal(driver.command(*command), work, environment | NEVER)
    assert b"rror: " in plain
    names = [line for line in plain.splitlines() if b"/f-" not in line]
    assert [line for line in said.splitlines() if b"/f-" not in line] == names
    assert said.count(b"rror: ") == plain.count(b"rror: ")
