"""The loop that trainers share: generations, validations, checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from mlgo_gym.training._data import Data
from mlgo_gym.training._export import save_model
from mlgo_gym.training._networks import PolicyNetwork, network_from_config
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._validation import Validation, validate

_Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(slots=True)
class Progress:
    """Where training is, besides the weights.

    Attributes:
        UNIT: what checkpoints and cards call a generation.
        done: how many generations are.
        best: the best validation's loss; ``None`` before the first.
        validated: the generation of the last validation; -1 before the first.
    """

    UNIT: ClassVar[str] = "generation"

    done: int = 0
    best: float | None = None
    validated: int = -1

    def to_json(self) -> dict[str, Any]:
        """The progress as JSON values."""
        values = asdict(self)
        return {self.UNIT: values.pop("done"), **values}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The progress that `to_json` gave."""
        rest = dict(values)
        return cls(rest.pop(cls.UNIT), **rest)


_P = TypeVar("_P", bound=Progress)


def restored(
    run: TrainingRun, progress: type[_P], first: Callable[[], PolicyNetwork]
) -> tuple[_P, PolicyNetwork, _Arrays | None]:
    """Where a run goes on.

    Args:
        run: the folder.
        progress: the class of what is kept besides the weights.
        first: makes the network that a new run starts from.

    Returns:
        The progress, the network, and what `Generations` saved of it; ``None`` in a new run.
    """
    checkpoint = run.restore()
    if checkpoint is None:
        return progress(), first(), None
    state = dict(checkpoint.state)
    network = network_from_config(state.pop("network"))
    return progress.from_json(state), network, checkpoint.arrays


class Generations(ABC, Generic[_P]):
    """Goes through generations, validates now and then, and exports what is best so far.

    Args:
        run: the folder, with the budget.
        data: what is chosen on.
        progress: where an earlier run stopped.
        most: how many generations there are at most.
        validate_every: generations between two validations.
        validated: finds what a network is worth; by default what is held out is compiled with it
            in release mode.
    """

    def __init__(
        self,
        run: TrainingRun,
        data: Data,
        progress: _P,
        *,
        most: int,
        validate_every: int,
        validated: Callable[[PolicyNetwork], Validation] | None = None,
    ) -> None:
        self._run = run
        self._data = data
        self._progress = progress
        self._most = most
        self._validate_every = validate_every
        self._validated = validated
        self._best: Validation | None = None

    def train(self) -> Validation:
        """Go on to the end; what the best model is worth on what is held out, in release mode."""
        progress, run = self._progress, self._run
        while True:
            is_last = progress.done >= self._most or run.is_over
            is_due = is_last or progress.done % self._validate_every == 0
            if is_due and progress.validated < progress.done:
                self._validate()
                run.doing(progress.UNIT)
            if is_last:
                return self._best or validate(run.model, self._data, run.problem)
            number = progress.done + 1
            scalars = self._generation(number)
            progress.done = number
            run.scalars(number, scalars)
            self._save()

    @abstractmethod
    def _generation(self, number: int) -> Mapping[str, float]:
        """Learn for one generation, from 1; returns what there is to record."""

    @abstractmethod
    def _network(self) -> PolicyNetwork:
        """The network to validate and to export."""

    @abstractmethod
    def _arrays(self) -> _Arrays:
        """Everything that learning goes on from."""

    def _validate(self) -> None:
        """Find what the network is worth, and export it if it is the best so far."""
        progress, run, network = self._progress, self._run, self._network()
        run.doing("validation")
        found = self._validated(network) if self._validated else self._in_release_mode(network)
        run.scalars(progress.done, found.scalars())
        loss = found.loss()
        if progress.best is None or loss < progress.best:
            progress.best, self._best = loss, None if self._validated else found
            run.export(network, {progress.UNIT: progress.done, "validation": found.to_json()})
        progress.validated = progress.done
        self._save()

    def _in_release_mode(self, network: PolicyNetwork) -> Validation:
        run = self._run
        candidate = run.directory / "candidate"
        save_model(network, run.problem, candidate, {"trainer": run.trainer})
        return validate(candidate, self._data, run.problem)

    def _save(self) -> None:
        state = self._progress.to_json() | {"network": self._network().config()}
        self._run.save(self._progress.done, self._arrays(), state)
