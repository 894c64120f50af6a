"""docs/guides/training.md has each setting of each trainer, with its default."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.errors import OptionsError
from mlgo_gym.training._train import TRAINERS, configured, imported

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
    config = imported(trainer).Config()
    assert rows == list(settings_of(config))


BAD = {
    "teacher.bags=0": "teacher.bags: expected a whole number from 1 to 2,147,483,648, found 0",
    "teacher.bag_share=1.5": "teacher.bag_share: expected a number above 0 and up to 1, found 1.5",
    "teacher.l2=-1": "teacher.l2: expected a number of at least 0, found -1.0",
    "band=[1]": "band: expected 2 values, found (1,)",
    "band=[5, 1]": "band: expected two costs, the lower one first, found (5, 1)",
    "hidden=[0.5]": "hidden: expected a whole number from 1 to 4,096, found 0.5",
    "hidden=[true]": "hidden: expected a whole number from 1 to 4,096, found True",
    'labels=["a", 1]': "labels: expected a value of type str, found 1",
    "fit.batch_size=0": "fit.batch_size: expected a whole number from 1 to 2,147,483,648, found 0",
    "fit.learning_rate=NaN": "fit.learning_rate: expected a number above 0, found nan",
    "fit.learning_rate=1e400": "fit.learning_rate: expected a number above 0, found inf",
    "caution=-1": "caution: expected a number of at least 0, found -1.0",
    "seed=-1": "seed: expected a whole number from 0 to 4,294,967,295, found -1",
}


@pytest.mark.parametrize("setting", BAD)
def test_numbers_out_of_range(setting: str) -> None:
    """They are refused before anything is compiled."""
    with pytest.raises(OptionsError) as caught:
        configured(imported("advantage").Config(), [setting])
    assert str(caught.value) == f"--set {BAD[setting]}"
