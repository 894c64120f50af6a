"""``output_spec.json``: which of a model's outputs is the decision, and what the others are called.

LLVM's format (``llvm/lib/Analysis/ModelUnderTrainingRunner.cpp``), the decision first::

    [{"logging_name": "inlining_decision",
      "tensor_spec": {"name": "StatefulPartitionedCall", "port": 0, "type": "int64_t",
                      "shape": [1]}}, ...]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corpus_tools.reading import brief
from mlgo_gym.base import FileError, ModelError, SpecError, TensorSpec, read_json

OUTPUT_SPEC_FILE: Final = "output_spec.json"
OUTPUT: Final = "StatefulPartitionedCall"
"""TensorFlow's name of a function's results, which LLVM looks up by `OutputSpec`."""
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
    """The TFLite graph of a model, which may be it, and its ``output_spec.json``, if it has one."""
    graph = model / "model.tflite" if model.is_dir() else model
    return graph, graph.with_name(OUTPUT_SPEC_FILE)


def unreadable(error: OSError, source: str, name: str = "") -> ModelError:
    """The error of a model one of whose files, by its name or the source itself, is unreadable."""
    if isinstance(error, FileError):
        return ModelError(source, f"{name}{name and ': '}{error.strerror}")
    return ModelError(source, f"{name}{name and ' '}cannot be read: {error.strerror}")


def read_model_json(path: Path, source: str) -> Any:
    """Parse a JSON file of a model, of at most 4 MiB."""
    try:
        return read_json(path, _MAX_BYTES)
    except OSError as error:
        raise unreadable(error, source, path.name) from error


def parse_output_spec(value: Any, source: str) -> tuple[OutputSpec, ...]:
    """The outputs that a parsed ``output_spec.json`` names."""
    if not isinstance(value, list) or not value:
        raise ModelError(
            source, f"{OUTPUT_SPEC_FILE}: expected a list of outputs, found {brief(value)}"
        )
    return tuple(_parse(entry, source) for entry in value)


def choose_outputs(
    specs: Sequence[OutputSpec] | None,
    outputs: Sequence[tuple[str, ...]],
    advice: str,
    source: str,
) -> tuple[tuple[str, int], ...]:
    """Choose a graph's outputs: logging names and numbers, the decision first.

    A spec finds its output by ``NAME:PORT``, as LLVM does, or else by its name. Without specs the
    decision is the output of the advice's name, or the only one, and the others follow.

    >>> choose_outputs(None, [("logits", "call:1"), ("advice", "call:0")], "advice", "model")
    (('advice', 1), ('logits', 0))
    """
    if specs is None:
        return _without_specs([names[0] for names in outputs], advice, source)
    chosen = tuple((each.logging_name, _find(each, outputs, source)) for each in specs)
    if chosen[0][0] != advice:
        raise ModelError(
            source, f"expected the decision {advice!r} as the first output, found {chosen[0][0]!r}"
        )
    return chosen


def _without_specs(names: list[str], advice: str, source: str) -> tuple[tuple[str, int], ...]:
    if advice not in names and len(names) != 1:
        found = ", ".join(map(repr, names))
        raise ModelError(
            source, f"expected an output {advice!r} or {OUTPUT_SPEC_FILE}, found {found}"
        )
    decision = names.index(advice) if advice in names else 0
    others = (number for number in range(len(names)) if number != decision)
    return tuple((names[number], number) for number in (decision, *others))


def _find(spec: OutputSpec, outputs: Sequence[tuple[str, ...]], source: str) -> int:
    tensor = spec.tensor_spec
    wanted = (f"{tensor.name}:{tensor.port}", tensor.name, spec.logging_name)
    for name in wanted:
        for number, names in enumerate(outputs):
            if name in names:
                return number
    found = (
        " ".join((f"{first!r}", *(f"({each!r})" for each in more))) for first, *more in outputs
    )
    raise ModelError(source, f"expected an output {wanted[0]!r}, found {', '.join(found)}")


def _parse(entry: Any, source: str) -> OutputSpec:
    if not isinstance(entry, dict) or not isinstance(entry.get("logging_name"), str):
        raise ModelError(
            source, f"{OUTPUT_SPEC_FILE}: expected a logging_name, found {brief(entry)}"
        )
    try:
        return OutputSpec(entry["logging_name"], TensorSpec.from_value(entry.get("tensor_spec")))
    except SpecError as error:
        raise ModelError(source, f"{OUTPUT_SPEC_FILE}: {error}") from error
