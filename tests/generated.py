"""How many examples a generated test takes."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

_USUAL: Final = settings.get_profile("mlgo-gym").max_examples


def examples(usual: int, *, steps: int = 50) -> settings:
    """So many with the usual profile, and with another as many times more as it has itself.

    Args:
        usual: how many `make test` can afford.
        steps: how many steps of a state machine one has at most.
    """
    share = settings().max_examples / _USUAL
    return settings(max_examples=max(1, round(usual * share)), stateful_step_count=steps)
