"""All of LLVM's scalar types, and truth values: loads, casts, comparisons, outputs, decisions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.base._tensor_spec import SCALAR_TYPES, TensorSpec
from mlgo_gym.errors import ModelError
from mlgo_gym.model._graph import DTYPES
from mlgo_gym.model._model import NativeModel, compile_model
from mlgo_gym.runners import MLModelRunner, ModelUnderTrainingRunner, ReleaseModeModelRunner
from tests.model.agreement import Array, buffers, interpreter
from tests.model.c_files import COMPILERS, CModel, compile_shared, emitted
from tests.model.graphs import TYPES, Sketch

COUNT = 24
COMPARISONS = {
    "LESS": np.less, "LESS_EQUAL": np.less_equal, "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal, "EQUAL": np.equal, "NOT_EQUAL": np.not_equal,
}  # fmt: skip
NUMBERS = [
    "float32",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
]
RUNNERS = [ReleaseModeModelRunner, ModelUnderTrainingRunner]


def file(kinds: list[tuple[str, list[str], str]]) -> bytes:
    """A graph with two inputs of each type; of each operator its kind, inputs' types, output's."""
    sketch = Sketch(lambda _: False)
    for dtype in TYPES:
        sketch.input((COUNT,), dtype, 1.0)
        sketch.input((COUNT,), dtype, 1.0)
    places = dict(
        zip(TYPES, zip(sketch.inputs[::2], sketch.inputs[1::2], strict=True), strict=True)
    )
    for kind, given, made in kinds:
        values = [places[dtype][position] for position, dtype in enumerate(given)]
        sketch.step(kind, values, (COUNT,), dtype=made)
    return sketch.graph().data


CASTS = [("CAST", [given], made) for given in TYPES for made in TYPES]
TESTS = [
    (kind, [dtype] * 2, "bool")
    for kind in COMPARISONS
    for dtype in TYPES
    if dtype != "bool" or kind in {"EQUAL", "NOT_EQUAL"}
]


def extremes(dtype: str) -> Array:
    """The ends of all types as this one has them, zeros, ones, halves, and what lies between."""
    if dtype == "bool":
        return np.asarray(np.arange(COUNT) % 3 == 0)
    kind = DTYPES[dtype].newbyteorder("=")
    if dtype.startswith("float"):
        ends = [
            float(sign) * 2.0**bits for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (-1, 1)
        ]
        rest = [0.0, -0.0, 0.5, -1.5, 1e30, np.inf, -np.inf, np.nan]
        return np.array(ends + rest, kind)
    limits = np.iinfo(kind)
    random = np.random.default_rng(1)
    fixed = [limits.min, limits.max, 0, 1, limits.max - 1, limits.max // 2]
    drawn = random.integers(limits.min, limits.max, COUNT - len(fixed), dtype=kind)
    return np.concatenate([np.array(fixed, kind), drawn])


def converted(given: Array, made: str) -> Array:
    """What C's conversion makes of values, and of a float out of an integer's range its end."""
    kind = DTYPES[made].newbyteorder("=")
    if made == "bool" or given.dtype.kind != "f" or made.startswith("float"):
        with np.errstate(over="ignore"):
            value: Array = given.astype(kind)
            return value
    limits = np.iinfo(kind)
    whole = [0 if np.isnan(x) else x for x in given.tolist()]
    clamped = [
        limits.max if x >= limits.max else limits.min if x <= limits.min else int(x) for x in whole
    ]
    return np.array(clamped, kind)


def answers(model: bytes, folder: Path, compiler: str) -> tuple[NativeModel, list[Array]]:
    """What the object and the C make of extreme values; they agree."""
    native = compile_model(model, trusted=True)
    path = folder / "model.tflite"
    path.write_bytes(model)
    library = compile_shared(compiler, emitted(path, folder))
    given, made = buffers(native.inputs), buffers(native.outputs)
    mine = CModel(library, given, buffers(native.outputs))
    values = [extremes(dtype) for dtype in TYPES]
    for number, buffer in enumerate(given):
        value = values[number // 2]
        buffer[...] = np.roll(value, 5) if number % 4 == 1 else value
    with native.bind(given, made) as bound:
        assert bound.call() == mine.call() == 0
    for one, other in zip(made, mine.outputs, strict=True):
        np.testing.assert_array_equal(one, other)
    return native, made


compilers = pytest.mark.parametrize("compiler", sorted(COMPILERS))


@pytest.mark.e2e
@compilers
def test_casts_between_all_types(compiler: str, tmp_path: Path) -> None:
    _, made = answers(file(CASTS), tmp_path, compiler)
    for (_, (given,), target), found in zip(CASTS, made, strict=True):
        expected = converted(extremes(given), target)
        np.testing.assert_array_equal(found, expected, err_msg=f"{given} to {target}")


@pytest.mark.e2e
@compilers
def test_comparisons_of_all_types(compiler: str, tmp_path: Path) -> None:
    _, made = answers(file(TESTS), tmp_path, compiler)
    for (kind, (dtype, _), _), found in zip(TESTS, made, strict=True):
        left = extremes(dtype)
        position = 2 * list(TYPES).index(dtype) + 1
        right = np.roll(left, 5) if position % 4 == 1 else left
        np.testing.assert_array_equal(
            found, COMPARISONS[kind](left, right), err_msg=f"{kind} {dtype}"
        )


@pytest.mark.e2e
def test_casts_are_those_of_tflite() -> None:
    """Of what both have: TFLite casts no uint64, and says nothing of floats out of range."""
    model = file([each for each in CASTS if "uint64" not in {each[1][0], each[2]}])
    native, reference = compile_model(model, trusted=True), interpreter(model)
    inputs, outputs = buffers(native.inputs), buffers(native.outputs)
    details = {each["name"]: each for each in reference.get_input_details()}
    for port, buffer in zip(native.inputs, inputs, strict=True):
        dtype = details[port.tensor]["dtype"]
        value = extremes(np.dtype(dtype).name)
        if value.dtype.kind == "f":
            value = np.arange(COUNT).astype(value.dtype) / 2
        buffer[...] = value
        reference.set_tensor(details[port.tensor]["index"], value)
    reference.invoke()
    with native.bind(inputs, outputs) as bound:
        assert bound.call() == 0
    for each, found in zip(reference.get_output_details(), outputs, strict=True):
        np.testing.assert_array_equal(found, reference.get_tensor(each["index"]))


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("dtype", TYPES)
def test_decisions_of_all_types_and_many_values(
    dtype: str, runner: Callable[..., MLModelRunner], tmp_path: Path
) -> None:
    sketch = Sketch(lambda _: False)
    sketch.input((2, 3), dtype, 1.0)
    shape = sketch.constant([3, 2])
    sketch.step("RESHAPE", [sketch.inputs[0], shape], (3, 2))
    (tmp_path / "model.tflite").write_bytes(sketch.graph().data)
    kinds = {DTYPES[name]: kind for name, kind in zip(NUMBERS, SCALAR_TYPES, strict=True)}
    kind = kinds.get(DTYPES[dtype], "uint8_t")
    given, advice = TensorSpec("t0", kind, (2, 3)), TensorSpec("t2", kind, (3, 2))
    spec = [{"logging_name": "t2", "tensor_spec": json.loads(advice.to_json())}]
    (tmp_path / "output_spec.json").write_text(json.dumps(spec))
    values = extremes(dtype)[:6].astype(given.dtype)
    with runner(tmp_path, [given], advice) as made:
        made.get_tensor(0)[...] = values.reshape(2, 3)
        answer = made.evaluate()
    assert (answer.dtype, answer.shape) == (advice.dtype, (3, 2))
    np.testing.assert_array_equal(answer.reshape(-1), values)


@pytest.mark.parametrize("advised", ["int64_t", "int8_t"])
def test_a_decision_of_another_type(advised: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(file([("LESS", ["int16"] * 2, "bool")]))
    inputs = [port.spec for port in compile_model(path, trusted=True).inputs]
    with pytest.raises(ModelError) as caught:
        ReleaseModeModelRunner(path, inputs, TensorSpec("advice", advised, (COUNT,)))
    assert str(caught.value) == (
        f"model '{path}': decision 'advice': expected {advised} [{COUNT}], found uint8_t [{COUNT}]"
    )
