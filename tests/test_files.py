"""The one writer of files: what it leaves, and that nothing else writes or reads by itself."""

from __future__ import annotations

import ast
import contextlib
import errno
import json
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mlgo_gym.base import _files
from mlgo_gym.base._files import (
    PARTIAL,
    FileError,
    check_contents,
    check_file,
    check_folder,
    check_kind,
    replacing,
    staged_folder,
    write_atomically,
    write_json,
)
from mlgo_gym.base._own_folder import cache_folder

PACKAGE = Path(__file__).parent.parent / "mlgo_gym"


def test_a_check_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.iterdir())}
    for name in ("file", "link", "new", "none/new"):
        check_file(tmp_path / name)
    for name in ("old", "new", "none/new"):
        check_folder(tmp_path / name)
        check_folder(tmp_path / name, is_replaced=True)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.iterdir())} == before


@pytest.mark.parametrize("check", [check_file, check_folder])
@pytest.mark.parametrize(
    ("name", "reason"), [("/proc/it", errno.ENOENT), ("file/it", errno.ENOTDIR)]
)
def test_a_check_names_what_cannot_be_written(
    tmp_path: Path, check: Callable[[Path], None], name: str, reason: int
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its number says which
        check(tmp_path / name)
    reasons = {reason, errno.EACCES} if name.startswith("/proc") else {reason}
    assert caught.value.errno in reasons
    assert caught.value.filename == str(tmp_path / name)


def test_what_is_written(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"b": [1]})
    assert (tmp_path / "a").read_text() == '{\n  "b": [\n    1\n  ]\n}\n'
    write_atomically(tmp_path / ("ä" * 127), b"a name that leaves no room for more")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions(umask: int, tmp_path: Path) -> None:
    (tmp_path / "secret").touch(0o600)
    (tmp_path / "program").touch()
    (tmp_path / "program").chmod(0o755)
    old = os.umask(umask)
    try:
        for name in ("new", "secret", "program"):
            write_atomically(tmp_path / name, b"")
        with staged_folder(tmp_path / "folder", "kind"):
            pass
    finally:
        os.umask(old)
    names = ("new", "secret", "program", "folder")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in names]
    assert modes == [0o666 & ~umask, 0o600, 0o755, 0o777 & ~umask]


class Stop(BaseException):
    """What ends a block and is no error."""


def stops(*_: object) -> NoReturn:
    raise Stop


def write_file(path: Path, then: Callable[[], object] | None) -> None:
    old = path.read_bytes() if path.exists() else None
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert (path.read_bytes() if path.exists() else None) == old
        if then:
            then()


