"""Writing a dataset: whole modules into parts of bounded size."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from mlgo_gym.base import DatasetError, UsageError, place_of
from mlgo_gym.datasets._episodes import Episode, Source, SourceKey
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.datasets._parts import (
    MAX_TEXT_BYTES,
    ModuleEntry,
    PartFolder,
    merged,
    part_folder,
    read_part,
    write_part,
)
from mlgo_gym.problems import Layout, layout_differences

_ENTRY_BYTES: Final = 128


class DatasetWriter(contextlib.AbstractContextManager["DatasetWriter"]):
    """Writes a dataset, or continues one.

    Decisions are kept in memory until they fill a part. A part is written to another name, flushed
    to the disk, and renamed. Leaving the ``with`` block writes the rest, also if an exception ends
    it. A part that takes long to fill is written as it is now and then, and replaced once it is
    full: a process that is killed loses little, and the bytes do not depend on time.

    Args:
        folder: where the parts are; it is made if need be. In S3 (``s3://BUCKET/KEY``) several may
            write at once: each has part names of its own, and does not see what the others add.
        header: what all decisions have in common; the first of them may have more tensors, which
            all others then have too.
        max_part_bytes: a part is written when it has this many bytes of observations.
        max_part_age_s: how long it may be filled before it is written as it is, in seconds.

    Attributes:
        levels: the modules that are there, with those that are in no part yet, and the level that
            each was compiled at.

    Raises:
        DatasetError: the folder cannot be written, another process is writing there, or it has
            parts that are damaged or whose header differs from this one.

    >>> import tempfile
    >>> from mlgo_gym import InliningForSize
    >>> from mlgo_gym.datasets import header_of
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with DatasetWriter(folder, header_of(InliningForSize())) as writer:
    ...         len(writer.keys)
    0
    """

    def __init__(
        self,
        folder: str | Path,
        header: DatasetHeader,
        *,
        max_part_bytes: int = 64 << 20,
        max_part_age_s: float = 300.0,
    ) -> None:
        self.folder: Final = place_of(folder)
        self.header = header
        self._has_decisions = False
        self.levels: dict[SourceKey, str] = {}
        self._max_part_bytes = max_part_bytes
        self._max_part_age_s = max_part_age_s
        self._modules: list[ModuleEntry] = []
        self._episodes: list[Episode] = []
        self._size_bytes = self._listed_bytes = 0
        self._started_s = 0.0
        self._written = 0  # of these modules, how many the part has that was written as it was
        self._next_number = 0
        with contextlib.ExitStack() as stack:
            self._parts: PartFolder = stack.enter_context(part_folder(self.folder))
            self._go_on()
            self._resources: contextlib.ExitStack | None = stack.pop_all()

    @property
    def keys(self) -> AbstractSet[SourceKey]:
        """The modules that are there."""
        return self.levels.keys()

    def add(self, source: Source, episodes: Iterable[Episode]) -> None:
        """Take in all decisions of a module, in order; it may have none.

        Raises:
            DatasetError: a part cannot be written; the dataset is as it was before that part.
            UsageError: the writer is closed, the module is there already, or an episode is one of
                another source or problem.
        """
        if self._resources is None:
            raise UsageError(f"dataset {str(self.folder)!r}: closed")
        if source.module_sha256 and source.key in self.keys:
            raise UsageError(f"dataset {str(self.folder)!r}: {source.key} is there already")
        taken = list(episodes)
        header = self._with_layout(taken[0].layout) if taken else self.header
        for episode in taken:
            if episode.source != source or episode.layout.name != header.layout.name:
                raise UsageError(
                    f"dataset {str(self.folder)!r}: expected an episode of {source} and "
                    f"{header.layout.name}, found {episode}"
                )
            if (found := episode.layout.specs) != (expected := header.layout.specs):
                message = f"module {source.module!r}: {layout_differences(expected, found)}"
                raise UsageError(f"dataset {str(self.folder)!r}: {message}")
        if not self._modules:
            self._started_s = time.monotonic()
        self.header, self._has_decisions = header, self._has_decisions or bool(taken)
        self.levels[source.key] = source.opt_level
        decisions = sum(map(len, taken))
        self._modules.append(ModuleEntry(*source.key, source.opt_level, decisions))
        self._episodes += taken
        self._size_bytes += sum(each.observations.nbytes for each in taken)
        self._listed_bytes += _ENTRY_BYTES + 6 * sum(map(len, source.key))  # as JSON, escaped
        is_long = self._listed_bytes >= MAX_TEXT_BYTES // 2
        if is_long or self._size_bytes >= self._max_part_bytes:
            self.flush()
        elif time.monotonic() - self._started_s >= self._max_part_age_s:
            self._write()

    def differences(self, header: DatasetHeader, *, of_decisions: bool = True) -> list[str]:
        """Return the differences that keep out decisions of this header."""
        if of_decisions:
            return self._with_layout(header.layout).differences(header)
        return self.header.differences(header.with_layout(self.header.layout))

    def flush(self) -> None:
        """Write what was added since the last whole part as a part.

        Raises:
            DatasetError: it cannot be written. What was not there of it is dropped.
        """
        if self._modules:
            self._write()
            self._begin_next()

    def _write(self) -> None:
        """Write the part as far as it is filled."""
        try:
            with self._parts.new(self._next_number) as path:
                write_part(path, self.header, merged(self._modules), self._episodes)
        except DatasetError:
            there = {each.key for each in self._modules[: self._written]}
            for key in {each.key for each in self._modules} - there:
                del self.levels[key]
            self._begin_next()
            raise
        self._written = len(self._modules)
        self._started_s = time.monotonic()

    def _begin_next(self) -> None:
        self._next_number += self._written > 0
        self._modules, self._episodes, self._size_bytes = [], [], 0
        self._listed_bytes = self._written = 0

    def close(self) -> None:
        """Write what is left and let go of the folder; safe to call twice."""
        if self._resources is not None:
            resources, self._resources = self._resources, None
            with resources:
                self.flush()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _go_on(self) -> None:
        """See what is there."""
        for number, path in self._parts.there():
            part = read_part(path)
            differences = self.differences(part.header, of_decisions=part.rows > 0)
            if differences := differences + self.header.score_differences(part.header):
                raise DatasetError(str(path), "; ".join(differences))
            self.levels.update((each.key, each.opt_level) for each in part.modules)
            self._next_number = number + 1
            if part.rows:
                self.header, self._has_decisions = self._with_layout(part.header.layout), True

    def _with_layout(self, layout: Layout) -> DatasetHeader:
        return self.header if self._has_decisions else self.header.with_layout(layout)
