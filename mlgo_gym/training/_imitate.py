"""``imitate``: a network that answers as the best traces do that a search has found.

``mlgo-gym search --output DIR`` leaves the smallest compilation of each module it has found. What
is found for a module holds for that module; the network keeps what has a pattern. Most of a trace's
answers are LLVM's own, so those that are not count more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from corpus_tools.reading import reason_of
from mlgo_gym.base import OptionsError, TraceError, TrainingError, local_folder
from mlgo_gym.datasets import Episode, TraceFile
from mlgo_gym.llvm import llvm_version
from mlgo_gym.problems import DEFAULT_ADVICE, InliningForSize
from mlgo_gym.rollout import Failure, trace_paths
from mlgo_gym.training._data import Data
from mlgo_gym.training._fitting import FittedConfig, fit_decisions
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._train import Positive
from mlgo_gym.training._validation import Validation

REWARDLESS = "it answers as traces do, which 'search' has chosen by one"


@dataclass(frozen=True)
class Config(FittedConfig):
    """The settings that decide the result; docs/guides/training.md explains each."""

    traces: str = ""
    departure_weight: Positive = 3.0


def train(run: TrainingRun, config: Config, data: Data) -> Validation:
    """Fit a network to the decisions of traces.

    Traces of the validation packages' modules are left out, and so are those of another LLVM or of
    other settings, which are reported.
    """
    if not isinstance(run.problem, InliningForSize):
        raise TrainingError(f"imitate: expected InliningForSize, found {run.problem.name}")
    paths = trace_paths(_folder(config.traces)) if config.traces else []
    if not paths:
        raise OptionsError(
            f"traces: expected a folder with traces, found {config.traces!r}; "
            "--set traces=DIR names what 'search --output DIR' has left"
        )
    return fit_decisions(run, _episodes(run, config, data, paths), config, data)


def _folder(traces: str) -> Path:
    try:
        return local_folder(traces)
    except OSError as error:
        raise OptionsError(f"traces: {error.filename}: {reason_of(error)}") from error


def _episodes(run: TrainingRun, config: Config, data: Data, paths: list[Path]) -> Iterator[Episode]:
    held_out = {data.validation[key].sha256 for key in data.validation}
    for path in paths:
        try:
            file = TraceFile.open(path)
            _check(run, path, file)
        except TraceError as error:
            data.warn(Failure(error))
            continue
        if file.source.module_sha256 not in held_out:
            for episode in file.episodes:
                default = episode.observations[DEFAULT_ADVICE]
                weight = np.where(episode.actions == default, 1.0, config.departure_weight)
                yield replace(episode, labels={"sample_weight": weight})


def _check(run: TrainingRun, path: Path, file: TraceFile) -> None:
    expected = {**run.problem.settings(), "llvm_version": llvm_version()}
    found = {**(file.header.settings or {}), "llvm_version": file.header.llvm_version}
    for name, value in expected.items():
        if found.get(name) != value:
            raise TraceError(str(path), f"{name}: expected {value}, found {found.get(name)}")
