"""Settings and shapes of operators that are refused, each with what was expected and found."""

from __future__ import annotations

import dataclasses

import pytest

from mlgo_gym.errors import ModelError
from mlgo_gym.model._graph import Attribute, Graph, Operator, Port, Tensor
from mlgo_gym.model._model import lower_graph
from tests.model.test_lowering import DENSE, WEIGHTS, X, floats, graph, ints

SLICES: dict[str, Attribute] = dict.fromkeys(
    ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask", "offset"), 0
)


def sliced(shape: tuple[int, ...], strides: tuple[int, ...], **masks: Attribute) -> Graph:
    """The first of each of some dimensions of a matrix."""
    bounds = [ints("begin", *[0] * len(strides)), ints("end", *[1] * len(strides))]
    inputs = [X, *bounds, ints("strides", *strides)]
    return graph("STRIDED_SLICE", inputs, floats("y", *shape), SLICES | masks)


NO_SLICE = "expected neither an ellipsis nor offsets nor strides of 0"
EMPTY = Tensor("e", "float32", (0, 3), b"")
BIASES = floats("b", 4)
MANY = 1 << 14
BUCKETS = Tensor("y", "int32", (2, 3))
OTHER_WEIGHTS = DENSE | {"weights_format": 1}


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (sliced((1, 1), (1, 1), ellipsis_mask=1), NO_SLICE),
        (sliced((1, 1), (1, 1), offset=True), NO_SLICE),
        (sliced((1, 1), (1, 0)), NO_SLICE),
        (sliced((1, 1, 1), (1, 1, 1)), "expected slices of 2 dimensions, found more"),
        (
            sliced((1, 1), (1, 1), new_axis_mask=1),
            "expected the output's shape to be [1, 1, 3], found [1, 1]",
        ),
        (
            sliced((1, 1), (1, 1), begin_mask="all"),
            "expected a whole number as begin_mask, found 'all'",
        ),
        (
            graph("BUCKETIZE", [X], Tensor("y", "int32", (2, 3)), {"boundaries": (2.0, 1.0)}),
            "expected ascending boundaries, found (2.0, 1.0)",
        ),
        (
            graph("BUCKETIZE", [X], Tensor("y", "int32", (2, 3)), {"boundaries": 2}),
            "expected ascending boundaries, found 2",
        ),
        (
            graph("BUCKETIZE", [X], floats("y", 2, 3), {"boundaries": ()}),
            "expected an output of type int32, found float32",
        ),
        (
            graph("LEAKY_RELU", [X], floats("y", 2, 3), {"alpha": "steep"}),
            "expected a number as alpha, found 'steep'",
        ),
        (
            graph("FULLY_CONNECTED", [X, WEIGHTS], floats("y", 2, 4), OTHER_WEIGHTS),
            "expected weights in the default format, found another",
        ),
        (
            graph("FULLY_CONNECTED", [X, WEIGHTS, BIASES], floats("y", 2, 4), DENSE),
            "expected constant biases, found Tensor(name='b', dtype='float32', shape=(4,))",
        ),
        (
            graph("FULLY_CONNECTED", [X, WEIGHTS, floats("b", 3)], floats("y", 2, 4), DENSE),
            "expected a number of biases of 4, found 3",
        ),
        (
            graph(
                "FULLY_CONNECTED", [X, floats("w", MANY + 1, 3)], floats("y", 2, MANY + 1), DENSE
            ),
            f"expected at most {MANY} outputs, found {MANY + 1}",
        ),
        (graph("CONCATENATION", [X, EMPTY], floats("y", 2, 3), {"axis": 0, "activation": "none"}),
         "expected elements in input 'e', found (0, 3)"),
    ],
)  # fmt: skip
def test_what_is_refused(made: Graph, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        lower_graph(made)
    kind = made.operators[0].kind
    assert str(caught.value) == f"model 'test': operator 0 ({kind}) of tensor 'y': {message}"


def test_operators_of_several_outputs_or_none() -> None:
    made = graph("RELU", [X], floats("y", 2, 3))
    two = dataclasses.replace(
        made,
        tensors=(*made.tensors, floats("z", 2, 3)),
        operators=(Operator("RELU", (0,), (1, 2), {}),),
    )
    with pytest.raises(ModelError) as caught:
        lower_graph(two)
    assert str(caught.value) == (
        "model 'test': operator 0 (RELU) of tensor 'y', 'z': expected 1 output, found 2"
    )
    hollow = dataclasses.replace(
        made,
        tensors=(X, Tensor("hollow", "float32", (0,)), floats("y", 2, 3)),
        operators=(Operator("RELU", (0,), (1,), {}), Operator("RELU", (0,), (2,), {})),
        outputs=(Port("out", 2),),
    )
    with pytest.raises(ModelError) as caught:
        lower_graph(hollow)
    assert str(caught.value) == (
        "model 'test': operator 0 (RELU) of tensor 'hollow': expected elements"
    )


def test_boundaries_of_buckets() -> None:
    """Where there are none, nothing is compared."""
    texts = [
        str(lower_graph(graph("BUCKETIZE", [X], BUCKETS, {"boundaries": boundaries})))
        for boundaries in ((), (0.5,))
    ]
    assert ["fcmp oge float" in text for text in texts] == [False, True]
