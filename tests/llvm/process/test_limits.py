"""What a worker may take and touch, and what is said where a module wants more."""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import CompilerCrashError, ModuleError, OptionsError, UsageError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._launch import child_command, child_environment
from mlgo_gym.llvm._limits import DEFAULT_PEAK_BYTES
from mlgo_gym.llvm._request import DescribeRequest
from mlgo_gym.llvm._worker_process import Worker
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.stream._training_log import Observation
from tests.waiting import wait_for

_ASKING = """
define internal void @callee() {{
  call void asm sideeffect "{assembly}", ""()
  ret void
}}
define void @caller() {{
  call void @callee()
  ret void
}}
"""
_MIB = 1 << 20
_ONE_THREAD = (
    "compiler: expected one thread at a time, found another that is using it; give each thread a "
    "compiler of its own"
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux's own sandbox and limits")


def _assembling(assembly: str) -> Module:
    """A module of one call, with this in its callee."""
    return Module.from_ir(_ASKING.format(assembly=assembly.replace('"', "\\22")))


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


REFUSED = {
    **dict.fromkeys(
        ("read a file", "read its environment", "list a folder", "write a file", "make a file"),
        "Permission denied",
    ),
    **dict.fromkeys(
        ("remove a file", "execute", "fork", "open a socket", "signal its parent"),
        "Operation not permitted",
    ),
    "have more memory": "ValueError('not allowed to raise maximum limit')",
    "take more memory": "MemoryError()",
    "have LLVM execute": "done",
}
"""What becomes of what `tests.llvm.process.hostile` attempts."""


@linux
def test_what_a_worker_may_do(own_temporary_folder: Path) -> None:
    """Its process, begun as a worker's, with a stranger's code instead of requests."""
    (own_temporary_folder / "file").write_text("as it was")
    command = child_command("tests.llvm.process.hostile", repr(str(own_temporary_folder)))
    done = subprocess.run(
        command, env=child_environment(), capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == REFUSED
    assert "Unable to create temporary file" in done.stderr
    assert [each.name for each in own_temporary_folder.iterdir()] == ["file"]
    assert (own_temporary_folder / "file").read_text() == "as it was"


@linux
def test_workers_and_branches_are_confined(compiler: Compiler, sample: Corpus) -> None:
    with compiler.start(sample["frame_stream.c"], InliningForSize()) as compilation:
        compilation.next_observation()
        with compilation.fork() as branch:
            assert not branch.is_replayed
            for pid in (compilation.worker_pid, branch.worker_pid):
                status = _status(pid)
                assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
                assert int(status["CapEff"], 16) == 0
                assert (
                    resource.prlimit(pid, resource.RLIMIT_DATA)[1] == DEFAULT_PEAK_BYTES - 64 * _MIB
                )


@linux
@pytest.mark.parametrize("directive", ["incbin", "include"])
def test_assembly_that_reads_a_file(compiler: Compiler, directive: str) -> None:
    module = _assembling(f'.{directive} "/etc/passwd"')
    message = (
        "module '<ir>': expected assembly that reads no file, found "
        f".{directive} '/etc/passwd'; mlgo_gym allows none"
    )
    with pytest.raises(ModuleError) as caught:
        compiler.compile_module(module)
    assert str(caught.value) == message
    with compiler.start(module, InliningForSize()) as compilation:
        compilation.next_observation()
        with compilation.fork() as branch:
            branch.answer(1)
            with pytest.raises(ModuleError) as caught:
                branch.next_observation()
            assert str(caught.value) == message
    assert compiler.compile_module(_assembling("nop")).text_size_bytes > 0


@pytest.mark.e2e
@linux
@pytest.mark.parametrize("assembly", [".space 0x20000000", ".fill 100000000, 8"])
def test_memory_during_a_compilation(assembly: str) -> None:
    with Compiler(peak_memory_bytes=256 * _MIB) as compiler:
        with pytest.raises(CompilerCrashError) as caught:
            compiler.compile_module(_assembling(assembly))
        assert str(caught.value).splitlines()[0] == (
            "module '<ir>': expected to need at most 256 MiB of memory, found a need for more; "
            "peak_memory_bytes or MLGO_MEMORY (in MiB) lifts the limit; its last words:"
        )
        assert compiler.compile_module(_assembling("nop")).text_size_bytes > 0
    with Compiler(peak_memory_bytes=math.inf) as compiler:
        assert compiler.compile_module(_assembling(".space 0x2000000")).text_size_bytes > 1 << 25


_GREEDY = """
import resource, sys
from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, Module
from mlgo_gym.errors import CompilerCrashError
limit = int(sys.argv[1]) << 20
zeros = "[1073741824 x i8]"
data = f"@x = global {{ i8, {zeros} }} {{ i8 1, {zeros} zeroinitializer }}"
with Compiler(peak_memory_bytes=limit) as compiler:
    for text in (*(f'module asm "{each}"' for each in sys.argv[2:]), data):
        try:
            compiler.compile_module(Module.from_ir(text))
        except CompilerCrashError as error:
            assert f"at most {sys.argv[1]} MiB of memory, found a need for more" in str(error)
        else:
            raise AssertionError(text[:100])
    compiler.compile_module(Corpus.load(SAMPLE_CORPUS)["scene.cpp"])
print(1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / limit)
"""


@pytest.mark.e2e
@linux
def test_memory_is_within_a_fifth_of_its_limit() -> None:
    """The largest there was of any worker, as the kernel counts it; and what is honest goes on."""
    done = subprocess.run(
        [sys.executable, "-c", _GREEDY, "144", ".space 0x20000000", ".fill 100000000, 8"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stderr == ""
    assert 0.5 < float(done.stdout) <= 1.2


@linux
def test_the_least_memory_is_enough_for_little() -> None:
    with Compiler(peak_memory_bytes=128 * _MIB) as compiler:
        assert compiler.compile_module(_assembling("nop")).text_size_bytes > 0


@pytest.mark.parametrize("value", [128 * _MIB - 1, -1, math.nan, "much"])
def test_memory_that_is_too_little_for_a_worker(value: Any) -> None:
    with pytest.raises(OptionsError) as caught:
        Compiler(peak_memory_bytes=value)
    assert str(caught.value) == (
        f"peak_memory_bytes: expected a number of bytes from 134217728 on, found {value!r}"
    )


def test_the_variable_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Compiler().peak_memory_bytes == DEFAULT_PEAK_BYTES
    monkeypatch.setenv("MLGO_MEMORY", "512")
    assert Compiler().peak_memory_bytes == 512 * _MIB
    assert Compiler(peak_memory_bytes=256 * _MIB).peak_memory_bytes == 256 * _MIB
    for text in ("127", "-1", "much", "nan"):
        monkeypatch.setenv("MLGO_MEMORY", text)
        with pytest.raises(OptionsError) as caught:
            Compiler()
        assert str(caught.value) == (
            f"MLGO_MEMORY: expected a number of MiB from 128 on, found {text!r}"
        )


_LIMITED = """
import resource, sys
from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus
module = Corpus.load(SAMPLE_CORPUS)["frame_stream.c"]
space = int(sys.argv[1]) << 20
resource.setrlimit(resource.RLIMIT_AS, (space, space))
with Compiler() as compiler:
    try:
        print(compiler.compile_module(module).text_size_bytes)
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
"""


@pytest.mark.e2e
@linux
def test_less_address_space_than_llvm_needs() -> None:
    """As after ``ulimit -v``: llvmlite says that its library could not be found."""
    for space in (150, 170):
        assert _under(space) == (
            "EnvironmentSetupError worker: could not start: expected to need at most "
            f"{space} MiB of address space, found a need for more; ulimit -v lifts the limit\n"
        )
    assert int(_under(1000)) > 0


def _under(space_mib: int) -> str:
    return subprocess.run(
        [sys.executable, "-c", _LIMITED, str(space_mib)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout


@linux
def test_time_of_the_cpu_is_bounded_by_the_deadline(sample: Corpus) -> None:
    with Compiler(timeout_s=100) as compiler:
        compiler.compile_module(sample["frame_stream.c"])
        pid = compiler.worker_pid
        assert pid is not None
        soft, hard = resource.prlimit(pid, resource.RLIMIT_CPU)
        assert 210 <= soft < 230
        assert hard == resource.RLIM_INFINITY


_MANY_DESCRIPTORS = """
import os, resource, threading
from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
from mlgo_gym.runners import InteractiveModelRunner, PipeHost, ScriptedRunner
from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.problems._inlining_for_size import default
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
with Compiler() as compiler:
    module = Corpus.load(SAMPLE_CORPUS)["frame_stream.c"]
    with compiler.start(module, InliningForSize()) as compilation:
        compilation.next_observation()
        with compilation.fork() as branch:
            compilation.close()
            while (observation := branch.next_observation()) is not None:
                branch.answer(int(observation["inlining_default"][0]))
    result = compiler.compile_module(module, problem=InliningForSize(), policy=default)
    host = PipeHost(lambda inputs, output: ScriptedRunner([1], inputs, output))
    serving = threading.Thread(target=host.serve, args=(lambda: True,))
    serving.start()
    size = TensorSpec("size", "int64_t", (1,))
    with InteractiveModelRunner(host.base, [size], size) as runner:
        assert runner.evaluate()[0] == 1
    serving.join()
    host.close()
    print(branch.result.text_size_bytes == result.text_size_bytes, min(compiler._worker.interest))
"""


def test_more_descriptors_than_select_takes() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < 4096:
        pytest.skip(f"needs 4,096 descriptors, may have {most}")
    done = subprocess.run(
        [sys.executable, "-c", _MANY_DESCRIPTORS],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    is_equal, lowest = done.stdout.split()
    assert is_equal == "True"
    assert int(lowest) > 1023


def test_a_second_thread_is_told(compiler: Compiler, sample: Corpus) -> None:
    """And does not disturb the first, which is asking its policy."""
    module, told = sample["frame_stream.c"], list[str]()
    expected = compiler.compile_module(module, problem=InliningForSize(), policy=default)
    attempts: tuple[Callable[[], object], ...] = (
        lambda: compiler.compile_module(module),
        lambda: compiler.start(module, None),
        lambda: compiler.inquire(module, DescribeRequest(is_text=False)),
    )

    def policy(observation: Observation) -> int:
        for attempt in attempts:
            other = threading.Thread(target=lambda: told.append(_refused(attempt)))  # noqa: B023
            other.start()
            other.join()
        return int(observation["inlining_default"][0])

    found = compiler.compile_module(module, problem=InliningForSize(), policy=policy)
    assert found == expected
    assert told == 3 * found.decisions * [_ONE_THREAD]


@pytest.mark.e2e
def test_a_second_thread_while_the_first_waits_for_llvm(own_compiler: Compiler) -> None:
    slow = _assembling(".rept 6000000\\0Anop\\0A.endr")
    with own_compiler.start(slow, None) as compilation:
        waiting = threading.Thread(target=compilation.next_observation)
        waiting.start()
        wait_for(lambda: is_in(waiting, Worker.wait))
        assert [_refused(each) for each in (own_compiler.close, compilation.close)] == 2 * [
            _ONE_THREAD
        ]
        waiting.join()
        assert compilation.result.text_size_bytes > 6000000


def is_in(thread: threading.Thread, function: Callable[..., object]) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code is function.__code__


def _refused(attempt: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        attempt()
    return str(caught.value)


def test_a_worker_says_what_holds_it() -> None:
    worker = Worker()
    worker.close()
    expected = "Landlock ABI" if sys.platform == "linux" else "no Landlock"
    assert str(worker.sandbox).startswith(("no Landlock", expected))
    assert len(worker.places) == 8


def test_the_ends_of_channels_are_closed_here(compiler: Compiler, sample: Corpus) -> None:
    """Those that the child has been handed; its own close with the request."""
    compiler.compile_module(sample["frame_stream.c"], problem=InliningForSize(), policy=default)
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    for _ in range(3):
        compiler.compile_module(sample["frame_stream.c"], problem=InliningForSize(), policy=default)
    assert len(list(descriptors.iterdir())) == before
    links = [str(each.readlink()) for each in Path(f"/proc/{compiler.worker_pid}/fd").iterdir()]
    assert links.count("/dev/null") >= 17
