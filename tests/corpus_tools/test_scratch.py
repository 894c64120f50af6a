"""Temporary folders, of processes that end and of those that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from corpus_tools.scratch import scratch_folder

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
