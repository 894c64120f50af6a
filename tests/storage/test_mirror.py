"""Folders of S3 as folders here: what a server has is what is read, and nothing else."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import CorpusError, EnvironmentSetupError, ModelError
from mlgo_gym.model._card import find_model, record_last_test
from mlgo_gym.storage import _mirror, _objects
from mlgo_gym.storage._address import place_of
from mlgo_gym.storage._mirror import local_folder
from mlgo_gym.storage._objects import Entry, ObjectStore
from tests.cli.command import run
from tests.storage.server import Storage

LAB = "s3://lab/corpora"


def contents(folder: Path) -> dict[str, bytes]:
    found = (each for each in folder.rglob("*") if each.is_file())
    return {str(each.relative_to(folder)): each.read_bytes() for each in found}


def refused(given: str = LAB, suffix: str = "") -> OSError:
    with pytest.raises(OSError, match=r".") as error:
        local_folder(given, suffix)
    return error.value


def said(error: OSError) -> tuple[str, str]:
    return str(error.filename), str(error.strerror)


def test_a_folder_is_what_was_put_there(storage: Storage) -> None:
    data = {"a/x.bc": b"1" * 3_000_000, "a/y.cmd": b"", "b/ä b.bc": b"2"}
    for name, each in data.items():
        storage.put(f"corpora/{name}", each)
    storage.put("corpora/b/", b"")  # what consoles make of an empty folder
    storage.put("corpora-of-others/z", b"3")
    folder = local_folder(LAB)
    assert contents(folder) == data
    assert folder.parts[-2:] == ("lab", "corpora")
    assert contents(local_folder("s3://lab/corpora/b/")) == {"ä b.bc": b"2"}
    assert contents(local_folder(LAB, ".cmd")) == {"a/y.cmd": b""}
    assert {*contents(local_folder("s3://lab"))} == {
        *(f"corpora/{name}" for name in data),
        "corpora-of-others/z",
    }


def test_a_folder_of_many(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listings come in pages; above the bound there is none."""
    monkeypatch.setattr(_objects, "_PAGE", 2)
    for number in range(5):
        storage.put(f"corpora/{number}", b"")
    assert len(contents(local_folder(LAB))) == 5
    monkeypatch.setattr(_objects, "MAX_OBJECTS", 4)
    assert said(refused()) == (LAB, "expected at most 4 objects, found more")
    assert said(refused(suffix="none")) == (LAB, "expected at most 4 objects, found more")


