"""A training run: its folder, budget, checkpoints, curves and the model that it leaves.

::

    config.json          what is trained: trainer, problem, configuration, corpora
    checkpoint.npz       where it is: arrays and a JSON state, replaced as a whole
    model/               the best model so far, usable at any time
    tensorboard/         scalars
    progress.jsonl       the same scalars, one object a line

A run that is started again in the same folder goes on from its checkpoint, and the time that it
has taken before counts.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self

import numpy as np
import tensorflow as tf

from corpus_tools.reading import Shape, shaped
from mlgo_gym.base import (
    TrainingError,
    WorkedFolder,
    open_regular,
    parse_json,
    read_arrays,
    read_bounded,
    read_json,
    write_atomically,
    write_json,
)
from mlgo_gym.model import CARD_FILE
from mlgo_gym.problems import Problem
from mlgo_gym.training._export import FILE_ERRORS, reason, save_model
from mlgo_gym.training._networks import PolicyNetwork
from mlgo_gym.training._train import NotNegative, Ranged, Whole

_DATA: Final = ("trained_on", "validated_on")
"""The parts of a model's provenance that are also in the run's configuration."""

_CONFIG_FILE: Final = "config.json"
_CHECKPOINT_FILE: Final = "checkpoint.npz"
_PROGRESS_FILE: Final = "progress.jsonl"
_STATE: Final = "state"
_MAX_BYTES: Final = 1 << 32
_MAX_JSON_BYTES: Final = 1 << 28
_TAIL_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class _Position(Ranged):
    """How far a run, or its checkpoint, has come."""

    spent_s: NotNegative
    step: Whole = 0


@dataclass(frozen=True)
class Checkpoint:
    """How many steps a run has taken, what the trainer keeps, and the rest as JSON values."""

    step: int
    arrays: Mapping[str, np.ndarray[Any, Any]]
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, kw_only=True)
class TrainingRun:
    """The folder of one training run, which is made or gone on with; a context manager.

    The budget is for all runs in this folder together. People see what the run reports, step by
    step, and what it is doing; provenance goes into the model's card. So does what it is trained
    for: the reward, where it is not the problem's own measure, and the limit of text. Where the
    folder is given by URI, what is here is put there with each checkpoint and each model.
    """

    directory: Path = field(kw_only=False)
    trainer: str = field(kw_only=False)
    problem: Problem = field(kw_only=False)
    config: Any = field(kw_only=False)
    reward: str | None = None
    most_text: float | None = None
    budget_s: float | None = None
    report: Callable[[int, Mapping[str, float]], None] = lambda _step, _values: None
    doing: Callable[[str], None] = lambda _: None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    folder: WorkedFolder | None = None

    def __post_init__(self) -> None:
        self._start = monotonic()
        self._earlier_s = 0.0
        self._writer: Any = None
        self._described: dict[str, Any] = {
            "trainer": self.trainer,
            "problem": self.problem.settings(),
            "config": asdict(self.config),
            **self._goal(),
            "data": {name: self.provenance[name] for name in _DATA if name in self.provenance},
        }
        with self._named("cannot be written"):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._check_config()
            self._earlier_s = self._spent_before_s()

    @property
    def spent_s(self) -> float:
        """How long all runs in this folder have taken, in seconds."""
        return self._earlier_s + monotonic() - self._start

    @property
    def is_over(self) -> bool:
        return self.budget_s is not None and self.spent_s >= self.budget_s

    @property
    def model(self) -> Path:
        """The path of the best model so far, once there is one."""
        return self.directory / "model"

    def read_json(self, name: str, expected: Shape = dict) -> dict[str, Any]:
        """The object that a JSON file in the folder holds."""
        with self._named(f"{name} cannot be read"):
            value = read_json(self.directory / name, _MAX_JSON_BYTES)
        try:
            return dict(shaped(value, expected))
        except ValueError as error:
            raise self._error(f"{name}: {error}") from error

    def restore(self, expected: Shape = dict) -> Checkpoint | None:
        """Return the state in which an earlier run in this folder stopped, which has this shape."""
        path = self.directory / _CHECKPOINT_FILE
        if not path.exists():
            return None
        with self._named(f"{_CHECKPOINT_FILE} cannot be read"):
            data = read_bounded(path, _MAX_BYTES)
        with self.restoring():
            arrays = read_arrays(data, len(data))
            if _STATE not in arrays:
                raise ValueError(f"expected an array {_STATE!r}, found none")
            record = parse_json(arrays.pop(_STATE).tobytes())
            shaped(record, {"step": int, "spent_s": float, "state": expected})
            position = _Position(record["spent_s"], record["step"])
            self._earlier_s = max(self._earlier_s, position.spent_s)
            return Checkpoint(position.step, arrays, record["state"])

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Name the checkpoint in errors about what it holds."""
        try:
            yield
        except ValueError as error:
            raise self._error(f"{_CHECKPOINT_FILE} cannot be read: {error}") from error

    def save(
        self,
        step: int,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a checkpoint; the one before is kept until this one is on the disk."""
        record = {"step": step, "spent_s": self.spent_s, "state": dict(state or {})}
        buffer = io.BytesIO()
        encoded = np.frombuffer(json.dumps(record).encode(), np.uint8)
        named: dict[str, Any] = {**arrays, _STATE: encoded}
        np.savez(buffer, **named)
        with self._named(f"{_CHECKPOINT_FILE} cannot be written"):
            write_atomically(self.directory / _CHECKPOINT_FILE, buffer.getvalue())
        self._put()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Record numbers of a step: for TensorBoard, in a file, and to whoever watches."""
        line = {"step": step, "spent_s": round(self.spent_s, 1)}
        line |= {name: float(value) for name, value in values.items()}
        with (
            self._named(f"{_PROGRESS_FILE} cannot be written"),
            (self.directory / _PROGRESS_FILE).open("a", encoding="utf-8") as file,
        ):
            file.write(json.dumps(line) + "\n")
        with self._named("tensorboard cannot be written"):
            self._draw(step, values)
        self.report(step, values)

    def _draw(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self.directory / "tensorboard"))
        with self._writer.as_default(step):
            for name, value in values.items():
                tf.summary.scalar(name, float(value))
        self._writer.flush()

    def export(self, model: PolicyNetwork | Path, results: Mapping[str, Any]) -> None:
        """Make a network, or a copy of a model directory with another card, the run's model."""
        card = {
            "trainer": self.trainer,
            "config": self._described["config"],
            "seed": self._described["config"].get("seed"),
            **self._goal(),
            **self.provenance,
            "results": dict(results),
        }
        save_model(model, self.problem, self.model, card)
        self._put()

    def _put(self) -> None:
        """Have all at its place; what goes on from it, or is read by it, comes last."""
        if self.folder:
            with self._named("cannot be written"):
                self.folder.put(last=(CARD_FILE, _CHECKPOINT_FILE))

    def _goal(self) -> dict[str, Any]:
        found = {"reward": self.reward, "most_text": self.most_text}
        return {name: value for name, value in found.items() if value is not None}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
        if kind is None:
            self._put()

    def _check_config(self) -> None:
        path = self.directory / _CONFIG_FILE
        if not path.exists():
            if any(self.directory.iterdir()):
                raise self._error(f"expected an empty folder or one with {_CONFIG_FILE}")
            write_json(path, self._described)
            return
        found = self.read_json(_CONFIG_FILE)
        if difference := _difference(json.loads(json.dumps(self._described)), found):
            name, wanted, there = difference
            raise self._error(
                f"holds a run of another configuration: {name}: expected {wanted!r}, "
                f"found {there!r}"
            )

    def _spent_before_s(self) -> float:
        """Return the seconds in the last whole line of progress, newer than the checkpoint."""
        path = self.directory / _PROGRESS_FILE
        if not path.exists():
            return 0.0
        with self._named(f"{_PROGRESS_FILE} cannot be read"), open_regular(path) as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).splitlines()
        for line in reversed(lines):
            with suppress(ValueError):  # cut off when the run was killed
                return _Position(shaped(parse_json(line), {"spent_s": float})["spent_s"]).spent_s
        return 0.0

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Errors of files under the run's name."""
        try:
            yield
        except FILE_ERRORS as error:
            raise self._error(f"{what}: {reason(error)}") from error

    def _error(self, message: str) -> TrainingError:
        place = self.folder.place if self.folder else self.directory
        return TrainingError(f"run {str(place)!r}: {message}")


def _difference(expected: Any, found: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first field in which two JSON values differ: its name, and both values."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in {**expected, **found}:
            path = f"{name}.{key}" if name else key
            if difference := _difference(expected.get(key), found.get(key), path):
                return difference
        return None
    return None if expected == found else (name or "config", expected, found)
