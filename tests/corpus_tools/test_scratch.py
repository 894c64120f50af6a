"""Temporary folders, of processes that end and of those that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corpus_tools.scratch import replaced_folder, scratch_folder, sibling_folder

KILLED = """
import os, signal
from corpus_tools.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "a").mkdir()
    (folder / "a" / "b").write_text("c")
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", KILLED],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    left = Path(done.stdout.strip())
    assert done.returncode == -signal.SIGKILL
    assert (left / "a" / "b").exists()
    others = tmp_path / "others"
    others.mkdir()
    (tmp_path / f"{left.name}x").symlink_to(others)  # of the same dead process, and no folder
    with scratch_folder() as own:
        with scratch_folder():
            assert own.exists()
        assert not left.exists()
    assert sorted(each.name for each in tmp_path.iterdir()) == [f"{left.name}x", "others"]


KILLED_BESIDE = """
import os, signal, sys
from pathlib import Path
from corpus_tools.scratch import sibling_folder
target = Path(sys.argv[1])
with sibling_folder(target) as folder:
    (folder / "new").mkdir()
    if target.exists():
        target.rename(folder / "old")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def _left(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_what_a_killed_process_left_beside_a_target(tmp_path: Path) -> None:
    """It goes with the next one, and what was at the target before is there again."""
    target = tmp_path / "out"
    target.mkdir()
    (target / "file").write_text("old")
    for _ in range(2):
        subprocess.run([sys.executable, "-c", KILLED_BESIDE, target], check=False)
    assert not target.exists() or _left(target) == ["file"]
    with sibling_folder(target) as folder:
        assert _left(tmp_path) == sorted(["out", folder.name])
        assert (target / "file").read_text() == "old"
    assert _left(tmp_path) == ["out"]


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    with sibling_folder(tmp_path / "out") as first:
        with sibling_folder(tmp_path / "out") as second:
            assert _left(tmp_path) == sorted([first.name, second.name])
        assert _left(tmp_path) == [first.name]


def test_what_only_looks_like_it_stays(tmp_path: Path) -> None:
    """A folder without a lock, a link, and one for another target."""
    (tmp_path / ".out.a.staged").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".mlgo-gym.lock").touch()
    (tmp_path / ".out.b.staged").symlink_to("elsewhere")
    (tmp_path / ".output.c.staged").mkdir()
    (tmp_path / ".output.c.staged" / ".mlgo-gym.lock").touch()
    before = _left(tmp_path)
    with sibling_folder(tmp_path / "out"):
        pass
    assert _left(tmp_path) == before


def test_several_that_replace_one_folder(tmp_path: Path) -> None:
    target = tmp_path / "target"

    def replace(number: int) -> None:
        for _ in range(30):
            with replaced_folder(target) as staged:
                (staged / "number").write_text(str(number))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(replace, range(4)))
    assert (target / "number").read_text() in {"0", "1", "2", "3"}
    assert list(tmp_path.iterdir()) == [target]
