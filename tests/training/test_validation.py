"""What models are chosen by."""

from __future__ import annotations

import math

import pytest

from mlgo_gym.training.validation import Validation


def test_modules_that_are_worse_count() -> None:
    bold = Validation({"text": -0.04, "linked_text": -0.02}, worse=20, modules=100, failed=0)
    careful = Validation({"text": -0.03, "linked_text": -0.015}, worse=0, modules=100, failed=0)
    assert careful.loss(worse_weight=0.1) < bold.loss(worse_weight=0.1)
    assert bold.loss(worse_weight=0.0) == pytest.approx(-0.02)
    assert careful.loss(worse_weight=0.0) == pytest.approx(-0.015)


def test_register_allocation_is_chosen_by_its_score() -> None:
    assert Validation(
        {"score_mean": 0.5, "score_module_mean": -0.25, "text": 0.1}, worse=1, modules=10, failed=0
    ).loss() == pytest.approx(-0.25 + 0.1 / 10)


def test_nothing_compiled_is_never_better() -> None:
    assert Validation({}, worse=0, modules=0, failed=3).loss() == math.inf
