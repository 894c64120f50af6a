"""The host's side of the gRPC contract: serves runners to compilers, one to each stream."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import logging
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mlgo_gym.base import InputError, ModelError, OptionsError, TensorSpec
from mlgo_gym.runners._base import MLModelRunner, RunnerFactory
from mlgo_gym.runners.grpc._address import Address, SocketFile
from mlgo_gym.runners.grpc._wire import (
    AUTHORIZATION,
    SERVICE,
    StreamLimits,
    Watchdog,
    bearer,
    channel_options,
    check_message_limit,
    check_token,
    clipped,
    difference,
    from_message,
    grpc,
    messages,
    parse_request,
    to_message,
)
from mlgo_gym.stream import MAX_FEATURES, Header, Outcome

OutcomeListener = Callable[[MLModelRunner, Outcome], None]

_LOG = logging.getLogger(__name__)
_NOTHING: Final = "an empty or malformed message"


class _Refusal(Exception):  # noqa: N818 - it becomes a status, it is no error of this process
    """Ends a stream with a status."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class _SpecRefusal(Exception):  # noqa: N818
    """Answers a header with an acknowledgement that says no."""


@dataclass(frozen=True, slots=True)
class Service:
    """The service that gRPC calls for each stream."""

    runner_factory: RunnerFactory
    token: str | None
    limits: StreamLimits
    on_outcome: OutcomeListener | None

    def run(
        self, requests: Iterator[messages.CompilerMessage], context: grpc.ServicerContext
    ) -> Iterator[messages.HostMessage]:
        """Answer one stream; whatever goes wrong in it ends this stream alone."""
        try:
            self._check_authorization(context)
            yield from self._converse(requests, context)
        except _SpecRefusal as refusal:
            error = messages.Acknowledgement(error=clipped(str(refusal)))
            yield messages.HostMessage(acknowledgement=error)
        except _Refusal as refusal:
            context.abort(refusal.code, clipped(str(refusal)))

    def _check_authorization(self, context: grpc.ServicerContext) -> None:
        if self.token is None:
            return
        metadata = {str(key): value for key, value in context.invocation_metadata()}
        found = metadata.get(AUTHORIZATION)
        if found is None:
            raise _Refusal(grpc.StatusCode.UNAUTHENTICATED, "expected a token, found none")
        found = found if isinstance(found, bytes) else str(found).encode()
        if not hmac.compare_digest(found, bearer(self.token).encode()):
            raise _Refusal(
                grpc.StatusCode.UNAUTHENTICATED, "expected this host's token, found another"
            )

    def _converse(
        self, requests: Iterator[messages.CompilerMessage], context: grpc.ServicerContext
    ) -> Iterator[messages.HostMessage]:
        watchdog = Watchdog(context.cancel)
        with closing(self._bounded(requests, watchdog)) as bounded:
            first = next(bounded, None)
            if first is None:
                return
            header = self._header(first)
            runner, most = self._make_runner(header), self.limits.contexts
            with closing(_Session(runner, header, most, self.on_outcome)) as session:
                yield session.acknowledgement()
                for request in bounded:
                    answer = session.take(request)
                    if answer is not None:
                        watchdog.arm(self.limits.idle_s)  # until the peer takes it
                        yield answer
                        watchdog.disarm()

    def _bounded(
        self, requests: Iterator[messages.CompilerMessage], watchdog: Watchdog
    ) -> Generator[messages.CompilerMessage]:
        """A stream's messages; one that is silent for too long ends, and keeps no thread."""
        limits, total_bytes = self.limits, 0
        deadline_s = limits.header_s
        try:
            for count in itertools.count(1):
                watchdog.arm(deadline_s)
                request = next(requests, None)
                watchdog.disarm()
                if request is None:
                    return
                total_bytes += request.ByteSize()
                _check("messages", limits.messages, count)
                _check("total_bytes", limits.total_bytes, total_bytes)
                yield request
                deadline_s = limits.idle_s
        finally:
            watchdog.close()
            if watchdog.has_fired:
                _LOG.warning(
                    "ended a stream that neither sent nor took a message for %g s", deadline_s
                )

    def _header(self, first: messages.CompilerMessage) -> Header:
        kind = first.WhichOneof("message")
        if kind != "header" or not first.header.HasField("advice"):
            found = "one without advice" if kind == "header" else kind or _NOTHING
            raise _invalid(f"expected a header with features and advice, found {found}")
        message = first.header
        if (found_count := len(message.features)) > MAX_FEATURES:
            limit = f"expected at most {MAX_FEATURES} features"
            raise _SpecRefusal(f"header: {limit}, found {found_count}")
        try:
            header = Header(
                tuple(from_message(each) for each in message.features),
                from_message(message.score) if message.HasField("score") else None,
                from_message(message.advice),
            )
            check_message_limit(header.features, _advice(header), self.limits.message_bytes)
        except InputError as error:
            raise _SpecRefusal(str(error)) from error
        return header

    def _make_runner(self, header: Header) -> MLModelRunner:
        try:
            runner = self.runner_factory(header.features, _advice(header))
        except ModelError as error:  # the client is not told where the model lies
            raise _SpecRefusal(f"model: {error.reason}") from error
        except InputError as error:
            raise _SpecRefusal(str(error)) from error
        except Exception as error:
            raise _failed("making the runner", error) from error
        problem = difference(runner.inputs, header.features)
        if not problem and runner.output != header.advice:
            expected, found = runner.output.to_json(), _advice(header).to_json()
            problem = f"advice: expected {expected}, found {found}"
        if problem:
            _close(runner)
            raise _SpecRefusal(problem)
        return runner


