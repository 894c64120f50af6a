"""How many examples a generated test takes."""

from __future__ import annotations

from typing import Final

from hypothesis import Phase, settings

_USUAL: Final = settings.get_profile("mlgo-gym").max_examples
_WITHOUT_SHRINKING: Final = (Phase.explicit, Phase.reuse, Phase.generate)


def examples(usual: int, *, steps: int = 50, is_dear: bool = False) -> settings:
    """So many with the usual profile, and with another as many times more as it has itself.

    Args:
        usual: how many `make test` can afford.
        steps: how many steps of a state machine one has at most.
        is_dear: one takes a while; to find the smallest that fails would take minutes, which only
            those who explore have.
    """
    share = settings().max_examples / _USUAL
    phases = _WITHOUT_SHRINKING if is_dear and share <= 1 else settings().phases
    return settings(
        max_examples=max(1, round(usual * share)), stateful_step_count=steps, phases=phases
    )
