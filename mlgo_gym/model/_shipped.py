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
    """The models by name.

    >>> sorted(shipped_models())
    ['inlining-for-size', 'regalloc-eviction']
    """
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

    >>> Path(find_model("inlining-for-size")).name, find_model("localhost:5000")
    ('inlining-for-size', 'localhost:5000')
    """
    folder = None if Path(text).exists() else shipped_models().get(text)
    return text if folder is None else str(folder)
