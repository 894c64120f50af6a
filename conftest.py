"""What every test and every example in a docstring or page gets: a place of its own, left clean."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from corpus_tools.children import start_guardian
from mlgo_gym.llvm._request import ZYGOTE_NAME
from mlgo_gym.llvm._zygote import zygote_descriptor

pytest_plugins = ["tests.left_out"]

# Tests run side by side, a process a core. Threads that spin for one another on cores that are busy
# make a second's fitting take minutes; read when the libraries are loaded, also by child processes.
os.environ |= {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}

# Where gRPC was used, it would open descriptors anew in a test that forks.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# Workers start in a third less time from bytecode, whatever the machine says of keeping it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# How long one example takes is the machine's business; a whole test has pytest's own limit.
# The usual examples are the same in every run, so that what fails is the change's fault; at night,
# `--hypothesis-profile explore` looks for others (`tests.generated` multiplies what tests ask for).
settings.register_profile(
    "mlgo-gym", deadline=None, derandomize=True, database=None, print_blob=True, max_examples=40
)
settings.register_profile(
    "explore",
    deadline=None,
    derandomize=False,
    print_blob=True,
    max_examples=2000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("mlgo-gym")


_LASTING = (sys.prefix, "/dev/shm/pym-")
"""What libraries open once and keep: their own files (fonts), and the heap of multiprocessing."""
_CLOSING_S = 10.0
"""How long what was killed, and gRPC's threads after a stop, may have to wait for a core."""


@pytest.fixture(autouse=True)
def own_temporary_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A temporary folder for this process and its children, who must leave nothing behind."""
    folder = tmp_path_factory.mktemp("tmp")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    start_guardian()  # which lasts as long as this process
    descriptors, processes = _descriptors(), _descendants()
    yield folder
    end = time.monotonic() + _CLOSING_S
    while (running := _commands(_descendants() - processes)) and time.monotonic() < end:
        time.sleep(0.001)
    assert not running, "processes left over"
    assert not [each.name for each in folder.glob("mlgo*")], "temporary files left over"
    while (open_still := _descriptors() - descriptors) and time.monotonic() < end:
        gc.collect()  # a caught exception keeps its frames, and they what was open
        time.sleep(0.001)
    assert not open_still, "file descriptors left over"


@pytest.fixture(autouse=True)
def _without_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip finds nothing, unless the test says that it needs PyPI."""
    if request.node.get_closest_marker("network") is None:
        monkeypatch.setenv("PIP_NO_INDEX", "1")


def _descriptors() -> set[tuple[str, str]]:
    """This process's descriptors and what they are of; its zygote's lasts, as the zygote does."""
    found, lasting = set(), str(zygote_descriptor())
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:  # that of the listing itself
            continue
        if not target.startswith(_LASTING) and link.name != lasting:
            found.add((link.name, target))
    return found


def _descendants(pid: int | str = "self") -> set[int]:
    """Children and theirs, from the kernel's own list of them, but for one zygote of each."""
    found: set[int] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found.update(map(int, task.read_text().split()))
    found.discard(next(filter(_is_zygote, sorted(found)), 0))
    return found.union(*map(_descendants, found))


def _is_zygote(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() == ZYGOTE_NAME
    return False


def _commands(pids: set[int]) -> dict[int, list[str]]:
    """The command lines of those that still run."""
    found = {}
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if command := psutil.Process(pid).cmdline():  # none: it has ended, or is about to
                found[pid] = command
    return found
