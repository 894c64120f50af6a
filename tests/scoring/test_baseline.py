"""Baselines are compiled once per module and options."""

from __future__ import annotations

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import UsageError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.scoring._baseline import BaselineCache


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
