"""Random graphs of all operators: native code and TFLite's interpreter agree."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.model._model import compile_model
from tests.generated import examples
from tests.model.agreement import Array, Both, buffers
from tests.model.c_files import COMPILERS, CModel, compile_shared, emitted
from tests.model.graph_arrays import MOVING
from tests.model.graph_operators import COMPUTING
from tests.model.graphs import Graph, Sketch, Value, check

SIZES = st.sampled_from([1, 2, 3, 5, 9, 17, 70])
SHAPES = st.lists(SIZES, min_size=1, max_size=3).filter(lambda shape: math.prod(shape) <= 700)
TYPES = st.lists(st.sampled_from(["float32", "int32", "int64"]), max_size=2)
SMALL = 4.0
# TFLite takes what overflows, and infinities, back to the largest float; native code does not.
LARGE = np.array([0.0, -0.0, 1e-40, -1e-40, 1e-20, 87.0, -87.0, 2.0**31, -1e10, 1e20, -1e30],
                 np.float32)  # fmt: skip


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """One to seven operators over one to three inputs."""
    sketch = Sketch(draw)
    shape = tuple(draw(SHAPES))
    for dtype in ["float32", *draw(TYPES)]:
        sketch.input(draw(st.sampled_from([shape, shape[-1:], tuple(draw(SHAPES))])), dtype, SMALL)
    while not sketch.is_done:
        draw(st.sampled_from((*COMPUTING, *MOVING)))(sketch)
    return sketch.graph()


def small(random: np.random.Generator, value: Value) -> Array:
    """Values with ties and zeros among them."""
    if value.dtype != "float32":
        return random.integers(-4, 5, value.shape).astype(value.dtype)
    values = random.uniform(-SMALL, SMALL, value.shape)
    rounded = random.random(value.shape) < 0.3
    return np.where(rounded, np.round(values), values).astype(np.float32)


def large(random: np.random.Generator, value: Value) -> Array:
    """Some of the values are as large, or as close to 0, as their type allows."""
    values = small(random, value)
    where = random.random(value.shape) < 0.4
    if value.dtype == "float32":
        values[where] = random.choice(LARGE, int(where.sum()))
    else:
        ends = np.iinfo(value.dtype)
        values[where] = random.choice([ends.min, ends.min + 1, ends.max], int(where.sum()))
    return values


@examples(40, is_dear=True)
@given(graphs(), st.integers(0, 2**32 - 1))
def test_random_graphs_agree(graph: Graph, seed: int) -> None:
    both = Both(graph.data, compile_model(graph.data, trusted=True))
    random = np.random.default_rng(seed)
    with both.bound, np.errstate(all="ignore"):
        for _ in range(4):
            values = [small(random, each) for each in graph.inputs]
            for found, expected, each in zip(*both.run(values), graph.outputs, strict=True):
                check(found, expected, each)
        for _ in range(4):
            values = [large(random, each) for each in graph.inputs]
            for found, expected, each in zip(*both.run(values), graph.outputs, strict=True):
                if each.is_exact and not each.needs_small:
                    check(found, expected, each)


@pytest.mark.e2e
@pytest.mark.skipif(not COMPILERS, reason="needs gcc or clang-22")
@examples(20, is_dear=True)
@given(graphs(), st.integers(0, 2**32 - 1))
def test_random_graphs_are_the_same_in_c(graph: Graph, seed: int) -> None:
    """To the bit, for large values as well; of NaN alone nobody says which it is."""
    random = np.random.default_rng(seed)
    native = compile_model(graph.data, cpu="haswell")
    inputs, made = buffers(native.inputs), buffers(native.outputs)
    compiler = sorted(COMPILERS)[seed % len(COMPILERS)]
    with tempfile.TemporaryDirectory() as folder, native.bind(inputs, made) as bound:
        model = Path(folder) / "model.tflite"
        model.write_bytes(graph.data)
        library = compile_shared(compiler, emitted(model, Path(folder)), "-march=haswell")
        mine = CModel(library, inputs, buffers(native.outputs))
        for turn in range(8):
            for buffer, value in zip(inputs, graph.inputs, strict=True):
                buffer[...] = (large if turn % 2 else small)(random, value)
            assert bound.call() == mine.call()
            for found, expected in zip(mine.outputs, made, strict=True):
                np.testing.assert_array_equal(found, expected)
