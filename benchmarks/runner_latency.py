"""What an evaluation costs, by runner: a 35-100-100-1 network with 35 int64 inputs of shape [1].

The model is made by ``python -m benchmarks.latency_model FOLDER``, which needs tensorflow; where
tensorflow is installed, its SavedModel is timed too. All in one run, one thread, called from
Python: the least of 7 rounds; for the interactive runners median and 99th percentile of 5,000
round trips with a process at the other end.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import struct
import tempfile
import time
import timeit
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.runners import (
    InteractiveModelRunner,
    MLModelRunner,
    ModelUnderTrainingRunner,
    PipeHost,
    ReleaseModeModelRunner,
    ScriptedRunner,
)
from mlgo_gym.runners.grpc._client import GrpcInteractiveModelRunner
from mlgo_gym.runners.grpc._server import serve_grpc
from mlgo_gym.testing import round_trips_us

INPUTS = tuple(TensorSpec(f"feature_{index}", "int64_t", (1,)) for index in range(35))
OUTPUT = TensorSpec("decision", "int64_t", (1,))
VALUES = tuple(range(35))
ROUNDS, CALLS, TRIPS = 7, 20_000, 5_000
CALLS_TO_ANOTHER = 200  # process, or library: each is a hundred times as long


def run(model: Path) -> None:
    start = time.perf_counter()
    release = ReleaseModeModelRunner(model, INPUTS, OUTPUT, trusted=True)
    print(f"release: loading and compiling took {1e3 * (time.perf_counter() - start):.0f} ms")
    under_training = ModelUnderTrainingRunner(model, INPUTS, OUTPUT)
    rows = [("TFLite: invoke alone", timed(tflite(model)))]
    for name, runner, calls in (
        ("release", release, CALLS),
        ("under training", under_training, CALLS_TO_ANOTHER),
    ):
        for what, call in (
            ("inputs in place", runner.evaluate_untyped),
            ("35 numbers from Python, then evaluate", filling(runner)),
            ("packed observation, then evaluate", packed(runner)),
        ):
            rows.append((f"{name}: {what}", timed(call, calls)))
    if importlib.util.find_spec("tensorflow"):
        each_us = timed(saved_model(model), CALLS_TO_ANOTHER)
        rows.append(("TensorFlow: SavedModel from Python", each_us))
    bare = rows[0][1]
    for name, each_us in rows:
        print(f"{name:52} {each_us:9.2f} us  {each_us / bare:7.2f} x TFLite's invoke")
    for name, trips in (("FIFOs", pipe_trips()), ("gRPC, loopback", grpc_trips("localhost:0"))):
        print_trips(name, trips)
    with tempfile.TemporaryDirectory() as folder:
        print_trips("gRPC, Unix socket", grpc_trips(f"unix:{folder}/socket"))


def timed(call: Callable[[], object], calls: int = CALLS) -> float:
    return 1e6 * min(timeit.repeat(call, number=calls, repeat=ROUNDS)) / calls


def filling(runner: MLModelRunner) -> Callable[[], object]:
    views = [runner.get_tensor_untyped(index).cast("q") for index in range(len(INPUTS))]

    def fill_and_evaluate() -> object:
        for view, value in zip(views, VALUES, strict=True):
            view[0] = value
        return runner.evaluate_untyped()

    return fill_and_evaluate


def packed(runner: MLModelRunner) -> Callable[[], object]:
    payload = struct.pack("=35q", *VALUES)

    def fill_and_evaluate() -> object:
        runner.fill(payload)
        return runner.evaluate_untyped()

    return fill_and_evaluate


def tflite(model: Path) -> Callable[[], object]:
    module = importlib.import_module("ai_edge_litert.interpreter")
    interpreter = module.Interpreter(str(model / "model.tflite"), num_threads=1)
    interpreter.allocate_tensors()
    invoke: Callable[[], object] = interpreter.invoke
    return invoke


def saved_model(model: Path) -> Callable[[], object]:
    tensorflow: Any = importlib.import_module("tensorflow")
    loaded = tensorflow.saved_model.load(str(model))
    action = loaded.signatures["action"]
    tensors = {
        spec.name: tensorflow.constant(np.array([value], np.int64))
        for spec, value in zip(INPUTS, VALUES, strict=True)
    }

    def decide() -> object:
        return action(**tensors)["decision"].numpy()

    return decide


def answering(inputs: Sequence[TensorSpec], output: TensorSpec) -> ScriptedRunner:
    answer = output.encode(1)
    runner = ScriptedRunner(lambda _: 1, inputs, output)
    runner._evaluate = lambda: answer  # type: ignore[method-assign]  # noqa: SLF001
    return runner


def pipe_trips() -> list[float]:
    host = PipeHost(answering)
    context = multiprocessing.get_context("spawn")
    client = context.Process(target=_pipe_client, args=(host.base, queue := context.Queue()))
    client.start()
    with host:
        host.serve(client.is_alive)
    trips: list[float] = queue.get()
    client.join()
    return trips


def _pipe_client(base: str, queue: Any) -> None:
    with InteractiveModelRunner(base, INPUTS, OUTPUT) as runner:
        queue.put(trips_of(runner))


def grpc_trips(address: str) -> list[float]:
    context = multiprocessing.get_context("spawn")
    ready, done, queue = context.Event(), context.Event(), context.Queue()
    host = context.Process(target=_grpc_host, args=(address, ready, done, queue))
    host.start()
    ready.wait(60)
    with GrpcInteractiveModelRunner(queue.get(), INPUTS, OUTPUT) as runner:
        trips = trips_of(runner)
    done.set()
    host.join()
    return trips


def _grpc_host(address: str, ready: Any, done: Any, queue: Any) -> None:
    with serve_grpc(answering, address=address) as host:
        queue.put(host.address)
        ready.set()
        done.wait(600)


def trips_of(runner: MLModelRunner) -> list[float]:
    runner.switch_context("")
    trips: list[float] = round_trips_us(runner, TRIPS).tolist()
    return trips


def print_trips(name: str, trips: list[float]) -> None:
    ninety_nine = quantiles(trips, n=100)[98]
    print(
        f"{name:24} round trip: median {median(trips):7.1f} us, 99th percentile {ninety_nine:7.1f}"
    )
