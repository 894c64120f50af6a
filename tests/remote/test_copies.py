"""Folders by URI as folders here: what a server has is what is read, and nothing else."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest

from mlgo_gym.base import _remote as remote
from mlgo_gym.base._remote import RemoteFolder, copy_file, local_folder, worked_folder
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import CorpusError, EnvironmentSetupError, ModelError
from mlgo_gym.model._card import find_model, record_last_test
from tests.cli.command import run
from tests.remote.server import Storage

LAB = "s3://lab/corpora"
NONE = "expected files in it, found none; check the address and whose server it is"


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
    assert folder.name == "corpora"
    assert contents(local_folder("s3://lab/corpora/b/")) == {"ä b.bc": b"2"}
    assert contents(local_folder(LAB, ".cmd")) == {"a/y.cmd": b""}
    assert {*contents(local_folder("s3://lab"))} == {
        *(f"corpora/{name}" for name in data),
        "corpora-of-others/z",
    }


def test_a_file(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as long as it may be, or an error names the URI."""
    storage.put("corpora/a", b"12345")
    copy_file(f"{LAB}/a", tmp_path / "a", 5)
    assert (tmp_path / "a").read_bytes() == b"12345"
    for name, most, reason in (("a", 4, "expected at most 4 bytes in all"), ("b", 9, "b")):
        with pytest.raises(OSError, match=reason) as caught:
            copy_file(f"{LAB}/{name}", tmp_path / f"{name}{most}", most)
        assert caught.value.filename == f"{LAB}/{name}"
    with Path("/dev/full").open("wb", buffering=0) as full, monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda *_: full)
        with pytest.raises(OSError, match="No space left on device") as caught:
            copy_file(f"{LAB}/a", tmp_path / "c", 5)
    assert caught.value.filename is None  # it is not of what is read


def test_a_change_is_another_folder(storage: Storage) -> None:
    """Who reads the first goes on with it; what nobody reads for long goes."""
    storage.put("corpora/a", b"old")
    first = local_folder(LAB)
    assert local_folder(LAB) == first
    storage.put("corpora/a", b"new")
    second = local_folder(LAB)
    assert contents(first) == {"a": b"old"}
    assert contents(second) == {"a": b"new"}
    os.utime(first.parent, (0, 0))
    assert local_folder(LAB) == second
    assert [*second.parents[1].iterdir()] == [second.parent]


READING = """
import sys
from mlgo_gym.base._remote import local_folder
folder = local_folder("s3://lab/corpora")
print(folder, sorted(each.stat().st_size for each in folder.iterdir()))
"""


def test_processes_that_read_at_once(storage: Storage) -> None:
    for number in range(9):
        storage.put(f"corpora/{number}", bytes(100_000 + number))
    command = [sys.executable, "-c", READING]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    found = {each.communicate()[0] for each in readers}
    folder = local_folder(LAB)
    assert found == {f"{folder} {[100_000 + number for number in range(9)]}\n"}
    assert [*folder.parents[1].iterdir()] == [folder.parent]


@pytest.mark.usefixtures("storage")
def test_another_protocol() -> None:
    files = fsspec.filesystem("memory")
    files.pipe("/lab/corpora/a/b", b"1")
    assert contents(local_folder("memory://lab/corpora")) == {"a/b": b"1"}
    with worked_folder("memory://lab/corpora") as folder:
        (folder.path / "a" / "b").unlink()
        (folder.path / "c").write_bytes(b"2")
        folder.put()
    assert contents(local_folder("memory://lab/corpora")) == {"c": b"2"}


def test_a_damaged_copy_is_made_anew(storage: Storage) -> None:
    storage.put("corpora/a", b"right")
    folder = local_folder(LAB)
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


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("name", ["../up", "a/../../up", "/etc/x", "a\\b", "a\x01b", "x" * 256])
def test_names_that_lead_elsewhere(name: str) -> None:
    with pytest.raises(OSError, match=r".") as error:
        listed({f"lab/corpora/{name}": {"size": 1}})
    expected = f"expected names of files in the folder, found {name[:200]!r}"
    assert said(error.value) == (LAB, expected)


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("size", [-1, None, "1"])
def test_sizes_that_are_none(size: Any) -> None:
    with pytest.raises(OSError, match=r".") as error:
        listed({"lab/corpora/a": {"size": size}})
    assert said(error.value) == (LAB, f"expected the size of 'a', found {size!r}")


