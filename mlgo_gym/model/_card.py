"""Model directories: ``output_spec.json`` and ``card.json`` beside a graph.

The output spec says which of a model's outputs is the decision, and what the others are called. It
has LLVM's format (``llvm/lib/Analysis/ModelUnderTrainingRunner.cpp``), the decision first::

    [{"logging_name": "inlining_decision",
      "tensor_spec": {"name": "StatefulPartitionedCall", "port": 0, "type": "int64_t",
                      "shape": [1]}}, ...]

The card says what the model was made for::

    {"problem": "InliningForSize", "llvm_version": "22.1.0", "features": ["sroa_savings", ...],
     "settings": {"ir2vec": "ir2vec.json", "ir2vec_sha256": "..."}}

It is optional, and may hold more, such as how the model was made and, in `LAST_TESTS`, when it was
evaluated on packages of the split ``final``. A model of another LLVM loads where the features that
it was trained on are all offered; the differences are reported. Its settings are those of its
problem without which LLVM does not send its features: a name that is known, or that of a file
beside it.

Models that ship with the package are found by name: folders in ``models`` at the top of the
repository, and in ``shipped`` here in a wheel.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corpus_tools.reading import brief
from mlgo_gym.base import (
    SHIPPED,
    FileError,
    ModelError,
    SpecError,
    TensorSpec,
    is_copy,
    is_remote,
    local_folder,
    read_json,
    write_json,
)

OUTPUT_SPEC_FILE: Final = "output_spec.json"
OUTPUT: Final = "StatefulPartitionedCall"
"""TensorFlow's name of a function's results, which LLVM looks up by `OutputSpec`."""
STEP_INPUTS: Final = frozenset({"discount", "reward", "step_type"})
"""Inputs of TF-Agents policies that mean something in training only; runners leave them zero."""

_MAX_BYTES: Final = 1 << 22
CARD_FILE = "card.json"
LAST_TESTS: Final = "final_tests"


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
    return tuple(_parse_output(entry, source) for entry in value)


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


def _parse_output(entry: Any, source: str) -> OutputSpec:
    if not isinstance(entry, dict) or not isinstance(entry.get("logging_name"), str):
        raise ModelError(
            source, f"{OUTPUT_SPEC_FILE}: expected a logging_name, found {brief(entry)}"
        )
    try:
        return OutputSpec(entry["logging_name"], TensorSpec.from_value(entry.get("tensor_spec")))
    except SpecError as error:
        raise ModelError(source, f"{OUTPUT_SPEC_FILE}: {error}") from error


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The purpose and origin of a model.

    Attributes:
        problem: the problem's name.
        llvm_version: the LLVM whose features it was trained on.
        features: their names.
        settings: what LLVM has to be told for them, and the hashes of files among that.

    >>> ModelCard("InliningForSize", "22.1.0", ("callee_users",)).problem
    'InliningForSize'
    """

    problem: str
    llvm_version: str
    features: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)

    def differences(self, inputs: Sequence[TensorSpec]) -> tuple[str, ...]:
        """Names of inputs that are offered now and were not when the model was trained."""
        return tuple(spec.name for spec in inputs if spec.name not in self.features)

    def check(self, inputs: Sequence[TensorSpec], source: str) -> None:
        """See that everything the model was trained on is offered.

        Raises:
            ModelError: naming what is not, and the LLVM that the model is from.
        """
        offered = {spec.name for spec in inputs}
        missing = [name for name in self.features if name not in offered]
        if missing:
            raise ModelError(
                source,
                f"was trained on features of LLVM {self.llvm_version} that are not offered: "
                f"{', '.join(map(repr, missing))}",
            )

    def check_llvm(self, version: str, source: str) -> None:
        """See that the model is of an LLVM whose features mean the same: of one major version.

        Raises:
            ModelError: naming both.
        """
        major = version.partition(".")[0]
        if self.llvm_version.partition(".")[0] != major:
            raise ModelError(
                source, f"expected a model of LLVM {major}, found one of {self.llvm_version}"
            )


def read_card(model: Path, inputs: Sequence[TensorSpec] = ()) -> ModelCard | None:
    """The card of a model directory, if it has one.

    Args:
        model: the folder.
        inputs: what is offered; where it is given, the card is checked against it.

    Raises:
        ModelError: the card has another form, or names features that are not offered.

    >>> from mlgo_gym.model import find_model, read_card
    >>> read_card(Path(find_model("inlining-for-size"))).problem
    'InliningForSize'
    """
    path = model / CARD_FILE
    if not os.path.lexists(path):
        return None
    card = _parse(read_model_json(path, str(model)), str(model))
    if inputs:
        card.check(inputs, str(model))
    return card


def record_last_test(model: Path, entry: Mapping[str, Any]) -> int:
    """Put into a model's card that it was evaluated on packages of the split ``final``.

    Args:
        model: the folder, which has a card.
        entry: when, on what, and what came of it.

    Returns:
        How often it was, this time included.

    Raises:
        ModelError: the card has another form, or cannot be written.
    """
    if is_copy(model):
        raise ModelError(str(model), "expected a folder to write to, found a copy of a URI's")
    card = read_model_json(model / CARD_FILE, str(model))
    known = card.get(LAST_TESTS, [])
    if not isinstance(known, list):
        text = f"{CARD_FILE}: expected {LAST_TESTS} as a list, found {brief(known)}"
        raise ModelError(str(model), text)
    entries = [*known, dict(entry)]
    try:
        write_json(model / CARD_FILE, card | {LAST_TESTS: entries})
    except OSError as error:
        text = f"{CARD_FILE} cannot be written: {error.strerror}"
        raise ModelError(str(model), text) from error
    return len(entries)


def _parse(value: Any, source: str) -> ModelCard:
    match value:
        case {"problem": str(problem), "llvm_version": str(version), "features": [*features]}:
            settings = value.get("settings", {})
            texts = [*features, *(settings.values() if isinstance(settings, dict) else [None])]
            if all(isinstance(each, str) for each in texts):
                return ModelCard(problem, version, tuple(features), settings)
    raise ModelError(
        source,
        f"{CARD_FILE}: expected problem and llvm_version as texts, features as a list of texts "
        f"and settings, if any, as texts by name, found {brief(value)}",
    )


def shipped_models() -> dict[str, Path]:
    """The models by name.

    >>> len(shipped_models()), shipped_models()["inlining-for-size"].name
    (4, 'inlining-for-size')
    """
    return {card.parent.name: card.parent for card in sorted(SHIPPED.glob(f"*/{CARD_FILE}"))}


def find_model(text: str) -> str:
    """Return the folder of a shipped model; any text that is no such name stays as it is.

    Args:
        text: a path, a URI, an address, or the name of a shipped model.

    Returns:
        The folder, of a URI a copy; the text as it was where it is no such name.

    Raises:
        ModelError: it is given by URI and cannot be copied.

    >>> Path(find_model("inlining-for-size")).name, find_model("localhost:5000")
    ('inlining-for-size', 'localhost:5000')
    """
    if is_remote(text) or text.startswith("file://"):
        try:
            return str(local_folder(text))
        except OSError as error:
            raise ModelError(text, f"cannot be read: {error.strerror}") from error
    folder = None if Path(text).exists() else shipped_models().get(text)
    return text if folder is None else str(folder)
