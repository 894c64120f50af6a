"""Runners without a model: one that answers nothing, and one whose answers are written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from mlgo_gym.base import TensorSpec, UsageError
from mlgo_gym.runners._base import MLModelRunner

Inputs = Mapping[str, np.ndarray[Any, Any]]


class NoInferenceModelRunner(MLModelRunner):
    """Holds the inputs and never answers (``llvm/lib/Analysis/NoInferenceModelRunner.cpp``).

    It is for collecting observations while another heuristic decides.

    >>> size = TensorSpec("size", "int64_t", (1,))
    >>> with NoInferenceModelRunner([size], size) as runner:
    ...     runner.fill((6).to_bytes(8, "little"))
    ...     int(runner.get_tensor(0)[0])
    6
    """

    def __init__(self, inputs: Sequence[TensorSpec], output: TensorSpec) -> None:
        super().__init__(inputs, output)
        for index, spec in enumerate(self.inputs):
            self.set_up_buffer_for_tensor(index, spec, None)

    def _evaluate(self) -> NoReturn:
        raise UsageError("NoInferenceModelRunner: has no model to evaluate")


class ScriptedRunner(MLModelRunner):
    """Answers with a function of the inputs, or with one value after the other.

    Args:
        answers: a function from the inputs (views by name, not to be kept or written) to a value
            that fits the output's spec, or the values themselves.

    Raises:
        SpecError: from `evaluate`, where a value does not fit the output's spec.
        UsageError: from `evaluate`, where there are no values left.

    >>> size = TensorSpec("size", "int64_t", (1,))
    >>> with ScriptedRunner(lambda inputs: inputs["size"] < 5, [size], size) as runner:
    ...     runner.get_tensor(0)[0] = 3
    ...     runner.evaluate()
    array([1])
    """

    def __init__(
        self,
        answers: Callable[[Inputs], object] | Iterable[object],
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
    ) -> None:
        super().__init__(inputs, output)
        for index, spec in enumerate(self.inputs):
            self.set_up_buffer_for_tensor(index, spec, None)
        self._views = MappingProxyType(
            {spec.name: self.get_tensor(index) for index, spec in enumerate(self.inputs)}
        )
        if callable(answers):
            self._answer = answers
        else:
            remaining = iter(answers)
            self._answer = lambda _: self._next(remaining)

    def _evaluate(self) -> bytes:
        return self.output.encode(self._answer(self._views))

    @staticmethod
    def _next(remaining: Iterable[object]) -> object:
        for answer in remaining:
            return answer
        raise UsageError("ScriptedRunner: expected another answer in the script, found its end")
