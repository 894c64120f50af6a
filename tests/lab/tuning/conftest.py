"""Recorded decisions of the sample corpus."""

from tests.training.conftest import inlining

__all__ = ["inlining"]  # a fixture
