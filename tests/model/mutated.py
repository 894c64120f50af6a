"""Graphs that are nearly sound: valid ones with fields, numbers and bytes changed."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import flatbuffers
import numpy as np

from mlgo_gym.model._model import compile_model, lower_graph
from mlgo_gym.model._tflite_reader import read_tflite
from tests.model.make_models import FOLDER

SIZES: Final = (0, 1, 2, 3, -1, -2, 7, 8, 9, 16, 17, 127, 128, 255, 256, -128, 1 << 15, 1 << 16,
                1 << 20, 1 << 24, (1 << 24) + 1, (1 << 31) - 1, -(1 << 31))  # fmt: skip
NUMBERS: Final = (*SIZES, (1 << 63) - 1, -(1 << 63), 1 << 32, 1 << 40)
REALS: Final = (0.0, -1.0, float("nan"), float("inf"), 1e30)
MAX_OPERANDS: Final = 70_000
DECISION_S: Final = 0.1


def seeds() -> list[bytes]:
    """A graph of each operator, those of tests, and some that are refused."""
    found = [
        *sorted(FOLDER.rglob("*.tflite")),
        *sorted(FOLDER.parents[1].glob("models/*/*.tflite")),
    ]
    return [path.read_bytes() for path in found]


def lower(path: Path) -> None:
    """What is done with a stranger's graph in this process."""
    lower_graph(read_tflite(path))


def evaluate(path: Path) -> None:
    """And what is done with it in the end: compiled and evaluated, on ones and on large numbers.

    Raises:
        AssertionError: a decision took more than 100 ms of the CPU.
    """
    native = compile_model(path)
    inputs = [np.ones(port.spec.shape, port.spec.dtype) for port in native.inputs]
    outputs = [np.zeros(port.spec.shape, port.spec.dtype) for port in native.outputs]
    with native.bind(inputs, outputs) as bound:
        for value in (1, 100, -1):
            for each in inputs:
                each.fill(value if each.dtype != np.uint8 else 1)
            start = time.process_time()
            bound.call()
            if (spent := time.process_time() - start) > DECISION_S:
                raise AssertionError(f"a decision took {spent:.2f} s")


def of_graph(random: np.random.Generator, data: bytes) -> bytes:
    """One to three fields changed, or one to four places in the bytes, or both."""
    made = data
    if random.random() < 0.6:
        with contextlib.suppress(TypeError, struct.error):  # a number that a field cannot hold
            made = _with_other_fields(random, data)
    if made is data or random.random() < 0.15:
        made = _with_other_bytes(random, made)
    return made


def _with_other_bytes(random: np.random.Generator, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(int(random.integers(1, 5))):
        at, kind = int(random.integers(0, len(made))), int(random.integers(0, 6))
        word = at & ~3
        if kind == 0:
            made[at] ^= 1 << int(random.integers(0, 8))
        elif kind == 1:
            made[at] = int(random.integers(0, 256))
        elif kind == 2:
            made[word : word + 4] = (_pick(random, SIZES) & 0xFFFFFFFF).to_bytes(4, "little")
        elif kind == 3:
            number = int.from_bytes(made[word : word + 4], "little")
            number += _pick(random, (-8, -4, -2, -1, 1, 2, 4, 8))
            made[word : word + 4] = (number & 0xFFFFFFFF).to_bytes(4, "little")
        elif kind == 4:
            start, length = int(random.integers(0, len(made))), int(random.integers(1, 64))
            made[at : at + length] = made[start : start + length]
        elif len(made) > 64:
            del made[max(20, at) : at + int(random.integers(1, 16))]
    return bytes(made)


def _with_other_fields(random: np.random.Generator, data: bytes) -> bytes:
    model = _copied(_unpacked(data))
    for _ in range(int(random.integers(1, 4))):
        _change(random, model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


@functools.lru_cache(256)
def _unpacked(data: bytes) -> Any:
    """A sound graph as objects, which are not to be changed."""
    schema = importlib.import_module("ai_edge_litert.schema_py_generated")
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(bytearray(data), 0))


def _copied(model: Any) -> Any:
    """A graph of which everything that `_change` changes is another."""
    made, graph = copy.copy(model), copy.copy(model.subgraphs[0])
    made.subgraphs = [graph, *model.subgraphs[1:]]
    made.buffers = [copy.copy(each) for each in model.buffers]
    made.operatorCodes = [copy.copy(each) for each in model.operatorCodes]
    graph.tensors = [copy.copy(each) for each in graph.tensors]
    graph.operators = [copy.copy(each) for each in graph.operators]
    for operator in graph.operators:
        operator.builtinOptions = copy.copy(operator.builtinOptions)
    return made


def _change(random: np.random.Generator, model: Any) -> None:
    graph = model.subgraphs[0]
    tensor = _pick(random, graph.tensors)
    operator = _pick(random, graph.operators) if graph.operators else None
    match int(random.integers(0, 12)):
        case 0 | 1 | 2:
            tensor.shape = _list(random, tensor.shape)
        case 3:
            tensor.type = _pick(random, (0, 2, 4, 6, 6, 1, 3, 9, 10))
        case 4:
            tensor.buffer = int(random.integers(0, len(model.buffers) + 1))
        case 5 if operator:
            operator.inputs = _list(random, operator.inputs)
        case 6 if operator:
            operator.outputs = _list(random, operator.outputs)
        case 7 if model.operatorCodes:
            code = _pick(random, model.operatorCodes)
            code.builtinCode = int(random.integers(0, 209))
            code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        case 8 if operator and operator.builtinOptions:
            _change_option(random, operator.builtinOptions)
        case 9:
            _change_constant(random, _pick(random, model.buffers))
        case 10:
            graph.inputs = _list(random, graph.inputs)
        case _:
            graph.outputs = _list(random, graph.outputs)


def _change_option(random: np.random.Generator, options: Any) -> None:
    named = [name for name, value in vars(options).items() if isinstance(value, int | float)]
    if not named:
        return
    name = _pick(random, named)
    value = getattr(options, name)
    if isinstance(value, bool):
        changed: Any = not value
    elif isinstance(value, float):
        changed = _pick(random, REALS)
    else:
        changed = _pick(random, (0, 1, 2, 3, -1, -2, 5, 8, 100, 127, -128))
    setattr(options, name, changed)


def _change_constant(random: np.random.Generator, buffer: Any) -> None:
    if buffer.data is None or not len(buffer.data):
        return
    made = bytearray(np.asarray(buffer.data, np.uint8).tobytes())
    width = _pick(random, (4, 8))
    at = int(random.integers(0, len(made))) & ~(width - 1)
    number = _pick(random, NUMBERS) & ((1 << 8 * width) - 1)
    made[at : at + width] = number.to_bytes(width, "little")
    buffer.data = np.frombuffer(bytes(made), np.uint8)


def _list(random: np.random.Generator, values: Any) -> list[int]:
    made = [] if values is None else [int(each) for each in values]
    kind = int(random.integers(0, 5))
    if kind == 1:
        made.insert(int(random.integers(0, len(made) + 1)), _pick(random, SIZES))
    elif made:
        at = int(random.integers(0, len(made)))
        if kind == 0:
            made[at] = _pick(random, SIZES)
        elif kind == 2:
            del made[at]
        elif kind == 3:
            made[at] += _pick(random, (-1, 1))
        else:
            made *= _pick(random, (2, 3, 50))
    return [max(-(1 << 31), min((1 << 31) - 1, each)) for each in made][:MAX_OPERANDS]


def _pick(random: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(random.integers(0, len(values)))]
