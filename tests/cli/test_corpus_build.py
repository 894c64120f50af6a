"""``mlgo-gym corpus build`` and ``corpus recipes``, with small packages from PyPI."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from corpus_tools import available_recipes, load_recipe
from mlgo_gym.cli.corpus._build import _table
from mlgo_gym.corpus._corpus import Corpus
from tests.cli.command import run
from tests.conftest import require

_SMALL = ("misaka", "pyclipper")


@pytest.mark.smoke
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


def tiny(folder: Path, name: str, files: Mapping[str, str], **changes: object) -> Path:
    """A recipe file, whose sdist is kept where nothing needs to be fetched."""
    (folder / "cache").mkdir(exist_ok=True)
    sdist = folder / "cache" / f"{name}-1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-1.0/{path}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    fields = {
        "name": name,
        "package": name,
        "version": "1.0",
        "sdist": sdist.name,
        "sha256": hashlib.sha256(sdist.read_bytes()).hexdigest(),
        "split": "train",
        "language": "C",
        "license": "MIT",
        "globs": ["*.c"],
    }
    recipe = folder / f"{name}.toml"
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in (fields | changes).items())
    recipe.write_text("".join(lines))
    return recipe


def test_a_recipe_file_is_built(tmp_path: Path) -> None:
    """Into the folder itself; a source that does not compile is named, and the status is 1."""
    require("clang-22", "clang-22")
    files = {"a.c": "int a(int x) { return x + 1; }\n", "b.c": "#error no\n"}
    both = tiny(tmp_path, "both", files)
    good = tiny(tmp_path, "good", files, globs=["a.c"], modules=1, split="test")
    done = run(
        "corpus", "build", both, "--output", "out", "--cache", "cache", "--keep-going", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    result = json.loads(done.stdout)
    (reason,) = result.pop("failures").values()
    assert done.stderr == f"mlgo-gym: b.c: {reason}\n"
    assert "#error no" in reason
    assert result == {
        "recipe": "both", "version": "1.0", "split": "train", "output": "out", "modules": ["a.c"],
    }  # fmt: skip
    assert Corpus.load(tmp_path / "out").names == ("a.c",)
    done = run("corpus", "build", good, "--output", "one", "--cache", "cache", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"good 1\.0: 1 modules in one \(test split, \d+\.\d s\)\n", done.stdout)


def test_recipe_files_are_built_beside_each_other(tmp_path: Path) -> None:
    require("clang-22", "clang-22")
    one = tiny(tmp_path, "one", {"a.c": "int a(int x) { return x + 1; }\n"}, modules=1)
    two = tiny(tmp_path, "two", {"b.c": "#error no\n"}, split="test", language="C++")
    command = ("corpus", "build", one, two, "--output", "out", "--cache", "cache")
    done = run(*command, "--json", cwd=tmp_path)
    assert done.returncode == 1
    result = json.loads(done.stdout)
    first, second = result["recipes"]
    size = (tmp_path / "out" / "one" / "a.c.bc").stat().st_size
    assert (first["recipe"], first["modules"], first["bitcode_bytes"]) == ("one", 1, size)
    assert (first["outcome"], first["problems"], first["output"]) == ("built", [], "out/one")
    assert (second["recipe"], second["split"], second["language"]) == ("two", "test", "C++")
    assert (second["outcome"], second["modules"]) == ("failed", 0)
    (problem,) = second["problems"]
    assert done.stderr == f"mlgo-gym: two: {problem}\n"
    total = result["total"]
    assert (total["modules"], total["bitcode_bytes"]) == (1, size)
    assert total["elapsed_s"] >= first["elapsed_s"]
    table = run(*command, cwd=tmp_path).stdout
    rows = {line.split()[0]: line.split() for line in table.splitlines() if line.split()}
    assert rows["one"] == [
        "one",
        "train",
        "C",
        "1",
        f"{size:,}",
        rows["one"][5],
        "up",
        "to",
        "date",
    ]
    assert rows["two"][:5] == ["two", "test", "C++", "0", "0"]
    assert rows["total"][1:3] == ["1", f"{size:,}"]
    assert rows["total"][-3:] == ["1", "of", "2"]


def test_what_all_recipes_make_is_set_apart() -> None:
    """The last row, of all, stands under a rule of its own."""
    numbers = {"modules": 3, "bitcode_bytes": 12345, "elapsed_s": 1.25, "outcome": "built"}
    recipes = [{"recipe": name, **numbers} for name in ("lz4", "zstd")]
    table = _table(recipes, {"recipe": "all", **numbers})
    assert [row.end_section for row in table.rows] == [False, True, False]
    assert [list(column.cells)[2] for column in table.columns] == [
        *("all", "", "", "3", "12,345", "1.2", "built"),
    ]