@dataclass(eq=False)
class _Session:
    """One stream after its header: the runner and where the conversation stands."""

    runner: MLModelRunner
    header: Header
    max_contexts: int
    on_outcome: OutcomeListener | None

    def __post_init__(self) -> None:
        self._context = ""
        self._key = _key("")
        self._next_numbers: dict[bytes, int] = {}

    def acknowledgement(self) -> messages.HostMessage:
        features = [to_message(spec) for spec in self.runner.inputs]
        reply = messages.Acknowledgement(features=features, advice=to_message(self.runner.output))
        return messages.HostMessage(acknowledgement=reply)

    def take(self, request: messages.CompilerMessage) -> messages.HostMessage | None:
        match request.WhichOneof("message"):
            case "observation":
                return self._answer(request.observation)
            case "context":
                self._switch_context(request.context.name)
            case "outcome":
                self._outcome(request.outcome)
            case kind:
                expected = "a context, an observation or an outcome"
                raise _invalid(f"expected {expected}, found {kind or _NOTHING}")
        return None

    def close(self) -> None:
        _close(self.runner)

    def _answer(self, observation: messages.Observation) -> messages.HostMessage:
        tensors, number = observation.tensors, observation.number
        where = f"observation {number} of context {self._context!r}"
        if len(tensors) != self.header.size_bytes:
            raise _invalid(f"{where}: expected {self.header.size_bytes} bytes, "
                           f"found {len(tensors)}")  # fmt: skip
        expected = self._next_numbers.get(self._key, 0)
        if number != expected:
            raise _invalid(f"expected observation {expected} of context {self._context!r}, "
                           f"found {number}")  # fmt: skip
        self._next_numbers[self._key] = expected + 1
        _check("contexts", self.max_contexts, len(self._next_numbers))
        advice = messages.Advice(observation=number, tensor=self._evaluate(where, tensors))
        return messages.HostMessage(advice=advice)

    def _evaluate(self, where: str, tensors: bytes) -> bytes:
        try:
            self.runner.fill(tensors)
            advice = bytes(self.runner.evaluate_untyped())
        except Exception as error:
            raise _failed(where, error) from error
        size_bytes = self.runner.output.size_bytes
        if len(advice) != size_bytes:
            message = f"{where}: expected advice of {size_bytes} bytes, found {len(advice)}"
            raise _Refusal(grpc.StatusCode.INTERNAL, message)
        return advice

    def _switch_context(self, name: str) -> None:
        self._context, self._key = name, _key(name)
        try:
            self.runner.switch_context(name)
        except Exception as error:
            raise _failed(f"context {name!r}", error) from error

    def _outcome(self, outcome: messages.Outcome) -> None:
        last = self._next_numbers.get(self._key, 0) - 1
        where = f"outcome in context {self._context!r}"
        if self.header.score is None:
            raise _invalid(f"{where}: expected none, since the header has no score")
        if last < 0:
            raise _invalid(f"{where}: expected an observation before it")
        if outcome.observation != last:
            raise _invalid(f"{where}: expected that of observation {last}, "
                           f"found {outcome.observation}")  # fmt: skip
        if len(outcome.tensor) != self.header.score.size_bytes:
            raise _invalid(f"{where}: expected {self.header.score.size_bytes} bytes, "
                           f"found {len(outcome.tensor)}")  # fmt: skip
        if self.on_outcome is None:
            return
        try:
            self.on_outcome(self.runner, Outcome(self._context, last, outcome.tensor))
        except Exception as error:
            raise _failed(where, error) from error


def _advice(header: Header) -> TensorSpec:
    if header.advice is None:
        raise _invalid("expected a header with features and advice, found one without advice")
    return header.advice


def _key(context: str) -> bytes:
    """Return the key of a context, however long its name."""
    return hashlib.blake2b(context.encode(), digest_size=16).digest()


def _check(limit: str, most: int, found: int) -> None:
    if found > most:
        raise _Refusal(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"expected at most {most} {_LIMITED[limit]} in a stream, found more; "
            f"the host's StreamLimits({limit}=...) lifts it",
        )


_LIMITED: Final = MappingProxyType(
    {"messages": "messages", "total_bytes": "bytes", "contexts": "contexts"}
)