def listed(found: dict[str, Any]) -> Any:
    """What a server says that moto's would not."""
    folder = RemoteFolder(LAB)
    folder._fs.find = lambda *_, **__: found
    return folder.list()


@pytest.mark.parametrize("change", ["longer", "shorter", "same"])
def test_a_file_that_changes_meanwhile(storage: Storage, change: str, tmp_path: Path) -> None:
    storage.put("corpora/a", b"first")
    folder = RemoteFolder(LAB)
    before = folder.list()
    storage.put("corpora/a", {"longer": b"second", "shorter": b"one", "same": b"other"}[change])
    with pytest.raises(OSError, match=r".") as error:
        folder.copy(before, tmp_path / "copy")
    assert said(error.value) == (LAB, "changed while it was read; run it again")


def test_nothing_is_left_of_a_copy_that_failed(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in "abc":
        storage.put(f"corpora/{name}", name.encode())
    copy = RemoteFolder.copy

    def gone(self: RemoteFolder, found: Any, folder: Path) -> None:
        storage.client.delete_object(Bucket="lab", Key="corpora/b")
        copy(self, found, folder)

    monkeypatch.setattr(RemoteFolder, "copy", gone)
    assert isinstance(refused(), FileNotFoundError)
    assert [*(tmp_path / "cache" / "remote").iterdir()] == []
    monkeypatch.undo()


def test_bounds(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.put("corpora/a", b"12345")
    monkeypatch.setattr(remote, "MAX_BYTES", 4)
    reason = "expected at most 4 bytes in all, found more: name a part of it"
    assert said(refused()) == (LAB, reason)
    monkeypatch.setattr(remote, "MAX_BYTES", 5)
    monkeypatch.setattr(remote, "SPARE_BYTES", 1 << 60)
    error = refused()
    assert error.errno == errno.ENOSPC
    assert str(error.strerror).startswith(f"expected {(1 << 60) + 5} bytes free in ")
    assert str(error.strerror).endswith("; MLGO_CACHE names another folder")
    monkeypatch.setattr(remote, "MAX_FILES", 0)
    text = "expected at most 0 files in all, found more: name a part of it"
    assert said(refused()) == (LAB, text)


@pytest.mark.usefixtures("storage")
def test_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(refused()) == (
        LAB,
        NONE,
    )
    found = "The specified bucket does not exist"
    assert said(refused("s3://nobody/a")) == ("s3://nobody/a", found)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:hidden-word@{address}")
        where, reason = said(refused())
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
        assert address in said(refused())[1]
    assert where == LAB
    assert "hidden-word" not in reason


def test_no_credentials(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    reason = "Unable to locate credentials"
    assert said(refused()) == (LAB, reason)
    monkeypatch.setenv("FSSPEC_S3_ANON", "true")
    storage.put("corpora/a", b"public")


def test_no_s3fs() -> None:
    code = (
        "import sys; sys.modules['s3fs'] = None; from mlgo_gym.base._remote import RemoteFolder\n"
    )
    command = [sys.executable, "-c", f"{code}RemoteFolder('s3://lab/a')"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    expected = "EnvironmentSetupError: s3://: needs its package; pip install 'mlgo-gym[remote]'"
    assert done.stderr.splitlines()[-1].endswith(expected)


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
    expected = f"corpus 's3://lab/none': cannot be read: {NONE}"
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
    with pytest.raises(ModelError, match="expected a folder to write to, found a copy of a URI's"):
        record_last_test(found, {})
    with pytest.raises(
        ModelError,
        match="expected files in it, found none; check the",
    ):
        find_model("s3://lab/models/none")
    assert find_model(model.as_uri()) == str(model)


@pytest.mark.usefixtures("storage")
def test_a_command_with_a_model_that_is_not_there(tmp_path: Path) -> None:
    done = run("evaluate", "--model", "s3://lab/none", cwd=tmp_path)
    expected = f"model 's3://lab/none': cannot be read: {NONE}"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {expected}\n")
