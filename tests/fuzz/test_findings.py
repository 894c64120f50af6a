"""What fuzzing has found is read again: it is taken, or refused by an error that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import OWN, TARGETS

FOUND = sorted((Path(__file__).parent / "findings").glob("*/*"))


@pytest.mark.parametrize("found", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_finding_is_none_now(found: Path, tmp_path: Path) -> None:
    target = TARGETS[found.parent.name.replace("-", " ")]
    target.around(tmp_path)
    path = tmp_path / target.name
    path.write_bytes(found.read_bytes())
    try:
        target.read(path)
    except OWN as error:
        assert not target.names_it or path.name in str(error) or str(tmp_path) in str(error)
