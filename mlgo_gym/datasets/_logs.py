"""Training logs and traces, read into a dataset, whole files or nothing; logs are written, too.

A log does not say which LLVM wrote it, for what settings, or under which policy. What it has comes
back byte for byte when the dataset is written out, but for contexts without an observation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from mlgo_gym.base import DatasetError, InternalError, SpecError, TrainingLogError
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._episodes import MAX_EPISODE_BYTES, Episode, Source, episodes_of_trace
from mlgo_gym.datasets._header import REWARD, DatasetHeader
from mlgo_gym.datasets._parts import reading
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.problems import Problem, problems
from mlgo_gym.rollout import Trace, log_context, measure_of, problem_of, settings_of_problem
from mlgo_gym.stream import (
    Context,
    Event,
    Header,
    Observation,
    Outcome,
    TrainingLogWriter,
    read_events,
)


class LogEpisodes:
    """The episodes of a training log, one for each context, in bounded memory.

    For the inliner the log's contexts are modules, as `mlgo_gym.rollout.RolloutLog` writes them;
    for register allocation they are functions, and the module is not told apart from the
    function's name. Outcomes are there for all decisions of a context, or for none.
    """

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        *,
        llvm_version: str | None = None,
        package: str = "",
        policy: str = "",
    ) -> None:
        self._events = read_events(file)
        self._name = name
        self._package = package
        self._policy = policy
        found = next(self._events)
        if not isinstance(found, Header):
            raise InternalError(f"{name}: expected a header, found {found!r}")
        problem = _problem_of(found, name)
        self._by_function: Final = measure_of(problem).by_function
        self.layout: Final = problem.layout
        try:
            self.header: Final = DatasetHeader(self.layout, None, llvm_version, score=found.score)
        except SpecError as error:
            raise DatasetError(name, str(error)) from error

    def __iter__(self) -> Iterator[Episode]:
        counts: dict[bytes, int] = {}
        pending: _Pending | None = None
        for event in self._events:
            if isinstance(event, Context):
                if pending:
                    yield from self._episode(pending)
                pending = _Pending(event.name, counts.get(_key(event.name), 0))
            elif pending:
                self._take(event, pending)
                counts[_key(pending.context)] = pending.start + len(pending.payloads)
        if pending:
            yield from self._episode(pending)

    def _take(self, event: Event, pending: _Pending) -> None:
        if isinstance(event, Observation):
            expected = pending.start + len(pending.payloads)
            if event.index != expected:
                raise self._error(pending, f"expected observation {expected}, found {event.index}")
            pending.payloads.append(event.payload)
            if (expected + 1 - pending.start) * len(event.payload) > MAX_EPISODE_BYTES:
                limit = f"expected an episode of at most {MAX_EPISODE_BYTES} bytes"
                raise self._error(pending, f"{limit}, found more")
        elif isinstance(event, Outcome):
            pending.outcomes.append(event.payload)
            if (count := len(pending.outcomes)) > (most := len(pending.payloads)):
                raise self._error(pending, f"expected {most} outcomes or none, found {count}")

    def _episode(self, pending: _Pending) -> Iterator[Episode]:
        count = len(pending.payloads)
        if not count:
            return
        if len(pending.outcomes) not in {0, count}:
            raise self._error(
                pending, f"expected {count} outcomes or none, found {len(pending.outcomes)}"
            )
        layout = self.layout
        size = layout.dtype.itemsize
        observations = b"".join(each[:size] for each in pending.payloads)
        actions = b"".join(each[size:] for each in pending.payloads)
        outcomes = np.frombuffer(b"".join(pending.outcomes), np.float32)
        module, context = ("", pending.context) if self._by_function else (pending.context, "")
        is_reward = self.header.score == REWARD and len(outcomes)
        yield Episode(
            Source(self._package, module, policy=self._policy),
            layout,
            np.frombuffer(observations, layout.dtype),
            np.frombuffer(actions, layout.advice.dtype),
            context=context,
            outcomes=outcomes if len(outcomes) else None,
            reward=float(outcomes.sum(dtype=np.float64)) if is_reward else np.nan,
        )

    def _error(self, pending: _Pending, message: str) -> DatasetError:
        return DatasetError(self._name, f"context {pending.context!r}: {message}")


def _key(context: str) -> bytes:
    """The key of a context, however long its name: a log may have any number of them."""
    return hashlib.blake2b(context.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(slots=True)
class _Pending:
    """A context that is being read: its name, and what came before under the same name."""

    context: str
    start: int
    payloads: list[bytes] = field(default_factory=list)
    outcomes: list[bytes] = field(default_factory=list)


def export_log(dataset: Dataset, file: BinaryIO) -> int:
    """Write a dataset as a training log, a context for each episode; returns how many decisions.

    A context is named as in the logs of rollouts, with the package before it where the dataset has
    several, so that none is taken for another. Outcomes are those of the dataset; an episode that
    has none gets none.
    """
    for part in dataset.parts:
        if differences := dataset.header.score_differences(part.header):
            raise DatasetError(str(part.path), *differences)
    writer = TrainingLogWriter(file, dataset.header.log_header())
    has_packages = len({entry.package for entry in dataset.modules}) > 1
    count = 0
    for episode in dataset.episodes():
        name = log_context(episode.source.module, episode.context)
        writer.start_context(f"{episode.source.package}/{name}" if has_packages else name)
        _write_decisions(writer, episode)
        count += len(episode)
    return count


def _write_decisions(writer: TrainingLogWriter, episode: Episode) -> None:
    rows = zip(episode.observations, episode.actions.reshape(-1, 1), strict=True)
    for index, (observation, action) in enumerate(rows):
        writer.log_observation(observation.tobytes() + action.tobytes())
        if episode.outcomes is not None:
            writer.log_outcome(episode.outcomes[index])


def _problem_of(header: Header, name: str) -> Problem:
    """The problem whose answers stand last, as the LLVM described it that wrote the log."""
    *features, advice = header.features
    kind = next((each for each in problems().values() if each.advice.name == advice.name), None)
    if kind is None:
        answers = ", ".join(each.advice.name for each in problems().values())
        found = list(header.slices)
        raise DatasetError(
            name, f"training log: expected one of {answers} as the last feature, found {found}"
        )
    if not features:
        raise DatasetError(name, f"training log: expected features, found only {advice.name!r}")
    problem, sent = kind(), Header(tuple(features), advice=advice)
    if differences := problem.layout.differences(sent):
        raise DatasetError(name, f"training log: {'; '.join(differences)}")
    return problem.as_sent(sent)


_TRACE: Final = b'{"trace"'
_HASH_DIGITS: Final = 12


@dataclass(frozen=True)
class TraceFile:
    """A trace with observations; its source's policy is named after the decisions."""

    header: DatasetHeader
    source: Source
    episodes: tuple[Episode, ...]

    @classmethod
    def open(cls, path: Path, package: str = "") -> TraceFile:
        """Read a trace."""
        trace = Trace.load(path)
        name = f"trace {hashlib.sha256(trace.advice).hexdigest()[:_HASH_DIGITS]}"
        source, episodes = episodes_of_trace(trace, package=package, policy=name)
        layout, settings = problem_of(trace).layout, settings_of_problem(trace)
        return cls(DatasetHeader(layout, settings, trace.llvm_version), source, episodes)

    @property
    def decisions(self) -> int:
        """How many decisions it has."""
        return sum(map(len, self.episodes))

    def is_in(self, writer: DatasetWriter) -> bool:
        """Whether a dataset has it already."""
        return self.source.key in writer.keys

    def write(self, writer: DatasetWriter) -> int:
        """Put it into a dataset; returns how many decisions it has."""
        writer.add(self.source, self.episodes)
        return self.decisions


