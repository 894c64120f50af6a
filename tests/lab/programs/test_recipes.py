"""Workloads that ship with recipes, built from PyPI: fit to measure by, reaching the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus_tools.build import build_corpus, is_up_to_date
from corpus_tools.clang import find_clang
from corpus_tools.recipes import load_recipe
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.lab.programs._workload_check import check_workloads
from tests.conftest import require


@pytest.mark.network
@pytest.mark.parametrize(
    "name",
    [
        "lz4",
        "pyclipper",
        *(pytest.param(each, marks=pytest.mark.stress) for each in ("lupa", "pymunk", "cmarkgfm")),
    ],
)
def test_they_are_fit_to_measure_by(name: str, tmp_path: Path, clang22: str) -> None:
    """C and C++, with the headers of their packages, with and without floating point."""
    require("valgrind", "valgrind")
    recipe = load_recipe(name)
    report = build_corpus(recipe, tmp_path / name, clang=find_clang(clang22), jobs=2)
    for found in check_workloads(Corpus.load(report.output), jobs=2):
        assert found.error is None
        first, second = found.instructions
        assert first > 50_000_000
        assert second == pytest.approx(first, rel=1e-5)
        assert 2 * len(found.reached) > found.linked_modules


@pytest.mark.network
def test_what_is_missing_is_built_again(tmp_path: Path, clang22: str) -> None:
    recipe, clang = load_recipe("lz4"), find_clang(clang22)
    output = build_corpus(recipe, tmp_path / "lz4", clang=clang).output
    assert is_up_to_date(output, recipe, clang, "Oz")
    made = next((output / "workloads").glob("*.bc"))
    made.unlink()
    assert not is_up_to_date(output, recipe, clang, "Oz")
    build_corpus(recipe, tmp_path / "lz4", clang=clang)
    assert made.exists()
    assert is_up_to_date(output, recipe, clang, "Oz")
