"""The environment of each problem."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from mlgo_gym.envs._allocation_env import AllocationEnv
from mlgo_gym.envs._compilation_env import CompilationEnv
from mlgo_gym.envs._decision_env import DecisionEnv
from mlgo_gym.envs._modules import CorporaLike
from mlgo_gym.problems import Problem, problem_named
from mlgo_gym.rollout import Measure, check_sites, measure_of


def make_env(
    problem: str | Problem, corpus: CorporaLike | None = None, **settings: Any
) -> DecisionEnv:
    """Make the environment of a problem.

    It is an `AllocationEnv` if the measure scores single functions, else a `CompilationEnv`.
    ``gymnasium.make("mlgo_gym/InliningForSize-v0", ...)`` is this, in Gymnasium's wrappers.

    Args:
        problem: what LLVM asks for, or its name.
        corpus: as `CompilationEnv` takes it.
        settings: as `CompilationEnv` takes them; where the problem is named, its own settings
            are among them, such as ``size_increase_threshold``.

    Raises:
        OptionsError: no problem has this name, or a setting has a value that it cannot have.
        CorpusError: the corpus cannot be used.

    >>> env = make_env("inlining-for-size", size_increase_threshold=3)
    >>> env.problem.size_increase_threshold
    3
    >>> env.close()
    """
    if isinstance(problem, str):
        kind = problem_named(problem)
        own = {each.name for each in fields(kind)} & set(settings)
        problem = kind(**{name: settings.pop(name) for name in own})
    reward = settings.get("reward")
    measure = reward if isinstance(reward, Measure) else measure_of(problem)
    by_function = measure.by_function and not isinstance(reward, str)
    way = AllocationEnv if by_function else CompilationEnv
    if by_function:
        check_sites(problem, wanted=settings.pop("sites", False))
    return way(problem, corpus, **settings)
