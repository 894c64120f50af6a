"""A gRPC host's work on each stream: checks, a runner of its own, answers."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from types import MappingProxyType
from typing import Final

from mlgo_gym.base import InputError, ModelError, TensorSpec
from mlgo_gym.runners._base import MLModelRunner, RunnerFactory
from mlgo_gym.runners.grpc._watchdog import Watchdog
from mlgo_gym.runners.grpc._wire import (
    AUTHORIZATION,
    StreamLimits,
    bearer,
    check_message_limit,
    clipped,
    difference,
    from_message,
    grpc,
    messages,
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


class Service:
    """The service that gRPC calls for each stream."""

    def __init__(
        self,
        runner_factory: RunnerFactory,
        token: str | None,
        limits: StreamLimits,
        on_outcome: OutcomeListener | None,
    ) -> None:
        self._runner_factory = runner_factory
        self._limits = limits
        self._authorization = None if token is None else bearer(token).encode()
        self._on_outcome = on_outcome

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
        if self._authorization is None:
            return
        metadata = {str(key): value for key, value in context.invocation_metadata()}
        found = metadata.get(AUTHORIZATION)
        if found is None:
            raise _Refusal(grpc.StatusCode.UNAUTHENTICATED, "expected a token, found none")
        found = found if isinstance(found, bytes) else str(found).encode()
        if not hmac.compare_digest(found, self._authorization):
            raise _Refusal(
                grpc.StatusCode.UNAUTHENTICATED, "expected this host's token, found another"
            )

    def _converse(
        self, requests: Iterator[messages.CompilerMessage], context: grpc.ServicerContext
    ) -> Iterator[messages.HostMessage]:
        with closing(self._bounded(requests, context)) as bounded:
            first = next(bounded, None)
            if first is None:
                return
            header = self._header(first)
            runner, most = self._make_runner(header), self._limits.contexts
            with closing(_Session(runner, header, most, self._on_outcome)) as session:
                yield session.acknowledgement()
                for request in bounded:
                    answer = session.take(request)
                    if answer is not None:
                        yield answer

    def _bounded(
        self, requests: Iterator[messages.CompilerMessage], context: grpc.ServicerContext
    ) -> Generator[messages.CompilerMessage]:
        """A stream's messages; one that is silent for too long ends, and keeps no thread."""
        limits, total_bytes = self._limits, 0
        deadline_s = limits.header_s
        watchdog = Watchdog(context.cancel)
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
                _LOG.warning("ended a stream that said nothing for %g s", deadline_s)

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
            check_message_limit(header.features, _advice(header), self._limits.message_bytes)
        except InputError as error:
            raise _SpecRefusal(str(error)) from error
        return header

    def _make_runner(self, header: Header) -> MLModelRunner:
        try:
            runner = self._runner_factory(header.features, _advice(header))
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


class _Session:
    """One stream after its header: the runner and where the conversation stands."""

    def __init__(
        self,
        runner: MLModelRunner,
        header: Header,
        max_contexts: int,
        on_outcome: OutcomeListener | None,
    ) -> None:
        self._runner = runner
        self._header = header
        self._on_outcome = on_outcome
        self._max_contexts = max_contexts
        self._context = ""
        self._key = _key("")
        self._next_numbers: dict[bytes, int] = {}

    def acknowledgement(self) -> messages.HostMessage:
        features = [to_message(spec) for spec in self._runner.inputs]
        reply = messages.Acknowledgement(features=features, advice=to_message(self._runner.output))
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
        _close(self._runner)

    def _answer(self, observation: messages.Observation) -> messages.HostMessage:
        tensors, number = observation.tensors, observation.number
        where = f"observation {number} of context {self._context!r}"
        if len(tensors) != self._header.size_bytes:
            raise _invalid(f"{where}: expected {self._header.size_bytes} bytes, "
                           f"found {len(tensors)}")  # fmt: skip
        expected = self._next_numbers.get(self._key, 0)
        if number != expected:
            raise _invalid(f"expected observation {expected} of context {self._context!r}, "
                           f"found {number}")  # fmt: skip
        self._next_numbers[self._key] = expected + 1
        _check("contexts", self._max_contexts, len(self._next_numbers))
        advice = messages.Advice(observation=number, tensor=self._evaluate(where, tensors))
        return messages.HostMessage(advice=advice)

    def _evaluate(self, where: str, tensors: bytes) -> bytes:
        try:
            self._runner.fill(tensors)
            advice = bytes(self._runner.evaluate_untyped())
        except Exception as error:
            raise _failed(where, error) from error
        size_bytes = self._runner.output.size_bytes
        if len(advice) != size_bytes:
            message = f"{where}: expected advice of {size_bytes} bytes, found {len(advice)}"
            raise _Refusal(grpc.StatusCode.INTERNAL, message)
        return advice

    def _switch_context(self, name: str) -> None:
        self._context, self._key = name, _key(name)
        try:
            self._runner.switch_context(name)
        except Exception as error:
            raise _failed(f"context {name!r}", error) from error

    def _outcome(self, outcome: messages.Outcome) -> None:
        last = self._next_numbers.get(self._key, 0) - 1
        where = f"outcome in context {self._context!r}"
        if self._header.score is None:
            raise _invalid(f"{where}: expected none, since the header has no score")
        if last < 0:
            raise _invalid(f"{where}: expected an observation before it")
        if outcome.observation != last:
            raise _invalid(f"{where}: expected that of observation {last}, "
                           f"found {outcome.observation}")  # fmt: skip
        if len(outcome.tensor) != self._header.score.size_bytes:
            raise _invalid(f"{where}: expected {self._header.score.size_bytes} bytes, "
                           f"found {len(outcome.tensor)}")  # fmt: skip
        if self._on_outcome is None:
            return
        try:
            self._on_outcome(self._runner, Outcome(self._context, last, outcome.tensor))
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
