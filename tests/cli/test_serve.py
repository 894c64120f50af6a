"""``mlgo-gym serve`` in this process: it answers, and ends when it is told to."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.runners.grpc._client import GrpcInteractiveModelRunner
from tests.cli.command import run
from tests.runners.grpc.peers import keep_grpc_running, nothing_left
from tests.waiting import wait_for

_grpc_running = pytest.fixture(scope="module", autouse=True)(keep_grpc_running)
_nothing_left = pytest.fixture(autouse=True)(nothing_left)

DEFAULT = Path(__file__).parents[1] / "models" / "default"


@pytest.fixture(autouse=True)
def own_signal() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def is_open(path: Path) -> bool:
    """Whether somebody listens there: the file is there a moment before."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def answers(path: Path) -> list[int]:
    """What a host at a socket answers where LLVM would not inline, and where it would; ends it."""
    problem = InliningForSize()
    rows = np.zeros(2, problem.layout.dtype)
    rows["inlining_default"][1] = 1
    try:
        wait_for(lambda: is_open(path))
        with GrpcInteractiveModelRunner(
            f"unix:{path}", problem.layout.specs, problem.advice, deadline_s=60
        ) as runner:
            found = []
            for row in rows:
                runner.fill(row.tobytes())
                found.append(runner.evaluate().item())
            return found
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_model_is_served(as_json: bool, tmp_path: Path) -> None:
    path = tmp_path / "host"
    more = ["--json"] if as_json else []
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(answers, path)
        done = run("serve", "--model", DEFAULT, "--address", f"unix:{path}", *more, cwd=tmp_path)
    assert found.result() == [0, 1]
    assert (done.returncode, done.stderr) == (0, "")
    if as_json:
        assert json.loads(done.stdout) == {"address": f"unix:{path}", "model": str(DEFAULT)}
    else:
        assert done.stdout == f"serving {DEFAULT} at unix:{path}; Ctrl-C ends it\n"
    assert not path.exists()


@pytest.mark.parametrize("mode", ["release", "under-training"])
@pytest.mark.parametrize("what", ["nothing", "an empty folder", "a damaged graph"])
def test_what_is_no_model_is_not_served(mode: str, what: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    if what != "nothing":
        model.mkdir()
    if what == "a damaged graph":
        (model / "model.tflite").write_bytes(b"x" * 100)
    done = run("serve", "--model", model, "--mode", mode, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"mlgo-gym: error: model '{model}[^']*': [^\n]+\n", done.stderr)
