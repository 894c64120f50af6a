"""Plots as PNG files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlgo_gym.cli._writing import writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI: Final = 120


def save_plots(folder: Path, plots: Mapping[str, Figure]) -> None:
    """Write each plot as ``NAME.png`` into a folder.

    Raises:
        OptionsError: it cannot be written there.
    """
    for name, figure in plots.items():
        with writing(folder / f"{name}.png") as file:
            figure.savefig(file, format="png", dpi=_DPI)
