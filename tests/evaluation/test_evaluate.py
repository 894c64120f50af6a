"""Scores of modules: a module that is not there, and a name that is taken."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import ModuleError, OptionsError, TraceError
from mlgo_gym.evaluation._evaluate import Setting, evaluate, module_scores, with_searched
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize, always, never
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._regalloc_eviction import RegallocEviction, lowest_density
from mlgo_gym.rollout._replay import record


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


def test_a_seed_that_cannot_be_is_refused_before_the_work(sample: Corpus) -> None:
    with pytest.raises(OptionsError, match="^seed: expected a whole number from 0 on, found -1$"):
        evaluate("no-such-model", sample, seed=-1)


def test_what_a_search_has_found(compiler: Compiler, sample: Corpus, tmp_path: Path) -> None:
    """It is one more policy; a module without a trace is LLVM's."""
    packages = Packages.of({"p": sample.only(["digest.c", "frame_stream.c"])})
    setting, module = Setting(InliningForSize()), sample["digest.c"]
    trace = record(compiler, module, InliningForSize(), never)
    trace.save(tmp_path / "p" / "any.trace")
    record(compiler, sample["scene.cpp"], InliningForSize(), never).save(tmp_path / "other.trace")
    policies = with_searched({"never": never}, tmp_path, packages, setting)
    assert list(policies) == ["never", "search"]
    found = {each.module: each for each in module_scores(packages, policies, setting)}
    digest, other = found["digest.c"], found["frame_stream.c"]
    assert digest.code["search"] == digest.code["never"] != digest.code["LLVM"]
    assert other.code["search"] == other.code["LLVM"] != other.code["never"]
    with pytest.raises(OptionsError) as caught:
        with_searched(policies, tmp_path, packages, setting)
    assert str(caught.value) == "policy: expected a name other than 'search', found it"


def test_traces_that_are_not_of_this_evaluation(
    compiler: Compiler, sample: Corpus, tmp_path: Path
) -> None:
    packages = Packages.of({"p": sample.only(["digest.c"])})
    setting = Setting(InliningForSize())
    with pytest.raises(OptionsError) as caught:
        with_searched({}, tmp_path, packages, setting)
    assert str(caught.value) == (
        f"traces {str(tmp_path)!r}: expected one of these modules, found none"
    )
    trace = record(compiler, sample["digest.c"], InliningForSize(), never)
    for changed, message in (
        (replace(trace, llvm_version="21.1.0"), "llvm_version: expected 21.1.0, found "),
        (replace(trace, settings={**trace.settings, "cpu": "z13"}), "cpu: expected z13, found "),
    ):
        changed.save(tmp_path / "digest.c.trace")
        with pytest.raises(TraceError, match=f"^trace 'digest.c': {message}"):
            with_searched({}, tmp_path, packages, setting)
    trace.save(tmp_path / "digest.c.trace")
    with pytest.raises(TraceError, match="opt_level: expected Oz, found O2"):
        with_searched({}, tmp_path, packages, replace(setting, opt_level="O2"))


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
