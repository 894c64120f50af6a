"""Work on contexts, here or on nodes without TensorFlow: answers, tries, networks beside one.

What is drawn depends on the seed, the generation, the context and the number of the try, and noise
on the seed, the generation and the pair's number, not on who compiles what. So trials are the same
wherever they are made, and of noise only numbers travel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise
from typing import Any, Final, Self

import numpy as np

from mlgo_gym.base import TensorSpec, WorkloadError
from mlgo_gym.llvm import Compiler
from mlgo_gym.model import BoundModel, NativeModel, check_machine
from mlgo_gym.problems import Action
from mlgo_gym.rollout import Decision, RecordingPolicy, without_frames
from mlgo_gym.stream import Observation
from mlgo_gym.training._data import TrainingContext, Workshop

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


@dataclass(frozen=True, slots=True)
class Perturbation:
    """The networks of a generation; docs/guides/training.md explains each setting."""

    seed: int
    generation: int
    pairs: int
    noise: float
    tolerated: float


def noise(
    perturbation: Perturbation, number: int, shapes: Sequence[tuple[int, ...]]
) -> list[_Array]:
    """The noise of a pair of networks, of variance 1, for weights of such shapes."""
    generator = np.random.default_rng([perturbation.seed, perturbation.generation, number])
    return [generator.standard_normal(shape, np.float32) for shape in shapes]


@dataclass(frozen=True, slots=True)
class Compared:
    """A context's costs with each network of each pair, ``float [pairs, 2]``.

    The cost with a network by which a program goes wrong is infinite; `errors` say what it did.
    """

    costs: _Array
    errors: tuple[WorkloadError, ...] = ()


@dataclass(frozen=True, slots=True)
class Perturbed:
    """Compiles a context with each network of each pair."""

    workshop: Workshop
    network: NetworkCode
    perturbation: Perturbation

    def __call__(self, compiler: Compiler, numbered: tuple[int, TrainingContext]) -> Compared:
        known, (_, context) = self.perturbation, numbered
        shapes = [each.shape for each in self.network.weights]
        costs = np.full((known.pairs, 2), np.inf)
        errors = []
        with self.network.copy() as network:
            for number in range(known.pairs):
                shifts = noise(known, number, shapes)
                for place, scale in enumerate((known.noise, -known.noise)):
                    self._shift(network, shifts, scale)
                    try:
                        score = self.workshop.score(compiler, context, network.answer)
                    except WorkloadError as error:
                        errors.append(without_frames(error))
                        continue
                    costs[number, place] = context.cost(score, known.tolerated)
        return Compared(costs, tuple(errors))

    def _shift(self, network: NetworkCode, shifts: Sequence[_Array], scale: float) -> None:
        """Give a copy the network's weights and so much of a pair's noise."""
        for weights, base, shift in zip(network.weights, self.network.weights, shifts, strict=True):
            weights[...] = base + np.float32(scale) * shift


@dataclass(frozen=True, slots=True)
class Tried:
    """A decision that was drawn, and the logarithm of its probability then."""

    payload: bytes
    action: int
    log_probability: float


@dataclass(frozen=True, slots=True)
class Trial:
    """A context's `cost` with the likeliest actions, and of tries, with what these drew.

    Tries with which a program went wrong are not among them; `errors` say what it did.
    """

    cost: float
    costs: tuple[float, ...]
    tried: tuple[tuple[Tried, ...], ...]
    errors: tuple[WorkloadError, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialSetting:
    """How contexts are tried in a generation; docs/guides/training.md explains each setting."""

    seed: int
    generation: int
    tries: int
    drawn: float
    temperature: float
    tolerated: float


@dataclass(frozen=True, slots=True)
class Trials:
    """Compiles contexts with the likeliest actions and, where there is a choice, with others."""

    workshop: Workshop
    network: NetworkCode
    setting: TrialSetting

    def __call__(self, compiler: Compiler, numbered: tuple[int, TrainingContext]) -> Trial:
        setting, (index, context) = self.setting, numbered

        def cost(answers: _Answers) -> float:
            score = self.workshop.score(compiler, context, answers)
            return context.cost(score, setting.tolerated)

        likeliest = _Answers(self.network)
        least = cost(likeliest)
        costs, tried, errors = [], [], []
        for number in range(setting.tries if likeliest.open else 0):
            share = min(1.0, setting.drawn / likeliest.open)
            generator = np.random.default_rng([setting.seed, setting.generation, index, number])
            answers = _Answers(self.network, share, setting.temperature, generator)
            try:
                costs.append(cost(answers))
            except WorkloadError as error:
                errors.append(without_frames(error))
                continue
            tried.append(tuple(answers.tried))
        return Trial(least, tuple(costs), tuple(tried), tuple(errors))


@dataclass(frozen=True, slots=True)
class Scores:
    """Compiles contexts with the likeliest actions of a network."""

    workshop: Workshop
    network: NetworkCode

    def __call__(self, compiler: Compiler, context: TrainingContext) -> float:
        return self.workshop.score(compiler, context, self.network.answer)


@dataclass(frozen=True, slots=True)
class Asked:
    """The payloads of the first so many decisions of contexts under the problem's own rule."""

    workshop: Workshop
    most: int

    def __call__(self, compiler: Compiler, numbered: tuple[int, TrainingContext]) -> list[bytes]:
        problem = self.workshop.problem
        decisions: list[Decision] = []
        watched = RecordingPolicy(problem.policy(problem.rule), problem, decisions)
        self.workshop.score(compiler, numbered[1], watched)
        return [each.payload for each in islice(decisions, self.most)]


@dataclass(slots=True)
class _Answers:
    """Answers with the likeliest action or, for a share of those with a choice, a drawn one."""

    network: NetworkCode
    share: float = 0.0
    temperature: float = 1.0
    generator: np.random.Generator | None = None
    open: int = 0
    tried: list[Tried] = field(default_factory=list)

    def __call__(self, observation: Observation) -> Action:
        logits = self.network.logits(observation.payload)
        best = int(logits.argmax())
        if np.count_nonzero(logits > FORBIDDEN) < 2:
            return best
        self.open += 1
        if self.generator is None or self.generator.random() >= self.share:
            return best
        powers = np.exp((logits.astype(np.float64) - logits[best]) / self.temperature)
        ends = np.cumsum(powers)
        action = int(np.searchsorted(ends, self.generator.random() * ends[-1], side="right"))
        logarithm = float(np.log(powers[action] / ends[-1]))
        self.tried.append(Tried(observation.payload, action, logarithm))
        return action
