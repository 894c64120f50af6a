"""Model directories: a TFLite graph and ``output_spec.json`` beside it.

``output_spec.json`` is a list of outputs, the decision first, as LLVM reads it
(``llvm/lib/Analysis/ModelUnderTrainingRunner.cpp``)::

    [{"logging_name": "inlining_decision", "tensor_spec": SPEC}, ...]

The name and port of a SPEC are those of the graph's output tensor (``NAME:PORT``); the logging name
is what the output is called outside, and defaults to the tensor's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mlgo_gym.errors import ModelError, SpecError
from mlgo_gym.tensor_spec import TensorSpec

__all__ = ["INPUT_PREFIX", "STEP_INPUTS", "LoggedOutput", "ModelDirectory", "check_tensor"]

INPUT_PREFIX: Final = "action_"
"""What stands before a feature's name in the name of the graph's input."""

STEP_INPUTS: Final = frozenset({"discount", "reward", "step_type"})
"""Inputs of TF-Agents policies that mean something in training only; they are left zero."""


@dataclass(frozen=True, slots=True)
class LoggedOutput:
    """One output of a model.

    Attributes:
        tensor: its spec, under the name of the graph's tensor.
        name: what it is called outside.
    """

    tensor: TensorSpec
    name: str

    @property
    def spec(self) -> TensorSpec:
        """Its spec, under the name it has outside."""
        return replace(self.tensor, name=self.name, port=0)


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """A model as the runners load it.

    Attributes:
        path: the folder.
        outputs: the decision, and then what else the model gives out.
    """

    path: Path
    outputs: tuple[LoggedOutput, ...]

    @property
    def graph(self) -> Path:
        """The TFLite file."""
        return self.path / "model.tflite"

    @classmethod
    def load(cls, path: str | Path) -> ModelDirectory:
        """Read ``output_spec.json`` and see that the graph is there.

        Raises:
            ModelError: a file is missing, or is not what it should be.
        """
        path = Path(path)
        directory = cls(path, tuple(_read_outputs(path / "output_spec.json")))
        if not directory.graph.is_file():
            raise ModelError(f"model {str(path)!r}: expected model.tflite in it, found none")
        return directory

    def check_decision(self, expected: TensorSpec) -> None:
        """Compare the first output with the advice that is asked for.

        Raises:
            ModelError: it has another name, type or number of elements.
        """
        decision = self.outputs[0].spec
        if decision.name != expected.name:
            raise ModelError(
                f"model {str(self.path)!r}: expected the decision {expected.name!r} as its first "
                f"output, found {decision.name!r}"
            )
        check_tensor(str(self.path), "output", expected, decision)


def check_tensor(model: str, role: str, expected: TensorSpec, found: TensorSpec) -> None:
    """Raise unless two specs have one type and one number of elements.

    Raises:
        ModelError: naming the tensor, the expected and the found.
    """
    if (expected.type, expected.element_count) != (found.type, found.element_count):
        raise ModelError(
            f"model {model!r}: {role} {expected.name!r}: expected {expected.type} "
            f"{expected.shape}, found {found.type} {found.shape}"
        )


def _read_outputs(path: Path) -> list[LoggedOutput]:
    try:
        value = json.loads(path.read_bytes())
        outputs = [_output(each) for each in value] if isinstance(value, list) else []
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, SpecError, RecursionError) as error:
        raise ModelError(f"{path}: {error}") from error
    if not outputs:
        raise ModelError(f"{path}: expected a list of outputs, the decision first, found {value!r}")
    return outputs


def _output(value: object) -> LoggedOutput:
    if not isinstance(value, dict) or "tensor_spec" not in value:
        raise SpecError(f"expected an object with a tensor_spec, found {value!r}")
    tensor = TensorSpec.from_value(value["tensor_spec"])
    name = value.get("logging_name", tensor.name)
    if not isinstance(name, str) or not name:
        raise SpecError(f"expected a logging_name, found {name!r}")
    return LoggedOutput(tensor, name)
