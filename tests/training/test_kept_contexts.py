"""Contexts in a run's folder: read as they were written, and made again where they do not fit."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import TrainingError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.training import _start
from mlgo_gym.training._data import TrainingContext, Workshop
from mlgo_gym.training._start import KeptContexts, key_of

KEY = {"llvm_version": "22.1.0"}


@pytest.fixture(scope="module")
def modules(sample: Corpus) -> list[list[TrainingContext]]:
    """The functions of three modules, of which the second has none, and a whole module."""
    found: list[list[TrainingContext]] = []
    with Workshop(RegallocEviction(), jobs=1, timeout_s=120) as workshop:
        found += workshop.contexts(Packages.of({"a": sample.only(("bignum.c",))}))
        found.append([])
        found += workshop.contexts(Packages.of({"a": sample.only(("expr_vm.c",))}))
    with Workshop(InliningForSize(), jobs=1, timeout_s=120) as workshop:
        found += workshop.contexts(Packages.of({"b": sample.only(("scene.cpp",))}))
    assert found[0]
    assert found[2]
    return found


@pytest.fixture
def kept(tmp_path: Path, modules: list[list[TrainingContext]]) -> Iterator[Path]:
    """A file that was written twice."""
    path = tmp_path / "contexts" / "all.npz"
    files = KeptContexts(path, KEY)
    assert (files.contexts, files.modules) == ([], 0)
    for half in (modules[:2], modules[2:]):
        for contexts in half:
            files.add(contexts)
        files.flush()
        files.flush()
    yield path
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.e2e
def test_there_and_back(kept: Path, modules: list[list[TrainingContext]]) -> None:
    files = KeptContexts(kept, KEY)
    assert files.modules == 4
    assert files.contexts == [each for contexts in modules for each in contexts]


def test_going_on_behind_the_last_module(kept: Path, modules: list[list[TrainingContext]]) -> None:
    files = KeptContexts(kept, KEY)
    files.add(modules[0])
    files.flush()
    again = KeptContexts(kept, KEY)
    assert (again.contexts, again.modules) == (files.contexts, 5)


def test_a_file_that_was_cut_off_or_changed(kept: Path) -> None:
    """It is sound or is made again."""
    whole = KeptContexts(kept, KEY).contexts
    data = kept.read_bytes()
    random = Random(0)  # noqa: S311
    for _ in range(100):
        changed = bytearray(data[: random.choice((len(data), random.randrange(len(data))))])
        for _ in range(random.randrange(3)):
            if changed:
                changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
        kept.write_bytes(changed)
        assert KeptContexts(kept, KEY).contexts in ([], whole)


def test_a_file_that_unpacks_to_more_than_is_read(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_start, "MAX_BYTES", 1 << 22)
    assert KeptContexts(kept, KEY).contexts
    with np.load(kept) as file:
        arrays = dict(file) | {"more": np.zeros(1 << 22, np.uint8)}
    np.savez_compressed(kept, **arrays)
    assert kept.stat().st_size < 1 << 22
    assert KeptContexts(kept, KEY).contexts == []


def change(kept: Path, edit: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    """Write a file of contexts again, after its arrays and its description were edited."""
    with np.load(kept) as file:
        arrays = dict(file)
    about = json.loads(arrays["about"].tobytes())
    edit(arrays, about)
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(kept, **arrays)


def resized(first: int, second: int) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    """Take so many bytes from two contexts' sizes."""

    def edit(_: dict[str, Any], about: dict[str, Any]) -> None:
        for each, taken in zip(about["contexts"], (first, second), strict=False):
            each["size_bytes"] -= taken

    return edit


def numbered(column: int, value: float) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda arrays, _: arrays["numbers"].__setitem__((0, column), value)


