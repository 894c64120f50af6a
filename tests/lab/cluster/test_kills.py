"""A training run goes on after all of it was killed at once: the command, Ray's head, the nodes."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from corpus_tools import Manifest
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS
from mlgo_gym.training._train import train
from tests.cli.command import PROGRAM
from tests.waiting import remove, wait_for

ROOT = Path(__file__).parents[3]
PROBLEM = "regalloc-eviction"
NAMES = ("codec_text.c", "expr_vm.c", "frame_stream.c")
SETTINGS = ("generations=3", "contexts=2", "tries=2", "hidden=[4]", "validate_every=2")


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Sockets have short names; what killed processes leave goes with it."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="ray-"))
    yield folder
    remove(folder)


def started(folder: Path, run: Path) -> subprocess.Popen[bytes]:
    """A training run with a cluster of its own."""
    settings = [part for each in SETTINGS for part in ("--set", each)]
    command = ["train", "group", "--problem", PROBLEM, *settings]
    return subprocess.Popen(
        [*PROGRAM, *command, "--corpus", folder / "corpus", "--output", run, "--ray", "local"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ
        | {name: str(folder) for name in ("TMPDIR", "RAY_TMPDIR", "HOME")}
        | {"PYTHONPATH": str(ROOT), "RAY_AUTH_TOKEN": secrets.token_hex()},
    )


def generations(run: Path) -> int:
    """How many are over."""
    path = run / "progress.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return sum("collect/decisions" in json.loads(line) for line in lines)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Everything that a command has started, at once."""
    process.send_signal(signal.SIGSTOP)  # it goes no further while its children are looked for
    found = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    names = set()
    for each in found:
        with suppress(psutil.NoSuchProcess):
            names.add(each.name())
            each.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not any(each.is_running() for each in found if each.pid != process.pid))
    assert {"gcs_server", "raylet"} <= names


def left(run: Path) -> dict[str, bytes]:
    """The weights of the model that was chosen, and all that learning would go on from."""
    found = {
        f"{name}:{key}": array.tobytes()
        for name in ("model/weights.npz", "checkpoint.npz")
        for key, array in np.load(run / name).items()
        if key != "state"
    }
    card = json.loads((run / "model" / "card.json").read_text())
    return found | {"results": json.dumps(card["results"]).encode()}


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_run_whose_head_is_killed(short_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(SAMPLE_CORPUS, short_folder / "corpus")
    Manifest(NAMES).write(short_folder / "corpus")
    cut_off = tmp_path / "cut-off"
    killed = started(short_folder, cut_off)
    wait_for(lambda: generations(cut_off) or killed.poll() is not None)
    kill_all(killed)
    assert 1 <= generations(cut_off) < 3
    assert started(short_folder, cut_off).wait() == 0
    whole = tmp_path / "whole"
    train("group", short_folder / "corpus", output=whole, problem=PROBLEM, settings=SETTINGS)
    assert left(cut_off) == left(whole)