def _invalid(message: str) -> _Refusal:
    return _Refusal(grpc.StatusCode.INVALID_ARGUMENT, message)


def _failed(where: str, error: Exception) -> _Refusal:
    _LOG.error("%s: the runner failed", where, exc_info=error)
    return _Refusal(grpc.StatusCode.INTERNAL, f"{where}: {type(error).__name__}: {error}")


def _close(runner: MLModelRunner) -> None:
    try:
        runner.close()
    except Exception:  # noqa: BLE001 - foreign code; the stream is over anyway
        _LOG.exception("closing a runner failed")


def serve_grpc(
    runner_factory: RunnerFactory,
    *,
    address: str = "localhost:0",
    credentials: grpc.ServerCredentials | None = None,
    token: str | None = None,
    limits: StreamLimits | None = None,
    on_outcome: OutcomeListener | None = None,
) -> GrpcHost:
    """Serve runners until the host is stopped.

    Each stream gets a runner of its own, which is used by one thread and closed when the stream
    ends, however it ends. Factory and listener are called from several threads at once.

    Args:
        runner_factory: makes the runner for the features and the advice that a compiler sends;
            its ``inputs`` and ``output`` must be these. An `InputError` that it raises is what the
            compiler is told.
        address: ``HOST:PORT`` or ``unix:PATH``; port 0 takes a free one. A Unix socket is for
            this user only (mode 0600). Other addresses than this machine's own need credentials
            and token.
        credentials: TLS credentials (``grpc.ssl_server_credentials``).
        token: the bearer token that every stream must bring: visible ASCII.
        limits: what streams may take of this process; the usual ones by default.
        on_outcome: called with the runner and each outcome that a compiler reports.

    Raises:
        OptionsError: the address cannot be listened on, or is public and not protected.

    >>> from mlgo_gym.runners import NoInferenceModelRunner
    >>> from mlgo_gym.runners.grpc import serve_grpc
    >>> with serve_grpc(NoInferenceModelRunner) as host:
    ...     host.address.partition(":")[0]
    'localhost'
    """
    place = Address(address)
    check_token(token)
    if not place.is_local and (credentials is None or token is None):
        raise OptionsError(
            f"gRPC host {address}: an address that other machines reach needs TLS credentials "
            f"and a token"
        )
    limits = limits or StreamLimits()
    service = Service(runner_factory, token, limits, on_outcome)
    return GrpcHost(place, service, credentials, limits)


class GrpcHost(AbstractContextManager["GrpcHost"]):
    """A host that is listening; made by `serve_grpc`, stopped by `stop` or at the end of ``with``.

    Attributes:
        address: where compilers reach it, with the port that was taken.

    >>> from mlgo_gym.runners import NoInferenceModelRunner
    >>> from mlgo_gym.runners.grpc import serve_grpc
    >>> with serve_grpc(NoInferenceModelRunner) as host:
    ...     host.address.partition(":")[0]
    'localhost'
    """

    def __init__(
        self,
        address: Address,
        service: Service,
        credentials: grpc.ServerCredentials | None,
        limits: StreamLimits,
    ) -> None:
        self._socket_file = SocketFile(address)
        self._threads = ThreadPoolExecutor(limits.streams, thread_name_prefix="grpc-host")
        self._server = grpc.server(
            self._threads,
            options=[*channel_options(limits.message_bytes), ("grpc.so_reuseport", 0)],
            maximum_concurrent_rpcs=limits.streams,
        )
        self._server.add_generic_rpc_handlers((_handlers(service),))
        try:
            with self._socket_file.binding():
                port = _listen(self._server, address, credentials)
        except BaseException:
            self.stop()
            raise
        self.address: Final = address.text if address.path else f"{address.host}:{port}"
        self._server.start()

    def stop(self, grace_s: float = 0.1) -> None:
        """Stop listening, end all streams and wait for their threads; safe to call twice.

        Open streams may go on for the seconds of grace. A runner that is evaluating is waited for,
        however long it takes.
        """
        self._server.stop(grace_s or None).wait()
        self._threads.shutdown()
        self._socket_file.remove()

    def wait(self) -> None:
        """Wait until the host is stopped, by another thread or a signal's handler."""
        self._server.wait_for_termination()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _handlers(
    service: Service,
) -> grpc.GenericRpcHandler[messages.CompilerMessage, messages.HostMessage]:
    run = grpc.stream_stream_rpc_method_handler(
        service.run,
        request_deserializer=parse_request,
        response_serializer=messages.HostMessage.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(SERVICE, {"Run": run})


def _listen(
    server: grpc.Server, address: Address, credentials: grpc.ServerCredentials | None
) -> int:
    try:
        if credentials is None:
            return server.add_insecure_port(address.text)
        return server.add_secure_port(address.text, credentials)
    except RuntimeError as error:
        raise OptionsError(f"gRPC host {address.text}: cannot listen there: {error}") from error