@pytest.mark.parametrize("old", [b"old", None])
@pytest.mark.parametrize("place", ["write", "fsync", "rename"])
def test_a_failure_leaves_what_was_there(
    place: str, old: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "it"
    if old is not None:
        path.write_bytes(old)
    if place == "fsync":
        monkeypatch.setattr(os, "fsync", stops)
    elif place == "rename":
        monkeypatch.setattr(Path, "replace", stops)
    with pytest.raises(Stop):
        write_file(path, stops if place == "write" else None)
    monkeypatch.undo()
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == (
        {} if old is None else {"it": old}
    )


def test_a_name_that_is_taken_meanwhile(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught, replacing(tmp_path / "it"):
        (tmp_path / "it").mkdir()
    assert str(caught.value) == f"[Errno 21] Is a directory: '{tmp_path}/it'"
    assert [each.name for each in tmp_path.iterdir()] == ["it"]


NO_NAMELESS = "import mlgo_gym.base._files\nmlgo_gym.base._files.sys.platform = 'other'\n"


@pytest.mark.parametrize("before", ["", NO_NAMELESS])
def test_a_killed_writer(before: str, tmp_path: Path) -> None:
    """The old file stays; where all files have names, that of what lies beside it says so."""
    (tmp_path / "it").write_bytes(b"old")
    program = (
        f"{before}import os, pathlib, sys\n"
        "from mlgo_gym.base._files import replacing\n"
        "with replacing(pathlib.Path(sys.argv[1])) as file:\n"
        "    file.write(b'new'); file.flush(); os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "it")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "it").read_bytes() == b"old"
    left = [each.name for each in tmp_path.iterdir() if each.name != "it"]
    assert [(each[:4], each[-len(PARTIAL) :]) for each in left] == [(".it.", PARTIAL)] * bool(
        before
    )


UNSHARE = shutil.which("unshare")


@pytest.mark.skipif(UNSHARE is None, reason="needs unshare: apt-get install util-linux")
def test_a_proc_with_other_numbers_of_processes(tmp_path: Path) -> None:
    """As in a container that has the /proc of the system around it."""
    inner = [str(UNSHARE), "--user", "--map-root-user", "--pid", "--fork"]
    if subprocess.run([*inner, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs namespaces of users and processes")
    program = (
        "import os, pathlib, sys\n"
        "from mlgo_gym.base._files import write_atomically\n"
        "write_atomically(pathlib.Path(sys.argv[1]), b'new')\n"
        "write_atomically(pathlib.Path('/dev/stdout'), b'said')\n"
        "print(os.getpid())\n"
    )
    command = [*inner, sys.executable, "-c", program, str(tmp_path / "it")]
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    left = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert left == {"it": b"new", "out": b"said1\n"}


def nameless_files_are_refused(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    opened = os.open

    def opens(path: Path, flags: int, *rest: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(number, "no")
        return opened(path, flags, *rest)

    monkeypatch.setattr(os, "open", opens)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EISDIR, errno.EMFILE])
def test_a_file_system_where_all_files_have_names(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nameless_files_are_refused(monkeypatch, number)
    with contextlib.suppress(OSError):
        write_atomically(tmp_path / "it", b"new")
    left = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert left == ({} if number == errno.EMFILE else {"it": b"new"})


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_full_disk(size: int, tmp_path: Path) -> None:
    """The error names the file, whether writing, flushing or closing meets it."""
    path = tmp_path / "it"
    path.write_bytes(b"old")
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, old[1][1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write_atomically(path, b"x" * size)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old[1])
        signal.signal(signal.SIGXFSZ, old[0])
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (".", "Is a directory"),
        ("none/it", "No such file or directory"),
        ("file/it", "Not a directory"),
        ("loop", "Too many levels of symbolic links"),
        ("x" * 256, "File name too long"),
    ],
)
def test_places_where_nothing_can_be_written(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match=reason) as caught:
        write_atomically(tmp_path / name, b"")
    assert (caught.value.strerror, caught.value.filename) == (reason, str(tmp_path / name))
    assert len(list(tmp_path.iterdir())) == 2


def test_an_error_of_the_block_is_not_the_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, replacing(tmp_path / "it"):
        (tmp_path / "none").stat()
    assert caught.value.filename == str(tmp_path / "none")
    assert not list(tmp_path.iterdir())


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "outer").symlink_to("folder/inner")
    (tmp_path / "folder" / "inner").symlink_to("../file")  # from where it is, and dangling
    for data in (b"first", b"second"):
        write_atomically(tmp_path / "outer", data)
        assert (tmp_path / "file").read_bytes() == data
    assert (tmp_path / "outer").is_symlink()
    assert (tmp_path / "folder" / "inner").is_symlink()
    assert not (tmp_path / "file").is_symlink()


def test_a_fifo_is_written_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()))
    reader.start()
    write_atomically(path, b"through the pipe")
    reader.join()
    assert found == [b"through the pipe"]
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


def test_a_fifo_that_nobody_reads_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(_files, "_READER_S", 0.1)
    with pytest.raises(FileError) as caught:
        write_atomically(tmp_path / "pipe", b"for nobody")
    assert caught.value.strerror == "expected a reader of the FIFO within 0.1 s, found none"
    assert caught.value.filename == str(tmp_path / "pipe")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
        server.bind(path.name)


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "file": (lambda path: path.symlink_to("../victim/precious"), "a link"),
    "folder": (lambda path: path.symlink_to("../victim"), "a link"),
    "dangling": (lambda path: path.symlink_to("../victim/none"), "a link"),
    "circle": (lambda path: path.symlink_to(path.name), "a link"),
    "FIFO": (os.mkfifo, "a FIFO"),
    "socket": (make_socket, "a socket"),
}
"""What is in no folder that is read and written by names: what makes it, and what it is called."""


