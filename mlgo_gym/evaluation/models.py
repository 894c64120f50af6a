"""Models as policies of an evaluation: checked and, where that is how they run, compiled once."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from mlgo_gym.corpus import Module
from mlgo_gym.deployment import Model
from mlgo_gym.errors import ModelError
from mlgo_gym.evaluation.evaluate import shortest_names
from mlgo_gym.llvm.compilation import Policy
from mlgo_gym.model_card import read_card
from mlgo_gym.native.freeze import find_description, freeze
from mlgo_gym.policies import PolicyFactory, from_runner
from mlgo_gym.problems import PROBLEMS, InliningForSize, Problem
from mlgo_gym.runners.base import RunnerFactory
from mlgo_gym.runners.load import runner_factory
from mlgo_gym.runners.policy import RunnerPolicy

__all__ = ["kept_runner", "model_policies", "native_runner", "problem_of_models"]

_FROZEN_NAME: Final = "model"
_RELEASE: Final = "release"


def problem_of_models(models: Sequence[str]) -> type[Problem]:
    """The problem that models were made for: what the first card says, else inlining for size.

    Raises:
        ModelError: a card has another form, or another problem than there is.
    """
    known = {kind.name: kind for kind in PROBLEMS}
    for model in models:
        if card := read_card(Path(model)):
            if card.problem not in known:
                raise ModelError(
                    model, f"problem: expected one of {', '.join(known)}, found {card.problem!r}"
                )
            return known[card.problem]
    return InliningForSize


@contextlib.contextmanager
def model_policies(
    models: Sequence[str], mode: str, problem: Problem, taken: Collection[str] = ()
) -> Iterator[Mapping[str, PolicyFactory]]:
    """Policies of models, by the shortest ends of their paths that tell them apart.

    A model directory that is to run as native code is compiled once, not for each module.

    Args:
        models: model directories or frozen models; with ``interactive``, a host's addresses.
        mode: one of `mlgo_gym.runners.load.MODES`.
        problem: what they answer.
        taken: names that none of them gets.

    Raises:
        ModelError: a model cannot be used, or was made for another problem.
        OptionsError: there is no such mode, or a model is given twice.
    """
    if mode == "interactive":
        yield {model: from_runner(runner_factory(model, mode)) for model in models}
        return
    names = shortest_names([Path(model) for model in models], taken)
    with contextlib.ExitStack() as stack:
        yield {name: _policy(path, mode, problem, stack) for path, name in names.items()}


def native_runner(path: Path, problem: Problem, stack: contextlib.ExitStack) -> RunnerFactory:
    """Makes runners of a model as native code; a model directory is compiled once.

    Args:
        path: a model directory or a frozen model.
        problem: what it answers.
        stack: what is compiled is removed when it is closed.

    Raises:
        ModelError: it cannot be used, or was made for another problem.
    """
    made = Model(path.name, path, problem, runner_factory(str(path), _RELEASE))
    made.runner(problem.sent(), problem.advice).close()  # says what is wrong before all modules do
    if path.suffix == ".json" or find_description(path):
        return made.runner
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mlgo-gym-model-"))
    freeze(path, folder, name=_FROZEN_NAME)
    return runner_factory(folder, _RELEASE)


def kept_runner(runner: RunnerFactory, stack: contextlib.ExitStack) -> PolicyFactory:
    """A runner for each thread, which is kept for the next module; loading code takes its time.

    Args:
        runner: makes runners.
        stack: they are closed when it is closed.
    """
    thread = threading.local()

    def make(_module: Module) -> Policy:
        if not hasattr(thread, "policy"):
            thread.policy = RunnerPolicy(runner)
            stack.callback(thread.policy.close)
        answer: Policy = thread.policy.__call__  # not the policy itself, which would be closed
        return answer

    return make


def _policy(path: Path, mode: str, problem: Problem, stack: contextlib.ExitStack) -> PolicyFactory:
    if mode == _RELEASE:
        return kept_runner(native_runner(path, problem, stack), stack)
    made = Model(path.name, path, problem, runner_factory(str(path), mode))
    made.runner(problem.sent(), problem.advice).close()
    return from_runner(made.runner)
