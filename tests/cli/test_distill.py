"""``mlgo-gym distill``: the table, the record, the model that is used, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from tests.cli.command import run
from tests.cli.test_evaluate import copied

DISTILL = ("distill", "--model", "inlining-for-size", "--output", "rule", "--rounds", "1")


@pytest.mark.smoke
@pytest.mark.e2e
def test_from_a_model_to_a_rule_that_is_used(sample: Corpus, tmp_path: Path) -> None:
    names = ("bignum.c", "expr_vm.c", "lru_cache.cpp", "scene.cpp")
    corpus = ("--corpus", copied(sample, names, tmp_path / "corpus"))
    done = run(*DISTILL, *corpus, "--lines", "20", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads(done.stdout)
    text = (tmp_path / "rule" / "rule.py").read_text()
    assert (record["rule"], record["output"]) == (text, "rule")
    assert record["lines"] == text.count("\n") <= 20
    assert record["network"]["modules"] == record["validation"]["modules"] == 1
    done = run("evaluate", "--model", "rule", *corpus, "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert list(json.loads(done.stdout)["policies"]) == ["rule"]


def test_a_model_of_another_problem(tmp_path: Path) -> None:
    done = run("distill", "--model", "regalloc-eviction", "--output", "rule", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "mlgo-gym: error: distill: expected a model for InliningForSize, whose decisions are about "
        "the numbers of one call, found one for RegallocEviction\n",
    )


def test_too_few_lines(tmp_path: Path) -> None:
    done = run(*DISTILL, "--lines", "3", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "mlgo-gym: error: lines: expected at least 12, which a rule of one question takes, "
        "found 3\n",
    )
