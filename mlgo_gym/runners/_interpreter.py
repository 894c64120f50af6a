"""TFLite's interpreter, in this process or, for graphs of strangers, in a child.

TFLite checks little of a graph: a broken one ends its process, or worse. The child is given the
graph's bytes and nothing else: it is confined (`corpus_tools.sandbox`), its memory is limited, and
whoever waits for it waits with a deadline. Over a pair of sockets go

- to the child: the length in 8 bytes, and the graph;
- back, a frame (`llvm._request`): what the inputs and outputs are, or an error;
- for each evaluation, to the child a byte and the inputs' bytes, back a frame with the outputs'
  bytes, or an error. The child's end is the end of the stream.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import itertools
import math
import resource
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from corpus_tools import sandbox
from mlgo_gym.base import EnvironmentSetupError, ModelError, read_bounded
from mlgo_gym.llvm import FrameDecoder, child_command, child_environment, encode_frame
from mlgo_gym.model import unreadable

INTERPRETERS: Final = ("ai_edge_litert.interpreter", "tflite_runtime.interpreter")
DEFAULT_TIMEOUT_S: Final = 60.0
"""How long loading a graph, or evaluating it once, may take in a child, in seconds."""

MAX_GRAPH_BYTES: Final = 1 << 28
"""The largest graph that a child is given: 256 MiB."""

MAX_TENSORS_BYTES: Final = 1 << 24
"""The most that all inputs, or all outputs, of a graph in a child may take together: 16 MiB."""

MEMORY_BYTES: Final = 1 << 33
"""The memory of a child."""

_READABLE: Final = ("/proc/cpuinfo", "/sys/devices/system/cpu")
_KINDS: Final = "biuf"
_LENGTH: Final = struct.Struct("<Q")
_GO: Final = b"!"
_CHUNK_BYTES: Final = 1 << 20
_STDERR_CHARACTERS: Final = 500

Array = np.ndarray[Any, Any]


def interpreter_class() -> Any:
    """TFLite's ``Interpreter``, of whichever package there is."""
    for name in INTERPRETERS:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name).Interpreter
    raise _missing()


def load_here(graph: Path, source: str) -> Any:
    """An interpreter in this process, which must trust the graph."""
    try:
        made = interpreter_class()(model_path=str(graph), num_threads=1)
        made.allocate_tensors()
        for each in (*made.get_input_details(), *made.get_output_details()):
            _check_shape(each)
    except (ValueError, RuntimeError) as error:
        raise ModelError(source, f"TFLite cannot load {graph.name}: {error}") from error
    return made


def _check_shape(details: Mapping[str, Any]) -> None:
    """See that a tensor has memory that can be shared: TFLite gives copies of scalars."""
    if not len(details["shape"]):
        raise ValueError(f"tensor {details['name']!r}: expected a shape such as [1], found none")


def memory_of(interpreter: Any, details: Mapping[str, Any]) -> Array:
    """A tensor's memory inside an interpreter, which the array keeps alive."""
    # TFLite refuses to run while arrays of its own making are around, so this one is made of the
    # address. The arena does not move: tensors are allocated once.
    tensor = interpreter.tensor(details["index"])()
    memory = (ctypes.c_uint8 * tensor.nbytes).from_address(tensor.ctypes.data)
    memory.interpreter = interpreter
    return np.frombuffer(memory, tensor.dtype)