def test_a_change_is_another_folder(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads the first goes on with it; what did not change is not copied again."""
    copied: list[str] = []
    copy = ObjectStore.copy

    def counts(self: ObjectStore, folder: Any, entry: Entry, file: Any) -> None:
        copied.append(entry.name)
        copy(self, folder, entry, file)

    monkeypatch.setattr(ObjectStore, "copy", counts)
    storage.put("corpora/a", b"old")
    storage.put("corpora/b", b"same")
    first = local_folder(LAB)
    assert local_folder(LAB) == first
    storage.put("corpora/a", b"new")
    second = local_folder(LAB)
    assert contents(first) == {"a": b"old", "b": b"same"}
    assert contents(second) == {"a": b"new", "b": b"same"}
    assert copied in (["a", "b", "a"], ["b", "a", "a"])
    for old in (first / "a", first.parents[1]):
        os.utime(old, (0, 0))
    assert local_folder(LAB) == second
    assert not first.exists()
    assert len(list((first.parents[3] / "objects").iterdir())) == 2


def test_a_damaged_mirror_is_made_anew(storage: Storage) -> None:
    storage.put("corpora/a", b"right")
    folder = local_folder(LAB)
    (folder / "a").chmod(0o600)
    (folder / "a").write_bytes(b"cut")
    assert contents(local_folder(LAB)) == {"a": b"right"}
    (folder / "a").unlink()
    assert contents(local_folder(LAB)) == {"a": b"right"}


def test_a_cache_that_others_can_write_to(storage: Storage, tmp_path: Path) -> None:
    storage.put("corpora/a", b"right")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(EnvironmentSetupError, match="expected a folder that nobody else can write"):
        local_folder(LAB)


@pytest.mark.parametrize("name", ["../up", "a/../../up", "/etc/x", "a\\b", "a\x01b", "x" * 256])
def test_names_that_lead_elsewhere(storage: Storage, name: str, tmp_path: Path) -> None:
    storage.put("corpora/good", b"")
    with (
        ObjectStore() as store,
        pytest.raises(OSError, match=r".") as error,  # as a server may send them
    ):
        store.list(_listing_with(store, name), "")
    expected = f"expected names of files in the folder, found {name[:200]!r}"
    assert said(error.value) == (LAB, expected)
    assert not (tmp_path / "cache").exists()


def _listing_with(store: ObjectStore, name: str) -> Any:
    """Have the next listing name an object so; moto's server takes no such key."""
    call = store._s3.call_s3

    def calls(method: str, **asked: Any) -> Any:
        page = call(method, **asked)
        page["Contents"][0]["Key"] = f"corpora/{name}"
        return page

    store._s3.call_s3 = calls
    return place_of(LAB)


@pytest.mark.parametrize("change", ["longer", "shorter", "same"])
def test_an_object_that_changes_meanwhile(
    storage: Storage, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put("corpora/a", b"first")
    listed = ObjectStore.list

    def lists(self: ObjectStore, *arguments: Any) -> list[Entry]:
        found = listed(self, *arguments)
        storage.put("corpora/a", {"longer": b"second", "shorter": b"one", "same": b"other"}[change])
        return found

    monkeypatch.setattr(ObjectStore, "list", lists)
    assert said(refused()) == (f"{LAB}/a", "changed while it was read")
    monkeypatch.undo()


@pytest.mark.parametrize(("listed", "found"), [(3, "more"), (9, "5")])
def test_an_object_of_another_length(storage: Storage, listed: int, found: str) -> None:
    storage.put("corpora/a", b"right")
    place = place_of(LAB)
    assert not isinstance(place, Path)
    with (
        ObjectStore() as store,
        Path(os.devnull).open("wb") as file,
    ):
        (entry,) = store.list(place, "")
        reason = f"expected {listed} bytes, as it is listed, found {found}"
        with pytest.raises(OSError, match=reason):
            store.copy(place, Entry(entry.name, listed, entry.tag), file)


def test_bounds(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.put("corpora/a", b"12345")
    monkeypatch.setattr(_mirror, "MAX_BYTES", 4)
    reason = "expected at most 4 bytes in it, found 5: name a part of it"
    assert said(refused()) == (LAB, reason)
    monkeypatch.setattr(_mirror, "MAX_BYTES", 5)
    monkeypatch.setattr(_mirror, "SPARE_BYTES", 1 << 60)
    error = refused()
    assert error.errno == errno.ENOSPC
    assert str(error.strerror).startswith(f"expected {(1 << 60) + 5} bytes free in ")
    assert str(error.strerror).endswith("; MLGO_CACHE names another folder")


@pytest.mark.usefixtures("storage")
def test_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(refused()) == (LAB, "expected objects in it, found none")
    found = "The specified bucket does not exist"
    assert said(refused("s3://nobody/a")) == ("s3://nobody/a", found)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:hidden-word@{address}")
        start = time.monotonic()
        where, reason = said(refused())
        assert time.monotonic() - start < 30
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
        assert address in said(refused())[1]
    assert where == LAB
    assert "hidden-word" not in reason


def test_no_credentials(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    reason = "expected credentials, as AWS's own tools have them, found none"
    assert said(refused()) == (LAB, reason)
    monkeypatch.setenv("FSSPEC_S3_ANON", "true")
    storage.put("corpora/a", b"public")


def test_no_s3fs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(EnvironmentSetupError) as error:
        local_folder(LAB)
    assert str(error.value) == "s3://: needs s3fs; run: pip install 'mlgo-gym[remote]'"


def test_corpora(storage: Storage, tmp_path: Path) -> None:
    """Packages have the names that they have here."""
    shutil.copytree(SAMPLE_CORPUS, tmp_path / "lab" / "corpora" / "one")
    shutil.copytree(SAMPLE_CORPUS, tmp_path / "lab" / "corpora" / "two")
    storage.put_folder(tmp_path / "lab" / "corpora", "corpora")
    here, there = (Packages.of([each]) for each in (tmp_path / "lab" / "corpora", LAB))
    assert list(there) == list(here)
    assert [there[key] for key in there] == [here[key] for key in here]
    corpus = Corpus.load(f"{LAB}/one")
    assert corpus["digest.c"] == Corpus.load(SAMPLE_CORPUS)["digest.c"]
    assert len(Corpus.load((tmp_path / "lab" / "corpora" / "one").as_uri())) == len(corpus)
    with pytest.raises(CorpusError) as error:
        Packages.of(["s3://lab/none"])
    expected = "corpus 's3://lab/none': cannot be read: expected objects in it, found none"
    assert str(error.value) == expected


@pytest.mark.e2e
def test_commands(storage: Storage, tmp_path: Path) -> None:
    """What they print is the same, wherever corpus and model are."""
    storage.put_folder(SAMPLE_CORPUS, "corpora/sample")
    model = Path(find_model("inlining-for-size"))
    storage.put_folder(model, "models/inlining-for-size")
    for command in ("rollout", "evaluate"):
        plain = run(command, "--model", model, "--json", cwd=tmp_path)
        arguments = ["--corpus", f"{LAB}/sample", "--model", "s3://lab/models/inlining-for-size"]
        done = run(command, *arguments, "--json", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)


def test_models(storage: Storage) -> None:
    model = Path(find_model("inlining-for-size"))
    storage.put_folder(model, "models/mine")
    found = Path(find_model("s3://lab/models/mine"))
    assert contents(found) == contents(model)
    with pytest.raises(ModelError, match="expected a folder to write to, found a mirror of S3's"):
        record_last_test(found, {})
    with pytest.raises(ModelError, match="expected objects in it, found none"):
        find_model("s3://lab/models/none")
    assert find_model(model.as_uri()) == str(model)


@pytest.mark.usefixtures("storage")
def test_a_command_with_a_model_that_is_not_there(tmp_path: Path) -> None:
    done = run("evaluate", "--model", "s3://lab/none", cwd=tmp_path)
    expected = "model 's3://lab/none': cannot be read: expected objects in it, found none"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {expected}\n")
