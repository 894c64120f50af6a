"""What the embedded compiler leaves out of modules' command lines: for people and for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mlgo_gym.cli.show._output import Output


def count_not_honoured(modules: Iterable[tuple[str, ...]]) -> dict[str, int]:
    """In how many modules each option is not honoured, from what is not in each."""
    return dict(Counter(entry for module in modules for entry in module))


def warn_of_not_honoured(counts: dict[str, int], output: Output) -> None:
    """One line for each option."""
    for entry, modules in counts.items():
        output.warn(f"not honoured in {modules} module{'s' * (modules > 1)}: {entry}")
