"""Datasets by URI: written by several at once, readable after a kill, with the same rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.base._remote import RemoteFolder
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._record import header_of, record, remaining
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import DatasetError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from tests.cli.command import run
from tests.remote.server import Storage

SET = "s3://lab/sets/never"
PROBLEM = InliningForSize()
SAMPLE = Corpus.load(SAMPLE_CORPUS)


def recorded(writer: DatasetWriter, *names: str) -> None:
    corpora = {"sample": SAMPLE.only(names)}
    list(record(writer, corpora, PROBLEM, "never", PROBLEM.policy("never")))


def modules(place: str | Path) -> list[str]:
    return sorted(each.module for each in Dataset.open(place).modules)


def rows(place: str | Path) -> list[Any]:
    found = Dataset.open(place).read(["module", "step", "action", "reward"])
    return sorted(zip(*(each.tolist() for each in found.values()), strict=True))


@pytest.mark.e2e
def test_several_write_at_once(storage: Storage, tmp_path: Path) -> None:
    """Each to parts of its own; together they are what one writes here."""
    header = header_of(PROBLEM)
    with DatasetWriter(SET, header) as first, DatasetWriter(SET, header) as second:
        recorded(first, "digest.c")
        recorded(second, "scene.cpp")
        first.flush()
        recorded(first, "bignum.c")
    names = storage.names("sets/never/")
    assert len(names) == 3
    assert all(name.endswith(".parquet") for name in names)
    with DatasetWriter(tmp_path / "here", header) as here:
        recorded(here, "digest.c", "scene.cpp", "bignum.c")
    assert rows(SET) == rows(tmp_path / "here")
    with DatasetWriter(SET, header) as again:
        left = remaining(again, {"sample": SAMPLE.only(("digest.c", "json_write.c"))}, "never")
        assert [key.name for key in left] == ["json_write.c"]
        recorded(again, "json_write.c")
    assert modules(SET) == ["bignum.c", "digest.c", "json_write.c", "scene.cpp"]


KILLED = """
import os, sys
from tests.remote.test_datasets import *
with DatasetWriter(SET, header_of(PROBLEM)) as writer:
    recorded(writer, "digest.c")
    writer.flush()
    recorded(writer, "scene.cpp")
    os.kill(os.getpid(), 9)
"""


def test_a_writer_that_is_killed(storage: Storage) -> None:
    """What it had put is there and whole."""
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    assert modules(SET) == ["digest.c"]
    assert len(storage.names("sets/")) == 1


@pytest.mark.usefixtures("storage")
def test_a_part_that_cannot_be_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there stays, and what could not be put is not counted."""
    with DatasetWriter(SET, header_of(PROBLEM)) as writer:
        recorded(writer, "digest.c")
        writer.flush()
        recorded(writer, "scene.cpp")
        name = writer._parts._writer  # type: ignore[union-attr]
        monkeypatch.setattr(RemoteFolder, "put", refusing(RemoteFolder.put))
        with pytest.raises(DatasetError) as error:
            writer.flush()
        assert [key.module for key in writer.keys] == ["digest.c"]
    part = f"{SET}/part-00001-{name}.parquet"
    expected = f"dataset {part!r}: cannot be written: The specified bucket does not exist"
    assert str(error.value) == expected
    assert modules(SET) == ["digest.c"]


def refusing(put: Any) -> Any:
    """The same into a bucket that is not there."""

    def puts(self: RemoteFolder, path: Path, name: str) -> None:
        self._root = "nobody"
        put(self, path, name)

    return puts


def test_what_is_no_dataset(storage: Storage) -> None:
    storage.put("sets/never/part-00000.parquet", b"PAR1 and no more")
    with pytest.raises(DatasetError, match=r"part-00000\.parquet': expected a whole Parquet file"):
        Dataset.open(SET)
    with pytest.raises(DatasetError) as error:
        Dataset.open("s3://lab/none")
    expected = "dataset 's3://lab/none': cannot be read: expected files in it, found none; "
    assert str(error.value).startswith(expected)


@pytest.mark.e2e
def test_commands(storage: Storage, tmp_path: Path) -> None:
    storage.put_folder(SAMPLE_CORPUS, "corpora/sample")
    corpus = ["--corpus", "s3://lab/corpora/sample", "--policy", "never"]
    done = run("dataset", "record", *corpus, "--output", SET, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert SET in done.stdout
    run("dataset", "record", *corpus, "--output", "here", cwd=tmp_path)
    found, expected = (
        json.loads(run("dataset", "info", place, "--json", cwd=tmp_path).stdout)
        for place in (SET, "here")
    )
    assert found == expected
    for place in (SET, "here"):
        name = f"{place[-4:]}.log"
        assert run("dataset", "export", place, "--log", name, cwd=tmp_path).returncode == 0
    assert (tmp_path / "ever.log").read_bytes() == (tmp_path / "here.log").read_bytes()
