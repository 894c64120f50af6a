"""TensorSpec: LLVM's JSON form, sizes, and an error for everything that is not a spec."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_gym.base._tensor_spec import SCALAR_TYPES, TensorSpec, quote_json
from mlgo_gym.errors import SpecError

SPECS = st.builds(
    TensorSpec,
    name=st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs"])),
    type=st.sampled_from(sorted(SCALAR_TYPES)),
    shape=st.lists(st.integers(1, 9), max_size=4).map(tuple),
    port=st.integers(0, 100),
)


@pytest.mark.parametrize(
    ("scalar_type", "size"),
    [
        ("float", 4),
        ("double", 8),
        ("int8_t", 1),
        ("uint8_t", 1),
        ("int16_t", 2),
        ("uint16_t", 2),
        ("int32_t", 4),
        ("uint32_t", 4),
        ("int64_t", 8),
        ("uint64_t", 8),
    ],
)
def test_every_scalar_type_of_llvm(scalar_type: str, size: int) -> None:
    spec = TensorSpec("x", scalar_type, (2, 3))
    assert (spec.element_count, spec.element_size_bytes, spec.size_bytes) == (6, size, 6 * size)
    assert spec.decode(bytes(6 * size)).dtype == spec.dtype


def test_json_is_that_of_llvm() -> None:
    spec = TensorSpec("callee_users", "int64_t", (1, 33), port=2)
    text = '{"name":"callee_users","type":"int64_t","port":2,"shape":[1,33]}'
    assert spec.to_json() == text
    assert TensorSpec.from_json(text) == spec
    assert TensorSpec("s", "float", ()).to_json().endswith('"shape":[]}')


@given(SPECS)
def test_json_round_trip(spec: TensorSpec) -> None:
    assert TensorSpec.from_json(spec.to_json()) == spec
    assert json.loads(spec.to_json())["name"] == spec.name


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_quoted_text_is_json(text: str) -> None:
    assert json.loads(quote_json(text)) == text
    assert "\n" not in quote_json(text)


def test_text_is_escaped_as_llvm_does() -> None:
    """Hexadecimal digits are small; what has a short form in C but not in LLVM has a long one."""
    assert quote_json("\x0f\x1b\b\f") == r'"\u000f\u001b\u0008\u000c"'
    assert quote_json('\t\n\r"\\/\x7fé') == '"\\t\\n\\r\\"\\\\/\x7fé"'


VALUE: dict[str, Any] = {"name": "x", "type": "float", "port": 0, "shape": [1]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "tensor spec: expected a JSON object, found []"),
        (
            {"name": "x", "shape": [1]},
            "tensor spec 'x': expected the properties name, type, port and shape, "
            "found no type, port",
        ),
        (VALUE | {"name": ""}, "tensor spec: expected a name, found ''"),
        (VALUE | {"name": 3}, "tensor spec: expected a name, found 3"),
        (
            VALUE | {"type": "int"},
            "tensor 'x': expected a type out of float, double, int8_t, uint8_t, int16_t, "
            "uint16_t, int32_t, uint32_t, int64_t, uint64_t, found 'int'",
        ),
        (
            VALUE | {"type": []},
            "tensor 'x': expected a type out of float, double, int8_t, uint8_t, int16_t, "
            "uint16_t, int32_t, uint32_t, int64_t, uint64_t, found []",
        ),
        (
            VALUE | {"shape": [10**4000]},
            "tensor 'x': expected a tuple of dimensions of 1 to 2147483647 as shape, "
            "found (100000000000000000...0000000000000000000,)",
        ),
        (VALUE | {"port": -1}, "tensor 'x': expected a port of 0 to 2147483647, found -1"),
        (VALUE | {"port": True}, "tensor 'x': expected a port of 0 to 2147483647, found True"),
        (
            VALUE | {"shape": [1, 0]},
            "tensor 'x': expected a tuple of dimensions of 1 to 2147483647 as shape, found (1, 0)",
        ),
        (
            VALUE | {"shape": 1},
            "tensor 'x': expected a tuple of dimensions of 1 to 2147483647 as shape, found 1",
        ),
        (
            VALUE | {"shape": [2**31 - 1] * 17},
            "tensor 'x': expected at most 16 dimensions, found 17",
        ),
        (
            VALUE | {"name": "x" * 1025},
            f"tensor '{'x' * 37}...{'x' * 38}': expected a name of at most 1024 characters, "
            "found 1025",
        ),
        (
            VALUE | {"shape": [1 << 20, 1 << 20]},
            "tensor 'x': expected less than 2147483648 bytes, found 4398046511104 "
            "(shape (1048576, 1048576) of float)",
        ),
    ],
)
def test_what_is_not_a_spec(value: object, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        TensorSpec.from_value(value)
    assert str(caught.value) == message


def test_what_is_not_json() -> None:
    with pytest.raises(SpecError, match="^tensor spec: expected JSON, found '{': "):
        TensorSpec.from_json("{")
    with pytest.raises(SpecError, match="^tensor spec: expected JSON, found "):
        TensorSpec.from_json(b"\xff")
    with pytest.raises(SpecError, match=r": expected at most 100 levels, found more$"):
        TensorSpec.from_json("[" * 100_000)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3, np.float32), "tensor 'users': expected int64 (1,), found float32 (3,)"),
        (np.zeros((), np.int64), "tensor 'users': expected int64 (1,), found int64 ()"),
    ],
)
def test_check_names_expected_and_found(array: np.ndarray[Any, Any], message: str) -> None:
    spec = TensorSpec("users", "int64_t", (1,))
    spec.check(np.zeros(1, np.int64))
    with pytest.raises(SpecError) as caught:
        spec.check(array)
    assert str(caught.value) == message


def test_decode_needs_the_exact_length() -> None:
    with pytest.raises(SpecError) as caught:
        TensorSpec("x", "int64_t", (2,)).decode(bytes(15))
    assert str(caught.value) == "tensor 'x': expected 16 bytes, found 15"


@pytest.mark.parametrize(
    ("scalar_type", "shape", "value", "encoded"),
    [
        ("int64_t", (1,), 1, np.int64(1).tobytes()),
        ("int64_t", (1,), True, np.int64(1).tobytes()),
        ("uint8_t", (2,), [0, 255], b"\x00\xff"),
        ("float", (1,), 0.1, np.float32(0.1).tobytes()),
        ("float", (), 2, np.float32(2).tobytes()),
        ("float", (1,), math.inf, np.float32(math.inf).tobytes()),
    ],
)
def test_encode(scalar_type: str, shape: tuple[int, ...], value: object, encoded: bytes) -> None:
    assert TensorSpec("x", scalar_type, shape).encode(value) == encoded


@pytest.mark.parametrize(
    ("scalar_type", "shape", "value", "message"),
    [
        ("uint8_t", (1,), 256, "tensor 'x': expected uint8 (1,), found 256"),
        ("uint64_t", (1,), -1, "tensor 'x': expected uint64 (1,), found -1"),
        ("int64_t", (1,), 0.5, "tensor 'x': expected int64 (1,), found 0.5"),
        ("int64_t", (2,), [1], "tensor 'x': expected int64 (2,), found [1]"),
        ("float", (1,), "one", "tensor 'x': expected float32 (1,), found 'one'"),
        ("float", (1,), 1e300, "tensor 'x': expected float32 (1,), found 1e+300"),
        ("float", (1,), None, "tensor 'x': expected float32 (1,), found None"),
    ],
)
def test_encode_loses_nothing(
    scalar_type: str, shape: tuple[int, ...], value: object, message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        TensorSpec("x", scalar_type, shape).encode(value)
    assert str(caught.value) == message
