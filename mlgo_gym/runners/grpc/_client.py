"""The compiler's side of the gRPC contract: a runner that asks a host."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

from mlgo_gym.base import OptionsError, RunnerError, SpecError, TensorSpec, UsageError
from mlgo_gym.runners._base import MLModelRunner
from mlgo_gym.runners.grpc._address import Address
from mlgo_gym.runners.grpc._wire import (
    AUTHORIZATION,
    DEFAULT_MAX_MESSAGE_BYTES,
    SERVICE,
    Watchdog,
    bearer,
    channel_options,
    check_certificate,
    check_message_limit,
    check_token,
    clipped,
    difference,
    from_message,
    grpc,
    messages,
    to_message,
)
from mlgo_gym.stream import MAX_FEATURES, Header

_ACKNOWLEDGEMENT: Final = "an acknowledgement"


class GrpcInteractiveModelRunner(MLModelRunner):
    """Asks a host over gRPC: LLVM's ``InteractiveModelRunner`` with a stream instead of FIFOs.

    The runner owns its input buffers. The host has acknowledged the specs when the constructor
    returns. One thread uses a runner at a time; it does not survive a fork. After an error the
    conversation is over, and every further call raises.

    Args:
        target: where the host listens: ``HOST:PORT`` or ``unix:PATH``.
        inputs: the features, in the order in which they are sent.
        output: the advice.
        deadline_s: how long the host may take for the acknowledgement and for each advice, and
            for the end, in seconds.
        token: the host's bearer token. It leaves this machine only with ``credentials``.
        credentials: TLS credentials (``grpc.ssl_channel_credentials``), or as PEM the certificate
            of the host, or of who signed it.
        score: the tensor of an outcome, where outcomes are reported.
        max_message_bytes: the largest message that is sent or taken, in bytes.

    Raises:
        OptionsError: a setting cannot be used, or the host refuses the token.
        SpecError: a spec is malformed or too large, or the host's model takes other specs.
        RunnerError: nobody listens there, or the host does not acknowledge in time.

    >>> from mlgo_gym.runners import ScriptedRunner
    >>> from mlgo_gym.runners.grpc import GrpcInteractiveModelRunner, serve_grpc
    >>> from mlgo_gym.base._tensor_spec import TensorSpec
    >>> size = TensorSpec("size", "int64_t", (1,))
    >>> with serve_grpc(lambda inputs, output: ScriptedRunner([1], inputs, output)) as host:
    ...     with GrpcInteractiveModelRunner(host.address, [size], size) as runner:
    ...         runner.switch_context("main")
    ...         int(runner.evaluate()[0])
    1
    """

    def __init__(
        self,
        target: str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        *,
        deadline_s: float = 10.0,
        token: str | None = None,
        credentials: grpc.ChannelCredentials | bytes | None = None,
        score: TensorSpec | None = None,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    ) -> None:
        super().__init__(inputs, output)
        _check_options(Address(target), deadline_s, token, credentials)
        check_message_limit(self.inputs, output, max_message_bytes)
        for index, spec in enumerate(self.inputs):
            self.set_up_buffer_for_tensor(index, spec, None)
        self._views = [self.get_tensor_untyped(index) for index in range(len(self.inputs))]
        self._score = score
        self._context = ""
        self._numbers: dict[str, int] = {}
        if isinstance(credentials, bytes):
            credentials = grpc.ssl_channel_credentials(credentials)
        self._conversation = _Conversation(target, deadline_s, token, credentials,
                                           max_message_bytes)  # fmt: skip
        try:
            self._introduce(Header(self.inputs, score, output))
        except BaseException:
            self.close()
            raise

    def switch_context(self, name: str) -> None:
        """Tell the host that what follows belongs to another context; does not wait.

        Raises:
            UsageError: the runner is closed.
            OptionsError: the name is not text that UTF-8 can hold.
        """
        self._check_open()
        try:
            context = messages.Context(name=name)
        except UnicodeEncodeError as error:
            raise OptionsError(f"context {name!r}: expected text that UTF-8 can hold") from error
        self._conversation.send(messages.CompilerMessage(context=context))
        self._context = name

    def report_outcome(self, score: object) -> None:
        """Tell the host how well the last decision did, by the constructor's ``score``.

        Raises:
            UsageError: the runner is closed, has no score, or has not evaluated in this context.
            SpecError: the score does not fit its spec.
        """
        self._check_open()
        number = self._numbers.get(self._context, 0) - 1
        if self._score is None or number < 0:
            missing = "a score in the header" if self._score is None else "an observation before it"
            raise UsageError(f"outcome in context {self._context!r}: expected {missing}")
        outcome = messages.Outcome(observation=number, tensor=self._score.encode(score))
        self._conversation.send(messages.CompilerMessage(outcome=outcome))

    def close(self) -> None:
        """End the conversation and the connection; waits for at most the deadline. Idempotent."""
        if not self._is_closed:
            super().close()
            self._conversation.close()

    def _evaluate(self) -> bytes:
        number = self._numbers.get(self._context, 0)
        observation = messages.Observation(number=number, tensors=b"".join(self._views))
        wanted = f"the advice for observation {number} of context {self._context!r}"
        self._conversation.send(messages.CompilerMessage(observation=observation))
        advice = self._conversation.receive(wanted).advice
        if advice.observation != number or len(advice.tensor) != self.output.size_bytes:
            self._conversation.abandon()
            raise self._conversation.error(
                f"expected {wanted} of {self.output.size_bytes} bytes, found one for observation "
                f"{advice.observation} of {len(advice.tensor)} bytes",
            )
        self._numbers[self._context] = number + 1
        return advice.tensor

    def _introduce(self, header: Header) -> None:
        message = messages.Header(
            features=[to_message(spec) for spec in header.features],
            advice=to_message(self.output),
            score=None if header.score is None else to_message(header.score),
        )
        self._conversation.send(messages.CompilerMessage(header=message))
        reply = self._conversation.receive(_ACKNOWLEDGEMENT)
        problem = _objection(reply.acknowledgement, self.inputs, self.output)
        if problem:
            raise SpecError(f"gRPC host {self._conversation.target}: {clipped(problem)}")

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError(f"{type(self).__name__}: closed")


class _Conversation:
    """One stream: messages out, messages in, a deadline on each wait."""

    def __init__(
        self,
        target: str,
        deadline_s: float,
        token: str | None,
        credentials: grpc.ChannelCredentials | None,
        max_message_bytes: int,
    ) -> None:
        self.target: Final = target
        self._deadline_s = deadline_s
        self._is_abandoned = False
        self._outbox: queue.SimpleQueue[messages.CompilerMessage | None] = queue.SimpleQueue()
        options = _options(Address(target), max_message_bytes)
        if credentials is None:
            self._channel = grpc.insecure_channel(target, options=options)
        else:
            self._channel = grpc.secure_channel(target, credentials, options=options)
        run = self._channel.stream_stream(
            f"/{SERVICE}/Run",
            request_serializer=messages.CompilerMessage.SerializeToString,
            response_deserializer=messages.HostMessage.FromString,
        )
        metadata = () if token is None else ((AUTHORIZATION, bearer(token)),)
        self._call: Any = run(iter(self._outbox.get, None), metadata=metadata)
        self._replies: Iterator[messages.HostMessage] = iter(self._call)
        self._watchdog = Watchdog(self._call.cancel)

    def send(self, message: messages.CompilerMessage) -> None:
        self._outbox.put(message)

    def receive(self, wanted: str) -> messages.HostMessage:
        """The next message, which must be of the kind that is waited for."""
        if self._is_abandoned:
            raise self.error(f"expected {wanted}, found that an earlier evaluation went wrong")
        try:
            self._watchdog.arm(self._deadline_s)
            reply = next(self._replies, None)
        except grpc.RpcError as error:
            raise self._translated(wanted) from error
        except BaseException:  # an interrupt: gRPC still reads, so nobody else can
            self.abandon()
            raise
        finally:
            self._watchdog.disarm()
        if reply is None:
            raise self.error(f"expected {wanted}, found the end of the stream")
        kind = reply.WhichOneof("message")
        if kind != ("acknowledgement" if wanted == _ACKNOWLEDGEMENT else "advice"):
            self.abandon()
            raise self.error(f"expected {wanted}, found {kind or 'an empty message'}")
        return reply

    def abandon(self) -> None:
        self._is_abandoned = True
        self._call.cancel()

    def close(self) -> None:
        self._outbox.put(None)
        self._watchdog.arm(self._deadline_s)
        try:
            while not self._is_abandoned and next(self._replies, None) is not None:
                pass
        except grpc.RpcError:
            pass  # it was reported where it mattered, or nothing was lost
        finally:
            self._watchdog.close()
            self._call.cancel()
            self._channel.close()

    def error(self, message: str) -> RunnerError:
        return RunnerError(f"gRPC host {self.target}: {clipped(message)}")

    def _translated(self, wanted: str) -> Exception:
        if self._watchdog.has_fired:
            return self.error(
                f"expected {wanted} within {self._deadline_s:g} s, found nothing; "
                "deadline_s lifts the limit"
            )
        code, details = self._call.code(), clipped(str(self._call.details()))
        match code:
            case grpc.StatusCode.UNAUTHENTICATED:
                return OptionsError(f"gRPC host {self.target}: {details}")
            case grpc.StatusCode.UNAVAILABLE if wanted == _ACKNOWLEDGEMENT:
                return self.error(f"expected a host, found no connection: {details}")
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
                message = f"expected {wanted}, found the end of the stream: {details}"
                return self.error(message)
            case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than" in str(details):
                message = f"expected messages within the limit of both ends: {details}"
                return OptionsError(f"gRPC host {self.target}: {message}")
            case _:
                name = code.name if code else "no status"
                return self.error(f"expected {wanted}, found {name}: {details}")


def _options(address: Address, max_message_bytes: int) -> list[tuple[str, int]]:
    options = [*channel_options(max_message_bytes), ("grpc.use_local_subchannel_pool", 1)]
    return [*options, ("grpc.enable_http_proxy", 0)] if address.is_local else options


def _check_options(
    address: Address,
    deadline_s: float,
    token: str | None,
    credentials: grpc.ChannelCredentials | bytes | None,
) -> None:
    if not 0 < deadline_s <= threading.TIMEOUT_MAX:
        raise OptionsError(f"deadline_s: expected a positive number of seconds, found {deadline_s}")
    check_token(token)
    if isinstance(credentials, bytes):
        check_certificate(credentials, "gRPC certificate")
    if token is not None and credentials is None and not address.is_local:
        raise OptionsError(
            f"gRPC host {address.text}: a token for another machine needs TLS credentials"
        )


def _objection(
    reply: messages.Acknowledgement, inputs: Sequence[TensorSpec], output: TensorSpec
) -> str:
    """Why the host's view of the specs does not do; empty where it does."""
    if reply.error:
        return reply.error
    if len(reply.features) > MAX_FEATURES:
        return f"expected at most {MAX_FEATURES} features, found {len(reply.features)}"
    try:
        features = [from_message(each) for each in reply.features]
        advice = from_message(reply.advice)
    except SpecError as error:
        return f"acknowledged malformed specs: {error}"
    if advice != output:
        return f"advice: expected {output.to_json()}, found {advice.to_json()}"
    return difference(inputs, features)
