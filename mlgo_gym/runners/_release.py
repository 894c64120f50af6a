"""A policy as machine code in this process (``llvm/Analysis/ReleaseModeModelRunner.h``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from mlgo_gym.base import ModelError, TensorSpec, UsageError
from mlgo_gym.model import (
    DEFAULT_TIMEOUT_S,
    STEP_INPUTS,
    NativeModel,
    OutputSpec,
    check_same,
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
        self._call = _refuse
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


def _refuse() -> NoReturn:
    # No method of the runner: that would be a cycle, and keep its memory until a collection.
    raise UsageError("ReleaseModeModelRunner: closed")


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
