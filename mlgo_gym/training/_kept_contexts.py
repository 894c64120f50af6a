"""Contexts in a run's folder, so that a run that goes on need not take modules apart again.

``contexts/trained-on`` and ``contexts/held-out`` have parts ``part-00000.parquet`` and so on, a
row for each context, each part with the contexts of whole modules. The metadata of a part says,
under `METADATA_KEY`, what its contexts come of and how many modules it and the parts before it
stand for. The first part that is missing, damaged or of something else ends what is read; it and
those behind it are made again.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, Final

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.datasets._arrow import pa, pq
from mlgo_gym.datasets._parts import check_groups, opened
from mlgo_gym.errors import DatasetError, MlgoGymError, TrainingError
from mlgo_gym.files import parse_json, write_atomically
from mlgo_gym.llvm._compiler import llvm_version
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._problem import Problem
from mlgo_gym.scoring._allocation import OptimizedModule
from mlgo_gym.search._rewards import Rewards
from mlgo_gym.training._contexts import TrainingContext, Workshop
from mlgo_gym.training._run import TrainingRun

METADATA_KEY: Final = b"mlgo_gym.contexts"
"""The key of a part's description in its metadata."""

MAX_PART_BYTES: Final = 1 << 31
"""The contexts of a part that are read, unpacked: 2 GiB, more than are found in a minute."""

_SAVE_EVERY_S: Final = 60.0
_BATCH: Final = 16
_VALUES: Final = MappingProxyType({"name": 1, "bitcode": 1, "about": 1, "numbers": 3})
"""How many values each column has in a row."""


def kept_contexts(
    run: TrainingRun, workshop: Workshop, name: str, packages: Packages
) -> list[TrainingContext]:
    """The contexts of packages, as a run's folder has them or as they are found now."""
    run.doing(f"contexts {name}")
    kept = KeptContexts(
        run.directory / "contexts" / name, key_of(packages, run.problem, workshop.rewards)
    )
    for found in workshop.contexts(packages, skip=kept.modules):
        kept.add(found)
    kept.flush()
    return kept.contexts


def key_of(packages: Packages, problem: Problem, rewards: Rewards | None = None) -> dict[str, Any]:
    """What contexts depend on; modules that cannot be read count by their names alone."""
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
    """The contexts of some `modules` that a folder holds, and those that are added to it."""

    def __init__(self, folder: Path, key: Mapping[str, Any]) -> None:
        self._folder, self._key = folder, dict(key)
        self.contexts: list[TrainingContext] = []
        self.modules = self._parts = 0
        while (part := self._read()) is not None:
            found, self.modules = part
            self.contexts += found
            self._parts += 1
        self._kept, self._saved_modules = len(self.contexts), self.modules
        self._last = monotonic()

    def add(self, contexts: Sequence[TrainingContext]) -> None:
        """Add the contexts of the next module, and write a part now and then."""
        self.contexts += contexts
        self.modules += 1
        if monotonic() - self._last > _SAVE_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write what is not yet in the folder."""
        if self.modules == self._saved_modules:
            return
        about = json.dumps({**self._key, "modules": self.modules}).encode()
        table = pa.Table.from_pylist([_row(each) for each in self.contexts[self._kept :]])
        buffer = io.BytesIO()
        named = table.replace_schema_metadata({METADATA_KEY: about})
        # Pages end between batches; of the default 1024 modules they would be too large to read.
        pq.write_table(named, buffer, compression="zstd", write_batch_size=_BATCH)
        path = self._path()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, buffer.getvalue())
        except OSError as error:
            raise TrainingError(
                f"contexts {str(self._folder)!r}: {path.name} cannot be written: {error.strerror}"
            ) from error
        self._parts += 1
        self._kept, self._saved_modules = len(self.contexts), self.modules
        self._last = monotonic()

    def _read(self) -> tuple[list[TrainingContext], int] | None:
        """The next part, and how many modules there are up to its end."""
        try:
            with opened(path := self._path()) as file:
                about = parse_json(file.schema_arrow.metadata[METADATA_KEY])
                modules = int(about.pop("modules"))
                if about != json.loads(json.dumps(self._key)) or modules <= self.modules:
                    return None
                check_groups(file, _VALUES, None, path, 2 * MAX_PART_BYTES)
                return list(_contexts(file)), modules
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None
        except (DatasetError, pa.ArrowException):
            return None

    def _path(self) -> Path:
        return self._folder / f"part-{self._parts:05}.parquet"


def _row(context: TrainingContext) -> dict[str, Any]:
    code, function = context.code, None
    module = code.module if isinstance(code, OptimizedModule) else code
    if isinstance(code, OptimizedModule):
        ((name, frequencies),) = code.frequencies.items()
        function = [name, code.options.settings(), list(frequencies.items())]
    return {
        "name": context.name,
        "bitcode": module.data,
        "about": json.dumps([module.name, module.command, module.is_text, function]),
        "numbers": [context.baseline, context.share, context.potential],
    }


def _contexts(file: Any) -> Iterator[TrainingContext]:
    """The contexts of a part, a few at a time, as long as they are not too many bytes."""
    read_bytes = 0
    for batch in file.iter_batches(_BATCH):
        read_bytes += batch.nbytes
        if read_bytes > MAX_PART_BYTES:
            raise ValueError(f"expected at most {MAX_PART_BYTES} bytes, found more")
        yield from map(_context, batch.to_pylist())


def _context(row: Mapping[str, Any]) -> TrainingContext:
    name, command, is_text, function = parse_json(row["about"])
    module = Module(name, row["bitcode"], None if command is None else tuple(command), is_text)
    code: Module | OptimizedModule = module
    if function is not None:
        name, settings, frequencies = function
        options: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in settings.items()
        }
        known = MappingProxyType({name: dict(frequencies)})
        code = OptimizedModule(module, CompileOptions(**options), (name,), known)
    return TrainingContext(row["name"], code, *row["numbers"])
