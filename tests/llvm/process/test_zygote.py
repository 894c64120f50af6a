"""Workers that are forks of a zygote: each is its own, and whatever becomes of the zygote."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import psutil
import pytest

import mlgo_gym.envs  # noqa: F401 - registers them
from corpus_tools.sandbox import _landlock_abi
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import EnvironmentSetupError
from mlgo_gym.llvm import _zygote
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._launch import Link
from mlgo_gym.llvm._limits import Limits
from mlgo_gym.llvm._request import WORKER_NAME, ZYGOTE_NAME
from mlgo_gym.llvm._worker_process import Worker
from mlgo_gym.llvm._zygote import (
    end_zygote,
    start_worker,
    zygote_descriptor,
    zygote_pid,
)
from mlgo_gym.problems._inlining_for_size import InliningForSize
from tests.conftest import free_descriptors
from tests.llvm.process.killed_parent import children_of_killed
from tests.llvm.process.test_limits import REFUSED
from tests.stream.test_channel import descriptors
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's clone and /proc")

_MIB = 1 << 20


def warm() -> int:
    """The zygote, which has forked once."""
    Worker().close()
    pid = zygote_pid()
    assert pid is not None
    return pid


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def is_dead(pid: int) -> bool:
    """Whether it has ended, reaped or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def waits_in(function: Callable[..., object]) -> bool:
    """Whether a thread is in a call of it, and of nothing that it calls."""
    return any(each.f_code is function.__code__ for each in sys._current_frames().values())


def files_of(pid: int) -> dict[int, str]:
    return {int(each.name): str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()}


def test_workers_are_forks_and_children_of_this_process() -> None:
    zygote = warm()
    workers = [Worker() for _ in range(3)]
    try:
        assert zygote_pid() == zygote
        assert name_of(zygote) == ZYGOTE_NAME
        assert len({worker.pid for worker in workers} | {zygote}) == 4
        for worker in workers:
            process = psutil.Process(worker.pid)
            assert (process.ppid(), name_of(worker.pid)) == (os.getpid(), WORKER_NAME)
            assert (os.getsid(worker.pid), process.num_threads()) == (worker.pid, 1)
    finally:
        for worker in workers:
            worker.close()
    assert not any(psutil.pid_exists(worker.pid) for worker in workers)
    assert psutil.Process(zygote).is_running()


def test_a_worker_has_nothing_of_the_zygotes_or_of_another() -> None:
    """No way to it, and its own of all that leads to this process."""
    zygote = warm()
    ours = files_of(zygote)
    workers = [Worker(), Worker()]
    try:
        found = [set(files_of(worker.pid).values()) for worker in workers]
        sockets_and_pipes = [{each for each in one if ":" in each} for one in found]
        assert [len(each) for each in sockets_and_pipes] == [4, 4]
        assert not sockets_and_pipes[0] & sockets_and_pipes[1]
        assert not set(ours.values()) & (sockets_and_pipes[0] | sockets_and_pipes[1])
        assert len([each for each in ours.values() if "socket:" in each]) == 1
        assert files_of(zygote) == ours  # what it passed on is closed there
    finally:
        for worker in workers:
            worker.close()


def test_it_has_parsed_nothing_and_answers_as_one_that_was_started_anew(
    small: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first of its forks on to one that has native code that is ready."""
    end_zygote()
    hashes = [_hashes(small) for _ in range(3)]
    monkeypatch.setattr(_zygote, "can_fork", lambda: False)
    zygote = zygote_pid()
    anew = _hashes(small)
    assert zygote_pid() == zygote
    assert hashes == 3 * [anew]


def _hashes(corpus: Corpus) -> list[str]:
    """Of objects, from one worker: of LLVM's own, of answers, and of a branch."""
    problem, module = InliningForSize(), corpus["frame_stream.c"]
    with Compiler() as compiler:
        found = [compiler.compile_module(corpus[name]).object_sha256 for name in corpus]
        with compiler.start(module, problem) as trunk:
            assert trunk.next_observation() is not None
            with trunk.fork() as branch:
                assert not branch.is_replayed
                for compilation, action in ((trunk, 1), (branch, 0)):
                    while compilation.next_observation() is not None:
                        compilation.answer(action)
                    found.append(compilation.result.object_sha256)
    assert found[-1] != found[-2]
    return found


def test_each_has_the_limits_that_it_is_given(sample: Corpus) -> None:
    zygote = warm()
    compilers = [Compiler(peak_memory_bytes=size * _MIB, timeout_s=size) for size in (200, 300)]
    unlimited = resource.prlimit(zygote, resource.RLIMIT_DATA)
    for size, compiler in zip((200, 300), compilers, strict=True):
        with compiler:
            compiler.compile_module(sample["frame_stream.c"])
            pid = compiler.worker_pid
            assert pid is not None
            assert resource.prlimit(pid, resource.RLIMIT_DATA)[1] == (size - 64) * _MIB
            assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)
            soft = resource.prlimit(pid, resource.RLIMIT_CPU)[0]
            assert 2 * size + 10 <= soft < 2 * size + 30
    assert resource.prlimit(zygote, resource.RLIMIT_DATA) == unlimited
    assert zygote_pid() == zygote


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a zygote whose forks are a stranger's."""
    with monkeypatch.context() as patch:
        patch.setattr(_zygote, "_MODULE", "tests.llvm.process.hostile_forks")
        end_zygote()
        yield
    end_zygote()


