"""Listings: texts on pages, open on paper and folded on screens, with notes in the margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlgo_gym.cli.show._grid import Cell


@dataclass(frozen=True, slots=True)
class Listing:
    """A title that unfolds, and lines: what stands in the margin, the number, the line itself."""

    title: str
    rows: Sequence[tuple[Cell, str, str]]
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A title that unfolds, and text in one piece."""

    title: str
    text: str
    anchor: str = ""
