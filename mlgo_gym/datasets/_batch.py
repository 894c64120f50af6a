"""Rows of a dataset as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mlgo_gym.datasets._arrow import column_array
from mlgo_gym.errors import DatasetError
from mlgo_gym.problems._observations import observation_dtype
from mlgo_gym.problems._problem import Problem

_Array = np.ndarray[Any, Any]


class Batch(Mapping[str, _Array]):
    """Some rows: the columns by name, as arrays that are made when they are asked for.

    Numbers are ``[N]``, a feature of 33 positions is ``[N, 33]``, each in its own type; a label or
    score that is not there is NaN; texts are ``object [N]``. The arrays may be read only.

    Attributes:
        rows: the ``pyarrow.RecordBatch``.
        problem: what the dataset is of.
        source: the file, for errors.
    """

    def __init__(self, rows: Any, problem: type[Problem], source: str) -> None:
        self.rows = rows
        self.problem = problem
        self.source = source

    def __getitem__(self, name: str) -> _Array:
        if name not in self.rows.schema.names:
            raise KeyError(name)
        return column_array(self.rows.column(name), name, self.problem, self.source)

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows.schema.names)

    def __len__(self) -> int:
        """How many columns there are; `row_count` says how many rows."""
        return len(self.rows.schema.names)

    @property
    def row_count(self) -> int:
        """How many decisions these are: N."""
        return int(self.rows.num_rows)

    def features(self) -> dict[str, _Array]:
        """The problem's features by name: what a network takes.

        As `mlgo_gym.problems.columns` makes them of observations.

        Raises:
            DatasetError: they were not all asked for.
        """
        return {name: self._required(name) for name in _names(self.problem)}

    def observations(self) -> _Array:
        """What LLVM sent, ``[N]`` of `observation_dtype`: the bytes are those of LLVM.

        Raises:
            DatasetError: the columns were not all asked for.
        """
        dtype = observation_dtype(self.problem)
        array = np.empty(self.row_count, dtype)
        for name in dtype.names or ():
            array[name] = self._required(name)
        return array

    def _required(self, name: str) -> _Array:
        if name not in self.rows.schema.names:
            raise DatasetError(
                self.source, f"batch: expected column {name!r}, found {self.rows.schema.names}"
            )
        return self[name]


def _names(problem: type[Problem]) -> list[str]:
    return [each.spec.name for each in problem.features]
