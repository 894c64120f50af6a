"""Models that act in environments: an observation in, an action out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from mlgo_gym.base import UsageError
from mlgo_gym.model import find_model
from mlgo_gym.problems import Action, Problem
from mlgo_gym.runners._load import RELEASE
from mlgo_gym.runners._models import load_model, problem_of_models, settings_of_models


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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