def told(link: Link) -> list[dict[str, Any]]:
    """What a fork says; it is there until its link is ended."""
    found: list[dict[str, Any]] = json.loads(link.frames.recv(1 << 16))
    assert found[1]["pid"] == link.process.pid
    return found


@pytest.mark.usefixtures("hostile")
def test_what_a_fork_may_do(own_temporary_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a worker that was started anew; nor signal another, or what it is a fork of."""
    (own_temporary_folder / "file").write_text("as it was")
    limits = Limits(peak_bytes=1 << 29, cpu_s=60)
    monkeypatch.setenv("MLGO_SIBLING", "0")
    sibling = start_worker(limits)
    told(sibling)
    monkeypatch.setenv("MLGO_SIBLING", str(sibling.process.pid))
    other = start_worker(limits)
    found, _ = told(other)
    other.end()
    assert sibling.process.poll() is None
    sibling.end()
    signals = {found.pop("signal the zygote"), found.pop("signal a sibling")}
    assert found == REFUSED
    if _landlock_abi() >= 6:
        assert signals == {"Operation not permitted"}
    assert (own_temporary_folder / "file").read_text() == "as it was"


def about_one() -> dict[str, Any]:
    link = start_worker(Limits())
    _, about = told(link)
    link.end()
    return about


@pytest.mark.usefixtures("hostile")
def test_each_has_an_environment_and_random_numbers_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLGO_SIBLING", str(os.getpid()))
    monkeypatch.setenv("MLGO_ONE", "1")
    first = about_one()
    zygote = zygote_pid()
    monkeypatch.delenv("MLGO_ONE")
    monkeypatch.setenv("MLGO_OTHER", "1")
    second = about_one()
    assert zygote_pid() == zygote
    assert first["random"] != second["random"]
    assert set(first["variables"]) ^ set(second["variables"]) == {"MLGO_ONE", "MLGO_OTHER"}


def test_a_variable_that_may_have_been_read_takes_a_new_zygote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zygote = warm()
    monkeypatch.setenv("ANYTHING_ELSE", "1")
    other = warm()
    assert other != zygote
    assert not psutil.pid_exists(zygote)
    assert b"ANYTHING_ELSE=1" in Path(f"/proc/{other}/environ").read_bytes()


def test_another_limit_of_this_process_takes_a_new_zygote() -> None:
    zygote, before = warm(), resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
        worker = Worker()
        found = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
        worker.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found[0] == before[0] - 1
    assert zygote_pid() != zygote


def test_a_zygote_that_is_killed_between_starts_is_replaced(sample: Corpus) -> None:
    expected = Compiler().compile_module(sample["frame_stream.c"])
    zygote = warm()
    with Compiler() as lasting:
        lasting.compile_module(sample["frame_stream.c"])
        pid = lasting.worker_pid
        os.kill(zygote, signal.SIGKILL)
        wait_for(lambda: is_dead(zygote))
        with Compiler() as compiler:
            assert compiler.compile_module(sample["frame_stream.c"]) == expected
        assert lasting.compile_module(sample["frame_stream.c"]) == expected
        assert lasting.worker_pid == pid  # its worker outlives it
    assert zygote_pid() not in {None, zygote}
    assert not psutil.pid_exists(zygote)


def test_a_zygote_that_is_killed_during_a_start_is_replaced() -> None:
    zygote = warm()
    os.kill(zygote, signal.SIGSTOP)
    wait_for(lambda: psutil.Process(zygote).status() == psutil.STATUS_STOPPED)
    with ThreadPoolExecutor(1) as thread:
        started = thread.submit(Worker)
        wait_for(lambda: waits_in(_zygote._answer))
        os.kill(zygote, signal.SIGKILL)
        worker = started.result(60)
    assert psutil.Process(worker.pid).ppid() == os.getpid()
    worker.close()
    assert zygote_pid() not in {None, zygote}
    assert not psutil.pid_exists(zygote)


def test_a_zygote_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_zygote, "_FORK_TIMEOUT_S", 0.2)
    zygote = warm()
    os.kill(zygote, signal.SIGSTOP)
    Worker().close()
    assert zygote_pid() not in {None, zygote}
    assert not psutil.pid_exists(zygote)


def test_threads_start_workers_at_once() -> None:
    zygote = warm()
    with ThreadPoolExecutor(8) as threads:
        workers = list(threads.map(lambda _: Worker(), range(16)))
    try:
        assert len({worker.pid for worker in workers}) == 16
        assert zygote_pid() == zygote
        assert all(psutil.Process(worker.pid).ppid() == os.getpid() for worker in workers)
    finally:
        for worker in workers:
            worker.close()


def test_threads_that_want_the_first_worker_share_a_zygote() -> None:
    end_zygote()
    with ThreadPoolExecutor(4) as threads:
        workers = list(threads.map(lambda _: Worker(), range(4)))
    names = [name_of(each.pid) for each in psutil.Process().children()]
    for worker in workers:
        worker.close()
    assert names.count(ZYGOTE_NAME) == 1


def test_a_thread_that_ends_leaves_its_zygote() -> None:
    end_zygote()
    thread = threading.Thread(target=warm)
    thread.start()
    thread.join()
    zygote = zygote_pid()
    assert warm() == zygote


def test_a_forked_process_has_a_zygote_of_its_own(sample: Corpus) -> None:
    zygote = warm()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        others, text_size = pool.apply(_compiled, (sample,), {})
    assert zygote not in others
    assert text_size > 0
    assert warm() == zygote
    for pid in others:
        wait_for(lambda: is_dead(pid))  # noqa: B023


def _compiled(corpus: Corpus) -> tuple[list[int], int]:
    assert zygote_pid() is None
    assert zygote_descriptor() is None
    with Compiler() as compiler:
        size = compiler.compile_module(corpus["frame_stream.c"]).text_size_bytes
    return [zygote_pid() or 0], size


def test_a_forked_process_does_not_keep_the_zygote(own_temporary_folder: Path) -> None:
    """Where it outlives the process that is killed."""
    script = """
        import os, signal
        from mlgo_gym.llvm._worker_process import Worker
        from mlgo_gym.llvm._zygote import zygote_pid
        worker = Worker()
        zygote = zygote_pid()
        child = os.fork()
        if child == 0:
            signal.pause()
        print(worker.pid, zygote, child, flush=True)
        signal.pause()
    """
    worker, zygote, child = children_of_killed(script, own_temporary_folder)
    worker.wait(60)
    zygote.wait(60)
    assert child.is_running()
    child.kill()


@pytest.mark.parametrize("ending", ["pass", "os._exit(0)", "raise SystemExit(0)"])
def test_it_ends_with_its_process(ending: str) -> None:
    script = (
        "import os; from mlgo_gym.llvm._worker_process import Worker\n"
        "from mlgo_gym.llvm._zygote import zygote_pid\n"
        f"worker = Worker(); print(worker.pid, zygote_pid(), flush=True); {ending}"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    for pid in map(int, done.stdout.split()):
        wait_for(lambda: is_dead(pid))  # noqa: B023


def test_ending_it_leaves_workers_alone(sample: Corpus) -> None:
    zygote = warm()
    with Compiler() as compiler:
        compiler.compile_module(sample["frame_stream.c"])
        pid = compiler.worker_pid
        end_zygote()
        assert not psutil.pid_exists(zygote)
        assert (zygote_pid(), zygote_descriptor()) == (None, None)
        compiler.compile_module(sample["frame_stream.c"])
        assert compiler.worker_pid == pid


@pytest.mark.e2e
def test_environments_in_processes_that_are_forked() -> None:
    zygote = warm()
    before = psutil.Process().children(recursive=True)  # with a shared compiler's worker
    envs = gymnasium.make_vec(
        "mlgo_gym/InliningForSize-v0",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"context": "fork"},
    )
    envs.reset(seed=1)
    children = [each for each in psutil.Process().children(recursive=True) if each not in before]
    names = [name_of(each.pid) for each in children]
    assert names.count(ZYGOTE_NAME) == 2
    assert names.count(WORKER_NAME) == 2
    envs.close()
    for each in children:
        wait_for(lambda: is_dead(each.pid))  # noqa: B023
    assert warm() == zygote


@pytest.mark.parametrize("count", [0, 2, 5, 8, 12])
def test_no_descriptors_for_a_worker(count: int) -> None:
    """However far it comes, it is one error or a worker, and nothing is left open."""
    warm()
    before = descriptors()
    with free_descriptors(count):
        try:
            start_worker(Limits()).end()
        except EnvironmentSetupError as error:
            assert "Too many open files" in str(error)
    warm()
    assert descriptors() == before
