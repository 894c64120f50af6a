"""Observations as arrays: many decisions in one numpy array, without a copy of LLVM's bytes.

An observation's raw tensors are packed in the order in which LLVM sends them, so the payloads of N
decisions, one after the other, are an array of N structured rows. LLVM's leading dimension of 1 is
the batch's and is left out: a feature of the shape ``(1,)`` is a number of each row, one of
``(1, 33)`` a row of 33.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mlgo_gym.base import SpecError, TensorSpec
from mlgo_gym.problems._problem import Problem

_Array = np.ndarray[Any, Any]


def row_shape(spec: TensorSpec) -> tuple[int, ...]:
    """A tensor's shape in one row: without the leading 1 that stands for the batch.

    >>> row_shape(TensorSpec("mask", "int64_t", (1, 33))), row_shape(TensorSpec("x", "float", (1,)))
    ((33,), ())
    """
    return spec.shape[1:] if spec.shape[:1] == (1,) else spec.shape


def observation_dtype(problem: Problem | type[Problem]) -> np.dtype[Any]:
    """The dtype of one observation: a field for each tensor that LLVM sends, in order, packed.

    >>> from mlgo_gym.problems import RegallocPriority
    >>> observation_dtype(RegallocPriority)
    dtype([('li_size', '<i8'), ('stage', '<i8'), ('weight', '<f4')])
    """
    return dtype_of(problem.sent())


def dtype_of(specs: Iterable[TensorSpec]) -> np.dtype[Any]:
    """The dtype of tensors, one after the other, packed."""
    return np.dtype([(spec.name, spec.dtype, row_shape(spec)) for spec in specs])


def observation_array(payloads: Iterable[bytes], problem: Problem | type[Problem]) -> _Array:
    """Raw observations as one array ``[N]`` of `observation_dtype`, which cannot be written to.

    Args:
        payloads: the raw tensors of each observation, such as `Observation.payload`.
        problem: what LLVM asked for.

    Raises:
        SpecError: a payload has another length than this problem's observations.

    >>> from mlgo_gym.problems import RegallocPriority, observation_array
    >>> observation_array([bytes(20)] * 3, RegallocPriority)["li_size"].shape
    (3,)
    """
    dtype = observation_dtype(problem)
    rows = list(payloads)
    for number, row in enumerate(rows):
        if len(row) != dtype.itemsize:
            raise SpecError(
                f"observation {number} of {problem.name}: expected {dtype.itemsize} bytes, "
                f"found {len(row)}"
            )
    return np.frombuffer(b"".join(rows), dtype)


def replace_infinite(arrays: Mapping[str, _Array], problem: Problem | type[Problem]) -> None:
    """Replace NaN and infinity, of which there may be some, by the feature's upper bound, in place.

    It is what environments show, and so what policies learn from.

    >>> from mlgo_gym.problems import RegallocPriority
    >>> weights = np.array([1.0, np.inf], np.float32)
    >>> replace_infinite({"weight": weights}, RegallocPriority)
    >>> bool(np.isfinite(weights).all())
    True
    """
    for feature in problem.infinite_features():
        values = arrays[feature.spec.name]
        values[~np.isfinite(values)] = feature.high


def columns(array: _Array, problem: Problem | type[Problem]) -> dict[str, _Array]:
    """The features by name, contiguous, ``[N]`` or ``[N, 33]``, without `Problem.extras`."""
    names = [feature.spec.name for feature in problem.features]
    return {name: np.ascontiguousarray(array[name]) for name in names}
