"""Names that terminals, pages, plots and logs would take for more than names."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from matplotlib.figure import Figure
from rich.control import strip_control_codes

from mlgo_gym.cli.show import _comparison as comparison
from mlgo_gym.cli.show._grid import Cell, Grid
from mlgo_gym.cli.show._listing import Listing, Text
from mlgo_gym.cli.show._output import Output
from mlgo_gym.cli.show._page import as_page
from mlgo_gym.evaluation import learning_curve
from mlgo_gym.evaluation._plots import plots_of
from mlgo_gym.evaluation._summary import ModuleScores, Scored
from mlgo_gym.rollout._linked_text import Code
from mlgo_gym.rollout._rollout import BASELINE
from tests.cli.test_comparison import report

NAMES: Final = {
    "a terminal's colours": "a\x1b[31mb",
    "a terminal's title": "a\x1b]0;owned\x07b",
    "the C1 form of both": "a\x9b31mb",
    "a return": "a\rb",
    "letters from the right": "a\u202ecba\u202c",
    "nothing to see": "a\u200b\u2066b",
    "a null": "a\0b",
    "half a letter": "a\udcffb",
    "markup": "a[bold red]b[/]c[/nothing]",
    "an emoji": "a:bug:b",
    "a format": "a{task.nothing}{}b",
    "mathematics": "a$\\frac{$b$",
    "one dollar": "a$b",
    "hidden from legends": "_a",
    "HTML": "a<script>alert(1)</script>&amp;'\"b",
    "a template": "a$title${sections}b",
}
OBEYED: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
"""What no name may bring to where it is shown."""
OWN: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
"""What a progress display of ours says to a terminal."""

every_name = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)


def spelled(name: str) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in name)


def shown_as(name: str) -> set[str]:
    """Spelled out; rich leaves some characters out, which does no harm."""
    return {spelled(name), spelled(strip_control_codes(name))}


@every_name
def test_terminals(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Texts, cells, errors and lines of progress, as they are read off a wide terminal."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    output = Output(as_json=False)
    output.print(name, Grid((name, "numbers"), [[name, Cell("1", note=name)]]))
    output.verbatim(name)
    output.error(name)
    output.warn(name)
    output.remark(name)
    output.besides = lambda: name
    with output.line() as show:
        show(name)
    for _ in output.track(range(2), name, 2):
        pass
    said = capsys.readouterr()
    for text, times in ((said.out, 4), (said.err, 7)):
        plain = OWN.sub("", text)
        assert not OBEYED.search(plain)
        assert len(re.findall("|".join(map(re.escape, shown_as(name))), plain)) >= times


@every_name
def test_pages(name: str) -> None:
    listing = Listing(name, [(Cell(name, kind="better"), "1", name)], anchor=name)
    grid = Grid((name,), [[Cell(name, note=name, anchor=name)]], [name])
    page = as_page(name, name, [(name, [name, grid, listing, Text(name, name, name)])]).decode()
    assert not OBEYED.search(page)
    assert "<script>alert" not in page
    assert "$title" not in page or "$title" in name


def _curve(name: str) -> Figure:
    return learning_curve({name: [[(0, 0.0), (1, 1.0)], [(0, 0.5), (1, 0.5)]]}, x_label="x")


def _bars(name: str) -> Figure:
    figure = comparison.plot([report(name, 100, **{name: 90})], [name])
    assert figure
    return figure


def _scored(name: str) -> Scored:
    code = {BASELINE: Code(100, {}), name: Code(90, {})}
    modules = [
        ModuleScores(each, name, "C", decisions={name: 1}, code=code) for each in (name, "other")
    ]
    return Scored(modules, [name])


def _evaluated(kind: str, name: str) -> Figure:
    return plots_of(_scored(name))[kind]


PLOTS: Final[dict[str, Callable[[str], Figure]]] = {
    "curve": _curve,
    "bars": _bars,
    **{kind: partial(_evaluated, kind) for kind in ("packages", "modules", "totals")},
}


@pytest.mark.parametrize("kind", PLOTS)
@every_name
def test_plots(name: str, kind: str) -> None:
    """They are drawn, and who reads them finds the name."""
    figure = PLOTS[kind](name)
    figure.savefig(io.BytesIO(), format="png", dpi=30)
    (axes,) = figure.axes
    legend = axes.get_legend()
    texts = [each.get_text() for each in axes.get_yticklabels()]
    texts += [each.get_text() for each in legend.get_texts()] if legend else []
    assert any(spelled(name) in each.replace("\\$", "$") for each in texts) or kind == "totals"
    assert not any(OBEYED.search(each) for each in texts)


@every_name
def test_what_a_page_needs_is_a_file(name: str, tmp_path: Path) -> None:
    """A page is written whatever its names are."""
    (tmp_path / "page.html").write_bytes(as_page(name, "", []))
    assert (tmp_path / "page.html").read_text("utf-8")
