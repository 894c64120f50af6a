"""Models that ship with the package, found by name.

They are folders in ``models`` at the top of the repository, and in ``shipped`` here in a wheel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

PLACES: Final = (Path(__file__).parent / "shipped", Path(__file__).parents[2] / "models")
"""Where they may be: in a wheel, and in a checkout."""

_CARD: Final = "card.json"


def shipped_models() -> dict[str, Path]:
    """The models by name."""
    found: dict[str, Path] = {}
    for place in PLACES:
        for card in sorted(place.glob(f"*/{_CARD}")):
            found.setdefault(card.parent.name, card.parent)
    return found


def find_model(text: str) -> str:
    """The folder of a shipped model, where a text is its name and nothing of that name is here.

    Args:
        text: a path, an address, or the name of a shipped model.

    Returns:
        The folder; the text as it was where it is no such name.
    """
    folder = None if Path(text).exists() else shipped_models().get(text)
    return text if folder is None else str(folder)
