"""A corpus on disk is whole at any moment, whoever interrupts or interferes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from corpus_tools.errors import OutputError
from corpus_tools.extraction.embedded import ExtractedModule
from corpus_tools.extraction.store import open_store
from corpus_tools.manifest import Manifest
from tests.corpus_tools.extraction.conftest import tree

NAMES = tuple(f"module{number}" for number in range(40))


def write(folder: Path, generation: bytes) -> None:
    with open_store(folder) as store:
        for name in NAMES:
            files = {".bc": generation * 100, ".cmd": b"-cc1\0" + generation}
            store.stage(ExtractedModule(name, files), name)
        store.commit(Manifest(NAMES))


def interrupted(folder: Path) -> None:
    with open_store(folder) as store:
        store.stage(ExtractedModule(NAMES[0], {".bc": b"new", ".cmd": b"-cc1\0new"}), "x")
        raise KeyboardInterrupt


def test_nothing_is_written_before_the_end(tmp_path: Path) -> None:
    write(tmp_path, b"old")
    before = tree(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path)
    assert tree(tmp_path) == before


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.corpus_tools.extraction.test_store import write
print("go", flush=True)
while True:
    for generation in (b"one", b"two"):
        write(Path(sys.argv[1]), generation)
"""


@pytest.mark.parametrize("delay_ms", [3, 11, 17, 29, 41, 53])
def test_a_killed_run_leaves_no_half_module(delay_ms: int, tmp_path: Path) -> None:
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", CHILD, str(tmp_path), root]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(delay_ms / 1000)
        child.kill()
    if (tmp_path / "corpus_description.json").exists():
        for name in Manifest.read(tmp_path).modules:
            generation = (tmp_path / f"{name}.cmd").read_bytes().removeprefix(b"-cc1\0")
            assert (tmp_path / f"{name}.bc").read_bytes() == generation * 100
    write(tmp_path, b"three")
    assert len(tree(tmp_path)) == 2 * len(NAMES) + 1
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_two_runs_at_once(tmp_path: Path) -> None:
    with open_store(tmp_path), pytest.raises(OutputError) as caught, open_store(tmp_path):
        pass
    assert str(caught.value) == f"output {tmp_path}: another process is writing a corpus there"


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, b"old")
    before = tree(tmp_path)
    child = os.fork()
    if child == 0:
        import resource  # noqa: PLC0415 - in the child alone
        import signal  # noqa: PLC0415

        status = 9
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
            write(tmp_path, b"new")
        except OutputError as error:
            expected = f"output {tmp_path}: cannot be written: File too large"
            status = 0 if str(error) == expected else 8
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tree(tmp_path) == before
