"""The tables of recipes and workloads in the documentation."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from corpus_tools import available_recipes
from corpus_tools.recipes import load_recipe
from corpus_tools.workloads import load_workloads, shipped_workloads
from scripts import recipes_table as recipes_table_module
from scripts.recipes_table import (
    END,
    TABLES,
    recipes_table,
    with_tables,
    workloads_table,
)

_DOCS = Path(__file__).parents[1] / "docs"
BEGIN, BEGIN_WORKLOADS = TABLES


@pytest.mark.parametrize("page", ["guides/recipes.md", "environments/workloads.md"])
def test_the_pages_agree_with_the_recipes(page: str) -> None:
    text = (_DOCS / page).read_text()
    assert with_tables(text) == text, "run: make recipes-table"


def test_a_table_has_a_line_for_every_recipe() -> None:
    table = recipes_table()
    assert "| `lupa` | lupa 2.8 | test | C | 32 | MIT |\n" in table
    rows = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert rows == list(available_recipes())


def test_workloads_of_both_splits() -> None:
    """Each program is of a recipe, and none of a package of the other split."""
    known = {name: load_workloads(shipped_workloads(name)) for name in available_recipes()}
    of_split = dict.fromkeys(("train", "test", "final"), 0)
    for name, workloads in known.items():
        of_split[load_recipe(name).split] += len(workloads)
        assert all(each.sources and each.about for each in workloads)
    assert sum(bool(each) for each in known.values()) >= 12
    assert min(of_split["train"], of_split["test"]) >= 10
    assert workloads_table().count("\n| `") == sum(of_split.values())


def test_only_the_tables_are_replaced() -> None:
    page = f"a\n{BEGIN}old\n{END}b\n{BEGIN_WORKLOADS}{END}c\n"
    expected = f"a\n{BEGIN}{recipes_table()}{END}b\n{BEGIN_WORKLOADS}{workloads_table()}{END}c\n"
    assert with_tables(page) == expected


def test_the_page_that_is_named_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"é\n{BEGIN}old\n{END}", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["recipes_table", str(page)])
    runpy.run_path(recipes_table_module.__file__, run_name="__main__")
    assert page.read_text(encoding="utf-8") == f"é\n{BEGIN}{recipes_table()}{END}"


@pytest.mark.parametrize("page", ["", BEGIN, END, END + BEGIN, BEGIN_WORKLOADS + BEGIN + END])
def test_a_page_without_a_place_for_it_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"^page: expected lines of .* found no such lines$"):
        with_tables(page)
