"""A call fails in the middle of a command; ``make faults`` tries them all."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.faults.__main__ import KINDS, PLACES, build_interposer, faults
from tests.faults.scenarios import SCENARIOS


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_interposer(tmp_path_factory.mktemp("interposer"))


@pytest.mark.e2e
@pytest.mark.parametrize(("place", "kind"), itertools.product(PLACES, KINDS))
@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each != "train"])
def test_the_first_calls(library: Path, scenario: str, place: str, kind: str) -> None:
    found = list(faults(library, scenario, place, kind, range(1, 7)))
    assert any(each["fired"] for each in found) or place == "children"
    assert [each for each in found if each["bad"]] == []


def test_what_is_broken_is_seen(library: Path) -> None:
    (first, *_) = faults(library, "compile", "host", "ENOSPC", range(7, 8))
    assert first["fired"]
    assert "No space left on device" in first["said"]
