"""Every command refuses a path that is missing; ``make inputs`` tries all paths in ten ways."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.faults.inputs import Case, commands, is_path, tried

PARSERS: Final = dict(commands())
PATHS: Final = {
    words: [(*each.option_strings, each.dest)[0] for each in parser._actions if is_path(each)]
    for words, parser in PARSERS.items()
}


@pytest.mark.parametrize("words", [each for each in PARSERS if PATHS[each]], ids=" ".join)
@pytest.mark.parametrize("kind", ["below a file"])
def test_a_path_of_every_command(words: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    found = tried(Case(words, PATHS[words][0], kind), PARSERS[words], tmp_path)
    assert found in {("refused", ""), ("taken", "")}
