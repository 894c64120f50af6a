"""A small file cannot ask for much memory or time; what refuses it says what is taken instead."""

from __future__ import annotations

import re
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from mlgo_gym.errors import ModelError
from mlgo_gym.model import _tflite_reader
from mlgo_gym.model._elementwise import (
    MAX_CONSTANT_BYTES,
    MAX_INSTRUCTIONS,
    MAX_LINES,
    MAX_PORT_BYTES,
    MAX_STACK_BYTES,
)
from mlgo_gym.model._graph import Attribute, Graph, Operator, Port, Tensor
from mlgo_gym.model._model import compile_model, lower_and_count, lower_graph
from mlgo_gym.model._tflite_reader import MAX_OPERANDS, read_tflite
from tests.model.graphs import Sketch
from tests.model.make_models import FOLDER

TFLITE = "; TFLite takes more (--mode under-training)"
MATRICES: dict[str, Attribute] = {"adj_x": False, "adj_y": False}


def floats(name: str, *shape: int) -> Tensor:
    return Tensor(name, "float32", shape)


def one(kind: str, inputs: list[Tensor], output: Tensor, **attributes: Attribute) -> Graph:
    """One operator; inputs without data are the graph's."""
    last = len(inputs)
    given = [number for number, tensor in enumerate(inputs) if tensor.data is None]
    return Graph(
        source="test",
        tensors=(*inputs, output),
        operators=(Operator(kind, tuple(range(last)), (last,), attributes),),
        inputs=tuple(Port(f"in{number}", number) for number in given),
        outputs=(Port("out", last),),
    )


def long_chain(count: int) -> Graph:
    """Many operators, each a loop of some lines."""
    tensors = tuple(floats(f"t{number}", 2) for number in range(count + 1))
    steps = tuple(Operator("RELU", (each,), (each + 1,), {}) for each in range(count))
    return Graph("test", tensors, steps, (Port("in", 0),), (Port("out", count),))


def output_many_times() -> Graph:
    tensor = Tensor("step_type", "int64", (1 << 20,))
    outputs = tuple(Port(f"out{number}", 0) for number in range(400))
    return Graph("test", (tensor,), (), (Port("step_type", 0),), outputs)


