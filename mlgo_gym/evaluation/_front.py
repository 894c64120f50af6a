"""What models and policies are worth, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import TypedDict, Unpack

from mlgo_gym.corpus._packages import Packages, PackagesLike
from mlgo_gym.evaluation._evaluate import Setting, in_order, module_scores
from mlgo_gym.evaluation._scores import ModuleScores
from mlgo_gym.evaluation._summary import Scored
from mlgo_gym.model._card import find_model
from mlgo_gym.policies._models import model_policies, problem_of_models
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._problem import Problem

Track = Callable[[Iterable[ModuleScores], int], Iterable[ModuleScores]]
"""Passes scores through, of which there will be so many, and shows that they come."""


class EvaluationSettings(TypedDict, total=False):
    """How an evaluation compiles, as `Setting` has it; what is left out is as by default."""

    problem: Problem
    opt_level: str | None
    jobs: int
    timeout_s: float
    with_text: bool
    traces: Path | None


def evaluate(
    models: Path | str | Sequence[Path | str],
    corpora: PackagesLike,
    *,
    policies: Mapping[str, PolicyLike] = MappingProxyType({}),
    mode: str = "release",
    seed: int = 0,
    track: Track = lambda scores, _: scores,
    **how: Unpack[EvaluationSettings],
) -> Scored:
    """Compile packages plainly and under each model and policy, and add up.

    Args:
        models: model directories, frozen models or names of models that ship; there may be none.
        corpora: folders of corpora, packages, corpora by the names of theirs, or one corpus.
        policies: more policies, by name.
        mode: how models run (`mlgo_gym.runners.runner_factory`).
        seed: of the bootstrap.
        track: shows how far it is.
        how: the problem, which is the first model's by default, and how modules are compiled.

    Raises:
        ModelError: a model cannot be used, or was made for another problem.
        OptionsError: a setting has a value that it cannot have.
        CorpusError: a folder is no corpus.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus
    >>> few = Corpus.load(SAMPLE_CORPUS).only(["digest.c", "scene.cpp"])
    >>> print(evaluate("inlining-for-size", {"sample": few}))
    inlining-for-size: linked text -5.25 %, 2 modules, 0 worse
    """
    given = [models] if isinstance(models, Path | str) else list(models)
    paths = [find_model(str(each)) for each in given]
    packages = Packages.of(corpora)
    setting = Setting(**({"problem": problem_of_models(paths)()} | how))
    with model_policies(paths, mode, setting.problem, policies) as found:
        answering = {**found, **policies}
        with closing(module_scores(packages, answering, setting)) as scores:
            known = list(track(scores, len(packages)))
    return Scored(in_order(known, packages), tuple(answering), seed)
