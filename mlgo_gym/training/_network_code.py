"""A network as machine code beside its weights, which needs no TensorFlow: nodes have none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, Self

import numpy as np

from mlgo_gym.base import TensorSpec
from mlgo_gym.model import BoundModel, NativeModel, check_machine
from mlgo_gym.stream import Observation

_Array = np.ndarray[Any, Any]

FORBIDDEN: Final = -1e9
"""The logit of what may not be chosen."""


class NetworkCode:
    """A network's logits for one observation at a time, in any number of threads.

    A copy elsewhere has the same code, not code for another CPU, so that its logits are the same;
    its weights are those of when it was made.

    Args:
        model: the code, whose inputs are what LLVM sends, and the weights.
        sent: what LLVM sends, in its order.
        weights: by their names, ``float32``.
    """

    def __init__(
        self, model: NativeModel, sent: Sequence[TensorSpec], weights: Mapping[str, _Array]
    ) -> None:
        self._model: Final = model
        self._sent: Final = tuple(sent)
        self._weights: Final = dict(weights)
        ends = accumulate((spec.size_bytes for spec in sent), initial=0)
        self._places: Final = {
            spec.name: slice(*place) for spec, place in zip(sent, pairwise(ends), strict=True)
        }
        self._own = threading.local()
        self._bound: list[BoundModel] = []

    def logits(self, payload: bytes) -> _Array:
        """The logits of a payload, ``float32 [actions]``; `FORBIDDEN` is that of no choice."""
        asked: Callable[[bytes], _Array] = getattr(self._own, "asked", None) or self._bind()
        return asked(payload)

    def answer(self, observation: Observation) -> int:
        """The likeliest action."""
        return int(self.logits(observation.payload).argmax())

    @property
    def weights(self) -> tuple[_Array, ...]:
        """The weights, to be changed in place while nobody asks."""
        return tuple(self._weights.values())

    def copy(self) -> NetworkCode:
        """Return this code with a copy of the weights."""
        weights = {name: each.copy() for name, each in self._weights.items()}
        return NetworkCode(self._model, self._sent, weights)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Unload the code; nobody may ask any more."""
        self._own = threading.local()
        while self._bound:
            self._bound.pop().close()

    def __reduce__(self) -> tuple[Callable[..., NetworkCode], tuple[Any, ...]]:
        return _received, (self._model, self._sent, self._weights)

    def _bind(self) -> Callable[[bytes], _Array]:
        """Bind a thread's own buffers to the network; the weights are shared."""
        inputs = {
            port.spec.name: np.zeros(port.spec.shape, port.spec.dtype)
            for port in self._model.inputs
            if port.spec.name in self._places
        }
        (output,) = self._model.outputs
        logits = np.zeros(output.spec.shape, output.spec.dtype)
        buffers = inputs | self._weights
        bound = self._model.bind([buffers[each.spec.name] for each in self._model.inputs], [logits])
        self._bound.append(bound)
        slots = tuple(
            (array.reshape(-1).view(np.uint8).data, self._places[name])
            for name, array in inputs.items()
        )

        def asked(payload: bytes) -> _Array:
            for buffer, place in slots:
                buffer[:] = payload[place]
            if status := bound.call():
                raise self._model.failure(status)
            found: _Array = logits[0].copy()
            return found

        self._own.asked = asked
        return asked


def _received(
    model: NativeModel, sent: Sequence[TensorSpec], weights: Mapping[str, _Array]
) -> NetworkCode:
    """A copy on this machine.

    Raises:
        ModelError: this CPU lacks some of its instructions.
    """
    check_machine(model)
    return NetworkCode(model, sent, weights)
