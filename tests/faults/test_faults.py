"""A call fails in the middle of a command; ``make faults`` tries them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.__main__ import KINDS, Bench, build_interposer
from tests.faults.scenarios import SCENARIOS

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_interposer(tmp_path_factory.mktemp("interposer"))


@pytest.mark.parametrize(
    "scenario", [each for each in SCENARIOS if each not in {"train", "driver"}]
)
def test_the_first_calls(library: Path, scenario: str) -> None:
    with Bench(library, scenario, "host") as bench:
        found = [bench.fault(kind, number) for kind in KINDS for number in (1, 3, 8)]
    assert sum(each["fired"] for each in found) > len(KINDS)
    assert [each for each in found if each["bad"]] == []


def test_the_first_calls_of_a_worker(library: Path) -> None:
    with Bench(library, "compile", "children") as bench:
        found = [bench.fault(kind, number) for kind in KINDS for number in (1, 3, 8)]
    assert [each for each in found if each["bad"]] == []


def test_a_fault_is_had(library: Path) -> None:
    with Bench(library, "compile", "host") as bench:
        found = bench.fault("ENOSPC", 8)
    assert found["fired"]
    assert "No space left on device" in found["said"]
    assert not found["bad"]


@pytest.mark.parametrize(
    ("place", "kind"), [("host", "SIGKILL"), ("host", "SIGINT"), ("children", "SIGKILL")]
)
def test_signals(library: Path, place: str, kind: str) -> None:
    with Bench(library, "fork", place) as bench:
        found = [bench.fault(kind, number) for number in range(1, 7)]
    assert any(each["fired"] for each in found)
    assert [each for each in found if each["bad"]] == []
