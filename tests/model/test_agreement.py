"""Native code and TFLite's interpreter give the same answers, for every operator."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.model._model import compile_model
from mlgo_gym.model._tflite_reader import OPERATORS, read_tflite
from tests.model.agreement import Array, Both, assert_agree
from tests.model.make_models import FOLDER

MODELS = sorted(path.stem for path in FOLDER.glob("*.tflite"))
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 1e-20, 87.0, 88.5, -87.0, -103.5, 0.625,
                      1e4, -1e4, 1e20, 3e38, -3e38, np.inf, -np.inf], np.float32)  # fmt: skip
MAY_BE_INFINITE = {"abs", "neg", "sqrt", "rsqrt", "log", "exp", "sign", "floor", "ceil", "relu",
                   "relu6", "tanh", "logistic", "square", "leaky_relu"}  # fmt: skip


def draw(random: np.random.Generator, name: str, spec: TensorSpec) -> Array:
    """Values of a type: small ones, large ones, extreme ones; indices where indices belong."""
    low, high = _range(random, name, spec)
    values: Array
    if spec.dtype == np.float32 and spec.name != "size":
        values = _floats(random, name, spec)
    else:
        values = random.integers(low, high, spec.shape, endpoint=True).astype(spec.dtype)
    return values


def _range(random: np.random.Generator, name: str, spec: TensorSpec) -> tuple[int, int]:
    """The least and greatest integer that an input may hold in this trial."""
    for names, port, limits in _RANGES:
        if name.startswith(names) and spec.name == port:
            return limits
    bounds = np.iinfo(spec.dtype) if spec.dtype.kind == "i" else np.iinfo(np.int32)
    extreme = (int(bounds.min), int(bounds.max))
    if name.startswith(("dense", "cast")):
        extreme = (-(10**9), 10**9)
    return [(-4, 4), (-100_000, 100_000), extreme][int(random.integers(3))]


_RANGES: tuple[tuple[str, str, tuple[int, int]], ...] = (
    ("gather_int64", "at", (0, 1)),
    ("gather", "at", (0, 2)),
    ("one_hot", "at", (-2, 6)),
    ("embedding", "opcode", (0, 15)),
    ("embedding", "level", (0, 15)),
    ("embedding", "size", (0, 1)),
    ("div_int32", "y", (1, 99)),
    ("candidates", "mask", (0, 1)),
)


def _floats(random: np.random.Generator, name: str, spec: TensorSpec) -> Array:
    scales = [1.0] if name == "prod_scalar" else [1e-3, 1.0, 10.0]
    values: Array = random.normal(0, random.choice(scales), spec.shape).astype(np.float32)
    if name.startswith(("cast", "select", "maximum", "add", "argm")):
        values[random.random(spec.shape) < 0.2] *= np.float32(1e5)
    if name in MAY_BE_INFINITE:
        mask = random.random(spec.shape) < 0.3
        values[mask] = random.choice(SPECIAL, int(mask.sum()))
    return values


def test_every_operator_has_a_model() -> None:
    used = {
        operator.kind
        for name in MODELS
        for operator in read_tflite(FOLDER / f"{name}.tflite").operators
    }
    # Today's converter writes RESHAPE for these two; see test_lowering.
    assert set(OPERATORS) - used == {"EXPAND_DIMS", "SQUEEZE"}


@pytest.mark.parametrize("name", MODELS)
def test_agreement(name: str) -> None:
    path = FOLDER / f"{name}.tflite"
    both = Both(path, compile_model(path, trusted=True))
    random = np.random.default_rng(7)
    with both.bound, np.errstate(all="ignore"):
        for _ in range(2000 if name in {"dense", "embedding", "candidates"} else 100):
            values = [draw(random, name, port.spec) for port in both.native.inputs]
            found, expected = both.run(values)
            expected = [each.view(one.dtype) for each, one in zip(expected, found, strict=True)]
            assert_agree(found, expected, _scale(name, values))


def _scale(name: str, values: list[Array]) -> float:
    """The absolute difference that rounding explains where terms of a sum cancel."""
    if name.startswith(("sum", "mean", "fully_connected", "dense", "candidates", "embedding")):
        floats = [each for each in values if each.dtype == np.float32]
        return 3e-6 * max([1.0, *(float(np.abs(each).max()) for each in floats)])
    if name.startswith("matmul"):
        return 3e-6 * math.prod(sorted(float(np.abs(each).max()) for each in values)[-2:])
    return 1e-37