@pytest.mark.parametrize("place", ["it", "model/it"])
@pytest.mark.parametrize("kind", FOREIGN)
def test_what_leads_out_of_a_folder(kind: str, place: str, tmp_path: Path) -> None:
    """The folder itself may be a link."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "precious").touch()
    (tmp_path / "real" / "model").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "file").touch()
    check_contents(tmp_path / "link")
    make, found = FOREIGN[kind]
    make(tmp_path / "real" / place)
    with pytest.raises(FileError) as caught:
        check_contents(tmp_path / "link")
    what = "expected files and folders alone in it, found"
    assert caught.value.strerror == f"{what} {found}: {place!r}; remove it"
    assert caught.value.filename == str(tmp_path / "link" / place)


WRITES_TO_STDOUT = """
import os, pathlib, sys
from mlgo_gym.base._files import write_atomically
os.write(1, b"before ")
write_atomically(pathlib.Path(sys.argv[1]), b"file ")
os.write(1, b"after")
"""


@pytest.mark.parametrize(
    ("name", "kind"),
    [("/dev/stdout", "file"), ("link", "file"), ("/dev/fd/1", "pipe"), ("/dev/stdout", "socket")],
)
def test_standard_output_is_written_as_it_is(name: str, kind: str, tmp_path: Path) -> None:
    """What was printed before and after is all there."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    command = [sys.executable, "-c", WRITES_TO_STDOUT, name]
    if kind == "file":
        with (tmp_path / "out").open("wb") as file:
            subprocess.run(command, cwd=tmp_path, stdout=file, check=True)
        found = (tmp_path / "out").read_bytes()
    elif kind == "pipe":
        found = subprocess.check_output(command, cwd=tmp_path)
    else:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            subprocess.run(command, cwd=tmp_path, stdout=theirs.fileno(), check=True)
            found = ours.recv(100, socket.MSG_WAITALL | socket.MSG_DONTWAIT)
    assert found == b"before file after"
    left = {"link", "out"} if kind == "file" else {"link"}
    assert {each.name for each in tmp_path.iterdir()} == left


