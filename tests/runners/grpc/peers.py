"""Both ends of the gRPC contract for the tests: tiny runners, hosts and compilers."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.errors import RunnerError
from mlgo_gym.runners._base import MLModelRunner
from mlgo_gym.runners.grpc._client import GrpcInteractiveModelRunner
from mlgo_gym.runners.grpc._server import GrpcHost, serve_grpc
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]
SIZE = TensorSpec("size", "int64_t", (1,))
MASK = TensorSpec("mask", "int8_t", (1, 3))
COST = TensorSpec("cost", "double", (2,))
FEATURES = (SIZE, MASK, COST)
FEATURE_BYTES = 8 + 3 + 16
ADVICE = TensorSpec("advice", "int64_t", (1,))
SCORE = TensorSpec("score", "float", (1,))
INLINER = tuple(TensorSpec(f"feature_{index}", "int64_t", (1,)) for index in range(39))


class Sum(MLModelRunner):
    """Answers the sum of all inputs, or does what a negative size asks for."""

    def __init__(self, inputs: Sequence[TensorSpec], output: TensorSpec) -> None:
        super().__init__(inputs, output)
        for index, spec in enumerate(self.inputs):
            self.set_up_buffer_for_tensor(index, spec, None)
        self.contexts: list[str] = []
        self.is_evaluating = threading.Event()
        self.is_released = threading.Event()

    def switch_context(self, name: str) -> None:
        self.contexts.append(name)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def _evaluate(self) -> bytes:
        size = int(self.get_tensor(0)[0])
        if size == -1:
            raise ValueError("no advice today")
        if size == -2:
            self.is_evaluating.set()
            self.is_released.wait(60)
        if size == -3:
            return b"short"
        total = sum(self.get_tensor(index).sum() for index in range(len(self.inputs)))
        return self.output.encode([int(total)])


class Recorder:
    """Makes `Sum` runners and keeps them."""

    def __init__(self) -> None:
        self.runners: list[Sum] = []

    @classmethod
    def new(cls) -> Recorder:
        return cls()

    def __call__(self, inputs: Sequence[TensorSpec], output: TensorSpec) -> Sum:
        self.runners.append(Sum(inputs, output))
        return self.runners[-1]


class Announcing(Sum):
    """Says on standard output that it is to answer what it never will."""

    def _evaluate(self) -> bytes:
        if self.get_tensor(0)[0] == -2:
            sys.stdout.write("evaluating\n")
            sys.stdout.flush()
        return super()._evaluate()


def host_process(address: str) -> None:
    """What a host in another process runs; says where it listens."""
    with serve_grpc(Announcing, address=address) as host:
        sys.stdout.write(f"{host.address}\n")
        sys.stdout.flush()
        host.wait()


def client_process(address: str) -> None:
    """What a compiler in another process runs: an evaluation that does not end."""
    runner = GrpcInteractiveModelRunner(address, FEATURES, ADVICE)
    runner.get_tensor(0)[0] = -2
    runner.evaluate()


def interrupted_process(address: str) -> None:
    """What a compiler in another process runs: an evaluation that Ctrl-C ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with asking(address) as runner:
        runner.get_tensor(0)[0] = -2
        for error in (KeyboardInterrupt, RunnerError):
            try:
                runner.evaluate()
            except error as caught:
                sys.stdout.write(f"{type(caught).__name__}: {caught}\n")
    sys.stdout.write("closed\n")


def start(function: Callable[[str], None], address: str) -> subprocess.Popen[str]:
    script = f"import tests.runners.grpc.peers as t; t.{function.__name__}({address!r})"
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def asking(host: GrpcHost | str, **settings: Any) -> GrpcInteractiveModelRunner:
    target = host if isinstance(host, str) else host.address
    return GrpcInteractiveModelRunner(target, FEATURES, ADVICE, **{"deadline_s": 60} | settings)


def nothing_left() -> Iterator[None]:
    """Threads and sockets are gone after a test; gRPC closes sockets shortly after a stop."""
    threads, descriptors = set(threading.enumerate()), _descriptors()
    yield
    wait_for(lambda: set(threading.enumerate()) <= threads)
    wait_for(lambda: _descriptors() <= descriptors + 2)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def one_host(recorder: Recorder) -> Iterator[GrpcHost]:
    """A host on the loopback interface, which must close every runner that it made."""
    with serve_grpc(recorder) as host:
        yield host
    assert all(each.is_closed for each in recorder.runners)


def keep_grpc_running() -> Iterator[None]:
    """What gRPC opens for itself while anything uses it is no leftover of one test."""
    with grpc.insecure_channel("localhost:1"):
        with serve_grpc(Sum) as host, asking(host):
            pass
        yield
