"""From a graph to machine code: its LLVM IR, a compiled model, and one that is bound to buffers.

The text that a graph is lowered to, which can as well be C, defines one function with C linkage::

    int32_t NAME_evaluate(const void *const *inputs, void *const *outputs);

``inputs`` and ``outputs`` hold one pointer for each port of the graph, in its order, aligned for
their elements and free of overlap. The result is 0, or 1 plus the number of the operator that met
a value it is not defined for (an index out of range, an integer divided by zero); outputs then hold
nothing of use. The function keeps all its state on the stack: it is re-entrant and thread-safe.

What a graph that is not trusted does to LLVM, it does in a worker.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from mlgo_gym.base import (
    CompilationError,
    CompilationTimeoutError,
    ModelError,
    ModuleError,
    TensorSpec,
)
from mlgo_gym.corpus import Module, function_code
from mlgo_gym.llvm import Compiler, NativeObject, NativeRequest, plain_options
from mlgo_gym.model import _arrays as arrays
from mlgo_gym.model import _elementwise as elementwise
from mlgo_gym.model import _reductions as reductions
from mlgo_gym.model._c_writer import TYPES
from mlgo_gym.model._card import OutputSpec, choose_outputs
from mlgo_gym.model._elementwise import Scope, Step
from mlgo_gym.model._graph import Graph, Port
from mlgo_gym.model._ir import IrWriter, Origin, Origins
from mlgo_gym.model._tflite_reader import read_graph, read_tflite
from mlgo_gym.model._writer import Writer

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")

_LOWERINGS: Final[Mapping[str, Callable[[Step], None]]] = {
    **elementwise.LOWERINGS,
    **arrays.LOWERINGS,
    **reductions.LOWERINGS,
}
DEFAULT_TIMEOUT_S: Final = 60.0
"""How long compiling a graph may take, in seconds."""

_MEMORY_BYTES: Final = 1 << 33

_THUNK: Final = "mlgo_gym_thunk"
LONG_INSTRUCTIONS: Final = 1 << 20
"""An evaluation of more lets go of the GIL; it takes half a millisecond or longer."""

Array = np.ndarray[Any, Any]


def check_name(name: str) -> str:
    """The name, if C can use it as an identifier."""
    if not _NAME.fullmatch(name):
        raise ModelError(name, f"expected a C identifier as name, found {name!r}")
    return name


def lower_graph(graph: Graph, *, name: str = "model") -> str:
    """The LLVM IR of a graph: a module with the function ``NAME_evaluate``.

    Raises:
        ModelError: an operator is used in a way that is not supported, shapes do not fit each
            other, or the function would need too much memory or time.

    >>> from mlgo_gym.model import find_model
    >>> from mlgo_gym.model import read_tflite
    >>> graph = read_tflite(find_model("inlining-for-size") + "/model.tflite")
    >>> "define" in lower_graph(graph, name="inliner")
    True
    """
    return lower_and_count(graph, name)[0]


def lower_and_count(graph: Graph, name: str, origins: Origins | None = None) -> tuple[str, int]:
    """Return what `lower_graph` does, and how many instructions one evaluation executes.

    With origins, debug locations say what operator each comes of.
    """
    check_name(name)
    writer = IrWriter(origins)
    lower_into(writer, graph)
    return writer.module(name), writer.evaluated


def lower_into(writer: Writer, graph: Graph) -> None:
    """Write a graph's function; of all languages, this is how."""
    scope = Scope(graph, writer)
    for number, port in enumerate(graph.inputs):
        dtype = graph.tensors[port.tensor].dtype
        scope.pointers[port.tensor] = writer.input(number, dtype, port.name)
    for number, operator in enumerate(graph.operators):
        step = Step(scope, number, operator)
        if operator.kind not in _LOWERINGS:
            raise step.error("not supported")
        writer.note(f"Operator {number}: {operator.kind} {step.output.name}")
        with writer.within(operator.kind):
            _LOWERINGS[operator.kind](step)
        scope.check()
    for number, port in enumerate(graph.outputs):
        tensor = graph.tensors[port.tensor]
        writer.note(f"Output {number}: {port.name}")
        writer.output(number, tensor.dtype, scope.pointer(port.tensor), tensor.element_count)
    scope.check()


