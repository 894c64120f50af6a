"""The start of training on contexts: compilers, contexts, and statistics for the network.

Contexts are kept in a run's folder, so that a run that goes on need not take modules apart again:
``contexts/trained-on.npz`` and ``contexts/held-out.npz`` have the contexts of some first modules.
``bitcode`` is the code of all of them in a row, and ``numbers`` are three of each context.
``about`` is JSON, which says what they come of and how many modules they stand for, and describes
each context. A file that is damaged or of something else is written anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from corpus_tools.reading import Shape, shaped
from mlgo_gym.base import (
    MlgoGymError,
    ModelError,
    OptionsError,
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
from mlgo_gym.training._data import Data, Sampler, TrainingContext, Workshop
from mlgo_gym.training._export import load_network
from mlgo_gym.training._networks import (
    ALL_FEATURES,
    Normalization,
    PolicyNetwork,
    network_features,
    networked_problems,
)
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._trials import Asked

_Array = np.ndarray[Any, Any]

MAX_BYTES: Final = 1 << 31
"""The largest file of contexts that is read."""

_SAVE_EVERY_S: Final = 60.0
_ABOUT: Final[Shape] = {
    "modules": int,
    "contexts": [
        {
            "name": str,
            "size_bytes": int,
            "module": str,
            "command?": [str],
            "is_text": bool,
            "function?": {"name": str, "settings": dict, "frequencies": [[float]]},
        }
    ],
}
_DAMAGED: Final = (
    *(OSError, ValueError, OverflowError, LookupError, TypeError, AttributeError, MemoryError),
)
_CONTEXTS: Final = 256
_MOST_DECISIONS: Final = 300
"""The most decisions taken of one context, so that the largest do not decide alone."""

Prepared = tuple[Workshop, Sampler, list[TrainingContext] | None]
"""Compilers, what draws contexts to train on, and the functions that are chosen on: none where
contexts are modules, and whole packages are compiled to choose."""


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
            data = read_bounded(self._path, MAX_BYTES)
            arrays = read_arrays(data, len(data))  # none is compressed
            about = shaped(parse_json(arrays["about"].tobytes()), _ABOUT)
            described, modules = about.pop("contexts"), about.pop("modules")
            if about != json.loads(json.dumps(self._key)) or modules < 0:
                return [], 0
            return list(_contexts(described, arrays["bitcode"], arrays["numbers"])), modules
        except _DAMAGED:
            return [], 0


def _module(context: TrainingContext) -> Module:
    code = context.code
    return code.module if isinstance(code, OptimizedModule) else code


def _described(context: TrainingContext) -> dict[str, Any]:
    """Describe a context in JSON values."""
    code, module = context.code, _module(context)
    found = {
        "name": context.name,
        "size_bytes": len(module.data),
        "module": module.name,
        "is_text": module.is_text,
    }
    if module.command is not None:
        found["command"] = module.command
    if isinstance(code, OptimizedModule):
        ((name, frequencies),) = code.frequencies.items()
        pairs = list(frequencies.items())
        settings = code.options.settings()
        found["function"] = {"name": name, "settings": settings, "frequencies": pairs}
    return found


def _contexts(
    described: Sequence[Mapping[str, Any]], bitcode: _Array, numbers: _Array
) -> Iterator[TrainingContext]:
    """Make the contexts of which all code is there, once, and whose numbers can be drawn by.

    Raises:
        ValueError: there are others.
    """
    sizes = [each["size_bytes"] for each in described]
    if min(sizes, default=1) < 1 or sum(sizes) != bitcode.nbytes:
        raise ValueError(f"expected sizes above 0 of {bitcode.nbytes} bytes in all, found others")
    if numbers.dtype != np.float64 or numbers.shape != (len(described), 3):
        raise ValueError(f"expected three numbers for each of {len(described)}, found others")
    baselines, shares, potentials = numbers.T
    are_sound = np.isfinite(baselines) & (baselines > 0) & (shares > 0) & (shares <= 1)
    if not (are_sound & (potentials >= 0) & (potentials <= 1)).all():
        raise ValueError("expected baselines above 0, shares and potentials up to 1, found others")
    start, data = 0, bitcode.tobytes()
    for each, size, row in zip(described, sizes, numbers.tolist(), strict=True):
        command = tuple(each["command"]) if "command" in each else None
        module = Module(
            each["module"], data[start : start + size], command, is_text=each["is_text"]
        )
        start += size
        code = _function(module, **each["function"]) if "function" in each else module
        yield TrainingContext(each["name"], code, *row)


def _function(
    module: Module, name: str, settings: Mapping[str, Any], frequencies: list[list[Any]]
) -> OptimizedModule:
    options: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()
    }
    known = MappingProxyType({name: dict(frequencies)})
    return OptimizedModule(module, CompileOptions(**options), (name,), known)


@contextmanager
def prepared(run: TrainingRun, data: Data, most_modules: int, seed: int) -> Iterator[Prepared]:
    """Yield compilers, and contexts of so many modules a package, kept in the run's folder."""
    with Workshop(
        run.problem,
        jobs=data.jobs,
        timeout_s=data.timeout_s,
        warn=data.warn,
        rewards=data.rewards,
    ) as workshop:
        packages = data.packages.some_modules(most_modules, seed)
        contexts = kept_contexts(run, workshop, "trained-on", packages)
        if not contexts:
            raise TrainingError(f"{run.trainer}: expected modules that compile and ask, found none")
        held_out = None
        if workshop.by_function:
            held_out = kept_contexts(run, workshop, "held-out", data.validation)
        yield workshop, Sampler(contexts), held_out


def load_start(folder: str, problem: Problem) -> PolicyNetwork:
    """The network of a model directory, which must be one for this problem."""
    network = load_network(Path(folder))
    if network.problem.name != problem.name:
        raise ModelError(
            folder, f"expected one for {problem.name}, found one for {network.problem.name}"
        )
    return network


def statistics(
    workshop: Workshop, sampler: Sampler, seed: int, features: str = ALL_FEATURES
) -> Normalization:
    """The statistics of what contexts ask under LLVM's own rule; of positions, the legal ones."""
    problem = workshop.problem
    if not problem.network:
        raise OptionsError(
            f"training: expected a problem of {networked_problems()}, found {problem.name}"
        )
    drawn = sampler.draw(_CONTEXTS, np.random.default_rng([seed, 0]))
    work = Asked(workshop, _MOST_DECISIONS)
    found = workshop.successes(drawn, work, sampler.numbered)
    payloads = [each for _, asked in found for each in asked]
    if not payloads:
        raise TrainingError("training: expected contexts that ask for decisions, found none")
    values = problem.layout.columns(problem.layout.array(payloads))
    if "mask" in values:
        legal = values["mask"] == 1
        values = {name: each[legal] if each.ndim > 1 else each for name, each in values.items()}
    return Normalization.fit(values, network_features(problem, features))
