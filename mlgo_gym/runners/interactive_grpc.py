"""Interactive runners over gRPC: the compiler's side asks, the host's side answers.

The contract is ``protos/mlgo_gym/v1/model_runner.proto``. A host serves any runner::

    with serve_grpc(lambda features, advice: MyRunner(features, advice)) as host:
        with GrpcInteractiveModelRunner(host.address, features, advice) as runner:
            runner.switch_context("main")
            runner.get_tensor(0)[...] = 3
            print(runner.evaluate())

Importing this module needs the extra ``grpc``.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from mlgo_gym.runners.base import MLModelRunner
from mlgo_gym.runners.grpc_client import GrpcInteractiveModelRunner
from mlgo_gym.runners.grpc_server import GrpcHost, serve_grpc

__all__ = [
    "GrpcHost",
    "GrpcInteractiveModelRunner",
    "round_trips_us",
    "serve_grpc",
]


def round_trips_us(
    runner: MLModelRunner, count: int, *, warm_up: int = 200
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How long a runner takes to evaluate what its inputs hold: float64 [count], microseconds.

    Args:
        runner: any runner; its inputs stay as they are.
        count: how many evaluations are timed, one by one.
        warm_up: how many go before, untimed.
    """
    for _ in range(warm_up):
        runner.evaluate_untyped()
    times = np.empty(count, np.float64)
    for index in range(count):
        start_ns = time.perf_counter_ns()
        runner.evaluate_untyped()
        times[index] = (time.perf_counter_ns() - start_ns) / 1000
    return times
