"""``TensorSpec``: name, port, type and shape of one tensor, as LLVM describes it.

The JSON form is that of LLVM's ``TensorSpec::toJSON`` (``llvm/lib/Analysis/TensorSpec.cpp``)::

    {"name":"cost_estimate","type":"int64_t","port":0,"shape":[1]}

It stands in the header of training logs and interactive channels and in ``output_spec.json``.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from corpus_tools.reading import brief
from mlgo_gym.base._errors import SpecError
from mlgo_gym.base._files import parse_json

__all__ = ["SCALAR_TYPES", "TensorSpec", "quote_json"]

SCALAR_TYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "int8_t": np.dtype(np.int8),
    "uint8_t": np.dtype(np.uint8),
    "int16_t": np.dtype(np.int16),
    "uint16_t": np.dtype(np.uint16),
    "int32_t": np.dtype(np.int32),
    "uint32_t": np.dtype(np.uint32),
    "int64_t": np.dtype(np.int64),
    "uint64_t": np.dtype(np.uint64),
}
"""LLVM's scalar types (``SUPPORTED_TENSOR_TYPES``) and the numpy dtype of each, native order."""

_MAX_PORT: Final = 2**31 - 1
_MAX_BYTES: Final = 2**31
_MAX_NAME_LENGTH: Final = 1024
_MAX_DIMENSIONS: Final = 16  # numpy's arrays have at most 32 before its version 2


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor: what it is called, which scalars it holds and how they are arranged.

    Attributes:
        name: what models bind to; not empty.
        type: one of `SCALAR_TYPES`, in LLVM's spelling.
        shape: the dimensions, each at least 1; ``()`` is a scalar of one element.
        port: the output's number in the model, 0 for nearly everything.

    Raises:
        SpecError: a field is malformed, the name has more than 1,024 characters, there are more
            than 16 dimensions, or the tensor would hold 2 GiB or more; of methods, what is given
            does not fit the spec.

    >>> spec = TensorSpec("mask", "int64_t", (1, 33))
    >>> spec.element_count, spec.size_bytes, spec.dtype
    (33, 264, dtype('int64'))
    >>> spec.to_json()
    '{"name":"mask","type":"int64_t","port":0,"shape":[1,33]}'
    >>> TensorSpec.from_json(spec.to_json()) == spec
    True
    """

    name: str
    type: str
    shape: tuple[int, ...]
    port: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SpecError(f"tensor spec: expected a name, found {brief(self.name)}")
        if len(self.name) > _MAX_NAME_LENGTH:
            raise SpecError(
                f"tensor {brief(self.name)}: expected a name of at most {_MAX_NAME_LENGTH} "
                f"characters, found {len(self.name)}"
            )
        if not isinstance(self.type, str) or self.type not in SCALAR_TYPES:
            expected = ", ".join(SCALAR_TYPES)
            raise SpecError(
                f"tensor {self.name!r}: expected a type out of {expected}, found {brief(self.type)}"
            )
        if not _is_int(self.port) or not 0 <= self.port <= _MAX_PORT:
            raise SpecError(
                f"tensor {self.name!r}: expected a port of 0 to {_MAX_PORT}, "
                f"found {brief(self.port)}"
            )
        self._check_shape()

    def _check_shape(self) -> None:
        if isinstance(self.shape, tuple) and len(self.shape) > _MAX_DIMENSIONS:
            raise SpecError(
                f"tensor {self.name!r}: expected at most {_MAX_DIMENSIONS} dimensions, "
                f"found {len(self.shape)}"
            )
        if not isinstance(self.shape, tuple) or not all(
            _is_int(size) and 1 <= size < _MAX_BYTES for size in self.shape
        ):
            raise SpecError(
                f"tensor {self.name!r}: expected a tuple of dimensions of 1 to {_MAX_BYTES - 1} "
                f"as shape, found {reprlib.repr(self.shape)}"
            )
        if self.size_bytes >= _MAX_BYTES:
            raise SpecError(
                f"tensor {self.name!r}: expected less than {_MAX_BYTES} bytes, "
                f"found {self.size_bytes} (shape {self.shape!r} of {self.type})"
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of the scalars, in native byte order."""
        return SCALAR_TYPES[self.type]

    @property
    def element_count(self) -> int:
        """How many scalars the tensor holds."""
        return math.prod(self.shape)

    @property
    def element_size_bytes(self) -> int:
        """The size of one scalar in bytes."""
        return self.dtype.itemsize

    @property
    def size_bytes(self) -> int:
        """The size of the whole tensor in bytes."""
        return self.element_count * self.element_size_bytes

    def to_json(self) -> str:
        """The spec as LLVM's ``TensorSpec::toJSON`` prints it, to the byte."""
        shape = ",".join(str(size) for size in self.shape)
        name = quote_json(self.name)
        return f'{{"name":{name},"type":"{self.type}","port":{self.port},"shape":[{shape}]}}'

    @classmethod
    def from_json(cls, text: str | bytes) -> TensorSpec:
        """Read a spec from its JSON text."""
        try:
            value = parse_json(text)
        except ValueError as error:
            found = brief(text)
            raise SpecError(f"tensor spec: expected JSON, found {found}: {error}") from error
        return cls.from_value(value)

    @classmethod
    def from_value(cls, value: object) -> TensorSpec:
        """Read a spec from parsed JSON, as LLVM's ``getTensorSpecFromJSON`` does."""
        if not isinstance(value, dict):
            raise SpecError(f"tensor spec: expected a JSON object, found {brief(value)}")
        missing = [key for key in ("name", "type", "port", "shape") if key not in value]
        if missing:
            raise SpecError(
                f"tensor spec {brief(value.get('name', ''))}: expected the properties name, "
                f"type, port and shape, found no {', '.join(missing)}"
            )
        shape = value["shape"]
        return cls(
            name=value["name"],
            type=value["type"],
            port=value["port"],
            shape=tuple(shape) if isinstance(shape, list) else shape,
        )

    def check(self, tensor: np.ndarray[Any, Any]) -> None:
        """Raise unless an array has exactly this spec's dtype and shape."""
        if tensor.dtype != self.dtype or tensor.shape != self.shape:
            raise SpecError(
                f"tensor {self.name!r}: expected {self.dtype} {self.shape}, "
                f"found {tensor.dtype} {tensor.shape}"
            )

    def decode(self, data: bytes | bytearray | memoryview) -> np.ndarray[Any, Any]:
        """The tensor that raw bytes in native order hold; a view, not a copy."""
        if len(data) != self.size_bytes:
            raise SpecError(
                f"tensor {self.name!r}: expected {self.size_bytes} bytes, found {len(data)}"
            )
        return np.frombuffer(data, self.dtype).reshape(self.shape)

    def encode(self, value: object) -> bytes:
        """The raw bytes, in native order, of a scalar or array that fits this spec.

        Integers are held exactly or not at all; floats are rounded to the spec's precision.
        """
        array = np.asarray(value)
        kinds = "biu" if self.dtype.kind in "iu" else "biuf"
        if array.dtype.kind in kinds and array.size == self.element_count:
            with np.errstate(over="ignore"):
                tensor = array.astype(self.dtype)
            if self.dtype.kind == "f":
                fits = np.array_equal(np.isfinite(tensor), np.isfinite(array))
            else:
                fits = np.array_equal(tensor, array)
            if fits:
                return tensor.tobytes()
        raise SpecError(
            f"tensor {self.name!r}: expected {self.dtype} {self.shape}, found {value!r}"
        )


def quote_json(text: str) -> str:
    r"""A JSON string, escaped as LLVM's ``json::OStream`` escapes it (``Support/JSON.cpp``).

    >>> print(quote_json('a"b\\c\x01\b\té'))
    "a\"b\\c\u0001\u0008\té"
    """
    return f'"{_ESCAPED.sub(_escape, text)}"'


_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _SHORT_ESCAPES.get(character, f"\\u{ord(character):04x}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
