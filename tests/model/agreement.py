"""Runs one model both ways: through TFLite's interpreter, and as native code."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from mlgo_gym.model._model import NativeModel
from mlgo_gym.model._tflite_reader import port_name

Array = np.ndarray[Any, Any]


def interpreter(model: Path | bytes) -> Any:
    module = importlib.import_module("ai_edge_litert.interpreter")
    # Without delegates: TFLite's own kernels are the reference.
    resolver = module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    data = model if isinstance(model, bytes) else model.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = module.Interpreter(model_content=data, experimental_op_resolver_type=resolver)
    made.allocate_tensors()
    return made


def buffers(ports: tuple[Any, ...]) -> list[Array]:
    return [np.zeros(port.spec.shape, port.spec.dtype) for port in ports]


class Both:
    """One model, twice."""

    def __init__(self, path: Path | bytes, native: NativeModel) -> None:
        self.native = native
        self.inputs = buffers(native.inputs)
        self.outputs = buffers(native.outputs)
        self.bound = native.bind(self.inputs, self.outputs)
        self.tflite = interpreter(path)
        details = {port_name(each["name"]): each for each in self.tflite.get_input_details()}
        self._inputs = [details[port_name(port.tensor)]["index"] for port in native.inputs]
        self._outputs = [each["index"] for each in self.tflite.get_output_details()]

    def run(self, values: list[Array]) -> tuple[list[Array], list[Array]]:
        """Native results and TFLite's."""
        kept = [np.array(value) for value in values]
        for buffer, index, value in zip(self.inputs, self._inputs, values, strict=True):
            buffer[...] = value
            self.tflite.set_tensor(index, value)
        self.tflite.invoke()
        assert self.bound.call() == 0
        for buffer, value in zip(self.inputs, kept, strict=True):
            np.testing.assert_array_equal(buffer, value)
        return self.outputs, [self.tflite.get_tensor(index) for index in self._outputs]


def assert_agree(found: list[Array], expected: list[Array], scale: float = 1e-6) -> None:
    """Integers are equal; floats within 1e-5, relative to the value or to a sum's terms."""
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        if one.dtype == np.float32:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=scale)
        else:
            np.testing.assert_array_equal(one, other)
