"""What graphs may hold, what is refused, and how exact the elementary functions are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mlgo_gym.errors import ModelError
from mlgo_gym.model._graph import Attribute, Graph, Operator, Port, Tensor
from mlgo_gym.model._model import compile_ir, compile_model, lower_graph
from mlgo_gym.model._tflite_reader import read_tflite
from tests.model.make_models import FOLDER

Array = np.ndarray[Any, Any]


def ints(name: str, *values: int) -> Tensor:
    return Tensor(name, "int32", (len(values),), np.array(values, np.int32).tobytes())


def graph(
    kind: str,
    inputs: list[Tensor],
    output: Tensor,
    attributes: dict[str, Attribute] | None = None,
) -> Graph:
    """One operator; inputs without data are the graph's."""
    given = [number for number, tensor in enumerate(inputs) if tensor.data is None]
    last = len(inputs)
    return Graph(
        source="test",
        tensors=(*inputs, output),
        operators=(Operator(kind, tuple(range(last)), (last,), attributes or {}),),
        inputs=tuple(Port(f"in{number}", number) for number in given),
        outputs=(Port("out", last),),
    )


def floats(name: str, *shape: int) -> Tensor:
    return Tensor(name, "float32", shape)


X = floats("x", 2, 3)
WEIGHTS = Tensor("w", "float32", (4, 3), bytes(48))
MATMUL: dict[str, Attribute] = {"adj_x": False, "adj_y": False}
DENSE: dict[str, Attribute] = {"activation": "none", "weights_format": 0, "keep_num_dims": 0}


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (graph("SIN", [X], floats("y", 2, 3)), "not supported"),
        (
            graph("ADD", [X, floats("z", 2)], floats("y", 2, 3), {"activation": "none"}),
            "expected input 'z' to fit the shape [2, 3], found [2]",
        ),
        (
            graph("ADD", [X, floats("z", 3)], floats("y", 3), {"activation": "none"}),
            "expected the output's shape to be [2, 3], found [3]",
        ),
        (
            graph("ADD", [X, Tensor("z", "int32", (3,))], floats("y", 2, 3)),
            "expected the type of input 'z' to be float32, found int32",
        ),
        (
            graph("ADD", [X, X], Tensor("y", "int32", (2, 3)), {"activation": "none"}),
            "expected elements of type float32, found int32",
        ),
        (
            graph("ADD", [X, X], floats("y", 2, 3), {"activation": "sign_bit"}),
            "expected no activation, found sign_bit of float32",
        ),
        (graph("ADD", [X], floats("y", 2, 3)), "expected an input 1, found 1"),
        (
            graph("TANH", [Tensor("x", "int32", (2,))], Tensor("y", "int32", (2,))),
            "expected float32 as input 'x', found int32",
        ),
        (
            graph("FULLY_CONNECTED", [X, floats("w", 4)], floats("y", 2, 4), DENSE),
            "expected a matrix as weights, found Tensor(name='w', dtype='float32', shape=(4,))",
        ),
        (
            graph("FULLY_CONNECTED", [floats("x", 2, 2), WEIGHTS], floats("y", 2, 4), DENSE),
            "expected rows of 3 inputs, found [2, 2]",
        ),
        (
            graph("FULLY_CONNECTED", [X, WEIGHTS], floats("y", 2, 5), DENSE),
            "expected the output's shape to be [2, 4], found [2, 5]",
        ),
        (
            graph("BATCH_MATMUL", [X, floats("w", 4, 3)], floats("y", 2, 3), MATMUL),
            "expected the last dimension of the input to be 4, found 3",
        ),
        (
            graph("BATCH_MATMUL", [X, floats("w", 3, 4)], floats("y", 2, 3), MATMUL),
            "expected the output's shape to be (2, 4), found (2, 3)",
        ),
        (
            graph("BATCH_MATMUL", [X, floats("w", 2, 3, 4)], floats("y", 2, 2, 4), MATMUL),
            "expected rows and one matrix, found (2, 3) and (2, 3, 4)",
        ),
        (
            graph("BATCH_MATMUL", [X, X], floats("y", 2, 2), {"adj_x": False, "adj_y": True}),
            "expected matrices as they are, found one to be transposed",
        ),
        (
            graph("RESHAPE", [X], floats("y", 7)),
            "expected a number of elements of 6, found 7",
        ),
        (
            graph("CONCATENATION", [X, X], floats("y", 4, 3), {"axis": 2, "activation": "none"}),
            "expected an axis of -2 to 1, found 2",
        ),
        (
            graph("CONCATENATION", [X, X], floats("y", 5, 3), {"axis": 0, "activation": "none"}),
            "expected the output's dimension 0 to be 4, found 5",
        ),
        (
            graph("PACK", [X, floats("z", 3, 2)], floats("y", 2, 2, 3), {"axis": 0}),
            "expected the shape of input 'z' to be [2, 3], found [3, 2]",
        ),
        (
            graph("TILE", [X, ints("times", 2)], floats("y", 4, 3)),
            "expected a number of multiples of 2, found 1",
        ),
        (
            graph("TILE", [X, Tensor("times", "int32", (2,))], floats("y", 4, 3)),
            "expected constant integers as input 1, found Tensor(name='times', dtype='int32', "
            "shape=(2,))",
        ),
        (
            graph("GATHER", [X, ints("at", 0)], floats("y", 2, 3), {"axis": 0, "batch_dims": 0}),
            "expected the output's shape to be [1, 3], found [2, 3]",
        ),
        (
            graph("GATHER", [X, ints("at", 0)], floats("y", 1, 3), {"axis": 0, "batch_dims": 1}),
            "expected a number of batch dimensions of 0, found 1",
        ),
        (
            graph("SUM", [X, ints("axes", 1)], floats("y", 3)),
            "expected the output's shape to be [2] or [2, 1], found [3]",
        ),
        (
            graph("ARG_MAX", [X, ints("axes", 0, 1)], Tensor("y", "int64", (3,))),
            "expected a number of axes of 1, found 2",
        ),
        (
            graph("ARG_MAX", [X, ints("axis", 0)], floats("y", 3)),
            "expected an output of int32 or int64, found float32",
        ),
        (
            graph("SLICE", [X, ints("begin", 1, 1), ints("size", 2, 1)], floats("y", 2, 1)),
            "expected positions of 0 to 1, found range(1, 3)",
        ),
        (
            graph("SLICE", [X, ints("begin", -1, 1), ints("size", 2, 1)], floats("y", 2, 1)),
            "expected positions of 0 to 1, found range(-1, 1)",
        ),
        (
            graph("SELECT", [Tensor("c", "bool", (3,)), X, X], floats("y", 2, 3)),
            "expected a condition of the output's shape, found one of rank 1",
        ),
        (
            graph("TRANSPOSE", [X, ints("order", 0, 0)], floats("y", 2, 2)),
            "expected a permutation of [0, 1], found [0, 0]",
        ),
        (
            graph("RELU", [X], Tensor("y", "float32", (0,))),
            "expected elements",
        ),
    ],
)
def test_graphs_that_are_refused(made: Graph, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        lower_graph(made)
    kind = made.operators[0].kind
    expected = f"model 'test': operator 0 ({kind}) of tensor 'y': {message}"
    if message == "expected elements":
        expected = "model 'test': input or output 'out': expected elements"
    assert str(caught.value) == expected


@pytest.mark.parametrize(("kind", "shape"), [("SELECT", (2, 3)), ("SELECT_V2", (3,))])
def test_conditions_that_fit(kind: str, shape: tuple[int, ...]) -> None:
    choices = [X, Tensor("z", "float32", (2, 3))]
    assert lower_graph(graph(kind, [Tensor("c", "bool", shape), *choices], floats("y", 2, 3)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": ()}, "model 'test': operator RELU: tensor 'x' has no value yet"),
        ({"outputs": ()}, "model 'test': expected inputs and outputs, found 1 and 0"),
        (
            {"inputs": (Port("a", 0), Port("b", 0))},
            "model 'test': input 'b': tensor 'x' has a value already",
        ),
        (
            {"outputs": (Port("out", 9),)},
            "model 'test': output 'out': expected a tensor of 0 to 1, found 9",
        ),
        (
            {"operators": (Operator("RELU", (1,), (1,), {}),)},
            "model 'test': operator RELU: tensor 'y' has no value yet",
        ),
        (
            {"operators": (Operator("RELU", (0,), (0,), {}),)},
            "model 'test': operator RELU: tensor 'x' has a value already",
        ),
        (
            {"operators": (Operator("RELU", (-2,), (1,), {}),)},
            "model 'test': operator RELU: expected a tensor of 0 to 1, found -2",
        ),
        (
            {
                "tensors": (X, floats("y", 2, 3), floats("z", 2, 3)),
                "inputs": (Port("a", 0), Port("a", 2)),
            },
            "model 'test': expected inputs with different names, found ['a', 'a']",
        ),
    ],
)
def test_graphs_that_make_no_sense(change: dict[str, Any], message: str) -> None:
    made = graph("RELU", [X], floats("y", 2, 3))
    with pytest.raises(ModelError) as caught:
        dataclasses.replace(made, **change)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Tensor("t", "float16", (1,)),
            "model 't': expected a type out of float32, float64, int8, int16, int32, int64, "
            "uint8, uint16, uint32, uint64, bool, found float16",
        ),
        (
            lambda: Tensor("t", "int32", (1,) * 9),
            "model 't': expected at most 8 dimensions of 0 to 16777216 elements, "
            "found (1, 1, 1, 1, 1, 1, 1, 1, 1)",
        ),
        (
            lambda: Tensor("t", "int32", (1 << 23, 4)),
            "model 't': expected at most 16777216 elements, found 33554432",
        ),
        (  # numpy refuses such a shape even where a 0 makes it empty
            lambda: Tensor("t", "int32", (0, 1 << 23, 4), b""),
            "model 't': expected at most 16777216 elements, found 33554432",
        ),
        (
            lambda: Tensor("t", "int32", (2,), b"123"),
            "model 't': expected 8 bytes of data, found 3",
        ),
        (
            lambda: Tensor("t", "int32", (2,)).values(),
            "model 't': expected a constant tensor, found a computed one",
        ),
    ],
)
def test_tensors_that_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        make()
    assert str(caught.value) == message


