"""A network as machine code that reads its weights: microseconds, where TensorFlow takes 0.7 ms."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any, Final, Self

import numpy as np

from mlgo_gym.native._model import BoundModel, compile_model
from mlgo_gym.problems._problem import Problem
from mlgo_gym.stream._events import Observation
from mlgo_gym.training._export import logits_graph, weight_name
from mlgo_gym.training._networks import PolicyNetwork

_Array = np.ndarray[Any, Any]


class CompiledNetwork:
    """A network's logits for one observation at a time, in any number of threads."""

    def __init__(self, network: PolicyNetwork, problem: Problem) -> None:
        self._model: Final = compile_model(logits_graph(network, problem), trusted=True)
        self._weights: Final = {
            weight_name(number): np.zeros(each.shape, np.float32)
            for number, each in enumerate(network.trainable_variables)
        }
        self.take_weights(network)
        ends = accumulate((spec.size_bytes for spec in problem.sent()), initial=0)
        self._places: Final = {
            spec.name: slice(*place)
            for spec, place in zip(problem.sent(), pairwise(ends), strict=True)
        }
        self._own = threading.local()
        self._bound: list[BoundModel] = []

    def take_weights(self, network: PolicyNetwork) -> None:
        """Answer as a network of the same shape does now, while nobody asks."""
        for mine, theirs in zip(self._weights.values(), network.trainable_variables, strict=True):
            mine[...] = theirs.numpy()

    def logits(self, payload: bytes) -> _Array:
        """The logits of a payload, ``float32 [actions]``; `FORBIDDEN` is that of no choice."""
        asked: Callable[[bytes], _Array] = getattr(self._own, "asked", None) or self._bind()
        return asked(payload)

    def answer(self, observation: Observation) -> int:
        """The likeliest action."""
        return int(self.logits(observation.payload).argmax())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Unload the code; nobody may ask any more."""
        self._own = threading.local()
        while self._bound:
            self._bound.pop().close()

    def _bind(self) -> Callable[[bytes], _Array]:
        """What this thread asks with: buffers of its own, but for the weights."""
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
