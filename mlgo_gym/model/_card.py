"""Model cards: ``card.json`` in a model directory says what the model was made for.

::

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corpus_tools.reading import brief
from mlgo_gym.base import (
    SHIPPED,
    ModelError,
    TensorSpec,
    is_copy,
    is_remote,
    local_folder,
    write_json,
)
from mlgo_gym.model._output_spec import read_model_json

CARD_FILE = "card.json"
LAST_TESTS: Final = "final_tests"


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
    if not path.is_file():
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
