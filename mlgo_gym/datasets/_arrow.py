"""Episodes as Arrow tables (extra ``train``): a dataset's columns, and the way there and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from mlgo_gym.base import DatasetError, EnvironmentSetupError, InternalError, TensorSpec
from mlgo_gym.datasets._episodes import LABELS, Episode, settings_text
from mlgo_gym.datasets._header import METADATA_KEY, DatasetHeader
from mlgo_gym.problems import Feature, Layout, row_shape

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise EnvironmentSetupError(
        "datasets: need pyarrow; run: pip install 'mlgo-gym[datasets]'"
    ) from error

__all__ = ["pa", "pq"]  # the extra stands behind this module alone

TEXTS: Final = ("package", "module", "module_sha256", "policy", "settings", "context")
"""The columns of text, which are the same in all rows of an episode."""

_SCORES: Final = ("reward", "score", "baseline_score")

SITE: Final = "site"
"""The column of text that says where each decision is; ``""`` where that is not known."""

NUMBERS: Final = ("outcome", *_SCORES, *LABELS)
"""The columns of numbers that need not be there: null in the file, NaN as an array."""

_Array = np.ndarray[Any, Any]


def arrow_schema(header: DatasetHeader) -> Any:
    """The columns of a dataset, with their meanings and units, and its header as metadata."""
    layout = header.layout
    text = pa.dictionary(pa.int32(), pa.string())
    fields = [pa.field(name, text, nullable=False) for name in TEXTS]
    fields.append(pa.field("step", pa.int32(), nullable=False))
    fields += [_feature_field(each) for each in layout.tensors]
    fields.append(pa.field("action", _type(layout.advice), nullable=False))
    fields.append(pa.field("outcome", pa.float32()))
    fields += [pa.field(name, pa.float64()) for name in (*_SCORES, *LABELS)]
    fields.append(pa.field(SITE, text, nullable=False))
    schema = pa.schema(fields, metadata={METADATA_KEY: header.to_json()})
    if len(set(schema.names)) != len(schema.names):
        raise InternalError(f"dataset: two columns of one name among {schema.names}")
    return schema


def column_widths(header: DatasetHeader) -> dict[str, int]:
    """How many values each column of a dataset has in a row."""
    names = dict.fromkeys(arrow_schema(header).names, 1)
    return names | {spec.name: math.prod(row_shape(spec)) for spec in header.layout.specs}


def table_of(episodes: Sequence[Episode], schema: Any) -> Any:
    """Episodes of one problem as a table, a row for each decision."""
    lengths = [len(each) for each in episodes]
    columns = [_text_column(texts, lengths) for texts in zip(*map(texts_of, episodes), strict=True)]
    columns.append(pa.array(np.concatenate([np.arange(each, dtype=np.int32) for each in lengths])))
    observations = np.concatenate([each.observations for each in episodes])
    columns += [_values(observations[name]) for name in observations.dtype.names or ()]
    columns.append(_values(np.concatenate([each.actions for each in episodes])))
    columns.append(pa.concat_arrays([_outcomes(each) for each in episodes]))
    for name in _SCORES:
        columns.append(_numbers(np.repeat([getattr(each, name) for each in episodes], lengths)))
    for name in LABELS:
        columns.append(_numbers(np.concatenate([each.label(name) for each in episodes])))
    sites = [text for each in episodes for text in _sites(each)]
    columns.append(_text_column(sites, [1] * len(sites)))
    return pa.Table.from_arrays(columns, schema=schema)


class Batch(Mapping[str, _Array]):
    """Some rows: the columns by name, as arrays that are made when they are asked for.

    Numbers are ``[N]``, a feature of 33 positions is ``[N, 33]``, each in its own type; a label or
    score that is not there is NaN; texts are ``object [N]``. The arrays may be read only.
    """

    def __init__(self, rows: Any, layout: Layout, source: str) -> None:
        self.rows = rows
        self.layout = layout
        self.source = source

    def __getitem__(self, name: str) -> _Array:
        if name not in self.rows.schema.names:
            raise KeyError(name)
        return _column_array(self.rows.column(name), name, self.layout, self.source)

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
        """The features by name, as `mlgo_gym.problems.Layout.columns` makes them."""
        return {name: self._required(name) for name in self.layout.feature_names}

    def observations(self) -> _Array:
        """The observations that LLVM sent, ``[N]`` of the layout's dtype: LLVM's bytes."""
        dtype = self.layout.dtype
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


def _column_array(column: Any, name: str, layout: Layout, source: str) -> _Array:
    """A column of a record batch as an array: ``[N]``, or ``[N, 33]``."""
    if name in NUMBERS:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if column.null_count:
        raise DatasetError(source, f"column {name!r}: expected no null, found {column.null_count}")
    if name in (*TEXTS, SITE):
        return _words(column, name, source)
    shape = next((row_shape(spec) for spec in layout.specs if spec.name == name), ())
    values = column.flatten() if shape else column
    if values.null_count:
        raise DatasetError(source, f"column {name!r}: expected no null, found {values.null_count}")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(column), *shape)


def _words(column: Any, name: str, source: str) -> _Array:
    """Texts: only those of the dictionary that are there are made."""
    codes, places = np.unique(column.indices.to_numpy(), return_inverse=True)
    try:
        words = column.dictionary.take(pa.array(codes)).to_pylist()
    except UnicodeDecodeError as error:
        raise DatasetError(source, f"column {name!r}: expected UTF-8: {error}") from error
    except pa.ArrowIndexError as error:
        found = f"{len(column.dictionary)} words and numbers up to {codes[-1]}"
        message = f"column {name!r}: expected the words that its rows have, found {found}"
        raise DatasetError(source, message) from error
    return np.array(words, object)[places]


def _feature_field(feature: Feature) -> Any:
    about = {"meaning": feature.meaning, "unit": feature.unit}
    return pa.field(feature.spec.name, _type(feature.spec), nullable=False, metadata=about)


def _type(spec: TensorSpec) -> Any:
    column = pa.from_numpy_dtype(spec.dtype)
    for size in reversed(row_shape(spec)):
        column = pa.list_(pa.field("element", column, nullable=False), size)
    return column


def texts_of(episode: Episode) -> Iterator[str]:
    """The values of `TEXTS`, which are the same in all rows of an episode."""
    source = episode.source
    yield from (source.package, source.module, source.module_sha256, source.policy)
    yield settings_text(source.settings)
    yield episode.context


def _sites(episode: Episode) -> Iterator[str]:
    yield from (site.to_json() for site in episode.sites)
    yield from [""] * (len(episode) - len(episode.sites))


def _text_column(texts: Sequence[str], lengths: Sequence[int]) -> Any:
    words = {word: code for code, word in enumerate(dict.fromkeys(texts))}
    codes = np.repeat(np.array([words[text] for text in texts], np.int32), lengths)
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(words), pa.string()))


def _values(array: _Array) -> Any:
    values = pa.array(np.ascontiguousarray(array).reshape(-1))
    for size in reversed(array.shape[1:]):
        field = pa.field("element", values.type, nullable=False)
        values = pa.FixedSizeListArray.from_arrays(values, type=pa.list_(field, size))
    return values


def _outcomes(episode: Episode) -> Any:
    if episode.outcomes is None:
        return pa.nulls(len(episode), pa.float32())
    return pa.array(episode.outcomes)  # a NaN stays one: the log has it


def _numbers(values: _Array) -> Any:
    return pa.array(np.asarray(values, np.float64), from_pandas=True)
