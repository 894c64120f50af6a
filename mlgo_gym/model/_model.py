"""A compiled model: its object and what is known about it; and one that is bound to buffers."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from mlgo_gym.base import ModelError, TensorSpec
from mlgo_gym.llvm import NativeObject
from mlgo_gym.model._c_text import TYPES
from mlgo_gym.model._compiler import DEFAULT_TIMEOUT_S, compile_ir
from mlgo_gym.model._graph import Graph, Port
from mlgo_gym.model._lowering import lower_and_count
from mlgo_gym.model._origins import Origins
from mlgo_gym.model._output_spec import OutputSpec, choose_outputs
from mlgo_gym.model._profile import OperatorCode, operator_codes
from mlgo_gym.model._tflite_reader import read_graph, read_tflite

_THUNK: Final = "mlgo_gym_thunk"
LONG_INSTRUCTIONS: Final = 1 << 20
"""An evaluation of more lets go of the GIL; it takes half a millisecond or longer."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class NativePort:
    """An input or output of a compiled model: its spec, and the name of the graph's tensor."""

    spec: TensorSpec
    tensor: str


@dataclass(frozen=True, slots=True)
class NativeModel:
    """A model as machine code.

    Attributes:
        name: the C identifier that the object's ``NAME_evaluate`` begins with.
        source: the file or folder it came from.
        inputs: what it needs, in the order of its pointers.
        outputs: what it computes, in the order of its pointers.
        operators: the graph's operators by number, for the result of ``NAME_evaluate``.
        object: the machine code.
        model_sha256: the hash of the TFLite file.
        instructions: how many of LLVM IR one evaluation runs through.
        code: its machine code by operators, where a profile was asked for.

    >>> from mlgo_gym.model import find_model
    >>> graph = find_model("inlining-for-size") + "/model.tflite"
    >>> compile_model(graph).name
    'model'
    """

    name: str
    source: str
    inputs: tuple[NativePort, ...]
    outputs: tuple[NativePort, ...]
    operators: tuple[str, ...]
    object: NativeObject
    model_sha256: str
    instructions: int
    code: tuple[OperatorCode, ...] = field(default=(), repr=False)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundModel:
        """Load the code into this process, for buffers that stay where they are.

        There is one array for each input and output of the model, contiguous and of its dtype and
        shape; those of outputs are writable.

        Raises:
            ModelError: the object cannot be loaded.
            SpecError: an array does not fit its port.
        """
        return BoundModel(self, inputs, outputs)

    def failure(self, status: int) -> ModelError:
        """Return the meaning of a result of ``NAME_evaluate`` other than 0."""
        number = status - 1
        kind = self.operators[number] if 0 <= number < len(self.operators) else "unknown"
        return ModelError(
            self.source,
            f"operator {number} ({kind}): expected indices in range and integer divisors other "
            "than 0",
        )


