"""``mlgo-gym serve``: answer compilers over gRPC with a model."""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading

from mlgo_gym.cli import _options as shared
from mlgo_gym.cli.show._output import Output
from mlgo_gym.runners._load import IN_PROCESS, runner_factory

DESCRIPTION = (
    "Serve a model on this machine, for 'rollout --mode interactive' and other clients of "
    "protos/mlgo_gym/v1, until interrupted. To serve other machines, which takes TLS and a token, "
    "use mlgo_gym.runners.grpc.serve_grpc."
)
EXAMPLE = "mlgo-gym serve --model inlining-for-size --address localhost:5001"


def add_options(add: shared.Options) -> None:
    add.model("what answers", modes=IN_PROCESS, required=True)
    what = "localhost:PORT or unix:PATH (default: localhost and a free port)"
    add("--address", "ADDRESS", what)


def run(options: argparse.Namespace, output: Output) -> int:
    from mlgo_gym.runners.grpc import serve_grpc

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    factory = runner_factory(options.model, options.mode, trusted=options.trust_code)
    with serve_grpc(factory, address=options.address or "localhost:0") as host:
        output.print(f"serving {options.model} at {host.address}; Ctrl-C ends it")
        output.json({"address": host.address, "model": options.model})
        output.flush()
        with contextlib.suppress(KeyboardInterrupt):
            stop.wait()
    return 0
