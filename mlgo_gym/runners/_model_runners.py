"""Models in this process: as machine code, and on TFLite, ``ai-edge-litert`` or ``tflite-runtime``.

They are LLVM's ``ReleaseModeModelRunner`` and ``ModelUnderTrainingRunner``. The latter is made for
each compilation, so a newer model, or another folder, counts from the next.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

import numpy as np

from mlgo_gym.base import ModelError, TensorSpec, UsageError
from mlgo_gym.model import (
    DEFAULT_TIMEOUT_S,
    OUTPUT_SPEC_FILE,
    STEP_INPUTS,
    NativeModel,
    OutputSpec,
    check_same,
    choose_outputs,
    compile_model,
    find_description,
    find_outputs,
    graph_file,
    load_frozen,
    model_files,
    parse_output_spec,
    read_card,
    read_model_json,
)
from mlgo_gym.runners._base import Array, MLModelRunner, side_by_side
from mlgo_gym.runners._interpreter import ChildInterpreter, load_here, memory_of
from mlgo_gym.stream import Header, TrainingLogWriter

_INPUT_PREFIX: Final = "action_"


class ReleaseModeModelRunner(MLModelRunner):
    """Answers with a model's decision, in well under a microsecond for a usual policy.

    The model's inputs are bound by name, type and shape; what is offered and the model does not
    know has no effect. The decision is the first entry of ``output_spec.json``; without that file
    the output of the answer's name, or the only one.

    Args:
        model: a model directory (``model.tflite`` or, if trusted, ``saved_model.pb``, and
            ``output_spec.json``), a ``.tflite`` file, or a
            frozen model (its folder or its JSON file).
        trusted: compile the graph in this process, else in a worker with a deadline; and
            run a frozen model, which is code, whoever froze it, else this user's own alone.
        timeout_s: what compiling may take in the worker, in seconds.

    Attributes:
        model: the compiled model.
        card: what the model directory says the model was made for, if it does.
        ignored_inputs: names of what is offered and the model does not know.

    Raises:
        ModelError: the model cannot be used, needs an input that is not offered, or has inputs or
            a decision of another type or shape.
        OptionsError: a frozen model is somebody else's, and not trusted.
        SpecError: two of the inputs have one name, or there is none.
        EnvironmentSetupError: no worker can be started.

    >>> from mlgo_gym.model import find_model
    >>> from mlgo_gym.problems import InliningForSize
    >>> from mlgo_gym.runners import ReleaseModeModelRunner
    >>> inputs, output = InliningForSize().layout.specs, InliningForSize.advice
    >>> with ReleaseModeModelRunner(find_model("inlining-for-size"), inputs, output) as runner:
    ...     int(runner.evaluate()[0]) in (0, 1)
    True
    """

    def __init__(
        self,
        model: Path | str,
        inputs: Sequence[TensorSpec],
        output: TensorSpec,
        *,
        trusted: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        super().__init__(inputs, output)
        self.card: Final = read_card(Path(model), self.inputs)
        native, specs = load_native(Path(model), trusted=trusted, timeout_s=timeout_s)
        self.model: Final = native
        self._decision, self._extra = _choose(native, specs, output)
        known = {port.spec.name for port in native.inputs}
        self.ignored_inputs: Final = tuple(
            spec.name for spec in self.inputs if spec.name not in known
        )
        self._check_inputs()
        buffers = side_by_side([port.spec for port in native.inputs])
        by_name = dict(zip((port.spec.name for port in native.inputs), buffers, strict=True))
        for index, spec in enumerate(self.inputs):
            self.set_up_buffer_for_tensor(index, spec, by_name.get(spec.name))
        self._outputs = side_by_side([port.spec for port in native.outputs])
        self._answer = self._outputs[self._decision]
        self._result = self._answer.reshape(-1).view(np.uint8).data.toreadonly()
        self._bound = native.bind(buffers, self._outputs)
        self._call: Callable[[], int] = self._bound.call

    def for_worker(self) -> tuple[dict[str, Any], bytes]:
        """The model's code, to run elsewhere, and what is known about it."""
        ports = {"inputs": self.model.inputs, "outputs": self.model.outputs}
        about = {
            kind: [
                {"name": each.spec.name, "type": each.spec.type, "shape": list(each.spec.shape)}
                for each in found
            ]
            for kind, found in ports.items()
        }
        more = {"name": self.model.name, "decision": self._decision, "zeroed": sorted(STEP_INPUTS)}
        return about | more, self.model.object.data

    def evaluate(self) -> Array:
        """Answer what the inputs hold: a fresh array of the output's dtype and shape.

        Raises:
            ModelError: the model is not defined for these inputs, such as an index out of range.
            UsageError: the runner is closed.
        """
        self.evaluate_untyped()
        return self._answer.copy()

    def evaluate_untyped(self) -> memoryview:
        """Answer what the inputs hold: the output's raw bytes, valid until the next call."""
        status = self._call()
        if status:
            raise self.model.failure(status)
        return self._result

    def extra_outputs(self) -> Mapping[str, Array]:
        """The model's outputs besides the decision, as copies by (logging) name."""
        return {name: self._outputs[number].copy() for name, number in self._extra}

    def close(self) -> None:
        """Unload the code; safe to call twice. Views of the buffers stay valid."""
        super().close()
        self._call = partial(_refuse, type(self).__name__)
        self._bound.close()

    def _evaluate(self) -> memoryview:
        return self.evaluate_untyped()

    def _check_inputs(self) -> None:
        offered = {spec.name: spec for spec in self.inputs}
        wanted = [port.spec for port in self.model.inputs]
        missing = [spec.name for spec in wanted if spec.name not in {*offered, *STEP_INPUTS}]
        if missing:
            raise ModelError(
                self.model.source,
                f"needs inputs that are not offered: {', '.join(map(repr, missing))}",
            )
        for spec in wanted:
            found = offered.get(spec.name, spec)
            if (found.type, found.shape) != (spec.type, spec.shape):
                raise ModelError(
                    self.model.source,
                    f"input {spec.name!r}: the model takes {spec.type} {list(spec.shape)}, "
                    f"offered is {found.type} {list(found.shape)}",
                )


def _refuse(name: str) -> NoReturn:
    # No method of a runner: that would be a cycle, and keep its memory until a collection.
    raise UsageError(f"{name}: closed")


def load_native(
    path: Path, *, trusted: bool, timeout_s: float = DEFAULT_TIMEOUT_S
) -> tuple[NativeModel, tuple[OutputSpec, ...] | None]:
    """The compiled model, and its output specs where there are any."""
    source = str(path)
    file, beside = model_files(path)
    if path.suffix == ".json" or (path.is_dir() and not file.exists() and find_description(path)):
        native, specs = load_frozen(path, trusted=trusted)
        return native, None if specs is None else parse_output_spec(specs, source)
    with graph_file(path, trusted=trusted) as graph:
        native = compile_model(graph, trusted=trusted, timeout_s=timeout_s)
    if not beside.exists():
        return native, None
    return native, parse_output_spec(read_model_json(beside, source), source)


def _choose(
    model: NativeModel, specs: tuple[OutputSpec, ...] | None, output: TensorSpec
) -> tuple[int, tuple[tuple[str, int], ...]]:
    """The number of the decision, and names and numbers of the other outputs."""
    (_, decision), *others = find_outputs(specs, model.outputs, output.name, model.source)
    found = model.outputs[decision].spec
    check_same(model.source, f"decision {output.name!r}", output, found)
    return decision, tuple(each for each in others if each[1] != decision)


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
        self._invoke = partial(_refuse, type(self).__name__)
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
