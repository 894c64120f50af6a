"""``output_spec.json``: which of a model's outputs is the decision, and what the others are called.

LLVM's format (``llvm/lib/Analysis/ModelUnderTrainingRunner.cpp``), the decision first::

    [{"logging_name": "inlining_decision",
      "tensor_spec": {"name": "StatefulPartitionedCall", "port": 0, "type": "int64_t",
                      "shape": [1]}}, ...]
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlgo_gym.errors import ModelError, SpecError
from mlgo_gym.files import FileError, read_json
from mlgo_gym.tensor_spec import TensorSpec

OUTPUT_SPEC_FILE: Final = "output_spec.json"
STEP_INPUTS: Final = frozenset({"discount", "reward", "step_type"})
"""Inputs of TF-Agents policies that mean something in training only; runners leave them zero."""

_MAX_BYTES: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One output: the name it is logged under, and the tensor in the model.

    >>> tensor = TensorSpec("StatefulPartitionedCall", "int64_t", (1,))
    >>> OutputSpec("inlining_decision", tensor).logging_name
    'inlining_decision'
    """

    logging_name: str
    tensor_spec: TensorSpec


def model_files(model: Path) -> tuple[Path, Path]:
    """The TFLite graph of a model, and its ``output_spec.json``, which may not be there.

    Args:
        model: a model directory, or the graph itself.
    """
    graph = model / "model.tflite" if model.is_dir() else model
    return graph, graph.with_name(OUTPUT_SPEC_FILE)


def unreadable(error: OSError, source: str, name: str = "") -> ModelError:
    """The error of a model one of whose files could not be read.

    Args:
        error: what `mlgo_gym.files` raised.
        source: what errors call the model.
        name: the file's, where that is not the source itself.
    """
    if isinstance(error, FileError):
        return ModelError(source, f"{name}{name and ': '}{error.strerror}")
    return ModelError(source, f"{name}{name and ' '}cannot be read: {error.strerror}")


def read_model_json(path: Path, source: str) -> Any:
    """Parse a JSON file of a model, of at most 4 MiB.

    Raises:
        ModelError: it cannot be read or is not JSON.
    """
    try:
        return read_json(path, _MAX_BYTES)
    except OSError as error:
        raise unreadable(error, source, path.name) from error


def parse_output_spec(value: Any, source: str) -> tuple[OutputSpec, ...]:
    """The outputs that a parsed ``output_spec.json`` names.

    Raises:
        ModelError: it has another form.
    """
    if not isinstance(value, list) or not value:
        raise ModelError(source, f"{OUTPUT_SPEC_FILE}: expected a list of outputs, found {value!r}")
    return tuple(_parse(entry, source) for entry in value)


def _parse(entry: Any, source: str) -> OutputSpec:
    if not isinstance(entry, dict) or not isinstance(entry.get("logging_name"), str):
        raise ModelError(source, f"{OUTPUT_SPEC_FILE}: expected a logging_name, found {entry!r}")
    try:
        return OutputSpec(entry["logging_name"], TensorSpec.from_value(entry.get("tensor_spec")))
    except SpecError as error:
        raise ModelError(source, f"{OUTPUT_SPEC_FILE}: {error}") from error