class ChildInterpreter:
    """TFLite's ``Interpreter`` in a child process, as far as runners use it.

    The arrays that `tensor` gives stay where they are; `invoke` takes the inputs out of them, and
    puts the outputs into them.
    """

    def __init__(self, graph: Path, source: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        packages = [name.partition(".")[0] for name in INTERPRETERS]
        if not any(map(importlib.util.find_spec, packages)):
            raise _missing()
        try:
            data = read_bounded(graph, MAX_GRAPH_BYTES)
        except OSError as error:
            raise unreadable(error, source, graph.name) from error
        self._name = graph.name
        self._source = source
        self._timeout_s = timeout_s
        self._decoder = FrameDecoder()
        with contextlib.ExitStack() as stack:
            self._stderr = stack.enter_context(tempfile.TemporaryFile())
            self._link, self._process = _start(self._stderr, timeout_s)
            stack.callback(self._end)
            self._send("load", _LENGTH.pack(len(data)) + data)
            details, _ = self._receive("load")
            self._inputs = [_Tensor.of(each) for each in details["inputs"]]
            self._outputs = [_Tensor.of(each) for each in details["outputs"]]
            self._arrays = self._allocated()
            self._resources = stack.pop_all()

    def get_input_details(self) -> list[dict[str, Any]]:
        """Name, index, shape and dtype of each input."""
        return [asdict(each) for each in self._inputs]

    def get_output_details(self) -> list[dict[str, Any]]:
        """Name, index, shape and dtype of each output."""
        return [asdict(each) for each in self._outputs]

    def tensor(self, index: int) -> Callable[[], Array]:
        """A function that gives an input or output by its index."""
        return lambda: self._arrays[index]

    def invoke(self) -> None:
        """Evaluate the graph once."""
        tensors = [self._arrays[each.index].tobytes() for each in self._inputs]
        self._send("evaluate", b"".join((_GO, *tensors)))
        _, payload = self._receive("evaluate")
        expected = sum(each.size_bytes for each in self._outputs)
        if len(payload) != expected:
            raise ModelError(
                self._source, f"expected outputs of {expected} bytes, found {len(payload)}"
            )
        start = 0
        for each in self._outputs:
            array = self._arrays[each.index]
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(
                payload, np.uint8, array.nbytes, start
            )
            start += array.nbytes

    def close(self) -> None:
        """End the child; safe to call twice."""
        self._resources.close()

    def _allocated(self) -> dict[int, Array]:
        for what, tensors in (("inputs", self._inputs), ("outputs", self._outputs)):
            size_bytes = sum(each.size_bytes for each in tensors)
            if size_bytes > MAX_TENSORS_BYTES:
                raise ModelError(
                    self._source,
                    f"expected {what} of at most {MAX_TENSORS_BYTES} bytes, found {size_bytes}; "
                    "a model that is trusted (--trust-code) may have more",
                )
        every = (*self._inputs, *self._outputs)
        return {each.index: np.zeros(each.shape, each.dtype) for each in every}

    def _send(self, what: str, data: bytes) -> None:
        try:
            self._link.sendall(data)
        except TimeoutError as error:
            raise self._late(what) from error
        except OSError as error:
            raise self._died(what) from error

    def _receive(self, what: str) -> tuple[dict[str, Any], bytes]:
        while (frame := self._decoder.next_frame()) is None:
            try:
                data = self._link.recv(_CHUNK_BYTES)
            except TimeoutError as error:
                raise self._late(what) from error
            except OSError as error:
                raise self._died(what) from error
            if not data:
                raise self._died(what)
            self._decoder.feed(data)
        if "error" in frame[0]:
            raise ModelError(
                self._source, f"TFLite cannot {what} {self._name}: {frame[0]['error']}"
            )
        return frame

    def _late(self, what: str) -> ModelError:
        return ModelError(
            self._source, f"TFLite did not {what} {self._name} within {self._timeout_s:g} s"
        )

    def _died(self, what: str) -> ModelError:
        status = self._process.wait()
        self._stderr.seek(0)
        words = self._stderr.read().decode("utf-8", "replace").strip()[-_STDERR_CHARACTERS:]
        return ModelError(
            self._source,
            f"TFLite ended with status {status} when told to {what} {self._name}: "
            f"{words or 'it said nothing'}",
        )

    def _end(self) -> None:
        self._link.close()
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True, slots=True)
class _Tensor:
    """An input or output, as the child describes it."""

    name: str
    index: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> _Tensor:
        shape = tuple(max(0, int(size)) for size in details["shape"])
        dtype = np.dtype(str(details["dtype"]))
        return cls(str(details["name"]), int(details["index"]), shape, dtype)

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def _missing() -> EnvironmentSetupError:
    return EnvironmentSetupError(
        "models under training: need TFLite; run: pip install 'mlgo-gym[tflite]'"
    )


def _start(stderr: Any, timeout_s: float) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    link, childs = socket.socketpair()
    with childs:
        try:
            process = subprocess.Popen(
                child_command("mlgo_gym.runners._interpreter", str(childs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=(childs.fileno(),),
                env=child_environment(),
            )
        except OSError as error:
            link.close()
            raise EnvironmentSetupError(f"cannot start {sys.executable}: {error}") from error
    link.settimeout(timeout_s)
    return link, process


def main(number: int) -> None:
    """Serve one graph over the socket of this number, until the other end closes it."""
    with socket.socket(fileno=number) as link, link.makefile("rb") as requests:
        made = interpreter_class()
        for limit, value in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CORE, 0)):
            with contextlib.suppress(ValueError, OSError):  # a lower limit holds already
                resource.setrlimit(limit, (value, value))
        sandbox.confine(readable=[Path(each) for each in _READABLE if Path(each).exists()])
        (length,) = _LENGTH.unpack(requests.read(_LENGTH.size))
        try:
            interpreter = made(model_content=requests.read(length), num_threads=1)
            interpreter.allocate_tensors()
            inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
            described = {"inputs": _described(inputs), "outputs": _described(outputs)}
        except (ValueError, RuntimeError, MemoryError) as error:
            link.sendall(encode_frame({"error": str(error) or type(error).__name__}))
            return
        link.sendall(encode_frame(described))
        _serve(interpreter, (inputs, outputs), link, requests)


def _serve(interpreter: Any, details: Any, link: socket.socket, requests: Any) -> None:
    inputs, outputs = ([memory_of(interpreter, each) for each in some] for some in details)
    ends = [*itertools.accumulate((each.nbytes for each in inputs), initial=len(_GO))]
    slots = [
        (each.view(np.uint8), slice(*ends[number : number + 2]))
        for number, each in enumerate(inputs)
    ]
    while len(data := np.frombuffer(requests.read(ends[-1]), np.uint8)) == ends[-1]:
        for memory, where in slots:
            memory[:] = data[where]
        try:
            interpreter.invoke()
        except RuntimeError as error:
            link.sendall(encode_frame({"error": str(error)}))
            continue
        link.sendall(encode_frame({}, b"".join(each.tobytes() for each in outputs)))


def _described(details: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for each in details:
        dtype = np.dtype(each["dtype"])
        if dtype.kind not in _KINDS:
            raise ValueError(f"tensor {each['name']!r}: expected numbers, found {dtype}")
        _check_shape(each)
        shape = [int(size) for size in each["shape"]]
        found.append(
            {"name": each["name"], "index": int(each["index"]), "shape": shape, "dtype": dtype.str}
        )
    return found
