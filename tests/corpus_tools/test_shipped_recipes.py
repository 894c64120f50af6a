"""The recipes that ship with the package, fetched from PyPI and built: minutes in all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_tools import Clang, Manifest, available_recipes, build_corpus, load_recipe
from tests.folders import tree

Disassemble = Callable[[bytes], str]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.network
@pytest.mark.stress
@pytest.mark.parametrize("name", available_recipes())
def test_every_shipped_recipe_builds(
    *,
    clang22: Clang,
    cache: Path,
    tmp_path: Path,
    python_headers: Path,
    disassemble: Disassemble,
    name: str,
) -> None:
    recipe = load_recipe(name)
    report = build_corpus(recipe, tmp_path / name, clang=clang22, jobs=2, cache_dir=cache)
    assert len(report.modules) == recipe.modules
    assert Manifest.read(tmp_path / name).modules == report.modules
    machine = [str(tmp_path), str(python_headers), "/corpus_tools."]
    for module in report.modules:
        listing = disassemble((tmp_path / name / f"{module}.bc").read_bytes())
        assert not [path for path in machine if path in listing], module


@pytest.mark.network
@pytest.mark.stress
@pytest.mark.parametrize("name", ["jq", "pysam", "sentencepiece", "tree-sitter", "ujson"])
def test_a_recipe_gives_the_same_bytes_wherever_it_is_built(
    *,
    clang22: Clang,
    cache: Path,
    tmp_path: Path,
    python_headers: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    assert python_headers.is_dir()
    for folder, jobs in (("here", 1), ("over there", 2)):
        (tmp_path / folder).mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / folder))
        output = tmp_path / folder / "corpus"
        build_corpus(load_recipe(name), output, clang=clang22, jobs=jobs, cache_dir=cache)
    here, there = (tree(tmp_path / folder / "corpus") for folder in ("here", "over there"))
    assert here == there
