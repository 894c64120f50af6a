"""The gRPC contract, byte by byte: peers that break it, and generated code that is current."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc
import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.errors import MlgoGymError, OptionsError, RunnerError, SpecError
from mlgo_gym.runners.grpc._proto.v1 import model_runner_pb2 as messages
from mlgo_gym.runners.grpc._server import GrpcHost, serve_grpc
from mlgo_gym.runners.grpc._wire import StreamLimits, parse_request, to_message
from tests.runners.grpc.peers import (
    ADVICE,
    FEATURE_BYTES,
    FEATURES,
    ROOT,
    SCORE,
    SIZE,
    Recorder,
    Sum,
    asking,
    keep_grpc_running,
    nothing_left,
    one_host,
)
from tests.waiting import wait_for

Request = messages.CompilerMessage
Reply = messages.HostMessage
METHOD = "/mlgo_gym.v1.ModelRunner/Run"

_grpc_running = pytest.fixture(scope="module", autouse=True)(keep_grpc_running)
_nothing_left = pytest.fixture(autouse=True)(nothing_left)
recorder = pytest.fixture(Recorder.new)
host = pytest.fixture(name="host")(one_host)


def header(score: TensorSpec | None = None, **changes: Any) -> Request:
    fields: dict[str, Any] = {
        "features": [to_message(each) for each in FEATURES],
        "advice": to_message(ADVICE),
        "score": None if score is None else to_message(score),
    }
    return Request(header=messages.Header(**(fields | changes)))


def tensor(**changes: Any) -> messages.TensorSpec:
    fields: dict[str, Any] = {"name": "x", "port": 0, "type": "int64_t", "shape": [1]}
    return messages.TensorSpec(**(fields | changes))


def observation(number: int = 0, size_bytes: int = FEATURE_BYTES) -> Request:
    return Request(observation=messages.Observation(number=number, tensors=bytes(size_bytes)))


def outcome(number: int, size_bytes: int = 4) -> Request:
    return Request(outcome=messages.Outcome(observation=number, tensor=bytes(size_bytes)))


def send(address: str, sent: list[bytes]) -> tuple[list[Reply], grpc.StatusCode, str]:
    """Everything that a host answers to raw messages, and how it ends the stream."""
    replies: list[Reply] = []
    with grpc.insecure_channel(address) as channel:
        method = channel.stream_stream(METHOD, None, Reply.FromString)
        call = method(iter(sent))
        with suppress(grpc.RpcError):
            replies.extend(call)
        return replies, call.code(), call.details() or ""


CONTEXT = Request(context=messages.Context(name="f"))
NEXT = "expected a context, an observation or an outcome"
FIRST = "expected a header with features and advice"
BROKEN = [
    ([observation()], f"{FIRST}, found observation"),
    ([Request()], f"{FIRST}, found an empty or malformed message"),
    ([header(advice=None)], f"{FIRST}, found one without advice"),
    ([header(), header()], f"{NEXT}, found header"),
    ([header(), Request()], f"{NEXT}, found an empty or malformed message"),
    ([header(), observation(0, 26)], "observation 0 of context '': expected 27 bytes, found 26"),
    ([header(), observation(0, 28)], "observation 0 of context '': expected 27 bytes, found 28"),
    ([header(), observation(0, 0)], "observation 0 of context '': expected 27 bytes, found 0"),
    ([header(), CONTEXT, observation(1)], "expected observation 0 of context 'f', found 1"),
    ([header(), observation(), observation()], "expected observation 1 of context '', found 0"),
    (
        [header(), observation(), outcome(0)],
        "outcome in context '': expected none, since the header has no score",
    ),
    (
        [header(SCORE), outcome(0)],
        "outcome in context '': expected an observation before it",
    ),
    (
        [header(SCORE), observation(), outcome(1)],
        "outcome in context '': expected that of observation 0, found 1",
    ),
    (
        [header(SCORE), observation(), outcome(0, 8)],
        "outcome in context '': expected 4 bytes, found 8",
    ),
]


@pytest.mark.parametrize(("sent", "details"), BROKEN)
def test_compilers_that_break_the_contract(
    host: GrpcHost, sent: list[Request], details: str
) -> None:
    with asking(host) as other:
        _, code, found = send(host.address, [each.SerializeToString() for each in sent])
        assert (code, found) == (grpc.StatusCode.INVALID_ARGUMENT, details)
        assert other.evaluate().tolist() == [0]


X = "tensor 'x': expected"
DIMENSIONS = "a tuple of dimensions of 1 to 2147483647 as shape, found"
REFUSED = [
    ({"features": []}, "header: expected observations of 1 to 16777216 bytes, "
                       "found 0 bytes in 0 features"),
    ({"features": [tensor(), tensor()]}, "header: two features are called 'x'"),
    ({"features": [messages.TensorSpec()] * 4097}, "header: expected at most 4096 features, "
                                                   "found 4097"),
    ({"features": [tensor(name="")]}, "tensor spec: expected a name, found ''"),
    ({"features": [tensor(port=-1)]}, f"{X} a port of 0 to 2147483647, found -1"),
    ({"features": [tensor(shape=[0])]}, f"{X} {DIMENSIONS} (0,)"),
    ({"features": [tensor(shape=[-1, 2])]}, f"{X} {DIMENSIONS} (-1, 2)"),
    ({"features": [tensor(shape=[1] * 33)]}, f"{X} at most 32 dimensions, found 33"),
    (
        {"features": [tensor(shape=[2**31 - 1])]},
        f"{X} less than 2147483648 bytes, found 17179869176 (shape (2147483647,) of int64_t)",
    ),
    (
        {"features": [tensor(shape=[1 << 20])]},
        "gRPC: expected observations of at most 4194240 bytes (the message limit is 4194304), "
        "found 8388608",
    ),
    (
        {"advice": tensor(shape=[1 << 20])},
        "gRPC: expected advice of at most 4194240 bytes (the message limit is 4194304), "
        "found 8388608",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "error"), REFUSED)
def test_headers_that_are_refused(
    host: GrpcHost, recorder: Recorder, changes: dict[str, Any], error: str
) -> None:
    replies, code, _ = send(host.address, [header(**changes).SerializeToString()])
    assert [each.acknowledgement.error for each in replies] == [error]
    assert code is grpc.StatusCode.OK
    assert not recorder.runners


@pytest.mark.parametrize("sent", [[b"\xff"], [b"junk" * 99]])
def test_bytes_that_are_no_message(host: GrpcHost, sent: list[bytes]) -> None:
    details = f"{FIRST}, found an empty or malformed message"
    assert send(host.address, sent) == ([], grpc.StatusCode.INVALID_ARGUMENT, details)


def test_a_large_message_is_parsed_if_it_is_an_observation() -> None:
    """A header of 4 MiB can have two million features, each an object."""
    large = observation(3, (1 << 20) + 1)
    assert parse_request(large.SerializeToString()) == large
    many = header(features=[messages.TensorSpec()] * (1 << 19)).SerializeToString()
    for data in (many, observation().SerializeToString() + many, b"\x1a" + b"\xff" * (1 << 20)):
        assert parse_request(data) == Request()


def test_a_stream_without_messages_ends(host: GrpcHost) -> None:
    assert send(host.address, []) == ([], grpc.StatusCode.OK, "")


def test_an_oversized_message(recorder: Recorder) -> None:
    with (
        serve_grpc(recorder, limits=StreamLimits(message_bytes=1000)) as host,
        asking(host) as other,
    ):
        sent = [header().SerializeToString(), observation(0, 1000).SerializeToString()]
        _, code, details = send(host.address, sent)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details.endswith("(1006 vs. 1000)")
        assert other.evaluate().tolist() == [0]


def test_a_client_that_says_nothing_is_dropped() -> None:
    with (
        serve_grpc(Sum, limits=StreamLimits(header_s=0.2)) as host,
        grpc.insecure_channel(host.address) as channel,
    ):
        silence: queue.SimpleQueue[None] = queue.SimpleQueue()
        call = channel.stream_stream(METHOD, None, None)(iter(silence.get, None))
        with pytest.raises(grpc.RpcError):
            next(iter(call))
        silence.put(None)
        assert call.code() is grpc.StatusCode.CANCELLED


def test_a_client_that_has_said_something_has_more_time() -> None:
    limits = StreamLimits(header_s=2)
    with serve_grpc(Sum, limits=limits) as host, asking(host) as runner:
        due_s = time.monotonic() + 2 * limits.header_s
        wait_for(lambda: time.monotonic() > due_s)
        assert runner.evaluate().tolist() == [0]


def test_silent_clients_do_not_keep_others_out_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    limits = StreamLimits(streams=2, idle_s=0.3)
    with serve_grpc(Sum, limits=limits) as host, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(asking(host)) for _ in range(limits.streams)]

        def others_have_both_streams() -> bool:
            with contextlib.suppress(RunnerError), asking(host) as one, asking(host) as another:
                return [each.evaluate().tolist() for each in (another, one)] == [[0], [0]]
            return False

        wait_for(others_have_both_streams)
        for each in silent:
            with pytest.raises(RunnerError, match=", found the end of the stream: "):
                each.evaluate()
        assert set(caplog.messages) == {
            "ended a stream that neither sent nor took a message for 0.3 s"
        }


def contexts_of(*names: str) -> list[bytes]:
    """A stream with an observation in each context."""
    sent = [header()]
    for name in names:
        sent += [messages.CompilerMessage(context=messages.Context(name=name)), observation()]
    return [each.SerializeToString() for each in sent]


FITTING = contexts_of("a", "b")


@pytest.mark.parametrize(
    ("limit", "most", "what"),
    [
        ("messages", len(FITTING), "messages"),
        ("total_bytes", sum(map(len, FITTING)), "bytes"),
        ("contexts", 2, "contexts"),
    ],
)
def test_a_stream_has_an_end(limit: str, most: int, what: str) -> None:
    limits = StreamLimits(**{limit: most})
    with serve_grpc(Sum, limits=limits) as host:
        _, code, details = send(host.address, contexts_of("a", "b", "c"))
        assert (code, details) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"expected at most {most} {what} in a stream, found more; the host's "
            f"StreamLimits({limit}=...) lifts it",
        )
        assert send(host.address, FITTING)[1] is grpc.StatusCode.OK


def test_mutilated_messages_harm_nobody(host: GrpcHost) -> None:
    good = [
        each.SerializeToString() for each in (header(SCORE), CONTEXT, observation(), outcome(0))
    ]
    chance = random.Random(0)  # noqa: S311 - no secrets
    with asking(host) as other:
        for _ in range(150):
            sent = list(good)
            place = chance.randrange(len(sent))
            data = bytearray(sent[place])
            for _ in range(chance.randint(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            sent[place] = bytes(
                data[: chance.randint(0, len(data))] if chance.random() < 0.3 else data
            )
            send(host.address, sent)
        assert other.evaluate().tolist() == [0]


class Liar:
    """A host that answers what it was told to, one message for each."""

    def __init__(self, replies: list[Reply]) -> None:
        self._replies = replies

    def run(self, requests: Iterator[Request], _: grpc.ServicerContext) -> Iterator[Reply]:
        for reply, _request in zip(self._replies, requests, strict=False):
            yield reply


@contextmanager
def lying(host: Liar | Aborting) -> Iterator[str]:
    handler = grpc.stream_stream_rpc_method_handler(
        host.run,
        request_deserializer=Request.FromString,
        response_serializer=Reply.SerializeToString,
    )
    service = grpc.method_handlers_generic_handler("mlgo_gym.v1.ModelRunner", {"Run": handler})
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads, handlers=[service])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


def acknowledgement(**changes: Any) -> Reply:
    fields: dict[str, Any] = {
        "features": [to_message(each) for each in FEATURES],
        "advice": to_message(ADVICE),
    }
    return Reply(acknowledgement=messages.Acknowledgement(**(fields | changes)))


def advice(number: int = 0, size_bytes: int = 8) -> Reply:
    return Reply(advice=messages.Advice(observation=number, tensor=bytes(size_bytes)))


ADVICE_0 = "expected the advice for observation 0 of context ''"
OF_8 = f"{ADVICE_0} of 8 bytes, found one for observation"
LIES: list[tuple[list[Reply], type[MlgoGymError], str]] = [
    ([], RunnerError, "expected an acknowledgement, found the end of the stream"),
    ([advice()], RunnerError, "expected an acknowledgement, found advice"),
    ([Reply()], RunnerError, "expected an acknowledgement, found an empty message"),
    ([acknowledgement(error="no")], SpecError, "no"),
    ([acknowledgement(error="n" * 3000)], SpecError, f"{'n' * 1000}..."),
    ([acknowledgement(error="\x1b]0;x\x07\ndone")], SpecError, r"\x1b]0;x\x07\ndone"),
    ([acknowledgement(error="\x1b" * 3000)], SpecError, r"\x1b" * 250 + "..."),
    (
        [acknowledgement(features=[messages.TensorSpec(name="n" * 3000, shape=[1] * 40)])],
        SpecError,
        f"acknowledged malformed specs: tensor '{'n' * 37}...{'n' * 38}': expected at most 32 "
        "dimensions, found 40",
    ),
    (
        [acknowledgement(features=[messages.TensorSpec()] * 4097)],
        SpecError,
        "expected at most 4096 features, found 4097",
    ),
    ([acknowledgement(features=[])], SpecError, "expected 3 features, found 0"),
    (
        [acknowledgement(advice=to_message(SIZE))],
        SpecError,
        f"advice: expected {ADVICE.to_json()}, found {SIZE.to_json()}",
    ),
    (
        [acknowledgement(advice=None)],
        SpecError,
        "acknowledged malformed specs: tensor spec: expected a name, found ''",
    ),
    ([acknowledgement()], RunnerError, f"{ADVICE_0}, found the end of the stream"),
    ([acknowledgement()] * 2, RunnerError, f"{ADVICE_0}, found acknowledgement"),
    ([acknowledgement(), advice(1)], RunnerError, f"{OF_8} 1 of 8 bytes"),
    ([acknowledgement(), advice(0, 7)], RunnerError, f"{OF_8} 0 of 7 bytes"),
]


@pytest.mark.parametrize(("replies", "error", "message"), LIES)
def test_hosts_that_break_the_contract(
    replies: list[Reply], error: type[MlgoGymError], message: str
) -> None:
    with lying(Liar(replies)) as target:
        expected = re.escape(f"gRPC host {target}: {message}")
        with pytest.raises(error, match=f"^{expected}$"), asking(target) as runner:
            runner.evaluate()


class Aborting:
    """A host that refuses every stream with a status of its own."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._status = code, details

    def run(self, _: Iterator[Request], context: grpc.ServicerContext) -> Iterator[Reply]:
        context.abort(*self._status)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.INTERNAL, RunnerError),
        (grpc.StatusCode.UNAUTHENTICATED, OptionsError),
        (grpc.StatusCode.UNAVAILABLE, RunnerError),
        (grpc.StatusCode.CANCELLED, RunnerError),
    ],
)
def test_words_of_a_host(code: grpc.StatusCode, error: type[MlgoGymError]) -> None:
    """No terminal obeys them, they are one line, and have an end."""
    with (
        lying(Aborting(code, f"\x1b[2J\nmlgo-gym: done {'x' * 3000}")) as target,
        pytest.raises(error) as caught,
    ):
        asking(target)
    message = str(caught.value)
    assert r"\x1b[2J\nmlgo-gym: done xxx" in message
    assert message.isprintable()
    assert len(message) < 1100


