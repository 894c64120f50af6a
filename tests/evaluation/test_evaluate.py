"""Scores of modules: a module that is not there, and a name that is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import OptionsError
from mlgo_gym.evaluation._evaluate import Setting, module_scores
from mlgo_gym.problems._inlining_for_size import InliningForSize, never
from mlgo_gym.problems._regalloc_eviction import RegallocEviction


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    """Its language is nobody's; what is wrong, the compilation says."""
    (found,) = module_scores(
        Packages.of({"p": Corpus(tmp_path, ("missing.c",))}),
        {"never": never},
        Setting(InliningForSize()),
    )
    assert (found.package, found.module, found.language) == ("p", "missing.c", "other")
    (error,) = found.errors
    assert error.startswith("module 'missing.c': cannot read ")


def test_a_policy_of_the_baselines_name(sample: Corpus) -> None:
    with pytest.raises(OptionsError) as caught:
        next(module_scores(sample, {"LLVM": never}, Setting(InliningForSize())))
    assert str(caught.value) == "policy: expected a name other than 'LLVM', found it"


def test_traces_of_what_makes_no_objects(tmp_path: Path) -> None:
    Setting(InliningForSize(), traces=tmp_path)
    with pytest.raises(OptionsError) as caught:
        Setting(RegallocEviction(), traces=tmp_path)
    assert str(caught.value) == "traces: expected InliningForSize, found RegallocEviction"
