"""Files of recordings: what is read back, and what is refused."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_gym.errors import WorkloadError
from mlgo_gym.lab.tiers import SAMPLE_RECORDING
from mlgo_gym.lab.tiers._recording import Recording
from tests.lab.tiers.conftest import small


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    small().save(path)
    found = Recording.load(path)
    assert found.sha256() == small().sha256()
    assert found.functions == ("main", "f")
    assert (found.compile_s == small().compile_s).all()
    first = path.read_bytes()
    found.save(path)
    assert path.read_bytes() == first


def test_measured_times_are_not_in_the_hash() -> None:
    assert small(library_s=1.0).sha256() == small().sha256()
    assert small(sizes=np.array([20, 11])).sha256() != small().sha256()


def changed(index: tuple[int, int], value: int, name: str) -> dict[str, Any]:
    array = getattr(small(), name).copy()
    array[index] = value
    return {name: array}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"sizes": np.array([1])}, "sizes: expected int64 of shape (2,)"),
        ({"sizes": np.array([1.0, 2.0])}, "sizes: expected int64"),
        ({"sizes": np.array([1, -2])}, "sizes: expected numbers from 0 on"),
        ({"compile_s": np.full((8, 2), np.nan)}, "compile_s: expected numbers from 0 on"),
        ({"functions": ()}, "expected 1 to 16384 functions"),
        ({"events": np.zeros((0, 4), int)}, "expected 1 to 32768 events, found 0"),
        ({"events": np.zeros((32769, 4), int)}, "expected 1 to 32768 events, found 32769"),
        ({"events": np.array(7)}, "events: expected int64 of shape (4,)"),
        ({"entries": np.array(7)}, "entries: expected int64 of shape (2,)"),
        ({"functions": ["main", {"f": 1}]}, "about.functions[1]: expected a text"),
        ({"functions": "mainf"}, "about.functions: expected a list"),
        ({"functions": ("x" * (1 << 22),)}, "about: expected at most 4194304 bytes, found"),
        ({"rounds": "many"}, "about.rounds: expected a whole number, found 'many'"),
        ({"rounds": None}, "about.rounds: expected a whole number, found None"),
        ({"rounds": float("inf")}, "about.rounds: expected a whole number, found inf"),
        ({"rounds": 0}, "rounds: expected 1 to 2147483648, found 0"),
        ({"rounds": 10**99}, "rounds: expected 1 to 2147483648, found 10"),
        ({"rounds": 10**4000}, "expected whole numbers of at most 100 digits"),
        ({"program": ["a/b"]}, "about.program: expected a text"),
        ({"program": "a/b\nc"}, "program: expected at most 1024 printable characters"),
        ({"program": "\ud800"}, "program: expected at most 1024 printable characters"),
        ({"llvm": "2" * 1025}, "llvm: expected at most 1024 printable characters"),
        ({"library_s": "1"}, "about.library_s: expected a number, found '1'"),
        (changed((1, 0), 5, "events"), "events: expected each power of two once"),
        (changed((1, 2), 1, "events"), "events: expected each power of two once"),
        (changed((1, 1), 1, "events"), "events: expected each power of two once"),
        (changed((3, 0), 9, "counts"), "counts: expected intervals and functions"),
        (changed((7, 0), 9, "spent"), "spent: expected intervals"),
        (changed((0, 0), 3, "counts"), "counts: expected intervals in their order"),
        (changed((6, 1), 5, "events"), "events: expected each power of two once"),
        (changed((6, 0), 0, "events"), "events: expected each power of two once"),
        (changed((0, 0), 3, "entries"), "entries: expected jumps back"),
        (changed((0, 0), 9, "entries"), "entries: expected events that there are"),
        ({"entry_s": np.zeros(2)}, "entry_s: expected float64 of shape (1,)"),
        (changed((0, 0), 2, "values"), "values: expected functions that there are"),
        ({"kept": np.array([(2, 0)])}, "kept: expected functions that there are"),
        (changed((0, 2), 6, "values"), "values: expected arguments, and 1 to 5 values"),
        ({"seconds_per_instruction": 0.0}, "expected seconds per instruction"),
        (
            {"seconds_per_instruction": float("nan")},
            "about.seconds_per_instruction: expected a number, found nan",
        ),
    ],
)
def test_arrays_that_cannot_be(tmp_path: Path, changes: dict[str, Any], found: str) -> None:
    path = tmp_path / "a.npz"
    small(**changes).save(path)
    with pytest.raises(WorkloadError) as caught:
        Recording.load(path)
    assert found in str(caught.value)
    assert str(path) in str(caught.value)
    assert "'mlgo-gym tiers record'" in str(caught.value)


@pytest.mark.parametrize("name", ["program", "llvm", "rounds", "functions", "library_s"])
def test_what_is_not_said(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.npz"
    small().save(path)
    with np.load(path) as arrays:
        kept = dict(arrays)
    about = json.loads(kept["about"].tobytes())
    del about[name]
    kept["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(path, **kept)
    with pytest.raises(WorkloadError, match=f"about: expected '{name}', found none"):
        Recording.load(path)


def test_nested_json(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    small().save(path)
    with np.load(path) as arrays:
        kept = dict(arrays) | {"about": np.frombuffer(b"[" * (1 << 20), np.uint8)}
    np.savez(path, **kept)
    with pytest.raises(WorkloadError, match="expected at most 100 levels"):
        Recording.load(path)


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut(tmp_path: Path, share: float) -> None:
    path = tmp_path / "a.npz"
    data = SAMPLE_RECORDING.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(WorkloadError, match="found another or damaged file"):
        Recording.load(path)


def test_a_file_of_which_a_byte_was_changed(tmp_path: Path) -> None:
    """Zip's checksums tell; what is read at all is what was written."""
    path = tmp_path / "a.npz"
    data, whole = SAMPLE_RECORDING.read_bytes(), Recording.load(SAMPLE_RECORDING).sha256()
    for place in range(0, len(data), 499):
        path.write_bytes(data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :])
        try:
            assert Recording.load(path).sha256() == whole
        except WorkloadError as error:
            assert str(path) in str(error)