@dataclass(frozen=True)
class LogFile:
    """A training log; its episodes are under a policy that is named after the file's hash.

    When all is in the dataset, a module without a name or a decision, the source, says so; a
    dataset that has some of it and not that was left by an interrupted import.
    """

    header: DatasetHeader
    path: Path
    source: Source
    decisions: int

    @classmethod
    def open(cls, path: Path, package: str = "", llvm_version: str | None = None) -> LogFile:
        """Read a training log from its start to its end, to see that it can be read."""
        with reading(path) as file:
            try:
                log = LogEpisodes(file, str(path), llvm_version=llvm_version)
                decisions = sum(map(len, log))
            except TrainingLogError as error:
                raise DatasetError(str(path), str(error)) from error
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        policy = f"log {digest[:_HASH_DIGITS]}"
        source = Source(package, module_sha256=digest, policy=policy)
        return cls(log.header, path, source, decisions)

    def is_in(self, writer: DatasetWriter) -> bool:
        """Whether a dataset has it already; a `DatasetError` where it has some of it."""
        if self.source.key in writer.keys:
            return True
        if any(key.policy == self.source.policy for key in writer.keys):
            raise DatasetError(
                str(writer.folder),
                f"has some of {str(self.path)!r}, and not all: an import was interrupted; start "
                "in another folder",
            )
        return False

    def write(self, writer: DatasetWriter) -> int:
        """Put it into a dataset; returns how many decisions it has."""
        with reading(self.path) as file:
            name, policy = str(self.path), self.source.policy
            log = LogEpisodes(file, name, package=self.source.package, policy=policy)
            for episode in log:
                writer.add(episode.source, [episode])
        writer.add(self.source, [])
        return self.decisions


def open_recording(
    path: Path, package: str = "", llvm_version: str | None = None
) -> TraceFile | LogFile:
    """Open a trace or a training log, whichever a file is."""
    with reading(path) as file:
        is_trace = file.read(len(_TRACE)) == _TRACE
    return TraceFile.open(path, package) if is_trace else LogFile.open(path, package, llvm_version)
