"""The table of recipes in the documentation."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from corpus_tools import available_recipes
from corpus_tools import recipes_table as recipes_table_module
from corpus_tools.recipes_table import BEGIN, END, recipes_table, with_table

_PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"


def test_the_page_agrees_with_the_recipes() -> None:
    page = _PAGE.read_text()
    assert with_table(page) == page, "run: make recipes-table"
    assert page.count("| `") > len(available_recipes())


def test_a_table_has_a_line_for_every_recipe() -> None:
    table = recipes_table()
    assert "| `lupa` | lupa 2.8 | test | C | 32 | MIT |\n" in table
    rows = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert rows == list(available_recipes())


def test_only_the_table_is_replaced() -> None:
    assert with_table(f"a\n{BEGIN}old\n{END}b\n") == f"a\n{BEGIN}{recipes_table()}{END}b\n"


def test_the_page_that_is_named_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"é\n{BEGIN}old\n{END}", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["recipes_table", str(page)])
    runpy.run_path(recipes_table_module.__file__, run_name="__main__")
    assert page.read_text(encoding="utf-8") == f"é\n{BEGIN}{recipes_table()}{END}"


@pytest.mark.parametrize("page", ["", BEGIN, END, END + BEGIN])
def test_a_page_without_a_place_for_it_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"^page: expected the lines .* found no such lines$"):
        with_table(page)
