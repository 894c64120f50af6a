"""The contract between whoever asks and whoever answers: LLVM's ``MLModelRunner``.

It is that of ``llvm/include/llvm/Analysis/MLModelRunner.h``, in Python terms. A runner is made from
the specs of its inputs and of its output. It owns, or is given, one contiguous buffer for each
input; buffers stay where they are for the runner's life, so whoever asks may keep views of them.
Whoever asks fills the buffers, calls `MLModelRunner.evaluate`, and uses the result. Evaluating
never changes the inputs: the same buffers may be logged afterwards.

A model may know fewer inputs than are offered. The runner sets those up without a buffer, and the
base allocates one: it is filled as any other and has no effect.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn, Self

import numpy as np

from mlgo_gym.base import SpecError, TensorSpec, UsageError

_ALIGNMENT: Final = 64
_WORD_BYTES: Final = 8
_NEAR_BYTES: Final = 1 << 20

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, np.ndarray[Any, Any]]


class MLModelRunner(ABC):
    """Answers observations. Subclasses set up their buffers and evaluate.

    A subclass calls ``super().__init__`` first and then, for every input, exactly once
    `set_up_buffer_for_tensor`, with a buffer of its own or without one. A runner that is closed
    answers no more: that is a `UsageError`.

    Attributes:
        inputs: the specs of what is offered, by index.
        output: the spec of the answer.

    Raises:
        SpecError: two inputs have one name, or there is none.

    >>> class Half(MLModelRunner):
    ...     def __init__(self, inputs, output):
    ...         super().__init__(inputs, output)
    ...         self.set_up_buffer_for_tensor(0, self.inputs[0], None)
    ...
    ...     def _evaluate(self):
    ...         return self.output.encode(int(self.get_tensor(0)[0]) // 2)
    >>> size = TensorSpec("size", "int64_t", (1,))
    >>> with Half([size], size) as runner:
    ...     runner.get_tensor(0)[0] = 6
    ...     int(runner.evaluate()[0])
    3
    """

    def __init__(self, inputs: Sequence[TensorSpec], output: TensorSpec) -> None:
        names = [spec.name for spec in inputs]
        if not names or len(set(names)) != len(names):
            raise SpecError(f"runner: expected inputs with different names, found {names}")
        self.inputs: Final = tuple(inputs)
        self.output: Final = output
        self._tensors: list[Array | None] = [None] * len(self.inputs)
        self._owned = side_by_side(self.inputs)
        self._payload_bytes = sum(spec.size_bytes for spec in self.inputs)
        self._filler: Callable[[bytes], None] | None = None
        self._is_closed = False

    def set_up_buffer_for_tensor(self, index: int, spec: TensorSpec, buffer: Array | None) -> None:
        """Say where input ``index`` lives; called by subclasses, once for each input.

        Args:
            index: the input's index.
            spec: its spec, which must be ``inputs[index]``.
            buffer: contiguous, writable memory of exactly the spec's size, which the subclass
                keeps for its life; ``None`` lets the base allocate it.

        Raises:
            SpecError: the spec is another, or the buffer does not fit it.
            UsageError: it was set up before.
        """
        if self.inputs[index] != spec:
            raise SpecError(f"input {index}: expected {self.inputs[index]}, found {spec}")
        if self._tensors[index] is not None:
            raise UsageError(f"input {index} ({spec.name!r}): set up twice")
        if buffer is None:
            buffer = self._owned[index]
        if not buffer.flags.c_contiguous or not buffer.flags.writeable:
            raise SpecError(f"input {spec.name!r}: expected contiguous, writable memory")
        if buffer.nbytes != spec.size_bytes:
            raise SpecError(
                f"input {spec.name!r}: expected {spec.size_bytes} bytes, found {buffer.nbytes}"
            )
        self._tensors[index] = buffer.reshape(-1).view(spec.dtype).reshape(spec.shape)

    def fill(self, payload: bytes) -> None:
        """Copy an observation, its tensors packed in the order of the inputs, into the buffers.

        Raises:
            SpecError: the observation has another size.
        """
        if len(payload) != self._payload_bytes:
            raise SpecError(
                f"observation: expected {self._payload_bytes} bytes, found {len(payload)}"
            )
        if self._filler is None:
            self._filler = self._make_filler()
        self._filler(payload)

    def get_tensor(self, index: int) -> Array:
        """Input ``index`` (a number or a member of an ``IntEnum``) as a view of its buffer.

        The view has the spec's dtype and shape, and stays valid for the runner's life.

        Raises:
            UsageError: the runner did not set it up.
        """
        tensor = self._tensors[index]
        if tensor is None:
            raise UsageError(f"input {index} ({self.inputs[index].name!r}): not set up")
        return tensor

    def get_tensor_untyped(self, index: int) -> memoryview:
        """Input ``index`` as raw bytes, in native byte order; a view of the same buffer."""
        return self.get_tensor(index).reshape(-1).view(np.uint8).data

    def evaluate(self) -> Array:
        """Answer what the inputs hold: a fresh array of the output's dtype and shape."""
        return self.output.decode(bytes(self.evaluate_untyped()))

    def evaluate_untyped(self) -> bytes | bytearray | memoryview:
        """Answer what the inputs hold: the output's raw bytes, valid until the next call."""
        if self._is_closed:
            raise UsageError(f"{type(self).__name__}: closed")
        return self._evaluate()

    def switch_context(self, name: str) -> None:  # noqa: B027 - most runners have no use for it
        """Announce that what follows belongs to another context, such as a function."""

    def close(self) -> None:
        """Release what the runner holds; safe to call twice. Views of its buffers stay valid."""
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_filler(self) -> Callable[[bytes], None]:
        tensors = [self.get_tensor(index) for index in range(len(self.inputs))]
        addresses = [tensor.ctypes.data for tensor in tensors]
        are_words = all(
            tensor.nbytes == _WORD_BYTES and tensor.ctypes.data % _WORD_BYTES == 0
            for tensor in tensors
        )
        if are_words and max(addresses) - min(addresses) < _NEAR_BYTES:
            return _scatter(addresses)
        ends = np.cumsum([tensor.nbytes for tensor in tensors]).tolist()
        slots = [
            (self.get_tensor_untyped(index), slice(end - tensors[index].nbytes, end))
            for index, end in enumerate(ends)
        ]

        def fill(payload: bytes) -> None:
            for buffer, where in slots:
                buffer[:] = payload[where]

        return fill

    def for_worker(self) -> tuple[dict[str, Any], bytes] | None:
        """The code that answers, to run elsewhere, and what is known about it; if there is any."""
        return None

    @abstractmethod
    def _evaluate(self) -> bytes | bytearray | memoryview:
        """The output's raw bytes for what the buffers hold; must leave the buffers alone."""


RunnerFactory = Callable[[Sequence[TensorSpec], TensorSpec], MLModelRunner]
"""Makes a runner for these inputs and this output, as whoever asks announces them."""


def _scatter(addresses: Sequence[int]) -> Callable[[bytes], None]:
    """One assignment for inputs of one word each, seven times as fast as one for each input.

    The array spans what lies between the buffers too, but only their own words are ever touched,
    and the runner keeps those alive.
    """
    start = min(addresses)
    count = (max(addresses) - start) // _WORD_BYTES + 1
    memory: Any = (ctypes.c_int64 * count).from_address(start)
    span = np.frombuffer(memory, np.int64)
    places = np.array([(address - start) // _WORD_BYTES for address in addresses])

    def fill(payload: bytes) -> None:
        span[places] = np.frombuffer(payload, np.int64)

    return fill


def side_by_side(specs: Sequence[TensorSpec]) -> list[Array]:
    """Zeroed tensors side by side in one block, each aligned for any scalar."""
    sizes = [-(-spec.size_bytes // _WORD_BYTES) * _WORD_BYTES for spec in specs]
    memory = np.zeros(sum(sizes) + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    arrays: list[Array] = []
    for spec, size in zip(specs, sizes, strict=True):
        arrays.append(memory[start : start + spec.size_bytes].view(spec.dtype).reshape(spec.shape))
        start += size
    return arrays


class NoInferenceModelRunner(MLModelRunner):
    """Holds the inputs and never answers (``llvm/lib/Analysis/NoInferenceModelRunner.cpp``).

    It is for collecting observations while another heuristic decides.

    >>> size = TensorSpec("size", "int64_t", (1,))
    >>> with NoInferenceModelRunner([size], size) as runner:
    ...     runner.fill((6).to_bytes(8, "little"))
    ...     int(runner.get_tensor(0)[0])
    6
    """

    def __init__(self, inputs: Sequence[TensorSpec], output: TensorSpec) -> None:
        super().__init__(inputs, output)
        for index, spec in enumerate(self.inputs):
            self.set_up_buffer_for_tensor(index, spec, None)

    def _evaluate(self) -> NoReturn:
        raise UsageError("NoInferenceModelRunner: has no model to evaluate")


class ScriptedRunner(MLModelRunner):
    """Answers with a function of the inputs, or with one value after the other.

    Args:
        answers: a function from the inputs (views by name, not to be kept or written) to a value
            that fits the output's spec, or the values themselves.

    Raises:
        SpecError: from `evaluate`, where a value does not fit the output's spec.
        UsageError: from `evaluate`, where there are no values left.

    >>> size = TensorSpec("size", "int64_t", (1,))
    >>> with ScriptedRunner(lambda inputs: inputs["size"] < 5, [size], size) as runner:
    ...     runner.get_tensor(0)[0] = 3
    ...     runner.evaluate()
    array([1])
    """

    def __init__(
        self,
        answers: Callable[[Inputs], object] | Iterable[object],
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
    ) -> None:
        super().__init__(inputs, output)
        for index, spec in enumerate(self.inputs):
            self.set_up_buffer_for_tensor(index, spec, None)
        self._views = MappingProxyType(
            {spec.name: self.get_tensor(index) for index, spec in enumerate(self.inputs)}
        )
        if callable(answers):
            self._answer = answers
        else:
            remaining = iter(answers)
            self._answer = lambda _: self._next(remaining)

    def _evaluate(self) -> bytes:
        return self.output.encode(self._answer(self._views))

    @staticmethod
    def _next(remaining: Iterable[object]) -> object:
        for answer in remaining:
            return answer
        raise UsageError("ScriptedRunner: expected another answer in the script, found its end")
