"""What the gRPC runners refuse, in which words: settings, tokens, specs, models, sizes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.errors import (
    InputError,
    MlgoGymError,
    ModelError,
    OptionsError,
    RunnerError,
    SpecError,
    UsageError,
)
from mlgo_gym.runners._base import MLModelRunner
from mlgo_gym.runners.grpc._client import GrpcInteractiveModelRunner
from mlgo_gym.runners.grpc._server import GrpcHost, serve_grpc
from mlgo_gym.runners.grpc._wire import StreamLimits
from mlgo_gym.stream._training_log import Outcome
from tests.conftest import require
from tests.runners.grpc.peers import (
    ADVICE,
    COST,
    FEATURES,
    MASK,
    SCORE,
    SIZE,
    Recorder,
    Sum,
    asking,
    keep_grpc_running,
    nothing_left,
    one_host,
)

_grpc_running = pytest.fixture(scope="module", autouse=True)(keep_grpc_running)
_nothing_left = pytest.fixture(autouse=True)(nothing_left)
recorder = pytest.fixture(Recorder.new)
host = pytest.fixture(name="host")(one_host)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A self-signed key and certificate for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    command = [
        *(require("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt"),
        *("ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
        *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key", "-out", "crt"),
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "key").read_bytes(), (folder / "crt").read_bytes()


TOKEN = "secret"  # noqa: S105
EVERYWHERE = "0.0.0.0"  # noqa: S104 - with TLS and a token


def test_tls_and_token_on_every_interface(certificate: tuple[bytes, bytes]) -> None:
    own = grpc.ssl_server_credentials([certificate])
    trusted = grpc.ssl_channel_credentials(certificate[1])
    with serve_grpc(Sum, address=f"{EVERYWHERE}:0", credentials=own, token=TOKEN) as host:
        target = host.address.replace(EVERYWHERE, "127.0.0.1")
        with asking(target, credentials=trusted, token=TOKEN) as runner:
            runner.get_tensor(0)[0] = 5
            assert runner.evaluate().tolist() == [5]
        refusals: list[tuple[dict[str, Any], type[MlgoGymError], str]] = [
            ({"credentials": trusted}, OptionsError, "expected a token, found none"),
            (
                {"credentials": trusted, "token": "Secret"},
                OptionsError,
                "expected this host's token, found another",
            ),
            ({"token": TOKEN}, RunnerError, "expected a host, found no connection: .*"),
            (
                {"credentials": grpc.ssl_channel_credentials(), "token": TOKEN},
                RunnerError,
                "expected a host, found no connection: .*CERTIFICATE_VERIFY_FAILED.*",
            ),
        ]
        for settings, error, message in refusals:
            with pytest.raises(error, match=f"^gRPC host {target}: {message}$"):
                asking(target, **settings)


NEEDS_BOTH = "an address that other machines reach needs TLS credentials and a token"
IS_NO_ADDRESS = "expected HOST:PORT, [IPV6]:PORT or unix:PATH"
BAD_HOSTS: list[tuple[dict[str, Any], str]] = [
    ({"address": "0.0.0.0:0"}, f"gRPC host 0.0.0.0:0: {NEEDS_BOTH}"),
    ({"address": "[::]:0", "token": "t"}, f"gRPC host [::]:0: {NEEDS_BOTH}"),
    ({"address": "example.org:1"}, f"gRPC host example.org:1: {NEEDS_BOTH}"),
    ({"address": "localhost"}, f"gRPC address 'localhost': {IS_NO_ADDRESS}"),
    ({"address": "unix:"}, f"gRPC address 'unix:': {IS_NO_ADDRESS}"),
    ({"address": "localhost:65536"}, f"gRPC address 'localhost:65536': {IS_NO_ADDRESS}"),
    ({"token": ""}, "gRPC token: expected visible ASCII characters, at least one"),
    ({"token": "a b"}, "gRPC token: expected visible ASCII characters, at least one"),
]


@pytest.mark.parametrize(("settings", "message"), BAD_HOSTS)
def test_hosts_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError, match=f"^{re.escape(message)}$"):
        serve_grpc(Sum, **settings)


@pytest.mark.parametrize(
    ("limit", "value"), [("streams", 0), ("idle_s", -1.0), ("idle_s", float("nan")),
                         ("contexts", 0), ("total_bytes", -1)]
)  # fmt: skip
def test_limits_that_cannot_be(limit: str, value: float) -> None:
    with pytest.raises(OptionsError) as caught:
        StreamLimits(**{limit: value})  # type: ignore[arg-type]
    assert str(caught.value) == f"{limit}: expected a number above 0, found {value}"


def test_an_address_that_is_taken(host: GrpcHost) -> None:
    message = f"^gRPC host {host.address}: cannot listen there: "
    with pytest.raises(OptionsError, match=message):
        serve_grpc(Sum, address=host.address)


BAD_SETTINGS: list[tuple[dict[str, Any], type[InputError], str]] = [
    ({"deadline_s": 0}, OptionsError, "deadline_s: expected a positive number of seconds, found 0"),
    ({"token": "é"}, OptionsError, "gRPC token: expected visible ASCII characters, at least one"),
    (
        {"target": "10.0.0.1:1", "token": "t"},
        OptionsError,
        "gRPC host 10.0.0.1:1: a token for another machine needs TLS credentials",
    ),
    ({"target": "here"}, OptionsError, f"gRPC address 'here': {IS_NO_ADDRESS}"),
    (
        {"max_message_bytes": 80},
        SpecError,
        "gRPC: expected observations of at most 16 bytes (the message limit is 80), found 27",
    ),
]


@pytest.mark.parametrize(("settings", "error", "message"), BAD_SETTINGS)
def test_settings_that_cannot_be(
    settings: dict[str, Any], error: type[InputError], message: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        asking(settings.pop("target", "localhost:1"), **settings)


def refuse(*_: object) -> MLModelRunner:
    raise SpecError("model 'm': needs 'callee_users'")


def fail(*_: object) -> MLModelRunner:
    raise KeyError("m")


def miss(*_: object) -> MLModelRunner:
    raise ModelError("/home/somebody/model.tflite", "needs 'callee_users'")


BAD_FACTORIES: list[tuple[Callable[..., MLModelRunner], type[MlgoGymError], str]] = [
    (refuse, SpecError, "model 'm': needs 'callee_users'"),
    (miss, SpecError, "model: needs 'callee_users'"),
    (
        lambda _, output: Sum((SIZE, COST, MASK), output),
        SpecError,
        f"feature 1: expected {COST.to_json()}, found {MASK.to_json()}",
    ),
    (lambda _, output: Sum(FEATURES[:2], output), SpecError, "expected 2 features, found 3"),
    (
        lambda inputs, _: Sum(inputs, SIZE),
        SpecError,
        f"advice: expected {SIZE.to_json()}, found {ADVICE.to_json()}",
    ),
    (
        fail,
        RunnerError,
        "expected an acknowledgement, found INTERNAL: making the runner: KeyError: 'm'",
    ),
]


@pytest.mark.parametrize(("factory", "error", "message"), BAD_FACTORIES)
def test_models_that_do_not_fit(
    factory: Callable[..., MLModelRunner], error: type[MlgoGymError], message: str
) -> None:
    with serve_grpc(factory) as host:
        expected = re.escape(f"gRPC host {host.address}: {message}")
        with pytest.raises(error, match=f"^{expected}$"):
            asking(host)


FAILURES = {
    -1: "observation 0 of context 'f': ValueError: no advice today",
    -3: "observation 0 of context 'f': expected advice of 8 bytes, found 5",
}


@pytest.mark.parametrize("size", FAILURES)
def test_runners_that_fail(host: GrpcHost, size: int) -> None:
    message = (
        f"gRPC host {host.address}: expected the advice for observation 0 of context 'f', "
        f"found INTERNAL: {FAILURES[size]}"
    )
    with asking(host) as other, asking(host) as runner:
        runner.switch_context("f")
        runner.get_tensor(0)[0] = size
        with pytest.raises(RunnerError, match=f"^{re.escape(message)}$"):
            runner.evaluate()
        assert other.evaluate().tolist() == [0]


def test_messages_that_are_too_large(recorder: Recorder) -> None:
    with serve_grpc(recorder, limits=StreamLimits(message_bytes=1000)) as host:
        with asking(host) as runner:
            runner.switch_context("f" * 2000)
            message = f"gRPC host {host.address}: expected messages within the limit of both ends: "
            expected = rf"^{re.escape(message)}.*\(2006 vs\. 1000\)$"
            with pytest.raises(OptionsError, match=expected):
                runner.evaluate()
        wide = TensorSpec("wide", "int64_t", (200,))
        message = (
            "gRPC: expected observations of at most 936 bytes (the message limit is 1000), "
            "found 1600"
        )
        with pytest.raises(SpecError, match=f"{re.escape(message)}$"):
            GrpcInteractiveModelRunner(host.address, [wide], ADVICE)
        with asking(host) as runner:
            assert runner.evaluate().tolist() == [0]


def test_misuse_of_a_runner(host: GrpcHost) -> None:
    with asking(host) as runner:
        with pytest.raises(OptionsError, match=r"^context '\\ud800': expected text that UTF-8"):
            runner.switch_context("\ud800")
        with pytest.raises(
            UsageError, match="^outcome in context '': expected a score in the header$"
        ):
            runner.report_outcome(1)
    expected = "^outcome in context '': expected an observation before it$"
    with asking(host, score=SCORE) as runner, pytest.raises(UsageError, match=expected):
        runner.report_outcome(1)


class Rude(Sum):
    """Fails wherever it can but for the answers."""

    def switch_context(self, name: str) -> None:
        raise ValueError(f"not {name}")

    def close(self) -> None:
        super().close()
        raise OSError("cannot close")


def test_a_runner_that_fails_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    """The stream is over, and its compiler is told; the host serves the others."""
    with serve_grpc(Rude) as host:
        where = f"gRPC host {host.address}: expected"
        with asking(host) as runner:
            runner.switch_context("here")
            with pytest.raises(RunnerError) as caught:
                runner.evaluate()
        assert str(caught.value).startswith(where)
        assert str(caught.value).endswith("found INTERNAL: context 'here': ValueError: not here")
        with asking(host) as runner:
            assert runner.evaluate().tolist() == [0]
    assert "closing a runner failed" in caplog.messages


def test_a_listener_that_fails(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    def listen(_runner: MLModelRunner, outcome: Outcome) -> None:
        raise KeyError(outcome.context)

    with serve_grpc(recorder, on_outcome=listen) as host, asking(host, score=SCORE) as runner:
        runner.switch_context("f")
        runner.evaluate()
        runner.report_outcome(1)
        with pytest.raises(RunnerError) as caught:
            runner.evaluate()
    assert str(caught.value).endswith("found INTERNAL: outcome in context 'f': KeyError: 'f'")
    assert "outcome in context 'f': the runner failed" in caplog.messages