def compile_ir(
    text: str,
    *,
    source: str,
    cpu: str | None = None,
    target: str | None = None,
    trusted: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> NativeObject:
    """Compile IR at -O3; what is trusted, for this CPU, in this process. Errors name ``source``."""
    # LLVM ends its process over a CPU that it does not know.
    if trusted and cpu is None and target is None:
        from mlgo_gym.llvm import BitcodeError, compile_native  # noqa: PLC0415 - loads LLVM

        try:
            return compile_native(text, None)
        except BitcodeError as error:
            raise ModelError(source, str(error)) from error
    module = Module.from_ir(text, source)
    request = NativeRequest(cpu, target, plain_options())
    try:
        with Compiler(timeout_s=timeout_s, peak_memory_bytes=_MEMORY_BYTES) as compiler:
            answer, data = compiler.inquire(module, request)
    except ModuleError as error:
        raise ModelError(source, error.reason) from error
    except CompilationTimeoutError as error:
        raise ModelError(
            source, f"not compiled within {timeout_s:g} s; timeout_s lifts the limit"
        ) from error
    except CompilationError as error:
        words = "\n".join(error.stderr_tail)
        _check_cpu(words, cpu, source)
        raise ModelError(
            source, f"the compiler died with status {error.exit_status}: {words}"
        ) from error
    _check_cpu("\n".join(answer["stderr"]), cpu, source)
    return NativeObject(data, **answer["native"])


def _check_cpu(words: str, cpu: str | None, source: str) -> None:
    """See what LLVM says of a CPU that it does not know, whether or not it goes on."""
    if "not a recognized processor" in words:
        raise ModelError(source, f"expected a CPU that LLVM knows, found {cpu!r}")


@dataclass(frozen=True, slots=True)
class OperatorCode:
    """The code of an operator, or of what is fused into one.

    Attributes:
        number: which operator of the graph it is, from 0; ``None`` for what is of none.
        name: TFLite's name of the operator, or what is fused into it, as in ``relu``.
        origins: what the model that was trained called it: the parts of the output's name, of
            which the converter to TFLite makes one.
        instructions: how many instructions of it one evaluation runs through, before they are
            optimised.
        size_bytes: the size of its machine code; 0 where LLVM has made none of it, or has merged
            it with another's.
    """

    number: int | None
    name: str
    origins: tuple[str, ...]
    instructions: int
    size_bytes: int


def operator_codes(
    data: bytes, function: str, graph: Graph, origins: Origins, evaluated: int
) -> tuple[OperatorCode, ...]:
    """The parts of a function of an object, in the order of execution, and the rest as the last.

    Raises:
        ModelError: the object is none whose debug information can be read.
    """
    try:
        code = function_code(data)[function]
    except (ValueError, KeyError) as error:
        raise ModelError(graph.source, f"profile: {error}") from error
    sizes = Counter[tuple[int, ...]]()
    for inlined in code.inlined:
        sizes[inlined.ids] += inlined.own_bytes
    numbers = _numbers(origins.found)
    found = []
    for each in origins.found:
        number = numbers[each.ids[-1]]
        output = graph.tensors[graph.operators[number].outputs[0]].name
        found.append(
            OperatorCode(
                number,
                each.name,
                tuple(output.split(";")),
                origins.evaluated[each],
                sizes[each.ids],
            )
        )
    counted = sum(each.instructions for each in found)
    rest = code.size_bytes - sum(each.size_bytes for each in found)
    return (*found, OperatorCode(None, "inputs and outputs", (), evaluated - counted, rest))


def _numbers(origins: list[Origin]) -> Mapping[int, int]:
    """The operators' numbers by their ids."""
    own = (each.ids[0] for each in origins if len(each.ids) == 1)
    return {identity: number for number, identity in enumerate(own)}


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