def lookups() -> Graph:
    """Constants that the function needs and that are too large together."""
    table = floats("c", MAX_CONSTANT_BYTES // 4)
    table = Tensor(table.name, table.dtype, table.shape, bytes(table.size_bytes))
    at = Tensor("at", "int32", (1,), bytes(4))
    return one("GATHER", [table, at, floats("x", 1)], floats("y", 1), axis=0, batch_dims=0)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            one("RELU", [floats("x", MAX_STACK_BYTES // 4 + 1)],
                floats("y", MAX_STACK_BYTES // 4 + 1)),
            f"tensor 'y': expected intermediate results of at most {MAX_STACK_BYTES} bytes, "
            f"found {MAX_STACK_BYTES + 64}{TFLITE}",
        ),
        (
            lookups(),
            f"expected constants of at most {MAX_CONSTANT_BYTES} bytes, "
            f"found {MAX_CONSTANT_BYTES + 4}{TFLITE}",
        ),
        (
            output_many_times(),
            f"expected outputs of at most {MAX_PORT_BYTES} bytes, found {400 << 23}{TFLITE}",
        ),
        (
            one("SUM", [floats("x", 1 << 23), Tensor("axes", "int32", (1,), bytes(4))],
                floats("y")),
            f"expected inputs of at most {MAX_PORT_BYTES} bytes, found {1 << 25}{TFLITE}",
        ),
        (
            one("BATCH_MATMUL", [floats("x", 256, 2900), floats("w", 2900, 256)],
                floats("y", 256, 256), **MATRICES),
            f"expected at most {MAX_INSTRUCTIONS} instructions an evaluation, "
            f"found 127713028{TFLITE}",
        ),
        (
            long_chain(5000),
            f"expected at most {MAX_LINES} lines of LLVM IR, found 65537{TFLITE}",
        ),
        (
            one("SUM", [floats("x", 4), Tensor("axes", "int32", (17,), bytes(68))], floats("y")),
            "operator 0 (SUM) of tensor 'y': expected at most 16 constant integers as input 1, "
            "found 17",
        ),
    ],
    ids=["stack", "constants", "outputs", "inputs", "instructions", "lines", "axes"],
)  # fmt: skip
def test_what_is_too_much(made: Graph, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        lower_graph(made)
    assert str(caught.value) == f"model 'test': {message}"


def test_instructions_are_those_of_all_turns_of_all_loops() -> None:
    axis = Tensor("axis", "int32", (1,), np.array([1], np.int32).tobytes())
    (text, fewer), (_, more) = (
        lower_and_count(one("REDUCE_MAX", [floats("x", 3, size), axis], floats("y", 3)), "m")
        for size in (5, 6)
    )
    (inner,) = (label for label in re.findall(r"^(l\d+)\.exit:", text, re.MULTILINE)[:1])
    turn = text.partition(f"\n{inner}.body:\n")[2].partition(f"\n{inner}.exit:")[0]
    assert more - fewer == 3 * sum(not line.endswith(":") for line in turn.splitlines())


def test_too_many_operands() -> None:
    sketch = Sketch(lambda _: 0)
    sketch.input((1,), "float32", 1.0)
    count = MAX_OPERANDS // 16
    for _ in range(17):
        options = ("ConcatenationOptions", {"axis": 0})
        sketch.step("CONCATENATION", [sketch.inputs[0]] * count, (count,), options)
    with pytest.raises(ModelError) as caught:
        read_tflite(sketch.graph().data)
    assert str(caught.value) == (
        f"model '<bytes>': expected at most {MAX_OPERANDS} inputs and outputs of operators in "
        "all, found more"
    )


def test_too_many_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tflite_reader, "MAX_TABLES", 9)
    with pytest.raises(ModelError) as caught:
        read_tflite((FOLDER / "dense.tflite").read_bytes())
    assert str(caught.value) == (
        "model '<bytes>': not a TFLite file: expected at most 9 tables in all, found more"
    )


@pytest.mark.parametrize(
    ("kind", "inputs", "output", "attributes", "message"),
    [
        (
            "SLICE",
            [floats("x", 2), Tensor("begin", "int64", (1,), (-(1 << 63)).to_bytes(8, "little",
                                                                                 signed=True)),
             Tensor("size", "int64", (1,), b"\xff" * 8)],
            floats("y", 2),
            {},
            "expected positions of 0 to 1, found range(-9223372036854775808, 2)",
        ),
        (
            "ONE_HOT",
            [Tensor("x", "int32", (2,)), Tensor("depth", "int32", (2,), bytes(8)),
             floats("on", 1), floats("off", 1)],
            floats("y", 2, 2),
            {"axis": -1},
            "expected a number of depths of 1, found 2",
        ),
    ],
)  # fmt: skip
def test_constants_that_were_raw_errors(
    kind: str, inputs: list[Tensor], output: Tensor, attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        lower_graph(one(kind, inputs, output, **attributes))
    assert str(caught.value) == f"model 'test': operator 0 ({kind}) of tensor 'y': {message}"


def test_other_threads_run_while_a_long_evaluation_does() -> None:
    sketch = Sketch(lambda _: 0)
    for shape in ((256, 1500), (1500, 256)):
        sketch.input(shape, "float32", 1.0)
    sketch.step("BATCH_MATMUL", sketch.inputs, (256, 256), ("BatchMatMulOptions", {}))
    native = compile_model(sketch.graph().data, trusted=True)
    assert MAX_INSTRUCTIONS // 2 < native.instructions < MAX_INSTRUCTIONS
    inputs = [np.ones(port.spec.shape, np.float32) for port in native.inputs]
    outputs = [np.zeros(port.spec.shape, np.float32) for port in native.outputs]
    turns, interval = [0], sys.getswitchinterval()
    is_done = threading.Event()

    def count() -> None:
        while not is_done.is_set():
            turns[0] += 1
            time.sleep(0)  # lets go of the GIL, of which nobody is asked for 1,000 seconds

    thread = threading.Thread(target=count)
    with native.bind(inputs, outputs) as bound:
        sys.setswitchinterval(1000)
        try:
            thread.start()
            before = turns[0]
            for _ in range(100):
                bound.call()
                if turns[0] > before:
                    break
        finally:
            is_done.set()
            sys.setswitchinterval(interval)
            thread.join()
    assert turns[0] > before
    np.testing.assert_array_equal(outputs[0], np.full((256, 256), 1500.0, np.float32))


def test_outputs_are_copied_without_loops() -> None:
    """LLVM asks of each two loops over outputs whether these overlap: 50 took it three seconds."""
    outputs = tuple(Port(f"out{number}", 0) for number in range(50))
    made = Graph("test", (floats("x", 57),), (), (Port("x", 0),), outputs)
    text, instructions = lower_and_count(made, "m")
    assert text.count("@llvm.memcpy") == len(outputs)
    assert ".body:" not in text
    assert instructions < 4 * len(outputs) + 4
