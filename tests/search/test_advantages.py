"""Exact advantages, against compiling again from the start for each decision."""

from __future__ import annotations

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import ModuleError, OptionsError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.search._advantages import advantages
from mlgo_gym.search._beam import beam_search
from mlgo_gym.stream._events import Observation


def flipped(compiler: Compiler, module: Module, at: int) -> int:
    def policy(observation: Observation) -> int:
        return default(observation) ^ (observation.index == at)

    result = compiler.compile_module(module, problem=InliningForSize(), policy=policy)
    return result.text_size_bytes


@pytest.mark.parametrize("jobs", [1, 3])
def test_they_are_what_compiling_again_gives(compiler: Compiler, small: Corpus, jobs: int) -> None:
    module = small["digest.c"]
    found = advantages(compiler, module, default, jobs=jobs)
    base = compiler.compile_module(module, problem=InliningForSize(), policy=default)
    assert found.trace.object_sha256 == base.object_sha256
    expected = [
        base.text_size_bytes - flipped(compiler, module, at) for at in range(base.decisions)
    ]
    assert found.saved_bytes.tolist() == expected
    assert len(set(expected)) > 2
    assert found.trace.observation(base.decisions - 1)


def test_only_what_is_wanted(compiler: Compiler, small: Corpus) -> None:
    found = advantages(
        compiler, small["digest.c"], default, is_wanted=lambda each: each.index % 5 == 0
    )
    assert np.isnan(found.saved_bytes).tolist() == [
        index % 5 != 0 for index in range(found.trace.decisions)
    ]


def test_where_nothing_is_asked(compiler: Compiler) -> None:
    module = Module.from_ir('target triple = "x86_64-pc-linux-gnu"\n')
    assert advantages(compiler, module, default).saved_bytes.tolist() == []
    with pytest.raises(ModuleError, match="bitcode parsing error"):
        advantages(compiler, Module("broken", b"BC\xc0\xde"), default)
    assert beam_search(compiler, module, default).decisions == 0


def test_a_beam_is_no_worse_than_its_policy(compiler: Compiler, small: Corpus) -> None:
    module = small["digest.c"]
    gains = advantages(compiler, module, default)
    narrow = beam_search(compiler, module, default, width=1)
    wide = beam_search(compiler, module, default, width=3)
    best_flip = gains.trace.text_size_bytes - max(0, int(gains.saved_bytes.max()))
    assert narrow.text_size_bytes <= gains.trace.text_size_bytes
    assert wide.text_size_bytes <= narrow.text_size_bytes
    assert best_flip < gains.trace.text_size_bytes  # there is something to find
    assert wide.text_size_bytes < gains.trace.text_size_bytes
    only_kept = beam_search(compiler, module, default, is_wanted=lambda _: False)
    assert only_kept.object_sha256 == gains.trace.object_sha256


def test_bad_settings(compiler: Compiler, small: Corpus) -> None:
    with pytest.raises(OptionsError, match="^jobs: expected a number above 0, found 0$"):
        advantages(compiler, small["digest.c"], default, jobs=0)
    with pytest.raises(OptionsError, match="^width: expected a number above 0, found 0$"):
        beam_search(compiler, small["digest.c"], default, width=0)
