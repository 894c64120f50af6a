"""The HDF5 file of a data set of Minari, which may be anybody's.

HDF5 can have the data of an array in any file, and links to any other. So a file is read only where
it has all of its arrays itself, as numbers and texts of fixed size, as `export_minari` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import h5py

from mlgo_gym.datasets._episodes import MAX_ARRAY_BYTES

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
