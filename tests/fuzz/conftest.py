"""The worker that compiles what is hostile ends with the test that started it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.targets import limited


@pytest.fixture(autouse=True)
def _no_worker_stays() -> Iterator[None]:
    yield
    if limited.cache_info().currsize:
        limited().close()
        limited.cache_clear()
