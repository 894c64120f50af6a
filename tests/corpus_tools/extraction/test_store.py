"""A corpus on disk is whole at any moment, whoever interrupts or interferes."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path

import pytest

from corpus_tools.errors import ExtractionError, OutputError
from corpus_tools.extraction.embedded import ExtractedModule
from corpus_tools.extraction.store import open_store
from corpus_tools.manifest import MANIFEST_NAME, Manifest
from tests.folders import tree

NAMES = tuple(f"module{number}" for number in range(2))


def write(folder: Path, generation: bytes) -> None:
    with open_store(folder) as store:
        for name in NAMES:
            files = {".bc": generation * 100, ".cmd": b"-cc1\0" + generation}
            store.stage(ExtractedModule(name, files), name)
        store.commit(Manifest(NAMES).as_json())


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


@pytest.mark.parametrize("is_there", [True, False])
def test_a_new_folder_that_stays_empty_goes(tmp_path: Path, *, is_there: bool) -> None:
    folder = tmp_path / "corpus"
    if is_there:
        folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        interrupted(folder)
    with open_store(folder):
        pass
    assert folder.exists() == is_there


def killed_at(moment: int, folder: Path) -> bool:
    """Write in a process that is killed before its call of that number to the file system."""
    child = os.fork()
    if child == 0:
        events = itertools.count(1)

        def kill(event: str, _: object) -> None:
            if event.startswith(("open", "os.", "shutil.", "tempfile.")) and next(events) == moment:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        write(folder, b"new")
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, -signal.SIGKILL}
    return status != 0


def check_whole(folder: Path) -> None:
    """See that each module of the manifest, if there is one, has files of one generation."""
    if (folder / "corpus_description.json").exists():
        for name in Manifest.read(folder).modules:
            generation = (folder / f"{name}.cmd").read_bytes().removeprefix(b"-cc1\0")
            assert (folder / f"{name}.bc").read_bytes() == generation * 100


@pytest.mark.e2e
@pytest.mark.parametrize("is_new", [True, False])
def test_a_run_killed_at_any_moment(is_new: bool, tmp_path: Path) -> None:
    for moment in itertools.count(1):
        folder = tmp_path / str(moment)
        if not is_new:
            write(folder, b"old")
        if not killed_at(moment, folder):
            break
        check_whole(folder)
        write(folder, b"three")
        check_whole(folder)
        expected = {f"{name}{suffix}" for name in NAMES for suffix in (".bc", ".cmd")}
        assert {each.name for each in folder.iterdir()} == {MANIFEST_NAME, *expected}, moment
    assert moment > 6 * len(NAMES)


@pytest.mark.parametrize("kind", ["file", "folder", "link", "broken link"])
def test_whatever_is_where_files_are_staged(kind: str, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "corpus", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").touch()
    folder.mkdir()
    staging = folder / ".mlgo-corpus-staging"
    if kind == "file":
        staging.touch()
    elif kind == "folder":
        (staging / "left").mkdir(parents=True)
    else:
        staging.symlink_to(elsewhere if kind == "link" else tmp_path / "none")
    write(folder, b"new")
    assert len(list(folder.iterdir())) == 2 * len(NAMES) + 1
    assert (elsewhere / "mine").exists()


@pytest.mark.parametrize("name", [".mlgo-corpus-staging/a.o", "./.mlgo-corpus-staging/a.o"])
def test_modules_are_not_called_as_staged_files_are(name: str, tmp_path: Path) -> None:
    with open_store(tmp_path) as store, pytest.raises(ExtractionError) as caught:
        store.stage(ExtractedModule(name, {".bc": b""}), name)
    assert str(caught.value) == f"module {name!r}: such names are the corpus's own"


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
