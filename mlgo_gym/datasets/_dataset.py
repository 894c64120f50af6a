"""Reading datasets: one folder or several that go together, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from mlgo_gym.base import DatasetError, SpecError
from mlgo_gym.datasets._arrow import (
    NUMBERS,
    SITE,
    TEXTS,
    Batch,
    arrow_schema,
    column_widths,
    pa,
)
from mlgo_gym.datasets._episodes import (
    LABELS,
    MAX_EPISODE_BYTES,
    Episode,
    Source,
    settings_of,
    sites_of,
)
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.datasets._parts import (
    ModuleEntry,
    Part,
    check_groups,
    local_parts,
    merged,
    opened,
    part_paths,
    read_part,
)
from mlgo_gym.problems import Layout, Problem

_Array = np.ndarray[Any, Any]

_ROWS: Final = 8192


@dataclass(frozen=True)
class Dataset:
    """Decisions that were recorded, in their order; a part that cannot be read is a `DatasetError`.

    Attributes:
        parts: the files, as far as their metadata says.
        differences: how parts differ that were taken together because that was allowed.

    >>> import tempfile
    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
    >>> from mlgo_gym.datasets import DatasetWriter, header_of, record
    >>> corpora = {"sample": Corpus.load(SAMPLE_CORPUS).only(["digest.c"])}
    >>> problem = InliningForSize()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with DatasetWriter(folder, header_of(problem)) as writer:
    ...         _ = list(record(writer, corpora, problem, "never", lambda _: 0))
    ...     Dataset.open(folder, problem=problem).row_count > 10
    True
    """

    parts: tuple[Part, ...]
    differences: tuple[str, ...] = field(default=())

    @classmethod
    def open(
        cls,
        path: str | Path,
        *more: str | Path,
        problem: Problem | str | None = None,
        llvm_version: str | None = None,
        allow_mixed: bool = False,
    ) -> Self:
        """Open folders, which URIs may name, or single parts; only metadata are read.

        Datasets go together where problem, problem's settings, LLVM version and forced level are
        equal, and the levels that the modules were compiled at are the same in each folder.

        Args:
            path: a folder, by path or URI (``s3://BUCKET/KEY``), or one part.
            more: others that are read after it.
            problem: what it must be of: a problem with the same settings, or a problem's name.
            llvm_version: the LLVM that it must be of.
            allow_mixed: take other settings, levels and versions of LLVM too; `differences` has
                them. Another problem is refused all the same.

        Raises:
            DatasetError: a part cannot be used, or is not of this problem or LLVM, or two differ.
        """
        folders = [_parts(local_parts(each)) for each in (path, *more)]
        first = _first([part for parts in folders for part in parts])
        expected = _expected(folders[0][0].header.with_layout(first.layout), problem, llvm_version)
        differences: list[str] = []
        for parts in folders:
            found = [each for part in parts for each in _compared(part, expected)]
            found += _level_differences(folders[0], parts)
            if found and not allow_mixed:
                where = found[0][0]
                text = "; ".join(difference for each, difference in found if each == where)
                raise DatasetError(where, f"{text} (allow_mixed takes them together)")
            differences += [f"{where}: {difference}" for where, difference in found]
        return cls(tuple(part for parts in folders for part in parts), tuple(differences))

    @property
    def header(self) -> DatasetHeader:
        """The header of the first part, of those with decisions if there are any."""
        return _first(self.parts)

    @property
    def layout(self) -> Layout:
        """The layout of the observations."""
        return self.header.layout

    @property
    def row_count(self) -> int:
        """How many decisions there are."""
        return sum(part.rows for part in self.parts)

    @property
    def modules(self) -> tuple[ModuleEntry, ...]:
        """The modules that it holds, with those of no decision."""
        return merged(entry for part in self.parts for entry in part.modules)

    def batches(self, rows: int = _ROWS, columns: Sequence[str] | None = None) -> Generator[Batch]:
        """All rows, in order, a few at a time.

        Args:
            rows: the most that a batch has; those at the end of a part may have fewer.
            columns: which are read; ``None`` takes all.

        Raises:
            DatasetError: a part cannot be read, is damaged or has row groups that are too large, or
                there is no such column.
        """
        known = arrow_schema(self.header).names
        if unknown := [name for name in columns or () if name not in known]:
            raise DatasetError(
                str(self.parts[0].path), f"columns: expected some of {known}, found {unknown}"
            )
        for part in self.parts:
            if part.rows:
                yield from _read(part, rows, columns)

    def read(self, columns: Sequence[str]) -> dict[str, _Array]:
        """All rows of some columns at once, each ``[N]`` or ``[N, 33]`` as in a `Batch`."""
        batches = list(self.batches(columns=columns))
        if not batches:
            raise DatasetError(str(self.parts[0].path), "expected decisions, found none")
        return {name: np.concatenate([each[name] for each in batches]) for name in columns}

    def episodes(self) -> Generator[Episode]:
        """All decisions, in order, those that were scored together at a time."""
        for part in self.parts:
            yield from _episodes(part)


def _first(parts: Sequence[Part]) -> DatasetHeader:
    """The description of decisions: a part without any may know less."""
    return next((each for each in parts if each.rows), parts[0]).header


def _parts(path: Path) -> list[Part]:
    if path.is_file():
        return [read_part(path)]
    parts = [read_part(each) for _, each in part_paths(path)]
    if not parts:
        raise DatasetError(str(path), "expected part-00000.parquet and so on in it, found none")
    return parts


def _expected(
    found: DatasetHeader, problem: Problem | str | None, llvm_version: str | None
) -> DatasetHeader:
    version = found.llvm_version if llvm_version is None else llvm_version
    wanted = replace(found, llvm_version=version)
    if isinstance(problem, Problem):
        wanted = replace(wanted, layout=problem.layout, settings=problem.settings())
        return wanted.with_layout(found.layout)
    return replace(wanted, layout=replace(found.layout, name=problem or found.layout.name))


def _compared(part: Part, expected: DatasetHeader) -> list[tuple[str, str]]:
    if part.header.layout.name != expected.layout.name:
        raise DatasetError(
            str(part.path),
            f"problem: expected {expected.layout.name}, found {part.header.layout.name}",
        )
    found = part.header if part.rows else part.header.with_layout(expected.layout)
    return [(str(part.path), each) for each in expected.differences(found)]


def _level_differences(first: list[Part], parts: list[Part]) -> list[tuple[str, str]]:
    expected, found = _levels(first), _levels(parts)
    if expected == found or not expected or not found:
        return []
    where = str(parts[0].path.parent)
    return [(where, f"levels of the modules: expected {expected}, found {found}")]


def _levels(parts: list[Part]) -> str:
    entries = [entry for part in parts for entry in part.modules if entry.decisions]
    return ", ".join(sorted({entry.opt_level or "unknown" for entry in entries}))


def _read(part: Part, rows: int, columns: Sequence[str] | None) -> Iterator[Batch]:
    try:
        with opened(part.path) as file:
            check_groups(file, column_widths(part.header), columns, part.path)
            for batch in file.iter_batches(rows, columns=columns, use_threads=False):
                yield Batch(batch, part.header.layout, str(part.path))
    except pa.ArrowException as error:
        raise DatasetError(str(part.path), f"damaged: {error}") from error


def _episodes(part: Part) -> Iterator[Episode]:
    """Episodes are put together out of the batches that they lie in."""
    pieces: list[dict[str, _Array]] = []
    settings_at = lru_cache(maxsize=1)(settings_of)  # many may be more than there is memory for
    row_bytes = sum(spec.size_bytes for spec in part.header.layout.specs)
    for batch in _read(part, _ROWS, None):
        arrays = _arrays(batch)
        held = sum(len(each["step"]) for each in pieces) + batch.row_count
        if held * row_bytes > MAX_EPISODE_BYTES + _ROWS * row_bytes:
            limit = f"expected episodes of at most {MAX_EPISODE_BYTES} bytes"
            raise DatasetError(str(part.path), f"{limit}, found more")
        starts = np.flatnonzero(batch["step"] == 0).tolist()
        if not pieces and starts[:1] != [0]:
            raise DatasetError(str(part.path), "expected step 0 in the first row, found another")
        for start, end in pairwise(sorted({0, *starts, batch.row_count})):
            if pieces and (start or starts[:1] == [0]):
                yield _episode(pieces, part, settings_at)
                pieces = []
            pieces.append({name: array[start:end] for name, array in arrays.items()})
    if pieces:
        yield _episode(pieces, part, settings_at)


def _arrays(batch: Batch) -> dict[str, _Array]:
    names = (*TEXTS, "step", "action", *NUMBERS, SITE)
    arrays = {name: batch[name] for name in names} | {"observations": batch.observations()}
    return arrays | {"has_outcome": batch.rows.column("outcome").is_valid().to_numpy(False)}


def _episode(
    pieces: list[dict[str, _Array]], part: Part, settings_at: Callable[[str], dict[str, Any]]
) -> Episode:
    rows = {name: np.concatenate([each[name] for each in pieces]) for name in pieces[0]}
    if not np.array_equal(rows["step"], np.arange(len(rows["step"]))):
        found = rows["step"].tolist()
        raise DatasetError(str(part.path), f"damaged: expected steps in order, found {found[:8]}")
    package, module, digest, policy, settings = (rows[name][0] for name in TEXTS[:-1])
    labels = {name: rows[name] for name in LABELS if not np.isnan(rows[name]).all()}
    try:
        return Episode(
            Source(package, module, digest, policy, settings_at(settings)),
            part.header.layout,
            rows["observations"],
            rows["action"],
            context=rows["context"][0],
            outcomes=rows["outcome"] if rows["has_outcome"].all() else None,
            reward=float(rows["reward"][0]),
            score=float(rows["score"][0]),
            baseline_score=float(rows["baseline_score"][0]),
            labels=labels,
            sites=sites_of(rows[SITE].tolist()) if rows[SITE].any() else (),
        )
    except (SpecError, ValueError) as error:
        raise DatasetError(str(part.path), f"damaged: {error}") from error
