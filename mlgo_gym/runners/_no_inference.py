"""A runner without a model: it holds the inputs, for logging, and answers nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from mlgo_gym.errors import UsageError
from mlgo_gym.runners._base import MLModelRunner
from mlgo_gym.tensor_spec import TensorSpec


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
