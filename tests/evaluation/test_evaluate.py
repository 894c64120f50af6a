"""Scores of modules: a module that is not there, and a name that is taken."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import ModuleError, OptionsError
from mlgo_gym.evaluation._evaluate import Setting, module_scores
from mlgo_gym.problems._inlining_for_size import InliningForSize, always, never
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._regalloc_eviction import RegallocEviction, lowest_density


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    """Its language is nobody's; what is wrong, the compilation says."""
    (found,) = module_scores(
        Packages.of({"p": Corpus(tmp_path, ("missing.c",))}),
        {"never": never},
        Setting(InliningForSize()),
    )
    assert (found.package, found.module, found.language) == ("p", "missing.c", "other")
    (error,) = found.errors
    assert str(error).startswith("module 'missing.c': cannot read ")
    assert (type(error.error), error.error.errno) == (ModuleError, errno.ENOENT)


def test_a_policy_of_the_baselines_name(sample: Corpus) -> None:
    with pytest.raises(OptionsError) as caught:
        next(module_scores(sample, {"LLVM": never}, Setting(InliningForSize())))
    assert str(caught.value) == "policy: expected a name other than 'LLVM', found it"


def test_traces_of_what_makes_no_objects(tmp_path: Path) -> None:
    Setting(InliningForSize(), traces=tmp_path)
    with pytest.raises(OptionsError) as caught:
        Setting(RegallocEviction(), traces=tmp_path)
    assert str(caught.value) == "traces: expected InliningForSize, found RegallocEviction"


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("setting", "policies"),
    [
        (Setting(InliningForSize(), keep_smaller=True), {"never": never, "always": always}),
        (
            Setting(RegallocEviction(), keep_smaller=True),
            {"random": RegallocEviction.policy("random", 1), "density": lowest_density},
        ),
    ],
)
def test_the_best_of_each_module(
    sample: Corpus, setting: Setting, policies: dict[str, PolicyLike]
) -> None:
    names = ["lru_cache.cpp", "expr_compile.c", "expr_vm.c"]
    found = list(module_scores(sample.only(names), policies, setting))
    for each in found:
        sizes = dict(each.costs) or {name: code.text_bytes for name, code in each.code.items()}
        least = sizes.pop("smallest")
        assert least <= min(sizes.values()) if each.costs else least == min(sizes.values())
        counts = {mean.count for mean in each.functions.values()}
        assert len(counts) == bool(each.costs)
    assert len(found) == 3
    with pytest.raises(OptionsError) as caught:
        next(module_scores(sample, {"smallest": never}, setting))
    assert str(caught.value) == "policy: expected a name other than 'smallest', found it"
