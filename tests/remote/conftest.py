"""One server for all tests of a process, and an empty bucket for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec.asyn
import pytest

from tests.remote.server import Storage, served, settings


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    fsspec.asyn.get_loop()  # it stays until the process ends
    with served() as address:
        yield address


@pytest.fixture
def storage(endpoint: str, tmp_path: Path) -> Iterator[Storage]:
    with settings(endpoint, tmp_path / "cache"):
        made = Storage(endpoint)
        made.clear()
        yield made
