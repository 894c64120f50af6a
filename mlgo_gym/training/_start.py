"""The start of training on contexts: compilers, contexts and the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from mlgo_gym.base import ModelError, OptionsError, TrainingError
from mlgo_gym.problems import Problem
from mlgo_gym.training._contexts import Sampler, TrainingContext, Workshop
from mlgo_gym.training._data import Data
from mlgo_gym.training._export import load_network
from mlgo_gym.training._features import ALL_FEATURES
from mlgo_gym.training._kept_contexts import kept_contexts
from mlgo_gym.training._networks import PolicyNetwork, network_features, networked_problems
from mlgo_gym.training._normalization import Normalization
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._trials import Asked

_CONTEXTS: Final = 256
_MOST_DECISIONS: Final = 300
"""The most decisions taken of one context, so that the largest do not decide alone."""


Prepared = tuple[Workshop, Sampler, list[TrainingContext] | None]
"""Compilers, what draws contexts to train on, and the functions that are chosen on: none where
contexts are modules, and whole packages are compiled to choose."""


@contextmanager
def prepared(run: TrainingRun, data: Data, most_modules: int, seed: int) -> Iterator[Prepared]:
    """Yield compilers, and contexts of so many modules a package, kept in the run's folder."""
    with Workshop(
        run.problem,
        jobs=data.jobs,
        timeout_s=data.timeout_s,
        warn=data.warn,
        rewards=data.rewards,
    ) as workshop:
        packages = data.packages.some_modules(most_modules, seed)
        contexts = kept_contexts(run, workshop, "trained-on", packages)
        if not contexts:
            raise TrainingError(f"{run.trainer}: expected modules that compile and ask, found none")
        held_out = None
        if workshop.by_function:
            held_out = kept_contexts(run, workshop, "held-out", data.validation)
        yield workshop, Sampler(contexts), held_out


def load_start(folder: str, problem: Problem) -> PolicyNetwork:
    """The network of a model directory, which must be one for this problem."""
    network = load_network(Path(folder))
    if network.problem.name != problem.name:
        raise ModelError(
            folder, f"expected one for {problem.name}, found one for {network.problem.name}"
        )
    return network


def statistics(
    workshop: Workshop, sampler: Sampler, seed: int, features: str = ALL_FEATURES
) -> Normalization:
    """The statistics of what contexts ask under LLVM's own rule; of positions, the legal ones."""
    problem = workshop.problem
    if not problem.network:
        raise OptionsError(
            f"training: expected a problem of {networked_problems()}, found {problem.name}"
        )
    drawn = sampler.draw(_CONTEXTS, np.random.default_rng([seed, 0]))
    work = Asked(workshop, _MOST_DECISIONS)
    found = workshop.successes(drawn, work, sampler.numbered)
    payloads = [each for _, asked in found for each in asked]
    if not payloads:
        raise TrainingError("training: expected contexts that ask for decisions, found none")
    values = problem.layout.columns(problem.layout.array(payloads))
    if "mask" in values:
        legal = values["mask"] == 1
        values = {name: each[legal] if each.ndim > 1 else each for name, each in values.items()}
    return Normalization.fit(values, network_features(problem, features))
