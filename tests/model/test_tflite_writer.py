"""Graphs that are written as TFLite are read again as they were, and evaluated alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from mlgo_gym.base._tensor_spec import SCALAR_TYPES, TensorSpec
from mlgo_gym.errors import ModelError
from mlgo_gym.model._card import find_model, shipped_models
from mlgo_gym.model._graph import DTYPES, Graph, Operator, Port, Tensor
from mlgo_gym.model._tflite_reader import read_tflite
from mlgo_gym.model._tflite_writer import write_tflite
from tests.generated import examples
from tests.model import graphs as sketched
from tests.model.agreement import Array, interpreter
from tests.model.make_models import FOLDER
from tests.model.test_agreement import MODELS, draw
from tests.model.test_generated_graphs import graphs

SPELLED = {dtype: name for name, dtype in SCALAR_TYPES.items()}


def answers(model: Path | bytes, values: list[Array]) -> list[Array]:
    """TFLite's results."""
    tflite = interpreter(model)
    for port, value in zip(tflite.get_input_details(), values, strict=True):
        tflite.set_tensor(port["index"], value)
    tflite.invoke()
    return [tflite.get_tensor(port["index"]) for port in tflite.get_output_details()]


@pytest.mark.parametrize("name", MODELS)
def test_every_operator(name: str) -> None:
    path = FOLDER / f"{name}.tflite"
    graph = read_tflite(path)
    data = write_tflite(graph)
    assert read_tflite(data, source=graph.source) == graph
    given = [(port.name, graph.tensors[port.tensor]) for port in graph.inputs]
    specs = [
        TensorSpec(name, SPELLED[DTYPES[tensor.dtype]], tensor.shape) for name, tensor in given
    ]
    random = np.random.default_rng(1)
    for _ in range(5):
        values = [draw(random, name, spec) for spec in specs]
        for expected, found in zip(answers(path, values), answers(data, values), strict=True):
            np.testing.assert_array_equal(expected, found)


@pytest.mark.parametrize("name", shipped_models())
def test_shipped_models(name: str) -> None:
    graph = read_tflite(f"{find_model(name)}/model.tflite")
    assert read_tflite(write_tflite(graph), source=graph.source) == graph


@examples(30)
@given(graphs())
def test_random_graphs(made: sketched.Graph) -> None:
    graph = read_tflite(made.data)
    assert read_tflite(write_tflite(graph), source=graph.source) == graph


def test_a_constant_is_aligned() -> None:
    """TFLite reads constants where they are."""
    values = np.arange(5, dtype=np.float32).tobytes()
    tensors = (
        Tensor("x", "float32", (5,)),
        Tensor("c", "float32", (5,), values),
        Tensor("y", "float32", (5,)),
    )
    step = Operator("ADD", (0, 1), (2,), {})
    data = write_tflite(Graph("", tensors, (step,), (Port("x", 0),), (Port("y", 2),)))
    assert data.index(values) % 16 == 0


def test_an_operator_that_is_not_known() -> None:
    tensors = (Tensor("x", "float32", (1,)), Tensor("y", "float32", (1,)))
    graph = Graph(
        "here", tensors, (Operator("SIN", (0,), (1,), {}),), (Port("x", 0),), (Port("y", 1),)
    )
    with pytest.raises(ModelError, match="^model 'here': operator SIN: expected one of ABS, "):
        write_tflite(graph)