class BoundModel(AbstractContextManager["BoundModel"]):
    """A model in this process on fixed buffers; ``call`` gives the result of ``NAME_evaluate``."""

    def __init__(
        self, model: NativeModel, inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> None:
        from mlgo_gym.llvm import BitcodeError, LoadedCode  # noqa: PLC0415 - loads LLVM

        # These keep the memory alive that the code has the addresses of.
        self._arrays: Final = (*inputs, *outputs)
        self._pointers: Final = (
            _pointers(model.inputs, inputs),
            _pointers(model.outputs, outputs),
        )
        try:
            self._code = LoadedCode(model.object.data, self._thunk(model.name))
            address = self._code.address(_THUNK)
        except BitcodeError as error:
            raise ModelError(model.source, f"its object cannot be loaded: {error}") from error
        # Most evaluations are shorter than letting go of the GIL and taking it again.
        is_long = model.instructions > LONG_INSTRUCTIONS
        kind = ctypes.CFUNCTYPE if is_long else ctypes.PYFUNCTYPE
        self.call: Callable[[], int] = kind(ctypes.c_int32)(address)

    def _thunk(self, name: str) -> str:
        """A function without arguments that has the addresses in it: the cheapest to call."""
        operands = ", ".join(
            f"ptr inttoptr (i64 {ctypes.addressof(pointers)} to ptr)" for pointers in self._pointers
        )
        return (
            f"declare i32 @{name}_evaluate(ptr, ptr)\n"
            f"define i32 @{_THUNK}() {{\n"
            f"  %status = tail call i32 @{name}_evaluate({operands})\n"
            "  ret i32 %status\n}\n"
        )

    def close(self) -> None:
        """Unload the code; safe to call twice. `call` must not be used any more."""
        self._code.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def compile_model(
    model: Path | str | bytes,
    *,
    name: str = "model",
    cpu: str | None = None,
    target: str | None = None,
    trusted: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    profile: bool = False,
) -> NativeModel:
    """Read, lower and compile a TFLite model: a file, or its bytes.

    The name is a C identifier; the rest is as `freeze` takes it.

    Raises:
        ModelError: the model cannot be used, or the compiler does not finish.
        EnvironmentSetupError: no worker can be started.

    >>> from mlgo_gym.model import find_model
    >>> graph = find_model("inlining-for-size") + "/model.tflite"
    >>> len(compile_model(graph).inputs)
    38
    """
    data = model if isinstance(model, bytes) else read_graph(Path(model))
    source = "<bytes>" if isinstance(model, bytes) else str(model)
    graph = read_tflite(data, source=source)
    origins = Origins() if profile else None
    text, instructions = lower_and_count(graph, name, origins)
    native = compile_ir(
        text, source=source, cpu=cpu, target=target, trusted=trusted, timeout_s=timeout_s
    )
    code: tuple[OperatorCode, ...] = ()
    if origins:
        function = f"{name}_evaluate"
        code = operator_codes(native.data, function, graph, origins, instructions)
    return NativeModel(
        name=name,
        source=source,
        inputs=ports(graph, graph.inputs),
        outputs=ports(graph, graph.outputs),
        operators=tuple(operator.kind for operator in graph.operators),
        object=native,
        model_sha256=hashlib.sha256(data).hexdigest(),
        instructions=instructions,
        code=code,
    )


def ports(graph: Graph, of: Sequence[Port]) -> tuple[NativePort, ...]:
    """A graph's inputs or outputs as C sees them."""
    return tuple(_port(graph, port) for port in of)


def _port(graph: Graph, port: Port) -> NativePort:
    tensor = graph.tensors[port.tensor]
    spec = TensorSpec(port.name, TYPES[tensor.dtype], tensor.shape)
    return NativePort(spec, tensor.name)


def _pointers(ports: Sequence[NativePort], arrays: Sequence[Array]) -> ctypes.Array[Any]:
    addresses = []
    for port, array in zip(ports, arrays, strict=True):
        port.spec.check(array)
        addresses.append(array.ctypes.data)
    return (ctypes.c_void_p * len(addresses))(*addresses)


def find_outputs(
    specs: Sequence[OutputSpec] | None, outputs: Sequence[NativePort], advice: str, source: str
) -> tuple[tuple[str, int], ...]:
    """Logging names and numbers of the outputs that are meant (`choose_outputs`)."""
    names = [(port.spec.name, port.tensor) for port in outputs]
    chosen = choose_outputs(specs, names, advice, source)
    for spec, (_, number) in zip(specs or (), chosen, strict=False):
        found = outputs[number].spec
        check_same(source, f"output {found.name!r}", spec.tensor_spec, found)
    return chosen


def check_same(source: str, role: str, expected: TensorSpec, found: TensorSpec) -> None:
    """See that a model has a tensor of the type and shape that is expected."""
    if (expected.type, expected.shape) != (found.type, found.shape):
        raise ModelError(
            source,
            f"{role}: expected {expected.type} {list(expected.shape)}, "
            f"found {found.type} {list(found.shape)}",
        )
