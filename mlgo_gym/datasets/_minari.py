"""Data sets of Minari (https://minari.farama.org), which libraries of offline RL read.

An episode of one is an episode here: a module for the inliner, a function for register allocation.
Observations are those that the environment shows, so that ``recover_environment`` and what was
learned from the set go together; the one after the last decision is all 0. The reward of the last
step is the episode's, and others are 0. ``infos`` has what else there is, one for each observation:
what LLVM sends besides, what it sends where the environment shows a bound instead of infinity,
outcomes, labels and sites. An episode's ``options`` are those of ``reset``: the module's name. Its
metadata say where it comes from, and the set's say the rest, so that nothing is lost on the way
back.

A set may be anybody's. HDF5 can have the data of an array in any file, and links to any other. So a
file is read only where it has all of its arrays itself, as numbers and texts of fixed size, as
`export_minari` writes them.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, cast

import gymnasium
import numpy as np

from corpus_tools.reading import Shape, brief, own_file, read_regular, reason_of, shaped
from mlgo_gym.base import (
    DatasetError,
    EnvironmentSetupError,
    SpecError,
    open_regular,
    parse_json,
)
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._episodes import (
    LABELS,
    MAX_ARRAY_BYTES,
    MAX_EPISODE_BYTES,
    Episode,
    Source,
    settings_of,
    settings_text,
    sites_of,
)
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.datasets._parts import MAX_TEXT_BYTES
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.problems import Layout

try:
    import h5py
    import minari
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import METADATA_FILE_NAME
    from minari.storage import get_dataset_path
except ImportError as error:
    raise EnvironmentSetupError(
        f"minari: expected the package {error.name!r}, found none; "
        "pip install 'mlgo-gym[minari]' brings it"
    ) from error

_KEY: Final = "mlgo_gym"
"""Under which the set's metadata have the dataset's header."""
_OUTCOME: Final = "outcome"
_SITE: Final = "site"
_DAMAGED: Final = (
    *(AttributeError, IndexError, KeyError, MemoryError, OSError, OverflowError, RuntimeError),
    *(TypeError, ValueError, SpecError),
)
"""Errors of h5py over damaged files, and our own over values of other kinds."""
_SHOWN: Final = 200
_METADATA: Final[Shape] = {_KEY + "?": str, "env_spec?": str}

_TEXTS: Final = ("package", "module", "module_sha256", "policy")

_Array = np.ndarray[Any, Any]


def export_minari(dataset: Dataset, dataset_id: str) -> int:
    """Write a dataset as one of Minari, in the folder that Minari keeps all of them in.

    Args:
        dataset: of a problem that has an environment, with the reward of each episode.
        dataset_id: Minari's name of it, such as ``mlgo_gym/inlining/random-v0``.

    Returns:
        How many decisions were written.

    Raises:
        DatasetError: there is a folder of this name, Minari does not take the name, or a reward is
            not known. Nothing is left of the set then.
        EnvironmentSetupError: Minari or h5py is not installed.
    """
    place = get_dataset_path(dataset_id)
    if os.path.lexists(place):
        raise DatasetError(dataset_id, f"expected a new name, found {str(place)!r}")
    policies = sorted({entry.key.policy for entry in dataset.modules})
    env = gymnasium.make(_environment(dataset.layout), **(dataset.header.settings or {}))
    facts: list[dict[str, Any]] = []

    def buffers() -> Iterator[Any]:
        for number, episode in enumerate(dataset.episodes()):
            facts.append(_facts(episode))
            yield _buffer(number, episode)

    try:
        with contextlib.closing(env), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of authors, who are not known here
            made = minari.create_dataset_from_buffers(
                dataset_id,
                cast("Any", buffers()),
                env=env,
                algorithm_name=", ".join(policies),
                description=(
                    f"Decisions of LLVM {dataset.header.llvm_version} for {dataset.layout.name}, "
                    "recorded with mlgo-gym."
                ),
                requirements=["mlgo-gym"],
                data_format="hdf5",
            )
            made.storage.update_metadata({_KEY: dataset.header.to_json().decode()})
            made.storage.update_episode_metadata(facts)
    except BaseException as error:
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, ValueError) and not isinstance(error, DatasetError):
            raise DatasetError(dataset_id, f"Minari does not take it: {error}") from error
        raise
    return int(made.total_steps)


@dataclass(frozen=True)
class MinariSet:
    """A data set of Minari that `export_minari` wrote.

    Its files are read without Minari, which would follow links out of them, and make the
    environment that they name.
    """

    header: DatasetHeader
    decisions: int
    _name: str
    _path: Path

    @classmethod
    def open(cls, dataset_id: str) -> MinariSet:
        """Open a set of this machine.

        Raises:
            DatasetError: there is none, it is of another environment or another version of it, or
                it was not written from a dataset.
        """
        folder = get_dataset_path(dataset_id) / "data"
        try:
            path = own_file(folder / "main_data.hdf5", folder)
            text = read_regular(own_file(folder / METADATA_FILE_NAME, folder), MAX_TEXT_BYTES)
            metadata = shaped(parse_json(text), _METADATA)
            env_spec = shaped(parse_json(metadata.get("env_spec", "{}")), {"id?": str}, "env_spec")
        except (OSError, ValueError) as error:
            raise DatasetError(dataset_id, f"Minari cannot read it: {reason_of(error)}") from error
        if _KEY not in metadata:
            raise DatasetError(
                dataset_id, "expected one that 'dataset export' wrote, found another"
            )
        header = DatasetHeader.from_json(metadata[_KEY].encode(), dataset_id)
        name = env_spec.get("id", "none")
        if name != _environment(header.layout):
            raise DatasetError(
                dataset_id,
                f"environment: expected {_environment(header.layout)}, found {brief(name)[1:-1]}",
            )
        with _opened(path, dataset_id) as file:
            decisions = sum(len(group["rewards"]) for group in checked_groups(file))
        return cls(header, decisions, dataset_id, path)

    def write(self, writer: DatasetWriter) -> int:
        """Put what is not there yet into a dataset; returns how many decisions that was."""
        written = 0
        for source, episodes in self._modules():
            if source.key not in writer.keys:
                writer.add(source, episodes)
                written += sum(map(len, episodes))
        return written

    def _modules(self) -> Iterator[tuple[Source, list[Episode]]]:
        """The episodes of each module, in order."""
        for _, group in groupby(self._episodes(), lambda episode: episode.source.key):
            together = list(group)
            yield together[0].source, together

    def _episodes(self) -> Iterator[Episode]:
        with _opened(self._path, self._name) as file:
            for group in checked_groups(file):
                yield _episode(group.attrs, read_group(group), self.header.layout)


@contextlib.contextmanager
def _opened(path: Path, name: str) -> Iterator[Any]:
    try:
        with open_regular(path) as raw, h5py.File(raw, "r") as file:
            yield file
    except _DAMAGED as error:
        found = str(error)[:_SHOWN] or type(error).__name__
        raise DatasetError(
            name, f"expected episodes that 'dataset export' wrote: {found}"
        ) from error


def _environment(layout: Layout) -> str:
    return f"mlgo_gym/{layout.name}-v0"


def _facts(episode: Episode) -> dict[str, Any]:
    source = episode.source
    texts = {name: getattr(source, name) for name in _TEXTS}
    return texts | {
        "settings": settings_text(source.settings),
        "context": episode.context,
        "score": episode.score,
        "baseline_score": episode.baseline_score,
    }


def _buffer(number: int, episode: Episode) -> Any:
    if math.isnan(episode.reward):
        where = episode.context or episode.source.module
        raise DatasetError(
            where, "expected an episode whose reward is known, found one of a log or a trace"
        )
    count = len(episode)
    rewards, ends = np.zeros(count), np.zeros(count, bool)
    rewards[-1], ends[-1] = episode.reward, True
    return EpisodeBuffer(
        id=number,
        options={"module": episode.source.module},
        observations=_shown(episode),
        actions=episode.actions,
        rewards=cast("Any", rewards),
        terminations=cast("Any", ends),
        truncations=cast("Any", np.zeros(count, bool)),
        infos=_infos(episode),
    )


def _shown(episode: Episode) -> dict[str, _Array]:
    shown = {
        each.spec.name: _padded(episode.observations[each.spec.name]).reshape(-1, *each.spec.shape)
        for each in episode.layout.features
    }
    episode.layout.replace_infinite(shown)
    return shown


def _infos(episode: Episode) -> dict[str, _Array]:
    sent = (*episode.layout.infinite, *episode.layout.extras)
    infos = {each.spec.name: _padded(episode.observations[each.spec.name]) for each in sent}
    infos |= {name: _padded(values) for name, values in episode.labels.items()}
    if episode.outcomes is not None:
        infos[_OUTCOME] = _padded(episode.outcomes)
    if episode.sites:
        infos[_SITE] = _padded(_site_array(episode))
    return infos


def _site_array(episode: Episode) -> _Array:
    """Sites as texts that are all as long as the longest."""
    texts = [each.to_json().encode() for each in episode.sites]
    if (size := len(texts) * max(map(len, texts))) > MAX_EPISODE_BYTES:
        where, limit = episode.source.module, f"expected at most {MAX_EPISODE_BYTES} bytes of sites"
        raise DatasetError(where, f"{limit}, found {size}: all are as long as the longest")
    return np.array(texts)


def _padded(values: _Array) -> _Array:
    """Values and one more, for the observation after the last decision."""
    return np.concatenate([values, np.zeros_like(values[:1])])


def _episode(facts: Mapping[str, Any], found: Mapping[str, Any], layout: Layout) -> Episode:
    count = len(found["rewards"])
    infos = found["infos"] or {}
    observations = np.zeros(count, layout.dtype)
    for name in observations.dtype.names or ():
        values = infos.get(name, found["observations"].get(name))
        observations[name] = values[:count].reshape(observations[name].shape)
    sites = infos[_SITE][:count] if _SITE in infos else ()
    texts = {name: str(facts[name]) for name in _TEXTS}
    return Episode(
        Source(**texts, settings=settings_of(facts["settings"])),
        layout,
        observations,
        found["actions"].astype(layout.advice.dtype),
        str(facts["context"]),
        infos[_OUTCOME][:count] if _OUTCOME in infos else None,
        float(found["rewards"][-1]),
        float(facts["score"]),
        float(facts["baseline_score"]),
        {name: infos[name][:count] for name in LABELS if name in infos},
        sites_of([each.decode() for each in sites]),
    )


_MAX_MEMBERS: Final = 4096
_MAX_ATTRIBUTES: Final = 64


def checked_groups(file: Any) -> Iterator[Any]:
    """Yield the groups ``episode_0``, ``episode_1`` and so on of a file, each after a look at it.

    Raises:
        ValueError: an episode is missing, refers to something outside of the file, has data that
            the file does not hold, or too much of it.
    """
    left = int(file.id.get_filesize())
    for number in range(len(file)):
        group = _member(file, f"episode_{number}")
        _check_attributes(group)
        size = _checked_size(group, levels=1)
        if size > MAX_ARRAY_BYTES:
            limit = f"expected arrays of at most {MAX_ARRAY_BYTES} bytes"
            raise ValueError(f"{group.name}: {limit}, found {size}")
        left -= size
        if left < 0:
            raise ValueError(
                f"{group.name}: expected arrays that the file holds, found larger ones"
            )
        yield group


def read_group(group: Any) -> dict[str, Any]:
    """Read all arrays of a checked group by name; groups in it become dictionaries."""
    return {
        name: read_group(each) if isinstance(each, h5py.Group) else each[()]
        for name, each in group.items()
    }


def _member(group: Any, name: str) -> Any:
    """Return a group or an array of a group, which lies in the same file."""
    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        where = f"{group.name.rstrip('/')}/{name}"
        text = f"{where}: expected data of this file, found {type(link).__name__}"
        raise ValueError(text)  # noqa: TRY004
    return group[name]


def _checked_size(group: Any, levels: int) -> int:
    """The bytes of all arrays of a group, which may have groups of arrays in it."""
    if len(group) > _MAX_MEMBERS:
        raise ValueError(
            f"{group.name}: expected at most {_MAX_MEMBERS} members, found {len(group)}"
        )
    size = 0
    for name in group:
        member = _member(group, name)
        if isinstance(member, h5py.Dataset):
            size += _array_size(member)
        elif isinstance(member, h5py.Group) and levels:
            size += _checked_size(member, levels - 1)
        else:
            raise ValueError(f"{member.name}: expected an array, found {type(member).__name__}")
    return size


def _array_size(array: Any) -> int:
    made = array.id.get_create_plist()
    if made.get_layout() == h5py.h5d.VIRTUAL or made.get_external_count():
        raise ValueError(f"{array.name}: expected data of this file, found that of others")
    if made.get_nfilters():
        raise ValueError(f"{array.name}: expected an array that is not compressed, found one")
    if array.dtype.kind not in "biufS" or array.dtype.shape:
        raise ValueError(f"{array.name}: expected numbers or texts, found {array.dtype}")
    size = int(array.size or 0) * int(array.dtype.itemsize)
    if size > array.id.get_storage_size():
        raise ValueError(f"{array.name}: expected {size} bytes in the file, found fewer")
    return size


def _check_attributes(group: Any) -> None:
    attributes = group.attrs
    if len(attributes) > _MAX_ATTRIBUTES:
        limit = f"expected at most {_MAX_ATTRIBUTES} attributes"
        raise ValueError(f"{group.name}: {limit}, found {len(attributes)}")
    for name in attributes:
        found = attributes.get_id(name)
        is_text = h5py.check_string_dtype(found.dtype) is not None
        if found.shape != () or not (is_text or found.dtype.kind in "biuf"):
            raise ValueError(f"{group.name}: {name}: expected a text or a number, found another")