@pytest.mark.parametrize("kind", ["SQUEEZE", "EXPAND_DIMS"])
def test_operators_that_todays_converter_writes_as_reshape(kind: str) -> None:
    read = read_tflite(FOLDER / "reshape.tflite")
    operators = tuple(
        dataclasses.replace(each, kind=kind) if each.kind == "RESHAPE" else each
        for each in read.operators
    )
    assert lower_graph(dataclasses.replace(read, operators=operators)) == lower_graph(read)


def ulps(found: Array, exact: Array) -> float:
    """The largest error in units of the last place of the exact result."""
    limits = np.finfo(np.float32)
    finite = (np.abs(exact) > limits.tiny) & (np.abs(exact) < limits.max)
    unit = np.spacing(np.abs(exact[finite]).astype(np.float32)).astype(np.float64)
    return float((np.abs(found[finite] - exact[finite]) / unit).max())


@pytest.mark.parametrize(
    ("name", "exact", "limit"),
    [
        ("exp", np.exp, 2.5),
        ("log", lambda x: np.log(np.abs(x)), 2.5),
        ("tanh", np.tanh, 3.0),
        ("logistic", lambda x: 1 / (1 + np.exp(-x)), 4.0),
    ],
)
def test_elementary_functions_over_all_exponents(
    name: str, exact: Callable[[Array], Array], limit: float
) -> None:
    native = compile_model(FOLDER / f"{name}.tflite", trusted=True)
    given = np.zeros(native.inputs[0].spec.shape, np.float32)
    answer = np.zeros_like(given)
    bits = np.arange(0, 2**32 - 1, 75_011, dtype=np.uint64).astype(np.uint32)
    values = bits[: len(bits) // given.size * given.size].view(np.float32)
    values = values[~np.isnan(values)]
    values = values[: len(values) // given.size * given.size].reshape(-1, *given.shape)
    results = []
    with native.bind([given], [answer]) as bound:
        for value in values:
            given[...] = value
            assert bound.call() == 0
            results.append(answer.copy())
        given[...] = np.nan
        bound.call()
        assert np.isnan(answer).all()
    with np.errstate(all="ignore"):
        expected = exact(values.astype(np.float64))
    found = np.array(results, np.float64)
    assert ulps(found, expected) <= limit
    with np.errstate(over="ignore"):
        overflow = np.isinf(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isinf(found), overflow)


@pytest.mark.parametrize("trusted", [False, True])
def test_ir_that_llvm_refuses(trusted: bool) -> None:
    with pytest.raises(ModelError, match="^model 'test': LLVM IR parsing error"):
        compile_ir("define nonsense", source="test", trusted=trusted)


def test_a_worker_makes_the_same_object() -> None:
    text = "define i32 @f(i32 %x) {\n  %y = mul i32 %x, 3\n  ret i32 %y\n}\n"
    assert compile_ir(text, source="test") == compile_ir(text, source="test", trusted=True)


def test_a_compiler_that_takes_too_long() -> None:
    with pytest.raises(ModelError) as caught:
        compile_ir("", source="test", timeout_s=0.001)
    assert (
        str(caught.value) == "model 'test': not compiled within 0.001 s; timeout_s lifts the limit"
    )


def test_a_compiler_that_dies() -> None:
    with pytest.raises(ModelError, match="^model 'test': the compiler died with status "):
        compile_ir('module asm "no such instruction"', source="test")
