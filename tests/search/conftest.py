"""The corpora of tiny programs, for searches by what programs take."""

from __future__ import annotations

from tests.lab.programs.conftest import corpus

__all__ = ["corpus"]
