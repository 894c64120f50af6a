"""Links between the pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlgo_gym.cli._main import whole
from scripts.docs_site import command_helps, contents, relinked
from scripts.pictures import COLUMNS, percent, rows

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += [ROOT / "models" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def without_code(text: str) -> str:
    return re.sub(r"^( *)(```|~~~).*?^\1\2$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def test_the_index_lists_every_page() -> None:
    docs = ROOT / "docs"
    listed = set(re.findall(r"\]\(([\w/.-]+\.md)\)", (docs / "index.md").read_text()))
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} - {"index.md"}
    assert pages == {page for page in listed if not page.startswith("../")}


def test_the_site_has_every_page() -> None:
    """Its table of contents is made of the index; links lead to the names that pages have there."""
    docs = ROOT / "docs"
    table = contents((docs / "index.md").read_text()).split()
    pages = {page.relative_to(docs).as_posix().removesuffix(".md") for page in docs.rglob("*.md")}
    assert pages - {"index"} <= set(table)
    assert {"readme", "api/index", "commands/index", "examples"} <= set(table)
    text = "[a](rules.md#x), [b](../../CONTRIBUTING.md), [c](../../examples/x.py), [d](../../tests)"
    assert relinked(text, docs / "guides" / "training.md") == (
        "[a](rules.md#x), [b](../contributing.md), [c](../examples.md), d"
    )


def test_the_readmes_picture_is_of_the_table() -> None:
    """`python -m scripts.pictures` draws it anew; its mean is the README's."""
    *_, mean = rows((ROOT / "docs" / "results" / "benchmarks.md").read_text())
    shown = f"{percent(mean[COLUMNS['project file and model']]):+.1f} %"
    assert shown in (ROOT / "docs" / "images" / "linked-code.svg").read_text()
    readme = (ROOT / "README.md").read_text()
    assert f"| project file and `inlining-for-size-project` | 11 | {shown}" in readme
    assert f"{shown[1:]} smaller on average" in readme


def test_pages_of_commands_have_their_options() -> None:
    top = whole()
    for page in command_helps(top.commands["dataset"]):
        assert "example: mlgo-gym dataset" in page
