"""Contexts in a run's folder, so that a run that goes on need not take modules apart again.

``contexts/trained-on.npz`` and ``contexts/held-out.npz`` have the contexts of some first modules.
``bitcode`` is the code of all of them in a row, and ``numbers`` are three of each context.
``about`` is JSON, which says what they come of and how many modules they stand for. A file that is
damaged or of something else is written anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from mlgo_gym.base import (
    MlgoGymError,
    TrainingError,
    parse_json,
    read_arrays,
    read_bounded,
    replacing,
)
from mlgo_gym.corpus import Module, Packages
from mlgo_gym.llvm import CompileOptions, llvm_version
from mlgo_gym.problems import Problem
from mlgo_gym.rollout import OptimizedModule, Rewards
from mlgo_gym.training._contexts import TrainingContext, Workshop
from mlgo_gym.training._run import TrainingRun

MAX_BYTES: Final = 1 << 31
"""The largest file of contexts that is read."""

_SAVE_EVERY_S: Final = 60.0
_DAMAGED: Final = (
    *(OSError, ValueError, OverflowError, LookupError, TypeError, AttributeError, MemoryError),
)


def kept_contexts(
    run: TrainingRun, workshop: Workshop, name: str, packages: Packages
) -> list[TrainingContext]:
    """The contexts of packages, as a run's folder has them or as they are found now."""
    run.doing(f"contexts {name}")
    kept = KeptContexts(
        run.directory / "contexts" / f"{name}.npz", key_of(packages, run.problem, workshop.rewards)
    )
    for found in workshop.contexts(packages, skip=kept.modules):
        kept.add(found)
    kept.flush()
    return kept.contexts


def key_of(packages: Packages, problem: Problem, rewards: Rewards | None = None) -> dict[str, Any]:
    """Return the key of contexts; modules that cannot be read count by their names."""
    digest = hashlib.sha256()
    for key in packages:
        found: list[Any] = [*key]
        with suppress(MlgoGymError):
            module = packages[key]
            found += [module.sha256, module.command]
            found += [rewards.of(key).same] if rewards else []
        digest.update(json.dumps(found).encode())
    return {
        "problem": problem.settings() | ({"reward": rewards.name} if rewards else {}),
        "llvm_version": llvm_version(),
        "modules_sha256": digest.hexdigest(),
    }


class KeptContexts:
    """The contexts of some `modules` that a file holds, and those that are added to it."""

    def __init__(self, path: Path, key: Mapping[str, Any]) -> None:
        self._path, self._key = path, dict(key)
        self.contexts, self.modules = self._read()
        self._saved_modules = self.modules
        self._last = monotonic()

    def add(self, contexts: Sequence[TrainingContext]) -> None:
        """Add the contexts of the next module, and write the file now and then."""
        self.contexts += contexts
        self.modules += 1
        if monotonic() - self._last > _SAVE_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write what is not yet in the file."""
        if self.modules == self._saved_modules:
            return
        codes = [_module(each).data for each in self.contexts]
        about = {
            **self._key,
            "modules": self.modules,
            "contexts": [_described(each) for each in self.contexts],
        }
        numbers = [[each.baseline, each.share, each.potential] for each in self.contexts]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._path) as file:
                np.savez(
                    file,
                    about=np.frombuffer(json.dumps(about).encode(), np.uint8),
                    bitcode=np.frombuffer(b"".join(codes), np.uint8),
                    numbers=np.array(numbers, float).reshape(-1, 3),
                )
        except OSError as error:
            raise TrainingError(
                f"contexts {str(self._path)!r}: cannot be written: {error.strerror}"
            ) from error
        self._saved_modules = self.modules
        self._last = monotonic()

    def _read(self) -> tuple[list[TrainingContext], int]:
        """Return the contexts in the file, and of how many modules they are."""
        try:
            arrays = read_arrays(read_bounded(self._path, MAX_BYTES), MAX_BYTES)
            about = parse_json(arrays["about"].tobytes())
            found = list(_contexts(about, arrays["bitcode"].tobytes(), arrays["numbers"]))
            del about["contexts"]
            modules = int(about.pop("modules"))
            return (found, modules) if about == json.loads(json.dumps(self._key)) else ([], 0)
        except _DAMAGED:
            return [], 0


def _module(context: TrainingContext) -> Module:
    code = context.code
    return code.module if isinstance(code, OptimizedModule) else code


def _described(context: TrainingContext) -> list[Any]:
    """Describe a context in JSON values."""
    code, module, function = context.code, _module(context), None
    if isinstance(code, OptimizedModule):
        ((name, frequencies),) = code.frequencies.items()
        function = [name, code.options.settings(), list(frequencies.items())]
    size = len(module.data)
    return [context.name, size, module.name, module.command, module.is_text, function]


def _contexts(
    about: Mapping[str, Any], bitcode: bytes, numbers: np.ndarray[Any, Any]
) -> Iterator[TrainingContext]:
    start = 0
    for each, (baseline, share, potential) in zip(about["contexts"], numbers.tolist(), strict=True):
        name, size, of_module, command, is_text, function = each
        command = None if command is None else tuple(command)
        module = Module(of_module, bitcode[start : start + size], command, is_text)
        start += size
        code = module if function is None else _function(module, *function)
        yield TrainingContext(name, code, baseline, share, potential)


def _function(
    module: Module, name: str, settings: Mapping[str, Any], frequencies: list[list[Any]]
) -> OptimizedModule:
    options: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()
    }
    known = MappingProxyType({name: dict(frequencies)})
    return OptimizedModule(module, CompileOptions(**options), (name,), known)
