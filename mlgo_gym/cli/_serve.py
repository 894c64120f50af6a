"""``mlgo-gym serve``: answer compilers over gRPC with a model."""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading

from mlgo_gym.cli.show._output import Output, add_json_option
from mlgo_gym.model._shipped import find_model
from mlgo_gym.runners._load import MODES, runner_factory

_LOCAL_MODES = MODES[:-1]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "serve",
        help="answer compilers over gRPC with a model",
        description="Serve a model on this machine, for 'rollout --mode interactive' and other "
        "clients of protos/mlgo_gym/v1, until interrupted. To serve other machines, which takes "
        "TLS and a token, use mlgo_gym.runners.grpc.serve_grpc.",
    )
    parser.add_argument("--model", type=find_model, required=True, metavar="DIR", help="the model")
    parser.add_argument("--mode", choices=_LOCAL_MODES, default="release")
    parser.add_argument(
        "--address",
        default="localhost:0",
        help="localhost:PORT or unix:PATH (default: localhost and a free port)",
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, output: Output) -> int:
    """Run the subcommand."""
    from mlgo_gym.runners.grpc import serve_grpc  # noqa: PLC0415 - needs an extra

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with serve_grpc(runner_factory(options.model, options.mode), address=options.address) as host:
        output.print(f"serving {options.model} at {host.address}; Ctrl-C ends it")
        output.json({"address": host.address, "model": options.model})
        output.flush()
        with contextlib.suppress(KeyboardInterrupt):
            stop.wait()
    return 0