EDITS: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "baseline NaN": numbered(0, np.nan),
    "baseline 0": numbered(0, 0.0),
    "baseline infinite": numbered(0, np.inf),
    "share negative": numbered(1, -1.0),
    "share 0": numbered(1, 0.0),
    "share above 1": numbered(1, 1.5),
    "potential NaN": numbered(2, np.nan),
    "numbers of one": lambda arrays, _: arrays.update(numbers=arrays["numbers"][:1]),
    "numbers as texts": lambda arrays, _: arrays.update(numbers=arrays["numbers"].astype(str)),
    "size negative": resized(1 << 40, -(1 << 40)),
    "more than there is": resized(-1, 0),
    "less than there is": resized(1, 0),
    "modules negative": lambda _, about: about.update(modules=-1),
    "no contexts": lambda _, about: about.pop("contexts"),
    "name": lambda _, about: about["contexts"][0].update(name=5),
    "command": lambda _, about: about["contexts"][0].update(command=[1, {}]),
    "settings": lambda _, about: about["contexts"][0]["function"].update(settings={"a": 1}),
    "frequencies": lambda _, about: about["contexts"][0]["function"].update(frequencies=[[1]]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_contexts_of_a_stranger(edit: str, kept: Path) -> None:
    """Nothing is made of numbers and sizes that cannot be: the contexts are found anew."""
    change(kept, lambda _, __: None)
    assert KeptContexts(kept, KEY).modules == 4
    change(kept, EDITS[edit])
    assert (KeptContexts(kept, KEY).contexts, KeptContexts(kept, KEY).modules) == ([], 0)


def test_a_file_that_unpacks_to_more_than_it_is(kept: Path) -> None:
    """None is written like that, and 1 MB would unpack to 1 GB."""
    with np.load(kept) as file:
        arrays = dict(file) | {"more": np.zeros(1 << 24, np.uint8)}
    np.savez_compressed(kept, **arrays)
    assert KeptContexts(kept, KEY).contexts == []


def test_a_file_with_objects_runs_nothing(kept: Path) -> None:
    with np.load(kept) as file:
        arrays = dict(file) | {"about": np.array([{}], object)}
    np.savez(kept, **arrays)
    assert KeptContexts(kept, KEY).contexts == []


def test_of_something_else(kept: Path, modules: list[list[TrainingContext]]) -> None:
    """It is then written again."""
    files = KeptContexts(kept, {"llvm_version": "23.1.0"})
    assert (files.contexts, files.modules) == ([], 0)
    files.add(modules[2])
    files.flush()
    assert KeptContexts(kept, {"llvm_version": "23.1.0"}).contexts == modules[2]


def test_what_contexts_depend_on(tmp_path: Path) -> None:
    """Settings, names, code and commands; a module that cannot be read does no harm."""
    (tmp_path / "f.bc").write_bytes(b"BC\xc0\xde")
    (tmp_path / "f.cmd").write_bytes(b"-cc1\0-Oz")
    corpus = Corpus(tmp_path, ("f", "missing"))
    problem = RegallocEviction()
    keys = [key_of(Packages.of({"a": corpus}), problem)]
    keys.append(key_of(Packages.of({"b": corpus}), problem))
    keys.append(key_of(Packages.of({"a": corpus}), RegallocEviction(max_eviction_count=7)))
    keys.append(key_of(Packages.of({"a": corpus.only(["f"])}), problem))
    (tmp_path / "f.cmd").write_bytes(b"-cc1\0-Os")
    keys.append(key_of(Packages.of({"a": corpus}), problem))
    (tmp_path / "f.bc").write_bytes(b"BC\xc0\xdf")
    keys.append(key_of(Packages.of({"a": corpus}), problem))
    assert key_of(Packages.of({"a": corpus}), problem) == keys[-1]
    assert all(one != other for one in keys for other in keys if one is not other)


def test_a_full_disk(
    kept: Path, modules: list[list[TrainingContext]], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = KeptContexts(kept, KEY)
    files.add(modules[0])

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TrainingError) as caught:
        files.flush()
    assert str(caught.value) == (
        f"contexts {str(kept)!r}: cannot be written: No space left on device"
    )


def test_once_a_minute(
    tmp_path: Path, modules: list[list[TrainingContext]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(_start, "monotonic", lambda: now[0])
    path = tmp_path / "all.npz"
    files = KeptContexts(path, KEY)
    for seconds, written in ((60, 0), (1, 2), (60, 2), (1, 4)):
        now[0] += seconds
        files.add(modules[0])
        assert KeptContexts(path, KEY).modules == written
