"""Text as a picture, for those who record videos of episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from corpus_tools.printable import printable
from mlgo_gym.base import EnvironmentSetupError, OptionsError

RENDER_MODES: Final = ("ansi", "rgb_array")
WIDTH, HEIGHT = 800, 480
_MARGIN: Final = 16
_SPACING: Final = 6
_PAPER, _INK = "white", "black"
_NEEDED: Final = "render: drawing needs Pillow; run: pip install 'mlgo-gym[plot]'"

Picture = np.ndarray[Any, np.dtype[np.uint8]]


def drawn(text: str) -> Picture:
    """Draw lines of text; ``uint8 (480, 800, 3)``, whatever they are. What does not fit is cut.

    Raises:
        EnvironmentSetupError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageDraw  # noqa: PLC0415 - an extra has it
    except ModuleNotFoundError as error:
        raise EnvironmentSetupError(_NEEDED) from error
    image = Image.new("RGB", (WIDTH, HEIGHT), _PAPER)
    at = (_MARGIN, _MARGIN)
    ImageDraw.Draw(image).multiline_text(at, text, fill=_INK, spacing=_SPACING)
    return np.asarray(image)


def check_render_mode(mode: object) -> None:
    """See that `rendered` knows a mode.

    Raises:
        OptionsError: it does not.
    """
    if mode is not None and mode not in RENDER_MODES:
        known = " or ".join(map(repr, RENDER_MODES))
        raise OptionsError(f"render_mode: expected None, {known}, found {mode!r}")


def rendered(mode: str | None, shown: Callable[[], str]) -> str | Picture | None:
    """Render a state by its lines of text, in a mode that was checked.

    Raises:
        EnvironmentSetupError: a picture is asked for, and Pillow is not installed.
    """
    if mode is None:
        return None
    text = "".join(f"{printable(line)}\n" for line in shown().splitlines())  # names are foreign
    return drawn(text) if mode == "rgb_array" else text