def test_a_host_that_answers_junk() -> None:
    handler = grpc.stream_stream_rpc_method_handler(lambda *_: iter([b"\xff"]))
    service = grpc.method_handlers_generic_handler("mlgo_gym.v1.ModelRunner", {"Run": handler})
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads, handlers=[service])
        target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        with pytest.raises(
            RunnerError, match="^gRPC host .*: expected an acknowledgement, found INT"
        ):
            asking(target)
        server.stop(None).wait()


def test_the_generated_code_is_current(tmp_path: Path) -> None:
    committed = ROOT / "mlgo_gym" / "runners" / "grpc" / "_proto" / "v1"
    text = (ROOT / "protos" / "generate.py").read_text()
    made_by = re.findall(r'GRPCIO_TOOLS = "(.*)"', text)[0]
    try:
        tools = metadata.version("grpcio-tools")
    except metadata.PackageNotFoundError:
        tools = "none"
    if tools != made_by:
        message = f"needs grpcio-tools {made_by}, found {tools}"
        if os.environ.get("CI") and tools == "none":
            pytest.fail(message)
        pytest.skip(message)
    subprocess.run([sys.executable, ROOT / "protos" / "generate.py", tmp_path], check=True)
    made = {
        each.name: each.read_text()
        for each in tmp_path.glob("mlgo_gym/runners/grpc/_proto/v1/*_pb2*")
    }
    assert made == {each.name: each.read_text() for each in committed.glob("*_pb2*")}
    assert len(made) == 2


def run_python(script: str) -> str:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_a_missing_grpcio_is_named() -> None:
    script = (
        "import sys; sys.modules['grpc'] = None\n"
        "from mlgo_gym.errors import EnvironmentSetupError\n"
        "try: from mlgo_gym.runners.grpc import serve_grpc\n"
        "except EnvironmentSetupError as error: print(error)"
    )
    assert run_python(script) == "gRPC: needs grpcio; run: pip install 'mlgo-gym[grpc]'\n"


def test_importing_the_package_leaves_grpc_alone() -> None:
    script = "import sys, mlgo_gym, mlgo_gym.runners; print('grpc' in sys.modules)"
    assert run_python(script) == "False\n"
