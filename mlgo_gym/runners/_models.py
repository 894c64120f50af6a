"""Models as policies, checked and, where that is how they run, compiled once; and as agents."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from corpus_tools.scratch import scratch_folder
from mlgo_gym.base import ModelError, UsageError
from mlgo_gym.corpus import shortest_names
from mlgo_gym.model import (
    CARD_FILE,
    find_description,
    find_model,
    freeze,
    read_card,
    shipped_models,
)
from mlgo_gym.problems import HASH_SUFFIX, Action, InliningForSize, Policy, Problem, problems
from mlgo_gym.runners._base import RunnerFactory
from mlgo_gym.runners._load import RELEASE, runner_factory
from mlgo_gym.runners._policy import RunnerPolicy

_FROZEN_NAME: Final = "model"


@dataclass(frozen=True, slots=True)
class Model:
    """A model and the heuristic that it answers.

    Attributes:
        name: what the sizes are reported under.
        path: the model directory or frozen model.
        problem: what LLVM asks it.
        runner: makes the runner that answers.

    Raises:
        ModelError: it is not there, or its card says that it was made for another problem.

    >>> from mlgo_gym.model import find_model
    >>> from mlgo_gym.problems import InliningForSize
    >>> from mlgo_gym.runners import runner_factory
    >>> folder = find_model("inlining-for-size")
    >>> model = Model("mine", Path(folder), InliningForSize(), runner_factory(folder, "release"))
    >>> model.problem.name
    'InliningForSize'
    """

    name: str
    path: Path
    problem: Problem
    runner: RunnerFactory

    def __post_init__(self) -> None:
        if not self.path.exists():
            names = ", ".join(shipped_models())
            raise ModelError(
                str(self.path),
                "expected a model directory, a frozen model or the name of a shipped one "
                f"({names}), found none",
            )
        card = read_card(self.path)
        if card is not None and card.problem != self.problem.name:
            raise ModelError(
                str(self.path),
                f"expected a model for {self.problem.name}, found one for {card.problem}",
            )
        check_files(self.path, self.problem)


def check_files(model: Path, problem: Problem) -> None:
    """See that what LLVM computes features by is what a model was trained with.

    Raises:
        ModelError: the model's card has another hash.
    """
    card = read_card(model)
    found = {hashlib.sha256(data).hexdigest() for data in problem.files().values()}
    for name in problem.file_settings:
        expected = card.settings.get(f"{name}{HASH_SUFFIX}") if card else None
        if found and expected and expected not in found:
            raise ModelError(
                str(model),
                f"{name}: expected that of SHA-256 {expected}, which it was trained with, "
                f"found {', '.join(sorted(found))}; what the card names need not be given",
            )


def load_model(
    path: Path, problem: Problem, mode: str = RELEASE, *, trusted: bool = False
) -> Model:
    """A model, once it is clear that it answers the problem.

    Raises:
        ModelError: it does not, or its vocabulary is another than the problem's.
    """
    factory = runner_factory(str(path), mode, trusted=trusted)
    model = Model(path.name, path, problem, factory)
    # What is wrong is said before modules are compiled.
    model.runner(problem.layout.specs, problem.advice).close()
    return model


def problem_of_models(models: Sequence[str]) -> type[Problem]:
    """The problem that models were made for: what the first card says, else inlining for size."""
    known = {kind.name: kind for kind in problems().values()}
    for model in models:
        if card := read_card(Path(model)):
            if card.problem not in known:
                raise ModelError(
                    model, f"problem: expected one of {', '.join(known)}, found {card.problem!r}"
                )
            return known[card.problem]
    return InliningForSize


def settings_of_models(models: Sequence[str], problem: type[Problem]) -> dict[str, Any]:
    """Return the first card's settings: files, by known names or paths, and switches.

    Raises:
        ModelError: it names another file than the one beside it.
    """
    for model in models:
        card = read_card(Path(model))
        if card and card.problem == problem.name:
            needed = {
                name: True
                for name in problem.needed_settings(card.features)
                if name not in problem.file_settings
            }
            files = {
                name: _named(card.settings[name], name, known, model)
                for name, known in problem.file_settings.items()
                if name in card.settings
            }
            if needed or files:
                return needed | files
    return {}


def _named(value: str, name: str, known: Collection[str], model: str) -> Path | str:
    if value in known:
        return value
    if value != (file := f"{name}.json"):
        expected = ", ".join((*known, file))
        raise ModelError(model, f"{CARD_FILE}: {name}: expected one of {expected}, found {value!r}")
    return Path(model) / file


@contextlib.contextmanager
def model_policies(
    models: Sequence[str],
    mode: str,
    problem: Problem,
    taken: Collection[str] = (),
    *,
    trusted: bool = False,
    token: str | None = None,
    certificate: bytes | None = None,
) -> Iterator[Mapping[str, Policy]]:
    """Policies of models, by the shortest ends of their paths that tell them apart.

    A model directory that is to run as native code is compiled once, not for each module.

    Args:
        models: model directories or frozen models; with ``interactive``, a host's addresses.
        mode: one of `mlgo_gym.runners.MODES`.
        problem: what they answer.
        taken: names that none of them gets.
        trusted: run the models' files in this process, whoever made them.
        token: of the hosts, with ``interactive``.
        certificate: of the hosts, with ``interactive``.

    Raises:
        ModelError: a model cannot be used, or was made for another problem.
        OptionsError: there is no such mode, a model is given twice, or one is machine code of
            somebody else's and not trusted.

    >>> from mlgo_gym.model import find_model
    >>> from mlgo_gym.problems import InliningForSize
    >>> models = [find_model("inlining-for-size")]
    >>> with model_policies(models, "release", InliningForSize()) as found:
    ...     list(found)
    ['inlining-for-size']
    """
    if mode == "interactive":
        yield {
            model: RunnerPolicy(runner_factory(model, mode, token=token, certificate=certificate))
            for model in models
        }
        return
    names = shortest_names([Path(model) for model in models], taken)
    with contextlib.ExitStack() as stack:
        yield {
            name: native_policy(path, problem, stack, trusted=trusted)
            if mode == RELEASE
            else RunnerPolicy(load_model(path, problem, mode, trusted=trusted).runner)
            for path, name in names.items()
        }


def native_runner(
    path: Path, problem: Problem, stack: contextlib.ExitStack, *, trusted: bool = False
) -> RunnerFactory:
    """Makes runners of a model as native code, which a model directory is compiled to here once."""
    made = load_model(path, problem, trusted=trusted)
    if path.suffix == ".json" or find_description(path):
        return made.runner
    folder = str(stack.enter_context(scratch_folder()))
    freeze(path, folder, name=_FROZEN_NAME)
    return runner_factory(folder, RELEASE, trusted=True)  # it was made here, just now


def native_policy(
    path: Path, problem: Problem, stack: contextlib.ExitStack, *, trusted: bool = False
) -> Policy:
    """A policy that asks such a runner, until the stack ends."""
    runner = native_runner(path, problem, stack, trusted=trusted)
    return stack.enter_context(RunnerPolicy(runner, keep=True))


class ModelAgent:
    """A model that answers the observations of an environment.

    Args:
        model: the name of a shipped model, a model directory or a frozen model.
        mode: ``release`` for native code, ``under-training`` for TFLite.
        trusted: run the model's files in this process, whoever made them.

    Attributes:
        problem: what the model was made for, with the settings that it needs. Environments made
            with it have all of the model's features (`mlgo_gym.envs.make_env`).

    Raises:
        ModelError: the model cannot be used.

    >>> import gymnasium, mlgo_gym
    >>> from mlgo_gym.envs import make_env
    >>> with ModelAgent("inlining-for-size-derived") as agent:
    ...     env = make_env(agent.problem)
    ...     observation, info = env.reset(options={"module": "scene.cpp"})
    ...     ended = False
    ...     while not ended:
    ...         observation, reward, terminated, truncated, info = env.step(agent(observation))
    ...         ended = terminated or truncated
    ...     env.close()
    >>> print(f"{info['text_size_bytes']} instead of {info['baseline_text_size_bytes']} bytes")
    2835 instead of 3248 bytes
    """

    def __init__(self, model: str | Path, *, mode: str = RELEASE, trusted: bool = False) -> None:
        path = find_model(str(model))
        kind = problem_of_models([path])
        self.problem: Final[Problem] = kind(**settings_of_models([path], kind))
        self._specs: Final = [each.spec for each in self.problem.layout.features]
        factory = load_model(Path(path), self.problem, mode, trusted=trusted).runner
        self._runner = factory(self._specs, self.problem.advice)

    def __call__(self, observation: Mapping[str, np.ndarray[Any, Any]]) -> Action:
        """Return the model's action.

        Args:
            observation: of one environment, by feature; wrappers that change features are not for
                a model.

        Raises:
            UsageError: a feature is missing, or has another shape or type.
        """
        payload = bytearray()
        for spec in self._specs:
            value = observation.get(spec.name)
            if value is None:
                raise UsageError(
                    f"observation: expected the feature {spec.name!r}, found none; an environment "
                    "of the agent's problem has it"
                )
            if value.shape != spec.shape or value.dtype != spec.dtype:
                raise UsageError(
                    f"observation: {spec.name}: expected {spec.dtype} {spec.shape}, found "
                    f"{value.dtype} {value.shape}"
                )
            payload += value.tobytes()
        self._runner.fill(bytes(payload))
        action: Action = self._runner.evaluate().item()
        return action

    def close(self) -> None:
        """Release the model; safe to call twice."""
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
