"""The part of a model directory that does not depend on who trained its network."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from corpus_tools.reading import reason_of
from mlgo_gym.base import ModelError, staged_folder, write_json
from mlgo_gym.llvm import llvm_version
from mlgo_gym.model import CARD_FILE, OUTPUT, OUTPUT_SPEC_FILE
from mlgo_gym.problems import HASH_SUFFIX, Problem


@contextmanager
def model_folder(
    directory: Path,
    problem: Problem,
    features: Sequence[str],
    card: Mapping[str, Any],
    texts: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Path]:
    """Yield a folder for the graph, which replaces the model directory at once in the end.

    Texts are files besides, by name.

    Raises:
        ModelError: the folder cannot be written.
    """
    try:
        with staged_folder(directory, CARD_FILE) as staged:
            yield staged
            write_json(staged / OUTPUT_SPEC_FILE, [_decision(problem)])
            made_for: dict[str, Any] = {
                "problem": problem.name,
                "llvm_version": llvm_version(),
                "features": list(features),
            }
            needed = problem.needed_settings(features)
            if files := [each for each in needed if each in problem.file_settings]:
                made_for["settings"] = _with_files(problem, files, staged)
            write_json(staged / CARD_FILE, made_for | dict(card))
            for name, text in texts.items():
                (staged / name).write_bytes(text.encode())
    except OSError as error:
        raise unwritable(directory, reason_of(error)) from error


def unwritable(directory: Path, reason: str) -> ModelError:
    """The error of a model directory that cannot be written."""
    return ModelError(str(directory), f"cannot be written: {reason}")


def _decision(problem: Problem) -> dict[str, Any]:
    return {
        "logging_name": problem.advice.name,
        "tensor_spec": {
            "name": OUTPUT,
            "port": 0,
            "type": problem.advice.type,
            "shape": list(problem.advice.shape),
        },
    }


def _with_files(problem: Problem, names: Sequence[str], folder: Path) -> dict[str, str]:
    """Settings that name files, of which there is a copy then, but of those that are known."""
    settings = {}
    for name in names:
        known = problem.file_settings[name]
        value = getattr(problem, name)
        settings[name] = value.name if value.name in known else f"{name}.json"
        settings[f"{name}{HASH_SUFFIX}"] = hashlib.sha256(value.data).hexdigest()
        if value.name not in known:
            (folder / settings[name]).write_bytes(value.data)
    return settings
