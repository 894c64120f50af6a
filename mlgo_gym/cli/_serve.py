"""``mlgo-gym serve``: answer compilers over gRPC with a model."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import ssl
import tempfile
import threading
from pathlib import Path
from typing import Any

from mlgo_gym.base import OptionsError, xdg
from mlgo_gym.cli import options as shared
from mlgo_gym.cli.show._output import Output
from mlgo_gym.runners import IN_PROCESS, check_model, runner_factory

DESCRIPTION = (
    "Serve a model for 'rollout --mode interactive' and other clients of protos/mlgo_gym/v1, until "
    "interrupted: by default on a socket that only this user can reach. Other machines are served "
    "with a token and TLS."
)
EXAMPLE = "mlgo-gym serve --model inlining-for-size --address localhost:5001"
_FOLDER = "mlgo-gym-serve-"


def add_options(add: shared.Options) -> None:
    add.model("the model that answers", modes=IN_PROCESS, required=True)
    what = "HOST:PORT or unix:PATH (default: a socket in a folder of this user's own)"
    add("--address", "ADDRESS", what)
    add.token("that compilers must bring")
    add("--tls-certificate", "FILE", "PEM file: this host's certificate, with those that signed it")
    add("--tls-key", "FILE", "PEM file: the certificate's private key")
    add("--streams", "N", "serve N compilations at once; more are refused", 16)
    add("--idle", "TIME", "end a stream whose compiler is silent for so long", "300s")


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.runners.grpc import StreamLimits, serve_grpc

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    check_model(options.model, options.mode, trusted=options.trust_code)
    factory = runner_factory(options.model, options.mode, trusted=options.trust_code)
    credentials = _credentials(options.tls_certificate, options.tls_key)
    limits = StreamLimits(streams=options.streams, idle_s=options.idle)
    token = shared.token_of(options)
    with contextlib.ExitStack() as stack:
        address = options.address or f"unix:{_own_folder(stack)}/host"
        host = stack.enter_context(
            serve_grpc(
                factory, address=address, credentials=credentials, token=token, limits=limits
            )
        )
        output.verbatim(f"serving {options.model} at {host.address}; Ctrl-C ends it")
        output.json({"address": host.address, "model": options.model})
        output.flush()
        with contextlib.suppress(KeyboardInterrupt):
            stop.wait()
    return 0


def _own_folder(stack: contextlib.ExitStack) -> str:
    """A folder that goes with the host, where a socket's path is short."""
    runtime = xdg("XDG_RUNTIME_DIR")
    place = runtime if runtime and os.access(runtime, os.W_OK) else None
    return stack.enter_context(tempfile.TemporaryDirectory(prefix=_FOLDER, dir=place))


def _credentials(certificate: Path | None, key: Path | None) -> Any:
    """TLS credentials, where there are to be any."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise OptionsError("expected --tls-certificate and --tls-key, found one of them")
    from mlgo_gym.runners import grpc

    pair = shared.small_file(key), shared.small_file(certificate)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=str)
    except (ssl.SSLError, ValueError) as error:
        raise OptionsError(
            "--tls-certificate and --tls-key: expected a certificate and its key as PEM, without "
            f"a password, found {str(certificate)!r} and {str(key)!r}"
        ) from error
    return grpc.ssl_server_credentials([pair])