@pytest.mark.parametrize("is_nameless", [True, False])
def test_another_program_may_write_there(
    is_nameless: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_nameless:
        nameless_files_are_refused(monkeypatch, errno.EOPNOTSUPP)
    with replacing(tmp_path / "it") as file:
        Path(file.name).write_bytes(b"made")
    assert (tmp_path / "it").read_bytes() == b"made"
    assert len(list(tmp_path.iterdir())) == 1


def test_two_writers_of_one_file(tmp_path: Path) -> None:
    """A reader sees one or the other, whole."""
    path, texts = tmp_path / "it", [b"a" * 300_000, b"b" * 200_000]
    path.write_bytes(texts[0])
    is_over = threading.Event()

    def writes(data: bytes) -> None:
        while not is_over.is_set():
            write_atomically(path, data)

    writers = [threading.Thread(target=writes, args=(each,)) for each in texts]
    for writer in writers:
        writer.start()
    found: set[bytes] = set()
    reads = 0
    while reads < 200 or len(found) < 2:
        found.add(path.read_bytes())
        reads += 1
    is_over.set()
    for writer in writers:
        writer.join()
    assert found == set(texts)
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_takes_its_place_at_once(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder"
    (tmp_path / "link").symlink_to(target)
    for text in ("first", "second"):
        with staged_folder(tmp_path / "link", "kind") as folder:
            (folder / "kind").touch()
            (folder / "inner").mkdir()
            (folder / "inner" / text).write_text(text)
        assert json.dumps([each.name for each in (target / "inner").iterdir()]) == f'["{text}"]'
    assert (tmp_path / "link").is_symlink()
    assert list(target.parent.iterdir()) == [target]


def write_folder(path: Path, then: Callable[[], object] | None) -> None:
    with staged_folder(path, "old") as folder:
        (folder / "new").touch()
        if then:
            then()


@pytest.mark.parametrize("place", ["write", "fsync", "rename"])
def test_a_failure_leaves_the_folder_that_was_there(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    (target / "old").touch()
    rename = Path.rename

    def fails(path: Path, to: Path) -> Path:
        """The new one is not put there; the old one is put aside, and back."""
        return stops() if path.name == "new" else rename(path, to)

    if place == "fsync":
        monkeypatch.setattr(os, "fsync", stops)
    elif place == "rename":
        monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(Stop):
        write_folder(target, stops if place == "write" else None)
    monkeypatch.undo()
    assert [each.name for each in target.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("mine")
    reason = "expected an empty folder or one with kind, found another"
    with pytest.raises(FileError, match=reason), staged_folder(tmp_path, "kind"):
        pass
    with pytest.raises(FileError, match=reason):
        check_kind(tmp_path, "kind")
    assert (tmp_path / "thesis").read_text() == "mine"


def test_a_folder_does_not_replace_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(NotADirectoryError), staged_folder(tmp_path / "file", "kind"):
        pass
    assert (tmp_path / "file").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


BY_ITSELF = {"rename", "mkstemp", "NamedTemporaryFile", "write_bytes", "write_text"} | {
    "read_bytes",
    "read_text",
}
NEEDS_NO_CARE = {
    # Files in temporary or staged folders that this package made.
    ("curation/_building.py", "write_bytes"),
    ("curation/_building.py", "write_text"),
    ("curation/_functions.py", "write_bytes"),
    ("cc/_project_file.py", "write_bytes"),
    ("cc/_prepare.py", "write_bytes"),
    ("cc/_prepare.py", "write_text"),
    ("lab/bench/_archive.py", "write_bytes"),
    # Archives in files that `open_regular` and `replacing` have opened.
    ("lab/bench/_archive.py", "open"),
    ("lab/programs/_collect.py", "write_bytes"),
    ("lab/programs/_profiles.py", "write_bytes"),
    ("training/_export.py", "write_bytes"),
    ("training/_from_torch.py", "write_bytes"),
    ("training/_model_folder.py", "write_bytes"),
    ("training/_export.py", "open"),
    ("lab/programs/_program.py", "read_bytes"),
    ("lab/programs/_program.py", "write_bytes"),
    ("lab/programs/_program.py", "replace"),
    ("lab/programs/_measures.py", "read_bytes"),
    ("lab/programs/_meters.py", "read_bytes"),
    ("lab/programs/commands/workload/_run.py", "read_bytes"),
    # Of a corpus's workloads, by a name that was looked at.
    ("lab/programs/_running.py", "open"),
    # Jobs of a process in the sandbox, in a folder of its own.
    ("lab/tiers/_host.py", "open"),
    ("lab/boxes/_described.py", "read_bytes"),
    ("lab/boxes/_described.py", "write_bytes"),
    ("lab/boxes/_described.py", "write_text"),
    ("lab/boxes/_image.py", "read_bytes"),
    ("lab/boxes/_image.py", "write_bytes"),
    # A program that was linked here, or whose hash is known.
    ("lab/boxes/_boxed_program.py", "read_bytes"),
    # Of the system, about a process.
    ("lab/boxes/_tracing.py", "read_text"),
    ("lab/tiers/_jit_program.py", "read_bytes"),
    ("lab/tiers/_jit_program.py", "write_text"),
    ("model/_saved_model.py", "write_bytes"),
    # The size of this process; a file that only grows.
    ("training/_run.py", "open"),
    # A copy in a folder of its own, which gets its name when it is whole.
    ("base/_remote.py", "open"),
    ("base/_remote.py", "rename"),
    # Notes of a check's own workers.
    ("testing/_executor.py", "open"),
    ("testing/_executor.py", "read_text"),
    # The library that this process has loaded.
    ("llvm/inside/_symbols.py", "open"),
}


def by_itself(call: ast.Call) -> str:
    """What a call does with files by itself, if so: its name."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name == "replace":  # texts have two arguments there, and dataclasses names
        is_os = ast.unparse(call.func) == "os.replace"
        return name if is_os or (len(call.args) == 1 and not call.keywords) else ""
    if name == "open":
        texts = (str(each.value) for each in call.args if isinstance(each, ast.Constant))
        return name if any(re.fullmatch("[rwax]b?[+]?", each) for each in texts) else ""
    return name if name in BY_ITSELF else ""


def test_nothing_else_writes_or_reads_files() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), by_itself(node))
        for path in PACKAGE.rglob("*.py")
        if path != PACKAGE / "base" / "_files.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and by_itself(node)
    }
    assert found == NEEDS_NO_CARE


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("os.replace(a, b)", "replace"),
        ("Path(a).replace(b)", "replace"),
        ("path.open('wb')", "open"),
        ("open(path, 'r')", "open"),
        ("tempfile.mkstemp()", "mkstemp"),
        ("text.replace('a', 'b')", ""),
        ("replace(config, a=b)", ""),
        ("Dataset.open(folder)", ""),
    ],
)
def test_what_counts_as_that(code: str, name: str) -> None:
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    assert by_itself(call) == name


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"MLGO_CACHE": "here", "XDG_CACHE_HOME": "/x"}, "here"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/mlgo-gym"),
        ({"XDG_CACHE_HOME": "relative"}, "/h/.cache/mlgo-gym"),
        ({"XDG_CACHE_HOME": ""}, "/h/.cache/mlgo-gym"),
    ],
)
def test_the_folder_of_caches(
    variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLGO_CACHE", raising=False)
    for name, value in ({"HOME": "/h"} | variables).items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(folder)
