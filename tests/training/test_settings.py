"""docs/guides/training.md has each setting of each trainer, with its default."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.training._train import TRAINERS, imported

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "training.md"


def settings_of(config: Any, before: str = "") -> Iterator[tuple[str, str]]:
    for each in fields(config):
        value = getattr(config, each.name)
        if is_dataclass(value):
            yield from settings_of(value, f"{before}{each.name}.")
        else:
            yield before + each.name, json.dumps(value)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_page_has_all_settings_with_their_defaults(trainer: str) -> None:
    section = PAGE.read_text().partition(f"\n### `{trainer}`\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| `(.+?)` \| \S.* \|$", section, re.MULTILINE)
    config = getattr(imported(trainer), f"{trainer.capitalize()}Config")()
    assert rows == list(settings_of(config))
