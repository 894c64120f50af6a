"""The host's side of the gRPC contract: serves runners to compilers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Final

from mlgo_gym.base import OptionsError
from mlgo_gym.runners._base import RunnerFactory
from mlgo_gym.runners.grpc._address import Address, SocketFile
from mlgo_gym.runners.grpc._service import OutcomeListener, Service
from mlgo_gym.runners.grpc._wire import (
    StreamLimits,
    channel_options,
    check_token,
    grpc,
    messages,
    parse_request,
)


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
    name = messages.DESCRIPTOR.services_by_name["ModelRunner"].full_name
    return grpc.method_handlers_generic_handler(name, {"Run": run})


def _listen(
    server: grpc.Server, address: Address, credentials: grpc.ServerCredentials | None
) -> int:
    try:
        if credentials is None:
            return server.add_insecure_port(address.text)
        return server.add_secure_port(address.text, credentials)
    except RuntimeError as error:
        raise OptionsError(f"gRPC host {address.text}: cannot listen there: {error}") from error
