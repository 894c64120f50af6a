"""``mlgo-gym corpus build`` and ``corpus recipes``, with small packages from PyPI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpus_tools import available_recipes, load_recipe
from mlgo_gym.corpus._corpus import Corpus
from tests.cli.command import run
from tests.conftest import require

_SMALL = ("misaka", "pyclipper")


@pytest.mark.network
def test_one_recipe_goes_into_the_folder_itself(tmp_path: Path) -> None:
    require("clang-22", "clang-22")
    done = run("corpus", "build", "misaka", "--output", "out", "--jobs", "2", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("misaka 2.1.1: 9 modules in out (train split, ")
    assert len(Corpus.load(tmp_path / "out")) == 9


@pytest.mark.network
def test_several_recipes_go_into_folders_of_their_own(tmp_path: Path) -> None:
    require("clang-22", "clang-22")
    command = ("corpus", "build", *_SMALL, "--output", "out", "--cache", "cache")
    first = run(*command, "--json", cwd=tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    result = json.loads(first.stdout)
    assert [(each["recipe"], each["outcome"]) for each in result["recipes"]] == [
        ("misaka", "built"),
        ("pyclipper", "built"),
    ]
    assert result["total"]["modules"] == 10
    assert sum(len(Corpus.load(tmp_path / "out" / name)) for name in _SMALL) == 10
    sdists = {path.name for path in (tmp_path / "cache").iterdir()}
    assert sdists == {load_recipe(name).sdist for name in _SMALL}
    again = run(*command, cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.count("up to date") == 2
    assert "2 of 2" in again.stdout
    assert max(len(line) for line in again.stdout.splitlines()) <= 80


@pytest.mark.network
def test_a_recipe_that_fails_is_in_the_table(tmp_path: Path) -> None:
    require("clang-22", "clang-22")
    (tmp_path / "out" / "misaka").mkdir(parents=True)
    (tmp_path / "out" / "misaka" / "letter.txt").write_text("")
    done = run("corpus", "build", *_SMALL, "--output", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "mlgo-gym: misaka: output out/misaka: expected a corpus, found a folder without "
        "corpus_description.json\n"
    )
    words = {line.split()[0]: line.split()[-1] for line in done.stdout.splitlines() if line.split()}
    assert (words["misaka"], words["pyclipper"]) == ("failed", "built")
    assert "1 of 2" in done.stdout


def test_recipes_are_listed(tmp_path: Path) -> None:
    done = run("corpus", "recipes", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    first_words = {line.split()[0] for line in lines if line.split()}
    assert first_words >= set(available_recipes())
    assert "of ruamel.yaml.clib" in done.stdout
    assert "\u2026" not in done.stdout
    listed = json.loads(run("corpus", "recipes", "--json", cwd=tmp_path).stdout)
    assert [each["name"] for each in listed] == list(available_recipes())
    assert listed[0] == {
        "name": "annoy",
        "package": "annoy",
        "version": "1.17.3",
        "split": "train",
        "language": "C++",
        "license": "Apache-2.0",
        "modules": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "recipes to build: expected names or --all, found neither"),
        (["lupa", "--all"], "recipes to build: expected names or --all, found both"),
        (["lupa", "--split", "test"], "--split: expected --all beside it, found names"),
        (["lupa", "lupa"], "recipes: expected each name once, found 'lupa' more than once"),
    ],
)
def test_bad_selections(tmp_path: Path, arguments: list[str], message: str) -> None:
    require("clang-22", "clang-22")
    done = run("corpus", "build", *arguments, "--output", "out", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"mlgo-gym: error: {message}\n"
    assert not list(tmp_path.iterdir())
