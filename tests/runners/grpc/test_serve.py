"""The gRPC runners: both ends for real, over loopback and Unix sockets, and who goes away."""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlgo_gym.errors import OptionsError, RunnerError, UsageError
from mlgo_gym.runners.grpc._address import Address, SocketFile
from mlgo_gym.runners.grpc._client import GrpcInteractiveModelRunner
from mlgo_gym.runners.grpc._server import GrpcHost, serve_grpc
from mlgo_gym.runners.grpc._wire import StreamLimits
from mlgo_gym.stream._training_log import Outcome
from mlgo_gym.testing import round_trips_us
from tests.runners.grpc.peers import (
    ADVICE,
    INLINER,
    SCORE,
    Recorder,
    Sum,
    asking,
    client_process,
    host_process,
    interrupted_process,
    keep_grpc_running,
    nothing_left,
    one_host,
    start,
)
from tests.waiting import wait_for

_grpc_running = pytest.fixture(scope="module", autouse=True)(keep_grpc_running)
_nothing_left = pytest.fixture(autouse=True)(nothing_left)
recorder = pytest.fixture(Recorder.new)
host = pytest.fixture(name="host")(one_host)


@pytest.fixture(params=["loopback", "unix"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "localhost:0" if request.param == "loopback" else f"unix:{tmp_path / 'host'}"


def test_advice_comes_back(address: str, recorder: Recorder) -> None:
    with serve_grpc(recorder, address=address) as host, asking(host) as runner:
        views = [runner.get_tensor(index) for index in range(3)]
        for turn in range(20):
            if turn % 5 == 0:
                runner.switch_context(f"function {turn % 2}")
            views[0][0], views[1][:], views[2][:] = turn, [[1, 2, -3]], [0.5, turn]
            assert runner.evaluate().tolist() == [2 * turn]
            assert (views[0].tolist(), views[2].tolist()) == ([turn], [0.5, turn])
    (served,) = recorder.runners
    assert served.contexts == ["function 0", "function 1", "function 0", "function 1"]
    assert served.is_closed


def kill_once_it_evaluates(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "evaluating\n"
    process.kill()


def test_a_host_in_another_process(address: str) -> None:
    with start(host_process, address) as process:
        try:
            assert process.stdout is not None
            target = process.stdout.readline().strip()
            with GrpcInteractiveModelRunner(target, INLINER, ADVICE, deadline_s=60) as runner:
                runner.get_tensor(38)[0] = 7
                assert runner.evaluate().tolist() == [7]
                assert (round_trips_us(runner, 50) > 0).all()
            with asking(target) as runner:
                runner.get_tensor(0)[0] = -2
                killer = threading.Thread(target=kill_once_it_evaluates, args=[process])
                killer.start()
                message = (
                    f"gRPC host {target}: expected the advice for observation 0 of context '', "
                    "found the end of the stream: "
                )
                with pytest.raises(RunnerError, match=f"^{re.escape(message)}"):
                    runner.evaluate()
                with pytest.raises(RunnerError, match=f"^{re.escape(message)}"):
                    runner.evaluate()
                killer.join()
        finally:
            process.kill()


def test_four_streams_at_a_time(address: str, recorder: Recorder) -> None:
    def ask(number: int) -> list[int]:
        with asking(host) as runner:
            barrier.wait()
            runner.get_tensor(0)[0] = number
            return [int(runner.evaluate()[0]) for _ in range(200)]

    barrier = threading.Barrier(4)
    with serve_grpc(recorder, address=address) as host, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [[number] * 200 for number in range(4)]
    assert len(recorder.runners) == 4


def test_outcomes(recorder: Recorder) -> None:
    heard: list[Outcome] = []
    with (
        serve_grpc(recorder, on_outcome=lambda _, outcome: heard.append(outcome)) as host,
        asking(host, score=SCORE) as runner,
    ):
        for number in range(2):
            runner.switch_context("f")
            runner.evaluate()
            runner.report_outcome(number + 0.5)
    expected = [Outcome("f", number, SCORE.encode(number + 0.5)) for number in range(2)]
    assert heard == expected


def test_a_client_that_is_killed_harms_nobody(host: GrpcHost, recorder: Recorder) -> None:
    with asking(host) as other, start(client_process, host.address) as process:
        wait_for(lambda: len(recorder.runners) == 2)
        recorder.runners[1].is_evaluating.wait()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert other.evaluate().tolist() == [0]
        recorder.runners[1].is_released.set()
        wait_for(lambda: recorder.runners[1].is_closed)
        assert other.evaluate().tolist() == [0]


def test_an_interrupted_evaluation(host: GrpcHost, recorder: Recorder) -> None:
    with start(interrupted_process, host.address) as process:
        wait_for(lambda: recorder.runners)
        recorder.runners[0].is_evaluating.wait()
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    recorder.runners[0].is_released.set()
    assert output.splitlines() == [
        "KeyboardInterrupt: ",
        f"RunnerError: gRPC host {host.address}: expected the advice for observation 0 of "
        "context '', found that an earlier evaluation went wrong",
        "closed",
    ]
    assert process.returncode == 0


def test_a_slow_runner_is_given_up(host: GrpcHost, recorder: Recorder) -> None:
    with asking(host, deadline_s=60) as runner:
        watchdog = runner._conversation._watchdog
        runner.switch_context("f")
        for _ in range(2):
            assert runner.evaluate().tolist() == [0]
            assert watchdog._due_s == math.inf  # no deadline runs between evaluations
        runner.get_tensor(0)[0] = -2
        runner._conversation._deadline_s = 0.3  # sooner than what the watchdog sleeps until
        start_s = time.monotonic()
        message = (
            f"gRPC host {host.address}: expected the advice for observation 2 of context 'f' "
            "within 0.3 s, found nothing; deadline_s lifts the limit"
        )
        with pytest.raises(RunnerError, match=f"^{re.escape(message)}$"):
            runner.evaluate()
        assert time.monotonic() - start_s >= 0.3
        recorder.runners[0].is_released.set()
    with asking(host) as runner:
        assert runner.evaluate().tolist() == [0]


def test_a_host_that_stops_ends_its_streams(recorder: Recorder) -> None:
    host = serve_grpc(recorder)
    with asking(host) as runner:
        runner.evaluate()
        host.stop()
        host.stop()
        with pytest.raises(RunnerError, match="found the end of the stream"):
            runner.evaluate()
        assert recorder.runners[0].is_closed
    with pytest.raises(
        RunnerError, match=r"^gRPC host localhost:\d+: expected a host, found no con"
    ):
        asking(host)


def test_hosts_can_follow_each_other(address: str) -> None:
    for turn in range(30):
        with serve_grpc(Sum, address=address) as host, asking(host) as runner:
            address = host.address  # the same port again
            runner.get_tensor(0)[0] = turn
            assert runner.evaluate().tolist() == [turn]


def test_a_silent_host_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        message = (
            f"gRPC host {target}: expected an acknowledgement within 0.2 s, found nothing; "
            "deadline_s lifts the limit"
        )
        with pytest.raises(RunnerError, match=f"^{re.escape(message)}$"):
            asking(target, deadline_s=0.2)


def test_closed_runners_say_so(host: GrpcHost) -> None:
    runner = asking(host)
    runner.close()
    runner.close()
    for use in (
        runner.evaluate,
        lambda: runner.switch_context("f"),
        lambda: runner.report_outcome(1),
    ):
        with pytest.raises(UsageError, match="^GrpcInteractiveModelRunner: closed$"):
            use()


def test_proxies_are_for_other_machines(host: GrpcHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with asking(host) as runner:
        assert runner.evaluate().tolist() == [0]


def test_too_many_streams_are_refused(recorder: Recorder) -> None:
    with serve_grpc(recorder, limits=StreamLimits(streams=1)) as host, asking(host) as runner:
        with pytest.raises(
            RunnerError, match="acknowledgement, found RESOURCE_EXHAUSTED: Concurrent"
        ):
            asking(host)
        assert runner.evaluate().tolist() == [0]


def test_unix_sockets_are_private_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "host"
    before = os.umask(0)
    try:
        with socket.socket(socket.AF_UNIX) as host, SocketFile(Address(f"unix:{path}")).binding():
            host.bind(str(path))
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert os.umask(0) == 0
    finally:
        os.umask(before)


def test_unix_sockets_are_private_and_go_away(tmp_path: Path) -> None:
    path = tmp_path / "host"
    address = f"unix:{path}"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with serve_grpc(Sum, address=address):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(OptionsError, match=f"^gRPC host {address}: the path is in use$"):
            serve_grpc(Sum, address=address)
        with asking(address) as runner:
            assert runner.evaluate().tolist() == [0]
    assert not path.exists()
    path.write_text("precious")
    with pytest.raises(OptionsError, match=f"^gRPC host {address}: the path is in use$"):
        serve_grpc(Sum, address=address)
    assert path.read_text() == "precious"


def test_a_socket_of_another_kind_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "host"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        with pytest.raises(OptionsError, match=f"^gRPC host unix:{path}: the path is in use$"):
            serve_grpc(Sum, address=f"unix:{path}")
    assert path.is_socket()
