"""Baselines are compiled once per module and options; scores are relative to them."""

from __future__ import annotations

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import UsageError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.scoring._baseline import BaselineCache, relative_reduction


@pytest.mark.parametrize(
    ("size", "baseline", "score"),
    [(90, 100, 0.1), (100, 100, 0.0), (130, 100, -0.3), (0, 100, 1.0), (0, 0, 0.0), (5, 0, -1.0)],
)
def test_positive_is_smaller(size: int, baseline: int, score: float) -> None:
    assert relative_reduction(size, baseline) == pytest.approx(score)


def test_each_is_compiled_once(small: Corpus) -> None:
    module = small["digest.c"]
    with Compiler() as compiler:
        baselines = BaselineCache(compiler, InliningForSize())
        first = baselines.get(module, options_of(module))
        other = baselines.get(module, options_of(module, "O1"))
        assert first.settings != other.settings
    # The compiler is closed: what is known already is all there is.
    assert baselines.get(small["digest.c"], options_of(module)) is first
    with pytest.raises(UsageError, match="^compiler: closed$"):
        baselines.get(module, options_of(module, "O2"))
