"""Runs and searches whose folders URIs name: worked on here, and gone on with anywhere."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.base._remote import RemoteFolder, worked_folder
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.errors import OptionsError, TrainingError
from mlgo_gym.model._card import find_model
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.search._corpus_search import search_corpus
from mlgo_gym.search._goal import SearchSetting
from mlgo_gym.training._train import train
from tests.cli.command import run
from tests.remote.server import Storage
from tests.remote.test_datasets import refusing

RUN = "s3://lab/runs/a"
CORPUS = Corpus.load(SAMPLE_CORPUS).only(["bignum.c", "digest.c", "expr_vm.c", "scene.cpp"])
SETTINGS = ("fit.epochs=1", "hidden=[4]")


def test_what_has_changed_is_put(storage: Storage) -> None:
    """Whole files alone, what was removed is removed there, and who comes next begins with it."""
    with worked_folder(RUN) as folder:
        (folder.path / "model").mkdir()
        (folder.path / "model" / "card.json").write_text("one")
        (folder.path / "a.txt").write_text("a")
        (folder.path / ".b.partial").write_text("b")
        folder.put()
        assert storage.names("runs/a/") == ["runs/a/a.txt", "runs/a/model/card.json"]
    assert not folder.path.exists()
    with worked_folder(RUN) as folder:
        (folder.path / "a.txt").unlink()
        with (folder.path / "model" / "card.json").open("a") as file:
            file.write(" two")
        folder.put()
        folder.put()
    assert storage.names("runs/a/") == ["runs/a/model/card.json"]
    with worked_folder(RUN) as folder:
        assert (folder.path / "model" / "card.json").read_text() == "one two"


def test_one_process_works_on_a_folder_here(tmp_path: Path) -> None:
    """Nothing stays of a folder in which nothing was written."""
    path = tmp_path / "run"
    with worked_folder(path), pytest.raises(OptionsError) as error, worked_folder(path):
        pass
    assert str(error.value) == f"{str(path)!r}: another process is working there"
    assert not path.exists()
    with worked_folder(path):
        (path / "file").touch()
    assert path.exists()


COMMANDS = {
    "train": (["train", "clone", "--output"], "{folder!r}: "),
    "search": (["search", "--output"], "{folder!r}: "),
    "tune": (["tune", "--corpus", "corpus", "--output"], "{folder!r}: "),
    "rollout": (["rollout", "--policy", "never", "--traces"], "{folder!r}: "),
    "dataset": (["dataset", "record", "--policy", "never", "--output"], "dataset {folder!r}: "),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_in_which_names_lead_out_of_it(name: str, tmp_path: Path) -> None:
    """Nothing is written, there or here, by any command that goes on in a folder."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "precious").touch()
    shutil.copytree(SAMPLE_CORPUS, tmp_path / "corpus")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "model").symlink_to("../victim")
    words, named = COMMANDS[name]
    done = run(*words, folder, cwd=tmp_path)
    what = "cannot be written: expected files and folders alone in it, found a link: 'model'"
    line = f"mlgo-gym: error: {named.format(folder=str(folder))}{what}; remove it\n"
    assert (done.returncode, done.stderr) == (1, line)
    assert [each.name for each in folder.iterdir()] == ["model"]
    assert [each.name for each in (tmp_path / "victim").iterdir()] == ["precious"]


@pytest.mark.usefixtures("storage")
def test_what_others_are_found_by_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[str] = []
    monkeypatch.setattr(RemoteFolder, "put", lambda _, __, name: put.append(name))
    with worked_folder(RUN) as folder:
        for name in ("b", "card.json", "checkpoint.npz", "z"):
            (folder.path / name).write_text(name)
        folder.put(last=("checkpoint.npz", "card.json"))
    assert put == ["b", "z", "checkpoint.npz", "card.json"]


KILLED = """
import os
from tests.remote.test_worked_folders import *
from mlgo_gym.training._run import TrainingRun
put = TrainingRun.export
def export(run, *arguments):
    os.kill(os.getpid(), 9)
TrainingRun.export = export
train("clone", CORPUS, output=RUN, settings=SETTINGS)
"""


@pytest.mark.e2e
def test_a_run_that_was_killed_goes_on(storage: Storage, tmp_path: Path) -> None:
    """Before its model was there, from its checkpoint: what it recorded is not recorded again."""
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    assert "runs/a/checkpoint.npz" in storage.names("runs/a/")
    assert not storage.names("runs/a/model/")
    parts = storage.names("runs/a/decisions/")
    trained = train("clone", CORPUS, output=RUN, settings=SETTINGS)
    assert storage.names("runs/a/decisions/") == parts
    here = train("clone", CORPUS, output=tmp_path / "here", settings=SETTINGS)
    assert trained.validation == here.validation
    assert trained.model == Path(find_model(f"{RUN}/model"))
    first, second = (np.load(each.model / "weights.npz") for each in (trained, here))
    assert [*first] == [*second]
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.e2e
def test_commands(storage: Storage, tmp_path: Path) -> None:
    command = ["train", "clone", "--output", RUN, "--json"]
    command += [part for each in SETTINGS for part in ("--set", each)]
    done = run(*command, cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["model"]) == (0, f"{RUN}/model")
    done = run("rollout", "--policy", "never", "--traces", "s3://lab/traces/never", cwd=tmp_path)
    assert done.returncode == 0
    names = storage.names("traces/never/")
    assert len(names) == len(Corpus.load(SAMPLE_CORPUS))
    assert all(name.endswith(".trace") for name in names)
    assert [each.name for each in tmp_path.iterdir()] == ["cache"]


@pytest.mark.e2e
def test_a_search_goes_on(storage: Storage, tmp_path: Path) -> None:
    """It is put module by module, read by the next search, and by who learns from traces."""
    place, corpus = "s3://lab/found", CORPUS.only(["digest.c", "expr_vm.c"])
    found = search_corpus(corpus, place, InliningForSize(), SearchSetting(0.5))
    next(found)
    assert len(storage.names("found/")) == 2
    found.close()
    both = list(search_corpus(corpus, place, InliningForSize(), SearchSetting(0.5)))
    assert [each.error for each in both] == [None, None]
    assert len(storage.names("found/")) == 4
    done = run("evaluate", "--policy", "never", "--traces", place, "--json", cwd=tmp_path)
    assert done.returncode == 0
    settings = (f"traces={place}", *SETTINGS)
    trained = train("imitate", CORPUS, output=tmp_path / "run", settings=settings)
    assert trained.model == tmp_path / "run" / "model"


@pytest.mark.usefixtures("storage")
def test_what_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = ["search", "--build", "compile_commands.json", "--output", RUN]
    assert run(*build, cwd=tmp_path).stderr == (
        f"mlgo-gym: error: search: expected --build with --output on this machine, found '{RUN}'\n"
    )
    with pytest.raises(OptionsError, match="traces: s3://lab/none: expected files in it, found"):
        train("imitate", CORPUS, output=tmp_path / "run", settings=["traces=s3://lab/none"])
    monkeypatch.setattr(RemoteFolder, "put", refusing(RemoteFolder.put))
    with pytest.raises(TrainingError, match=rf"run '{RUN}': cannot be written: "):
        train("clone", CORPUS, output=RUN, settings=SETTINGS)
    with pytest.raises(OptionsError, match=r"search: s3://lab/runs/a/digest\.c\.\w+\.?\w*: "):
        list(search_corpus(CORPUS.only(["digest.c"]), RUN, InliningForSize(), SearchSetting(0.2)))
