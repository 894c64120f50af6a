"""Training in generations: each compiles some contexts, and learns from what they cost.

`train_in_generations` validates now and then, exports what is best so far, and goes on where the
run was. How a network learns is the trainer's: ``group`` and ``evolution``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, Protocol, TypeVar

import keras
import numpy as np

from corpus_tools.reading import Shape
from mlgo_gym.base import WorkloadError
from mlgo_gym.llvm import Compiler
from mlgo_gym.rollout import Failure
from mlgo_gym.training._data import Data, Sampler, TrainingContext, Workshop
from mlgo_gym.training._export import CompiledNetwork, save_model
from mlgo_gym.training._networks import (
    ALL_FEATURES,
    PolicyNetwork,
    check_arrays,
    network_for,
    network_from_config,
    with_margin,
)
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._start import Prepared, load_start, prepared, statistics
from mlgo_gym.training._train import Count, NotNegative, Range, Ranged, Seed, Whole, Widths
from mlgo_gym.training._validation import Validation, validate, validate_functions

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class GenerationsConfig(Ranged):
    """The settings of every trainer that goes by generations."""

    seed: Seed = 0
    generations: Count = 1000
    contexts: Count = 32
    most_modules: Count = 60
    features: str = ALL_FEATURES
    hidden: Widths = (32, 16)
    tolerated: NotNegative = 0.05
    validate_every: Count = 20
    start: str = ""
    margin: NotNegative = 0.0


class Outcome(Protocol):
    """The outcome of a context."""

    @property
    def errors(self) -> tuple[WorkloadError, ...]:
        """The errors of programs that went wrong."""


_O = TypeVar("_O", bound=Outcome)


@dataclass(frozen=True, slots=True)
class Generation:
    """The contexts of one generation, and what compiles them with the network as it is now."""

    number: int
    drawn: list[int]
    sampler: Sampler
    workshop: Workshop
    network: CompiledNetwork
    data: Data
    generator: np.random.Generator

    def outcomes(
        self, work: Callable[[Compiler, tuple[int, TrainingContext]], _O]
    ) -> list[tuple[float, _O]]:
        """The outcomes of its contexts, each behind what it counts; what failed is warned of."""
        found = list(self.workshop.successes(self.drawn, work, self.sampler.numbered))
        for error in (each for _, outcome in found for each in outcome.errors):
            self.data.warn(Failure(error))
        return [(self.sampler.weights[index], outcome) for index, outcome in found]


class Update:
    """A network that learns in place, its optimiser, and the moving average of its weights.

    The average is what is exported: it forgets the noise of single generations.
    """

    def __init__(self, network: PolicyNetwork, learning_rate: float, kept: float) -> None:
        self.network: Final = network
        self._kept = kept
        self._variables = network.trainable_variables
        self._average = [each.numpy() for each in self._variables]
        self._optimizer = keras.optimizers.Adam(learning_rate, beta_2=0.98)
        self._optimizer.build(self._variables)

    def averaged(self) -> list[_Array]:
        """The moving average of the weights, as the network's ``set_weights`` takes them."""
        return [each.copy() for each in self._average]

    def arrays(self) -> dict[str, _Array]:
        """Everything that learning goes on from."""
        found = {name: each.numpy() for name, each in self._state().items()}
        return found | {f"average.{i}": each for i, each in enumerate(self._average)}

    def load(self, arrays: Mapping[str, _Array]) -> None:
        """Go on from what `arrays` gave.

        Raises:
            ValueError: they are of something else, or not finite.
        """
        check_arrays(arrays, self.arrays())
        for name, variable in self._state().items():
            variable.assign(arrays[name])
        self._average = [arrays[f"average.{index}"] for index in range(len(self._average))]

    def take_average(self) -> None:
        """Count the weights, as they are now, in the average."""
        self._average = [
            self._kept * old_value + (1 - self._kept) * variable.numpy()
            for old_value, variable in zip(self._average, self._variables, strict=True)
        ]

    def _state(self) -> dict[str, Any]:
        groups = {"network": self._variables, "optimizer": self._optimizer.variables}
        return {
            f"{name}.{index}": variable
            for name, variables in groups.items()
            for index, variable in enumerate(variables)
        }


class Learner(Protocol):
    """The part of a trainer that is its own."""

    @property
    def update(self) -> Update:
        """The network, and what is kept of it in checkpoints."""

    def learn_from(self, generation: Generation) -> Mapping[str, float]:
        """Learn from what a generation's contexts cost; the numbers for the run's curves."""


def train_in_generations(
    run: TrainingRun,
    config: GenerationsConfig,
    data: Data,
    begin: Callable[[PolicyNetwork], Learner],
) -> Validation:
    """Train until the generations or the run's budget are over; goes on where the run was.

    What is learned depends on the configuration and the corpora, not on the number of workers.

    Args:
        run: the folder, the problem and the budget.
        config: the trainer's settings.
        data: what is trained on, and what is held out.
        begin: makes the learner of a network.
    """
    with prepared(run, data, config.most_modules, config.seed) as found:
        trainer = _Trainer(run, config, data, found, begin)
        with trainer.compiled:
            return trainer.train()


