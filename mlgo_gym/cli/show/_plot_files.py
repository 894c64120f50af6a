"""Plots as PNG files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlgo_gym.cli._rollout import replacing
from mlgo_gym.errors import OptionsError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI: Final = 120


def make_folder(folder: Path) -> None:
    """Make the folder of plots, before the work that they are to show.

    Raises:
        OptionsError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionsError(f"cannot write {str(folder)!r}: {error.strerror}") from error


def save_plots(folder: Path, plots: Mapping[str, Figure]) -> None:
    """Write each plot as ``NAME.png`` into a folder.

    Raises:
        OptionsError: it cannot be written there.
    """
    for name, figure in plots.items():
        with replacing(folder / f"{name}.png") as file:
            figure.savefig(file, format="png", dpi=_DPI)
