"""What training starts from: the network and, for training on contexts, these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import ModelError, OptionsError, TrainingError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._observations import columns, observation_array
from mlgo_gym.problems._policy import Policy
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._registry import problems
from mlgo_gym.rollout._rollout import Decision, RecordingPolicy
from mlgo_gym.scoring._measures import measure_of
from mlgo_gym.training._compiled import CompiledNetwork
from mlgo_gym.training._contexts import Context, Sampler, Workshop
from mlgo_gym.training._data import Data
from mlgo_gym.training._export import load_network
from mlgo_gym.training._kept_contexts import KeptContexts, key_of
from mlgo_gym.training._networks import PolicyNetwork, network_features, network_for
from mlgo_gym.training._normalization import Normalization
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._validation import Validation, validate_functions

_CONTEXTS: Final = 256
_MOST_DECISIONS: Final = 300
"""Of one context, so that the largest do not decide alone."""


class StartConfig(Protocol):
    """What is looked at of a trainer's configuration."""

    @property
    def seed(self) -> int:
        """Of a new network's weights, and of what is drawn."""

    @property
    def most_modules(self) -> int:
        """Of each package."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """The widths of a new network's hidden layers."""

    @property
    def start(self) -> str:
        """The model directory; empty makes a new network."""


@dataclass(frozen=True)
class Prepared:
    """What training on contexts needs.

    Attributes:
        workshop: compilers.
        sampler: draws contexts to train on.
        validated: finds what a network is worth on the functions that are held out; ``None`` for
            the inliner, of which whole packages are compiled.
    """

    workshop: Workshop
    sampler: Sampler
    validated: Callable[[CompiledNetwork], Validation] | None


@contextmanager
def prepared(run: TrainingRun, config: StartConfig, data: Data) -> Iterator[Prepared]:
    """Yield compilers, and contexts of some modules of each package.

    Contexts are kept in the run's folder as they are found, and read there when it goes on.

    Raises:
        TrainingError: no module compiles and asks for a decision, or contexts cannot be kept.
    """
    with Workshop(
        run.problem, jobs=data.jobs, timeout_s=data.timeout_s, warn=data.warn
    ) as workshop:
        packages = data.packages.some_modules(config.most_modules, config.seed)
        contexts = _kept_contexts(run, workshop, "trained-on", packages)
        if not contexts:
            raise TrainingError(f"{run.trainer}: expected modules that compile and ask, found none")
        validated = None
        if measure_of(run.problem).by_function:
            held_out = _kept_contexts(run, workshop, "held-out", data.validation)
            validated = partial(validate_functions, workshop, held_out)
        yield Prepared(workshop, Sampler(contexts), validated)


def _kept_contexts(
    run: TrainingRun, workshop: Workshop, name: str, packages: Packages
) -> list[Context]:
    run.doing(f"contexts {name}")
    kept = KeptContexts(run.directory / "contexts" / name, key_of(packages, run.problem))
    for found in workshop.contexts(packages, skip=kept.modules):
        kept.add(found)
    kept.flush()
    return kept.contexts


def first_network(workshop: Workshop, sampler: Sampler, config: StartConfig) -> PolicyNetwork:
    """The network of a model directory, or a new one, which answers as LLVM's own rule.

    Args:
        workshop: compiles.
        sampler: draws the contexts that the features' statistics are taken of.
        config: what to start from.

    Raises:
        ModelError: the folder holds no network for this problem.
        OptionsError: there is no network for this problem.
        TrainingError: no context asks for a decision.
    """
    problem = workshop.problem
    if config.start:
        return load_start(config.start, problem)
    normalization = _normalization(workshop, sampler, config.seed)
    return network_for(problem, normalization, config.hidden, config.seed)


def load_start(folder: str, problem: Problem) -> PolicyNetwork:
    """The network of a model directory.

    Raises:
        ModelError: the folder holds no network for this problem.
    """
    network = load_network(Path(folder))
    if network.problem.name != problem.name:
        raise ModelError(
            folder, f"expected one for {problem.name}, found one for {network.problem.name}"
        )
    return network


def rule_of(problem: Problem, trainer: str) -> Policy:
    """What answers when the features' statistics are taken: what new networks start as.

    Raises:
        OptionsError: there is no network for this problem.
    """
    if not problem.network:
        known = ", ".join(kind.name for kind in problems().values() if kind.network)
        raise OptionsError(f"{trainer}: expected a problem of {known}, found {problem.name}")
    return problem.policy(problem.rule)


def _normalization(workshop: Workshop, sampler: Sampler, seed: int) -> Normalization:
    problem = workshop.problem
    answer = rule_of(problem, "training")

    def seen(compiler: Compiler, index: int) -> list[bytes]:
        decisions: list[Decision] = []
        watched = RecordingPolicy(answer, problem, decisions)
        workshop.score(compiler, sampler.contexts[index], watched)
        return [each.payload for each in decisions[:_MOST_DECISIONS]]

    drawn = sampler.draw(_CONTEXTS, np.random.default_rng([seed, 0]))
    with closing(workshop.each(drawn, seen)) as found:
        payloads = [payload for done in found if not done.error for payload in done.value]
    if not payloads:
        raise TrainingError("training: expected contexts that ask for decisions, found none")
    return statistics_of(payloads, problem)


def statistics_of(payloads: Sequence[bytes], problem: Problem) -> Normalization:
    """The statistics of what was observed; of positions, of those that may be chosen."""
    found: dict[str, np.ndarray[Any, Any]] = columns(observation_array(payloads, problem), problem)
    if "mask" in found:
        legal = found["mask"] == 1
        found = {
            name: values[legal] if values.ndim > 1 else values for name, values in found.items()
        }
    return Normalization.fit(found, network_features(problem))
