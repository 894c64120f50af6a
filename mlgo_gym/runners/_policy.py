"""Runners as policies: what a compilation of the embedded LLVM asks, a runner answers."""

from __future__ import annotations

from typing import Self

from mlgo_gym.errors import UsageError
from mlgo_gym.problems._problem import Action
from mlgo_gym.runners._base import MLModelRunner, RunnerFactory
from mlgo_gym.stream._events import Observation


class RunnerPolicy:
    """Turns observations into actions with a runner, for one compilation.

    The runner is made when the first observation comes, from the specs in its header, as LLVM
    makes its own when it builds an advisor.
    """

    def __init__(self, factory: RunnerFactory) -> None:
        self._factory = factory
        self._runner: MLModelRunner | None = None
        self._context: str | None = None

    def __call__(self, observation: Observation) -> Action:
        """Fill the runner's buffers, evaluate, and read the decision.

        Raises:
            UsageError: the observation's header has no advice spec, or the decision is not one
                number.
            MlgoGymError: whatever making or evaluating the runner raises.
        """
        runner = self._runner or self._made(observation)
        if observation.context != self._context:
            self._context = observation.context
            runner.switch_context(observation.context)
        runner.fill(observation.payload)
        action: Action = runner.evaluate().item()
        return action

    def close(self) -> None:
        """Close the runner, if there is one; safe to call twice."""
        if self._runner:
            self._runner.close()
            self._runner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _made(self, observation: Observation) -> MLModelRunner:
        advice = observation.header.advice
        if advice is None or advice.element_count != 1:
            raise UsageError(f"runner: expected an advice of one number, found {advice}")
        self._runner = self._factory(observation.header.features, advice)
        return self._runner
