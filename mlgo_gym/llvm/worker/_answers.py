"""Policies inside a worker: a compiled model, recorded answers, or a function that was sent.

Each is bound to what LLVM says it sends, and each may be given other answers to some questions. A
model whose tensors are not sent as it takes them, or whose answer LLVM may not be given, leaves the
question to the host, which knows what to do, or what to say. Nothing of numpy is imported here;
what a function needs comes with it.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import pkgutil
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from mlgo_gym.llvm.worker._tensors import FORMATS, Legal, SentTensor, laid_out, legal_as_documented

_ALIGNMENT: Final = 64
_WORD_BYTES: Final = 8

_THUNK: Final = """
declare i32 @{name}_evaluate(ptr, ptr)
define i32 @answer(ptr %inputs, ptr %outputs) {{
  %status = tail call i32 @{name}_evaluate(ptr %inputs, ptr %outputs)
  ret i32 %status
}}
"""


class Bound(Protocol):
    """A policy that answers observations of one header.

    Attributes:
        size_bytes: of an observation's tensors.
    """

    size_bytes: int

    def answer(self, payload: bytes, context: bytes, index: int) -> bytes | None:
        """The raw advice for LLVM's observation of this number; ``None`` leaves it to the host."""


Answerer = Callable[[bytes], Bound | None]
"""Binds who answers to a header's line; ``None`` leaves all to the host."""


class NativeAnswerer:
    """A compiled model; what is said ``about`` it, `mlgo_gym.runners` says.

    Raises:
        BitcodeError: the object cannot be loaded.
    """

    def __init__(self, about: Mapping[str, Any], data: bytes) -> None:
        from mlgo_gym.llvm.worker import _binding as binding  # noqa: PLC0415 - loads LLVM

        self._about: Final = about
        self._code = binding.LoadedCode(data, _THUNK.format(name=about["name"]))
        # No longer than letting go of the GIL and taking it again would.
        self._call = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(
            self._code.address("answer")
        )
        self._bound: dict[bytes, Bound | None] = {}

    def __call__(self, header: bytes) -> Bound | None:
        if header not in self._bound:
            self._bound[header] = self._bind(json.loads(header))
        return self._bound[header]

    def _bind(self, header: Mapping[str, Any]) -> Bound | None:
        about = self._about
        sent, end = laid_out(header)
        wanted = [SentTensor.of(each) for each in about["inputs"]]
        found = [sent.get(each.name) for each in wanted]
        fits = all(
            tensor.is_like(each) and tensor.start % tensor.item_bytes == 0
            if tensor
            else each.name in about["zeroed"]
            for each, tensor in zip(wanted, found, strict=True)
        )
        advice = SentTensor.of(header["advice"])
        legal = Legal.of(about["allowed"], advice, sent)
        if not (
            fits and legal and advice.is_like(SentTensor.of(about["outputs"][about["decision"]]))
        ):
            return None
        return _BoundModel(about, self._call, found, legal, end)


