"""The names of measures: what help lists, which loads none of them."""

from __future__ import annotations

from typing import Final

from mlgo_gym.base import plugins

GROUP: Final = "mlgo_gym.measures"
OWN_NAMES: Final = ("text", "linked", "linked_text_gc", "linked_text_icf")


def reward_names() -> tuple[str, ...]:
    """The measures that a reward can name: our own, then those of other packages.

    >>> reward_names()[:2]
    ('text', 'linked')
    """
    return (*OWN_NAMES, *plugins(GROUP, OWN_NAMES))
