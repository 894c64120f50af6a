"""Draws the pictures of README and docs from the tables and curves in docs/.

::

    python -m scripts.pictures
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure

from mlgo_gym.evaluation import learning_curve

ROOT: Final = Path(__file__).parents[1]
TABLE: Final = ROOT / "docs" / "results" / "benchmarks.md"
HEADING: Final = "| package | plain, bytes | project file | model | both |"
COLUMNS: Final = {"project file": 2, "project file and model": 4}
CURVES: Final = ROOT / "docs" / "results" / "inlining-ppo.csv"
IMAGES: Final = ROOT / "docs" / "images"
EXPERIMENTS: Final = ROOT / "docs" / "results" / "training.md"
SHIPPED: Final = re.compile(r"^\| `([\w-]+)`, which ships \| \| ([+-][\d.]+) \|", re.MULTILINE)
"""Rows of shipped models: their mean rewards on the modules of the curves."""
COLOURS: Final = ("#8fb8de", "#1f5f9e")


def rows(text: str) -> list[list[str]]:
    """The cells of each row of the table, the mean last."""
    lines = text[text.index(HEADING) :].splitlines()
    found = []
    for line in lines[2:]:
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        found.append(cells)
        if cells[0] == "mean":
            return found
    raise ValueError(f"{TABLE.name}: expected a row 'mean' below {HEADING!r}, found none")


def percent(cell: str) -> float:
    """The number of a cell such as ``-3.43 %``."""
    return float(cell.removesuffix("%"))


def draw_linked_code(cells: Sequence[Sequence[str]], path: Path) -> None:
    """Draw what each package's linked code shrinks by, as horizontal bars."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    *packages, total = cells
    both = COLUMNS["project file and model"]
    cells = [*sorted(packages, key=lambda row: percent(row[both])), total]
    names = [row[0] for row in cells]
    for offset, (name, column), colour in zip((-0.2, 0.2), COLUMNS.items(), COLOURS, strict=True):
        places = [place + offset for place in range(len(cells))]
        changes = [percent(row[column]) for row in cells]
        axes.barh(places, changes, 0.38, label=name, color=colour)
    mean = percent(total[both])
    axes.annotate(
        f"{mean:+.1f} %", (mean, len(cells) - 0.8), (-4, 0), textcoords="offset points",
        ha="right", va="center", weight="bold",
    )  # fmt: skip
    axes.set_yticks(range(len(cells)), names)
    axes.get_yticklabels()[-1].set_fontweight("bold")
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel("change of the linked code against clang-22 -Oz, in % (left is smaller)")
    axes.legend(loc="lower left", frameon=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(path, metadata={"Date": None})


def draw_learning_curve(curves: Path, path: Path) -> None:
    """Draw the seeds of PPO, and what the shipped models reach on the same modules."""
    seeds = defaultdict[str, list[tuple[float, float]]](list)
    with curves.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            seeds[row["seed"]].append((float(row["decisions"]), float(row["reward"])))
    figure = learning_curve({"PPO, a reward for each decision": [*seeds.values()]})
    (axes,) = figure.axes
    shipped = SHIPPED.findall(EXPERIMENTS.read_text(encoding="utf-8"))
    for (name, reward), colour in zip(shipped, COLOURS, strict=True):
        axes.axhline(float(reward), color=colour, linewidth=0.9, linestyle=":", label=name)
    axes.legend(fontsize=8, loc="lower right")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Draw all of them."""
    mpl.rcParams.update({"svg.hashsalt": "mlgo_gym", "svg.fonttype": "none", "font.size": 10})
    cells = rows(TABLE.read_text(encoding="utf-8"))
    draw_linked_code(cells, IMAGES / "linked-code.svg")
    draw_learning_curve(CURVES, IMAGES / "learning-curve.svg")


if __name__ == "__main__":
    main()
