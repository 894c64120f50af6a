"""Contexts in a run's folder: read as they were written, and made again where they do not fit."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.datasets._arrow import pa, pq
from mlgo_gym.errors import TrainingError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.training import _kept_contexts
from mlgo_gym.training._contexts import TrainingContext, Workshop
from mlgo_gym.training._kept_contexts import KeptContexts, key_of

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
    """A folder with two parts."""
    folder = tmp_path / "contexts"
    files = KeptContexts(folder, KEY)
    assert (files.contexts, files.modules) == ([], 0)
    for half in (modules[:2], modules[2:]):
        for contexts in half:
            files.add(contexts)
        files.flush()
        files.flush()
    assert sorted(folder.iterdir()) == [folder / f"part-0000{index}.parquet" for index in (0, 1)]
    yield folder
    assert not list(folder.glob(".*"))


@pytest.mark.e2e
def test_there_and_back(kept: Path, modules: list[list[TrainingContext]]) -> None:
    files = KeptContexts(kept, KEY)
    assert files.modules == 4
    assert files.contexts == [each for contexts in modules for each in contexts]


def test_going_on_behind_the_last_part(kept: Path, modules: list[list[TrainingContext]]) -> None:
    (kept / "part-00001.parquet").unlink()
    files = KeptContexts(kept, KEY)
    assert (files.contexts, files.modules) == (modules[0], 2)
    for contexts in modules[2:]:
        files.add(contexts)
    files.flush()
    assert KeptContexts(kept, KEY).contexts == files.contexts


@pytest.mark.parametrize("left", [0, 100, -1])
def test_a_part_that_was_cut_off(
    kept: Path, modules: list[list[TrainingContext]], left: int
) -> None:
    part = kept / "part-00001.parquet"
    part.write_bytes(part.read_bytes()[:left])
    files = KeptContexts(kept, KEY)
    assert (files.contexts, files.modules) == (modules[0], 2)


@pytest.mark.e2e
def test_a_part_that_unpacks_to_more_than_is_read(
    kept: Path, modules: list[list[TrainingContext]]
) -> None:
    """Of a few kB, with everything else as it should be; it is told before memory is taken."""
    part = kept / "part-00001.parquet"
    table = pq.read_table(part)
    row = table.to_pylist()[0] | {"bitcode": bytes(1 << 27)}
    rows = pa.Table.from_pylist([row], schema=table.schema)
    pq.write_table(rows, part, compression="zstd", use_dictionary=False)
    assert part.stat().st_size < 1 << 17
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        files = KeptContexts(kept, KEY)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
    assert pa.total_allocated_bytes() - before < 1 << 24
    assert (files.contexts, files.modules) == (modules[0], 2)


def test_of_something_else(kept: Path, modules: list[list[TrainingContext]]) -> None:
    """The first part is then written again, and the old second does not follow it."""
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
        f"contexts {str(kept)!r}: part-00002.parquet cannot be written: No space left on device"
    )


def test_a_part_a_minute(
    tmp_path: Path, modules: list[list[TrainingContext]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(_kept_contexts, "monotonic", lambda: now[0])
    files = KeptContexts(tmp_path, KEY)
    for seconds, parts in ((60, 0), (1, 1), (60, 1), (1, 2)):
        now[0] += seconds
        files.add(modules[0])
        assert len(list(tmp_path.iterdir())) == parts
    assert KeptContexts(tmp_path, KEY).modules == 4
