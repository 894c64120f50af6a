"""What a compilation says where the system or its worker fails it; the next one goes on."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import CompilerCrashError, EnvironmentSetupError, UsageError
from mlgo_gym.llvm._compilation import Compilation
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._request import FORK_SIGNAL
from mlgo_gym.llvm._worker_process import Worker
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from tests.conftest import free_descriptors
from tests.stream.test_channel import descriptors
from tests.waiting import wait_for

INLINING = InliningForSize()


def finished(compilation: Compilation) -> str:
    while (observation := compilation.next_observation()) is not None:
        compilation.answer(default(observation))
    return compilation.result.object_sha256


def test_no_folder_for_a_channel(
    compiler: Compiler, sample: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker, which may have been told of it, is not used again."""
    module = sample["frame_stream.c"]
    expected = compiler.compile_module(module).object_sha256
    pid = compiler.worker_pid
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", "/proc/none")
        with pytest.raises(EnvironmentSetupError) as caught:
            compiler.start(module, INLINING)
    assert str(caught.value).startswith(
        "channel: cannot make FIFOs in the temporary folder: [Errno 2] No such file or directory: "
        "'/proc/none/"
    )
    result = compiler.compile_module(module, problem=INLINING, policy=default)
    assert result.object_sha256 == expected
    assert compiler.worker_pid != pid


def test_no_descriptors_for_a_fork(compiler: Compiler, sample: Corpus) -> None:
    """However far it comes, nothing is left open, and the compilation goes on."""
    with compiler.start(sample["frame_stream.c"], INLINING) as compilation:
        assert compilation.next_observation() is not None
        compilation.fork().close()
        before = descriptors()
        for count in (1, 3, 5, 8):
            with free_descriptors(count), pytest.raises(EnvironmentSetupError) as caught:
                compilation.fork()
            assert str(caught.value) == "fork: [Errno 24] Too many open files"
            assert descriptors() == before
        with compilation.fork() as branch:
            assert finished(branch) == finished(compilation)


def test_a_worker_that_is_killed_while_it_is_to_be_cloned(
    compiler: Compiler, sample: Corpus
) -> None:
    with compiler.start(sample["frame_stream.c"], INLINING) as compilation:
        assert compilation.next_observation() is not None
        pid = compiler.worker_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)

        def told(line: str) -> str:
            status = Path(f"/proc/{pid}/status").read_text()
            return status.partition(f"\n{line}:")[2].split()[0]

        def is_asked() -> bool:
            return bool(int(told("ShdPnd"), 16) >> (FORK_SIGNAL - 1) & 1)

        wait_for(lambda: told("State") == "T")  # a signal that comes sooner is still taken

        def kill() -> None:
            wait_for(is_asked)
            os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(CompilerCrashError) as caught:
            compilation.fork()
        killer.join()
    assert str(caught.value) == "module 'frame_stream.c': LLVM ended with signal 9 (SIGKILL)"
    assert caught.value.exit_status == -signal.SIGKILL
    assert compiler.compile_module(sample["frame_stream.c"]).decisions == 0


def test_no_python_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(EnvironmentSetupError) as caught:
        Worker()
    assert str(caught.value) == (
        "worker: cannot start /nowhere/python: [Errno 2] No such file or directory: "
        "'/nowhere/python'"
    )
    assert descriptors() == before


def test_a_worker_of_another_process() -> None:
    """It is let go of: neither used, nor waited for, nor killed; without its parent it ends."""
    worker = Worker()
    worker.check_owner("m")
    process = os.pidfd_open(worker.pid)
    worker.disown()
    worker.disown()
    worker.close()
    assert worker.is_reaped
    with pytest.raises(UsageError) as caught:
        worker.check_owner("m")
    assert str(caught.value) == (
        "module 'm': the compilation belongs to the process that this one was forked from"
    )
    found = os.waitid(os.P_PIDFD, process, os.WEXITED)
    os.close(process)
    assert found is not None
    assert found.si_pid == worker.pid
