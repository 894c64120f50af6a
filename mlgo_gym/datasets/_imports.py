"""Reading training logs and traces into a dataset, whole files or nothing of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mlgo_gym.base import DatasetError, TrainingLogError
from mlgo_gym.datasets._episodes import Episode, Source, episodes_of_trace
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.datasets._logs import LogEpisodes
from mlgo_gym.datasets._parts import reading
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.rollout import Trace, problem_of, settings_of_problem

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
