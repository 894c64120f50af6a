"""The loop that trainers on contexts share: generations, validations, checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mlgo_gym.training.data import Data
from mlgo_gym.training.export import save_model
from mlgo_gym.training.networks import PolicyNetwork
from mlgo_gym.training.run import TrainingRun
from mlgo_gym.training.validation import Validation, validate

__all__ = ["Generations", "GenerationsConfig", "Progress"]


class GenerationsConfig(Protocol):
    """What the loop looks at of a trainer's configuration."""

    @property
    def generations(self) -> int:
        """How many there are at most."""

    @property
    def validate_every(self) -> int:
        """Generations between two validations."""


@dataclass(slots=True)
class Progress:
    """Where training is, besides the weights; JSON values.

    Attributes:
        generation: how many are done.
        best: the best validation's loss; ``None`` before the first.
        validated: the generation of the last validation; -1 before the first.
    """

    generation: int = 0
    best: float | None = None
    validated: int = -1


class Generations(ABC):
    """Goes through generations, validates now and then, and exports what is best so far.

    Args:
        run: the folder, with the budget.
        config: how many generations, and how often one is validated.
        data: what is chosen on.
        progress: where an earlier run stopped.
    """

    def __init__(
        self, run: TrainingRun, config: GenerationsConfig, data: Data, progress: Progress
    ) -> None:
        self._run = run
        self._limits = config
        self._data = data
        self._progress = progress
        self._best: Validation | None = None

    def train(self) -> Validation:
        """Go on to the end; what the best model is worth on the validation packages."""
        progress, limits = self._progress, self._limits
        while True:
            is_last = progress.generation >= limits.generations or self._run.is_over
            is_due = is_last or progress.generation % limits.validate_every == 0
            if is_due and progress.validated < progress.generation:
                self._validate()
            if is_last:
                return self._best or self._validation(self._run.model)
            progress.generation += 1
            self._run.scalars(progress.generation, self._generation(progress.generation))
            self._save()

    @abstractmethod
    def _generation(self, number: int) -> Mapping[str, float]:
        """Learn for one generation, from 1; returns what there is to record."""

    @abstractmethod
    def _network(self) -> PolicyNetwork:
        """The network to validate and to export."""

    @abstractmethod
    def _arrays(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Everything that learning goes on from."""

    def _validate(self) -> None:
        """Compile the held-out packages; export the network if it is the best so far."""
        progress, run, network = self._progress, self._run, self._network()
        candidate = run.directory / "candidate"
        save_model(network, run.problem, candidate, {"trainer": run.trainer})
        found = self._validation(candidate)
        run.scalars(progress.generation, found.scalars())
        loss = found.loss()
        if progress.best is None or loss < progress.best:
            progress.best, self._best = loss, found
            run.export(network, {"generation": progress.generation, "validation": found.to_json()})
        progress.validated = progress.generation
        self._save()

    def _validation(self, model: Path) -> Validation:
        data = self._data
        return validate(
            model,
            data.validation,
            self._run.problem,
            jobs=data.jobs,
            timeout_s=data.timeout_s,
            warn=data.warn,
        )

    def _save(self) -> None:
        state = asdict(self._progress) | {"network": self._network().config()}
        self._run.save(self._progress.generation, self._arrays(), state)
