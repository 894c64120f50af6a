"""Observations as arrays: LLVM's bytes, seen as numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import SpecError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._layout import row_shape
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.problems._registry import problems
from mlgo_gym.stream._training_log import Observation


@pytest.mark.parametrize("kind", problems().values())
def test_rows_are_packed_as_llvm_packs_them(kind: type[Problem]) -> None:
    layout = kind().layout
    dtype, header = layout.dtype, layout.header
    assert dtype.itemsize == header.size_bytes
    assert dtype.names == tuple(spec.name for spec in layout.specs)
    assert dtype.fields is not None
    for name, (spec, where) in header.slices.items():
        assert dtype.fields[name][1] == where.start
        assert dtype[name].base == spec.dtype


@pytest.mark.parametrize("kind", problems().values())
@given(data=st.data())
def test_arrays_hold_what_observations_hold(kind: type[Problem], data: st.DataObject) -> None:
    layout = kind().layout
    header = layout.header
    size = header.size_bytes
    payloads = data.draw(st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=4))
    array = layout.array(payloads)
    assert [row.tobytes() for row in array] == payloads
    for row, payload in enumerate(payloads):
        for name, tensor in Observation(header, "f", row, payload).items():
            assert array[name][row].tobytes() == tensor.tobytes()


def test_columns_are_the_features_alone() -> None:
    layout = InliningForSize().layout
    found = layout.columns(layout.array([bytes(layout.dtype.itemsize)] * 5))
    assert tuple(found) == layout.feature_names
    assert {each.shape for each in found.values()} == {(5,)}
    assert all(each.flags.c_contiguous for each in found.values())


def test_columns_of_positions() -> None:
    layout = RegallocEviction().layout
    found = layout.columns(layout.array([bytes(layout.dtype.itemsize)] * 2))
    assert found["mask"].shape == (2, 33)
    assert found["mask"].dtype == np.int64
    assert found["liverange_size"].dtype == np.float32
    assert found["progress"].shape == (2,)


def test_no_observation() -> None:
    assert RegallocPriority().layout.array([]).shape == (0,)


def test_what_llvm_sends(compiler: Compiler, small: Corpus) -> None:
    seen: list[Observation] = []

    def answer(observation: Observation) -> int:
        seen.append(observation)
        return 0

    module = small["json_write.c"]
    compiler.compile_module(module, problem=InliningForSize(), policy=answer)
    array = InliningForSize().layout.array(each.payload for each in seen)
    expected = [int(each["cost_estimate"][0]) for each in seen]
    assert array["cost_estimate"].tolist() == expected
    assert len(set(expected)) > 1


def test_another_length_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        RegallocPriority().layout.array([bytes(20), bytes(19)])
    assert str(caught.value) == ("observation 1 of RegallocPriority: expected 20 bytes, found 19")


@pytest.mark.parametrize(
    ("shape", "row"), [((1,), ()), ((1, 33), (33,)), ((), ()), ((4, 2), (4, 2)), ((1, 1), (1,))]
)
def test_the_batch_is_left_out_of_the_shape(shape: tuple[int, ...], row: tuple[int, ...]) -> None:
    assert row_shape(TensorSpec("x", "float", shape)) == row


INT32, UINT32, EXACT = 2**31 - 1, 2**32 - 1, 2**53


@pytest.mark.parametrize(
    ("problem", "ranges"),
    [
        (
            InliningForSize(),
            {"cost": (-INT32 - 1, INT32), "count": (0, EXACT), "flag": (0, 1)},
        ),
        (
            RegallocEviction(),
            {
                "flag": (0, 1),
                "share of largest": (0, 1),
                "stage": (0, 6),
                "count": (0, INT32),
                "ratio": (0, INT32),
            },
        ),
        (
            RegallocPriority(),
            {
                "slots": (0, UINT32),
                "stage": (0, 6),
                "weight": (0, float(np.finfo(np.float32).max)),
            },
        ),
    ],
)
def test_ranges_go_by_the_unit(problem: Problem, ranges: dict[str, tuple[float, float]]) -> None:
    """Those of LLVM's types; a count that it keeps in 64 bits ends where a float64 is exact."""
    features = problem.layout.tensors
    assert [(each.low, each.high) for each in features] == [ranges[each.unit] for each in features]
    assert {each.unit for each in features} == set(ranges)