_STATE: Final[Shape] = {
    "network": dict,
    "generation": int,
    "best": (float, type(None)),
    "validated": int,
}
"""The state of training in checkpoints: the network's configuration, and `_Progress`."""


@dataclass(slots=True)
class _Progress(Ranged):
    """The state of training besides the network."""

    generation: Whole = 0
    best: float | None = None
    validated: Annotated[int, Range(-1, 1 << 31)] = -1


def restored(
    run: TrainingRun, begin: Callable[[PolicyNetwork], Learner]
) -> tuple[_Progress, Learner] | None:
    """Return the state of a run's checkpoint, and the learner that goes on from there.

    Raises:
        TrainingError: the checkpoint holds something else.
    """
    checkpoint = run.restore(_STATE)
    if checkpoint is None:
        return None
    with run.restoring():
        arrays, state = checkpoint.arrays, dict(checkpoint.state)
        weights = sum(each.size for name, each in arrays.items() if name.startswith("network."))
        network = network_from_config(state["network"], weights)
        if (found := network.problem.name) != (expected := run.problem.name):
            raise ValueError(f"expected a network for {expected}, found one for {found}")
        learner = begin(network)
        learner.update.load(arrays)
        return _Progress(state["generation"], state["best"], state["validated"]), learner


class _Trainer:
    """Compile, learn; validate now and then, and export what is best so far."""

    def __init__(
        self,
        run: TrainingRun,
        config: GenerationsConfig,
        data: Data,
        prepared: Prepared,
        begin: Callable[[PolicyNetwork], Learner],
    ) -> None:
        self._run, self._config, self._data = run, config, data
        self._workshop, self._sampler, self._held_out = prepared
        self._best: Validation | None = None
        self._candidate = run.directory / "candidate"
        earlier = restored(run, begin)
        self._progress, self._learner = earlier or (_Progress(), begin(self._first_network()))
        self._update = self._learner.update
        self.compiled = CompiledNetwork(self._update.network, run.problem)

    def train(self) -> Validation:
        """Go on to the end; what the best model is worth on what is held out, in release mode."""
        progress, run, config = self._progress, self._run, self._config
        while True:
            is_last = progress.generation >= config.generations or run.is_over
            is_due = is_last or progress.generation % config.validate_every == 0
            if is_due and progress.validated < progress.generation:
                self._validate()
                run.doing("generation")
            if is_last:
                return self._best or validate(run.model, self._data, run.problem)
            number = progress.generation + 1
            scalars = self._generation(number)
            progress.generation = number
            run.scalars(number, scalars)
            self._save()

    def _first_network(self) -> PolicyNetwork:
        """The network of a model directory, or a new one, which answers as LLVM's own rule."""
        config, problem = self._config, self._run.problem
        if config.start:
            return with_margin(load_start(config.start, problem), config.margin)
        found = statistics(self._workshop, self._sampler, config.seed, config.features)
        return with_margin(network_for(problem, found, config.hidden, config.seed), config.margin)

    def _validate(self) -> None:
        """Find what the average is worth, and export it if it is the best so far."""
        progress, run = self._progress, self._run
        network = network_from_config(self._update.network.config())
        network.set_weights(self._update.averaged())
        run.doing("validation")
        found = self._validation(network)
        run.scalars(progress.generation, found.scalars())
        loss = found.loss(most_text=self._data.most_text)
        if progress.best is None or loss < progress.best:
            progress.best = loss
            self._best = found if self._held_out is None else None
            results = {"generation": progress.generation, "validation": found.to_json()}
            run.export(network if self._held_out is not None else self._candidate, results)
        progress.validated = progress.generation
        self._save()

    def _validation(self, network: PolicyNetwork) -> Validation:
        run = self._run
        if self._held_out is not None:
            self.compiled.take_weights(network)
            return validate_functions(self._workshop, self._held_out, self.compiled)
        save_model(network, run.problem, self._candidate, {"trainer": run.trainer})
        return validate(self._candidate, self._data, run.problem)

    def _save(self) -> None:
        state = asdict(self._progress) | {"network": self._update.network.config()}
        self._run.save(self._progress.generation, self._update.arrays(), state)

    def _generation(self, number: int) -> Mapping[str, float]:
        self.compiled.take_weights(self._update.network)
        generator = np.random.default_rng([self._config.seed, number])
        drawn = self._sampler.draw(self._config.contexts, generator)
        parts = (self._sampler, self._workshop, self.compiled, self._data, generator)
        return self._learner.learn_from(Generation(number, drawn, *parts))