class _BoundModel:
    def __init__(
        self,
        about: Mapping[str, Any],
        call: Callable[[int, int], int],
        found: list[SentTensor | None],
        legal: Legal,
        size_bytes: int,
    ) -> None:
        self.size_bytes = size_bytes
        self._call, self._legal = call, legal
        self._memory = ctypes.create_string_buffer(size_bytes + _ALIGNMENT)
        start = ctypes.addressof(self._memory)
        self._place = start + -start % _ALIGNMENT
        ports = [SentTensor.of(each) for each in (*about["inputs"], *about["outputs"])]
        self._spare = [(ctypes.c_double * (each.end // _WORD_BYTES + 1))() for each in ports]
        addresses = [ctypes.addressof(each) for each in self._spare]
        self._answer = addresses[len(found) + about["decision"]]
        for index, tensor in enumerate(found):
            if tensor:
                addresses[index] = self._place + tensor.start
        self._table = (ctypes.c_void_p * len(addresses))(*addresses)
        self._inputs = ctypes.addressof(self._table)
        self._outputs = self._inputs + len(found) * ctypes.sizeof(ctypes.c_void_p)

    def answer(self, payload: bytes, context: bytes, index: int) -> bytes | None:  # noqa: ARG002
        ctypes.memmove(self._place, payload, self.size_bytes)
        if self._call(self._inputs, self._outputs):
            return None
        advice = ctypes.string_at(self._answer, self._legal.advice_bytes)
        return advice if self._legal(advice, payload) else None


class RecordedAnswerer:
    """Gives answers that were recorded, in their order, and leaves what follows to the host."""

    def __init__(self, about: Mapping[str, Any], data: bytes) -> None:
        size = about["advice_bytes"]
        self._about: Final = about
        self._left: Final = [data[at : at + size] for at in range(0, len(data), size)][::-1]

    def __call__(self, header: bytes) -> Bound | None:
        value = json.loads(header)
        legal = legal_as_documented(self._about, value)
        return _BoundRecord(self._left, legal, laid_out(value)[1]) if legal else None


class _BoundRecord:
    def __init__(self, left: list[bytes], legal: Legal, size_bytes: int) -> None:
        self._left, self._legal, self.size_bytes = left, legal, size_bytes

    def answer(self, payload: bytes, context: bytes, index: int) -> bytes | None:  # noqa: ARG002
        if not self._left or not self._legal(self._left[-1], payload):
            return None
        return self._left.pop()


class FunctionAnswerer:
    """A function that is found by its name, or made from its source; it gets observations.

    Raises:
        Exception: what importing it, or running its source, raises.
    """

    def __init__(self, about: Mapping[str, Any], data: bytes) -> None:
        from mlgo_gym.stream import Header, Observation  # noqa: PLC0415 - loads numpy

        self._header: Final = Header
        self._observation: Final = Observation
        self._about: Final = about
        self._answer = _imported(about) if about["kind"] == "function" else _made(about, data)

    def __call__(self, header: bytes) -> Bound | None:
        value = json.loads(header)
        legal = legal_as_documented(self._about, value)
        if legal is None:
            return None
        described = self._header.from_value(value)
        return _BoundFunction(self._answer, legal, described, self._observation)


class _BoundFunction:
    def __init__(
        self,
        answer: Callable[[Any], Any],
        legal: Legal,
        header: Any,
        observation: Callable[[Any, str, int, bytes], Any],
    ) -> None:
        self.size_bytes: int = header.size_bytes
        self._answer, self._legal, self._header = answer, legal, header
        self._observation = observation
        self._context: tuple[bytes, str] = b"", ""

    def answer(self, payload: bytes, context: bytes, index: int) -> bytes | None:
        if context != self._context[0]:
            self._context = context, json.loads(context)["context"]
        asked = self._observation(self._header, self._context[1], index, payload)
        action = self._answer(asked)
        try:
            advice = self._legal.advice.pack(action)
        except struct.error:
            return None
        return advice if self._legal(advice, payload) else None


class FlippedAnswerer:
    """Another's answers, but for some of a caller's questions, which contexts name."""

    def __init__(self, about: Mapping[str, Any], of: Answerer) -> None:
        self._of: Final = of
        self._flips: Final = {(caller, number): action for caller, number, action in about["flips"]}

    def __call__(self, header: bytes) -> Bound | None:
        bound = self._of(header)
        advice = SentTensor.of(json.loads(header)["advice"])
        return _BoundFlips(bound, self._flips, advice) if bound else None


class _BoundFlips:
    def __init__(self, of: Bound, flips: Mapping[tuple[str, int], int], advice: SentTensor) -> None:
        self.size_bytes = of.size_bytes
        self._of = of
        self._counts: Counter[str] = Counter()
        pack = struct.Struct(f"={FORMATS[advice.type]}").pack
        self._flips = {where: pack(action) for where, action in flips.items()}

    def answer(self, payload: bytes, context: bytes, index: int) -> bytes | None:
        caller = json.loads(context)["context"].partition("\0")[0]
        number = self._counts[caller]
        self._counts[caller] += 1
        return self._flips.get((caller, number)) or self._of.answer(payload, context, index)


def _imported(about: Mapping[str, Any]) -> Callable[[Any], Any]:
    for module in about["imports"].values():
        importlib.import_module(module)
    found: Callable[[Any], Any] = pkgutil.resolve_name(about["name"])
    return found


def _made(about: Mapping[str, Any], data: bytes) -> Callable[[Any], Any]:
    names: dict[str, Any] = {
        name: importlib.import_module(each) for name, each in about["imports"].items()
    }
    exec(compile(data, about["file"], "exec"), names)  # noqa: S102 - the host's own function
    made: Callable[[Any], Any] = names[about["name"]]
    return made


_KINDS: Final[Mapping[str, Callable[[Mapping[str, Any], bytes], Answerer]]] = MappingProxyType(
    {
        "native": NativeAnswerer,
        "recorded": RecordedAnswerer,
        "function": FunctionAnswerer,
        "source": FunctionAnswerer,
    }
)


def answerer_of(about: Mapping[str, Any], data: bytes, loaded: Mapping[str, Answerer]) -> Answerer:
    """Make the policy that a `mlgo_gym.problems._policy.SentPolicy` describes.

    ``loaded`` has those that others go by, by their keys.
    """
    if about["kind"] == "flipped":
        return FlippedAnswerer(about, loaded[about["of"]])
    return _KINDS[about["kind"]](about, data)
