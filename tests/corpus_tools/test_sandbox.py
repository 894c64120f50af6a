"""The sandbox, in processes that try what they must not; and where the kernel has less of it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from corpus_tools import sandbox
from corpus_tools.sandbox import confine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's own sandbox")

_CONFINED = """
import os, resource, socket, sys
from pathlib import Path
from corpus_tools import sandbox
folder = Path(sys.argv[1])
{confine}
def attempt(name, do):
    try:
        do()
    except OSError as error:
        print(name, error.strerror, sep=": ", flush=True)
    else:
        print(name, "done", sep=": ", flush=True)
{attempts}
"""
_ATTEMPTS = {
    "read": "open('/etc/passwd').close()",
    "list": "os.listdir('/')",
    "write": "open(folder.parent / 'new', 'w').close()",
    "append": "open(folder.parent / 'file', 'a').close()",
    "remove": "os.unlink(folder.parent / 'file')",
    "rename": "os.rename(folder.parent / 'file', folder.parent / 'other')",
    "make a folder": "os.mkdir(folder / 'new')",
    "link": "os.link(folder.parent / 'file', folder / 'link')",
    "truncate": "os.truncate(folder.parent / 'file', 0)",
    "change a mode": "os.chmod(folder.parent / 'file', 0o777)",
    "execute": "os.execv('/bin/true', ['true'])",
    "execute what is in memory": "os.execv(os.memfd_create('program'), ['program'])",
    "fork": "os.fork()",
    "socket": "socket.socket()",
    "unix socket": "socket.socket(socket.AF_UNIX)",
    "signal": "os.kill(os.getppid(), 0)",
    "raise a limit": "resource.prlimit(os.getppid(), 0, (1, 1))",
    "own file": "open(folder / 'channel', 'r+').close()",
}


def _run(folder: Path, confining: str, attempts: dict[str, str]) -> dict[str, str]:
    """What became of each attempt in a process of its own; the folder is its to write in."""
    (folder / "own").mkdir(exist_ok=True)
    for name in ("file", "own/channel"):
        (folder / name).write_text("as it was")
    lines = [f"attempt({name!r}, lambda: {code})" for name, code in attempts.items()]
    program = _CONFINED.format(confine=confining, attempts="\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-c", program, folder / "own"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (folder / "file").read_text() == "as it was"
    assert sorted(each.name for each in folder.iterdir()) == ["file", "own"]
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def test_what_only_computes_does_nothing_else(tmp_path: Path) -> None:
    found = _run(tmp_path, "sandbox.confine(writable=[folder])", _ATTEMPTS)
    by_landlock = dict.fromkeys(("read", "list", "write", "append"), "Permission denied")
    by_filter = dict.fromkeys(_ATTEMPTS, "Operation not permitted")
    assert found == by_filter | by_landlock | {"own file": "done"}


@pytest.mark.parametrize("abi", range(1, 7))
def test_kernels_with_less_of_landlock(tmp_path: Path, abi: int) -> None:
    """Their rules, under this kernel, which takes those of all before it."""
    if abi > sandbox._landlock_abi():
        pytest.skip(f"the kernel has Landlock ABI {sandbox._landlock_abi()}")
    names = ("read", "list", "write", "append", "remove", "execute", "own file")
    rights = "[(folder, sandbox._READ_FILE | sandbox._WRITE_FILE)]"
    begin = (
        "sandbox._LIBC.prctl(sandbox._PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)\n"
        f"assert sandbox._restrict_files({rights}, {abi}) == {abi}"
    )
    found = _run(tmp_path, begin, {name: _ATTEMPTS[name] for name in names})
    assert found == dict.fromkeys(names, "Permission denied") | {"own file": "done"}


def test_where_there_is_no_landlock_the_filter_holds(tmp_path: Path) -> None:
    names = ("remove", "make a folder", "change a mode", "execute", "fork", "socket", "signal")
    begin = (
        "sandbox._LIBC.prctl(sandbox._PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)\n"
        "assert sandbox._restrict_files([], 0) == 0 and sandbox._filter_calls()"
    )
    found = _run(tmp_path, begin, {name: _ATTEMPTS[name] for name in names})
    assert found == dict.fromkeys(names, "Operation not permitted")


def test_where_both_are_refused_it_says_so(tmp_path: Path) -> None:
    """As in a container whose own filter does not know the calls: here it is a first sandbox."""
    begin = "sandbox.confine(); print('again', sandbox.confine(), sep=': ')"
    assert _run(tmp_path, begin, {}) == {"again": "no Landlock, no seccomp"}


def test_a_program_that_may_run_is_the_only_one(tmp_path: Path) -> None:
    """Confined by a thread of its own, which leaves the process as it is."""
    ends: dict[str, object] = {}

    def start() -> None:
        folders = [each for each in map(Path, ("/lib", "/lib64", "/usr/lib")) if each.exists()]
        confine(
            readable=[*folders, Path("/etc")],
            writable=[Path("/dev/null")],
            executable=[Path("/bin/cat"), *Path("/").glob("lib*/ld-linux*")],
            computes_only=False,
        )
        for command in (["/bin/cat", "/etc/passwd"], ["/bin/cat", __file__], ["/bin/true"]):
            try:
                done = subprocess.run(command, capture_output=True, check=False, timeout=60)
                ends[command[-1]] = done.returncode
            except PermissionError as error:
                ends[command[-1]] = error.strerror

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert ends == {"/etc/passwd": 0, __file__: 1, "/bin/true": "Permission denied"}
    (tmp_path / "new").write_text("")
    assert subprocess.run(["/bin/true"], check=False).returncode == 0


def test_the_calls_have_the_kernels_numbers() -> None:
    """Beside its headers, where they are installed."""
    headers = {0: "x86_64-linux-gnu/asm/unistd_64.h", 1: "asm-generic/unistd.h"}
    for column, header in headers.items():
        path = Path("/usr/include") / header
        if not path.exists():
            pytest.skip(f"needs {path}: apt-get install linux-libc-dev")
        defined = re.findall(
            r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", path.read_text(), re.MULTILINE
        )
        numbers = {name: int(number) for name, number in defined}
        numbers["newfstatat"] = numbers.get("newfstatat", numbers.get("fstatat", 0))
        expected = {name: both[column] for name, both in sandbox._CALLS.items()}
        assert {name: numbers.get(name, sandbox._ANY) for name in expected} == expected
