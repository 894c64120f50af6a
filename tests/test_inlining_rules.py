"""The rules of the OpenEnv example: what is taken, and what they are worth."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from mlgo_gym import SAMPLE_CORPUS, Corpus

RULES: Any = importlib.import_module("examples.inlining_rules.server.rules")
CORPUS = Corpus.load(SAMPLE_CORPUS).only(["digest.c", "lisp_cells.c"])


def test_llvms_own_rule_saves_nothing() -> None:
    saved, modules = RULES.score(CORPUS, "cost_estimate < 5")
    assert saved == 0
    assert {name: each["bytes"] - each["bytes_of_llvm"] for name, each in modules.items()} == {
        "digest.c": 0,
        "lisp_cells.c": 0,
    }


def test_a_rule_is_worth_what_its_answers_are() -> None:
    saved, _ = RULES.score(CORPUS, "cost_estimate < 5 and not callee_users >= 2 - 1 * 9")
    never, _ = RULES.score(CORPUS, "0")
    assert saved == never < 0


def test_ir_and_features() -> None:
    assert RULES.ir(CORPUS, "digest.c", 0, 1) == 'source_filename = "digest.c"'
    assert "cost_estimate" in RULES.FEATURES


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("__import__('os').system('true')", "found Call"),
        ("cost_estimate.real", "found Attribute"),
        ("[1]", "found List"),
        ("9 ** 9 ** 9", "found Pow"),
        ("size < 3", "found size, which is no feature of LLVM's"),
        ("'text'", "found 'text'"),
        ("import os", "expected an expression of Python"),
        ("(" * 300 + "1" + ")" * 300, "expected an expression of Python"),
        ("1" * (RULES.MOST_CHARACTERS + 1), f"found {RULES.MOST_CHARACTERS + 1:,}"),
    ],
)
def test_what_is_no_rule(text: str, found: str) -> None:
    with pytest.raises(ValueError, match=r"expected") as caught:
        RULES.Rule(text)
    assert found in str(caught.value)
