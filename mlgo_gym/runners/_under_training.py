"""LLVM's ``ModelUnderTrainingRunner`` on ``ai-edge-litert``, or on ``tflite-runtime``.

A runner is made for each compilation, so a newer model, or another folder, counts from the next.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

import numpy as np

from mlgo_gym.base import ModelError, TensorSpec, UsageError
from mlgo_gym.model import (
    OUTPUT_SPEC_FILE,
    STEP_INPUTS,
    OutputSpec,
    choose_outputs,
    graph_file,
    parse_output_spec,
    read_card,
    read_model_json,
)
from mlgo_gym.runners._base import MLModelRunner
from mlgo_gym.runners._interpreter import DEFAULT_TIMEOUT_S, ChildInterpreter, load_here, memory_of
from mlgo_gym.stream import Header, TrainingLogWriter

_INPUT_PREFIX: Final = "action_"

Array = np.ndarray[Any, Any]


class ModelUnderTrainingRunner(MLModelRunner):
    """Evaluates the TFLite graph of a model directory.

    TFLite checks little of a graph, so it runs in a child process of the runner's own, which cannot
    write, execute or connect to anything, unless the model is trusted: then the graph's own input
    tensors are the runner's buffers, and nothing is copied.

    An input of the graph is called ``action_NAME`` (a port behind a colon is left out of account);
    it binds to the input NAME by name, type and number of elements. ``action_discount``,
    ``action_reward`` and ``action_step_type`` stay zero where nobody offers them.

    Args:
        model_directory: a folder with ``model.tflite`` or, if trusted, ``saved_model.pb``, and
            ``output_spec.json``.
        training_log: where LLVM's training log is written, if it is: the inputs, the extra
            outputs and the decision of every evaluation. The file stays the caller's to close.
        score: the spec of the scores in that log, for `log_score`.
        trusted: evaluate the graph in this process, which a broken graph may end.
        timeout_s: what loading it, or evaluating it once, may take in the child, in seconds.

    Attributes:
        card: what the model was made for, if it says so.
        ignored_inputs: names of what is offered and the model does not know.

    Raises:
        EnvironmentSetupError: no TFLite interpreter is installed.
        ModelError: the model cannot be loaded, ends TFLite's process or its time, needs an input
            that is not offered, or has another type or size of tensor than the specs say.

    >>> from mlgo_gym.model import find_model
    >>> from mlgo_gym.problems import InliningForSize
    >>> from mlgo_gym.runners import ModelUnderTrainingRunner
    >>> inputs, output = InliningForSize().layout.specs, InliningForSize.advice
    >>> with ModelUnderTrainingRunner(find_model("inlining-for-size"), inputs, output) as runner:
    ...     int(runner.evaluate()[0]) in (0, 1)
    True
    """

    def __init__(
        self,
        model_directory: str | Path,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        *,
        training_log: BinaryIO | None = None,
        score: TensorSpec | None = None,
        trusted: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        super().__init__(inputs, output)
        path = Path(model_directory)
        self._model = str(path)
        specs = parse_output_spec(
            read_model_json(path / OUTPUT_SPEC_FILE, self._model), self._model
        )
        self.card: Final = read_card(path, self.inputs)
        with contextlib.ExitStack() as stack:
            with graph_file(path, trusted=trusted) as graph:
                self._interpreter = self._load(graph, None if trusted else timeout_s)
            if not trusted:
                stack.callback(self._interpreter.close)
            self._invoke: Callable[[], object] = self._interpreter.invoke
            self._bind_inputs()
            self._outputs = self._bind_outputs(specs)
            self._resources = stack.pop_all()
        self._decision = self._outputs[0].view(np.uint8).data
        self._extra = tuple(
            replace(each.tensor_spec, name=each.logging_name, port=0) for each in specs[1:]
        )
        self._log: TrainingLogWriter | None = None
        if training_log is not None:
            features = (*self.inputs, *self._extra, output)
            self._log = TrainingLogWriter(training_log, Header(features, score))

    def switch_context(self, name: str) -> None:
        """Start another context in the training log, if there is one."""
        if self._log:
            self._log.start_context(name)

    def log_score(self, score: object) -> None:
        """Write the score of the last evaluation to the training log.

        Raises:
            UsageError: there is no training log.
            TrainingLogError: it has no scores, or nothing was evaluated before.
        """
        if self._log is None:
            raise UsageError("ModelUnderTrainingRunner: has no training log to write a score to")
        self._log.log_outcome(score)

    def extra_outputs(self) -> dict[str, Array]:
        """The model's outputs besides the decision, as copies by logging name."""
        return {
            spec.name: np.array(values).reshape(spec.shape)
            for spec, values in zip(self._extra, self._outputs[1:], strict=True)
        }

    def evaluate_untyped(self) -> memoryview:
        """Answer what the inputs hold: the decision's raw bytes, valid until the next call.

        Raises:
            ModelError: TFLite fails on these inputs, or its process ends.
            UsageError: the runner is closed.
        """
        try:
            self._invoke()
        except RuntimeError as error:
            raise ModelError(
                self._model, f"TFLite cannot evaluate model.tflite: {error}"
            ) from error
        if self._log is not None:
            self._write(self._log)
        return self._decision

    def close(self) -> None:
        """Let go of the interpreter; safe to call twice. Views of the buffers stay valid."""
        super().close()
        self._invoke = _refuse
        self._resources.close()

    def _evaluate(self) -> memoryview:
        return self.evaluate_untyped()

    def _write(self, log: TrainingLogWriter) -> None:
        inputs = (self.get_tensor(index).tobytes() for index in range(len(self.inputs)))
        extra = (values.tobytes() for values in self._outputs[1:])
        log.log_observation(b"".join((*inputs, *extra, self._decision)))

    def _load(self, graph: Path, timeout_s: float | None) -> Any:
        """An interpreter in a child that has so much time, or in this process."""
        if not graph.is_file():
            raise ModelError(self._model, f"expected {graph.name} in it, found none")
        if timeout_s is None:
            return load_here(graph, self._model)
        return ChildInterpreter(graph, self._model, timeout_s)

    def _bind_inputs(self) -> None:
        offered = {spec.name: index for index, spec in enumerate(self.inputs)}
        for details in self._interpreter.get_input_details():
            name = details["name"].partition(":")[0].removeprefix(_INPUT_PREFIX)
            memory = memory_of(self._interpreter, details)
            if name in offered:
                index = offered.pop(name)
                spec = self.inputs[index]
                self._check(f"input {name!r}", spec, details)
                self.set_up_buffer_for_tensor(index, spec, memory)
            elif name not in STEP_INPUTS:
                raise ModelError(self._model, f"needs inputs that are not offered: {name!r}")
            memory[:] = 0
        self.ignored_inputs = tuple(offered)
        for index in offered.values():
            self.set_up_buffer_for_tensor(index, self.inputs[index], None)

    def _bind_outputs(self, specs: Sequence[OutputSpec]) -> tuple[Array, ...]:
        found = sorted(self._interpreter.get_output_details(), key=lambda each: str(each["name"]))
        names = [(str(each["name"]),) for each in found]
        chosen = choose_outputs(specs, names, self.output.name, self._model)
        self._check_decision(specs[0])
        for spec, (name, number) in zip(specs, chosen, strict=True):
            self._check(f"output {name!r}", spec.tensor_spec, found[number])
        return tuple(memory_of(self._interpreter, found[number]) for _, number in chosen)

    def _check_decision(self, decision: OutputSpec) -> None:
        expected, found = self.output, decision.tensor_spec
        if (expected.type, expected.element_count) != (found.type, found.element_count):
            raise ModelError(
                self._model,
                f"decision {expected.name!r}: expected {expected.type} {list(expected.shape)}, "
                f"found {found.type} {list(found.shape)}",
            )

    def _check(self, role: str, expected: TensorSpec, details: dict[str, Any]) -> None:
        shape = tuple(int(size) for size in details["shape"])
        # LLVM has no type of truth values; TFLite's are bytes of 0 and 1.
        dtype = np.dtype(np.uint8 if details["dtype"] == np.bool_ else details["dtype"])
        if dtype != expected.dtype or math.prod(shape) != expected.element_count:
            raise ModelError(
                self._model,
                f"{role}: expected {expected.dtype} {list(expected.shape)}, "
                f"found {dtype} {list(shape)}",
            )


def _refuse() -> NoReturn:
    # No method of the runner: that would be a cycle, and keep the interpreter until a collection.
    raise UsageError("ModelUnderTrainingRunner: closed")