def test_another_version(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    small().save(path)
    with np.load(path) as arrays:
        kept = dict(arrays)
    about = json.loads(kept["about"].tobytes()) | {"version": 1}
    kept["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(path, **kept)
    with pytest.raises(WorkloadError, match="expected version 2, found 1"):
        Recording.load(path)


def test_a_file_that_would_run_code(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    small().save(path)
    with np.load(path) as arrays:
        kept = dict(arrays) | {"sizes": np.array([print], dtype=object)}
    np.savez(path, **kept)
    with pytest.raises(WorkloadError, match="found another or damaged file"):
        Recording.load(path)


def with_member(path: Path, changed: str, data: bytes, method: int) -> None:
    """Write `small`, with another member of a name."""
    small().save(path)
    file = io.BytesIO(path.read_bytes())
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(path, "w", method) as made:
        for name in source.namelist():
            made.writestr(name, data if name == changed else source.read(name))


def test_a_file_that_claims_too_much(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with_member(path, "spent.npy", bytes(1 << 29), zipfile.ZIP_DEFLATED)
    with pytest.raises(WorkloadError, match="expected at most 134217728 bytes"):
        Recording.load(path)


def test_a_file_whose_sizes_mean_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with_member(path, "about.npy", b"x", zipfile.ZIP_BZIP2)
    with pytest.raises(WorkloadError, match="expected files that are stored or deflated, found"):
        Recording.load(path)


@pytest.mark.parametrize("shape", ["(4294967296, 4)", "(1125899906842624,)", "[" * 9000])
def test_arrays_that_are_not_there(tmp_path: Path, shape: str) -> None:
    """A header that promises more than there is, or is none."""
    path = tmp_path / "a.npz"
    text = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    head = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    with_member(path, "events.npy", head + bytes(64), zipfile.ZIP_STORED)
    with pytest.raises(WorkloadError, match="expected a file of arrays: "):
        Recording.load(path)
