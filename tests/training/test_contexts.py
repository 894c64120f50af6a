"""Contexts: functions and modules, their baselines, and how they are drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm._result import CompilationResult
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._inlining_for_size import InliningForSize, always
from mlgo_gym.problems._regalloc_eviction import RegallocEviction, keep, lowest_density
from mlgo_gym.rollout._allocation import Allocator, OptimizedModule
from mlgo_gym.rollout._measures import Result, TextSize
from mlgo_gym.rollout._rollout import Failure
from mlgo_gym.training._data import Sampler, TrainingContext, Workshop

EVICTION = RegallocEviction()


class WholeObject(TextSize):
    """All bytes of all sections."""

    key: str = "bytes"
    title: str = "bytes of all sections"

    def score(self, result: Result) -> float:
        if not isinstance(result, CompilationResult):
            raise TypeError(type(result))
        return float(sum(size for _, size in result.sections))


@dataclass(frozen=True)
class InliningForObjects(InliningForSize):
    name: ClassVar[str] = "InliningForObjects"
    measure: ClassVar[str] = f"{__name__}:WholeObject"


def packages(corpus: Corpus, *names: str) -> Packages:
    return Packages.of({"sample": corpus.only(names)})


def joined(modules: Iterable[list[TrainingContext]]) -> list[TrainingContext]:
    return [each for contexts in modules for each in contexts]


def test_functions_are_scored_as_in_their_module(compiler: Compiler, sample: Corpus) -> None:
    module = sample["expr_vm.c"]
    allocator = Allocator(compiler, EVICTION)
    result, whole = allocator.baseline(allocator.optimize(module, options_of(module)))
    with Workshop(EVICTION, jobs=1, timeout_s=120) as workshop:
        contexts = joined(workshop.contexts(packages(sample, "expr_vm.c")))
        costs = workshop.each(
            contexts, lambda worker, each: workshop.score(worker, each, lowest_density)
        )
        allocated = allocator.allocate(whole, lowest_density)
        assert contexts
        for context, cost in zip(contexts, costs, strict=True):
            name = context.name.removeprefix("sample/expr_vm.c:")
            assert context.baseline == result.scores[name].value
            assert context.share == pytest.approx(context.baseline / result.score)
            assert cost.value == allocated.scores[name].value
            assert 0 <= context.potential <= context.share


@pytest.mark.e2e
def test_what_potential_is(compiler: Compiler, sample: Corpus) -> None:
    """What nobody spills cannot be saved; and where all is spilled, there is more of it."""
    with Workshop(EVICTION, jobs=1, timeout_s=120) as workshop:
        contexts = joined(workshop.contexts(packages(sample, "bignum.c", "matrix.cpp")))
        assert any(each.potential > 0 for each in contexts)
        context = max(contexts, key=lambda each: each.potential)
        assert workshop.score(compiler, context, keep) > context.baseline


def test_modules_of_the_inliner(compiler: Compiler, sample: Corpus) -> None:
    names = ("frame_stream.c", "scene.cpp")
    with Workshop(InliningForSize(), jobs=2, timeout_s=120) as workshop:
        contexts = joined(workshop.contexts(packages(sample, *names)))
        sizes = list(
            workshop.each(contexts, lambda worker, each: workshop.score(worker, each, always))
        )
    assert [each.name for each in contexts] == ["sample/frame_stream.c", "sample/scene.cpp"]
    for name, context, size in zip(names, contexts, sizes, strict=True):
        assert context.baseline == compiler.compile_module(sample[name]).text_size_bytes
        assert context.log_ratio(context.baseline) == 0
        inlined = compiler.compile_module(
            sample[name], problem=InliningForSize(), policy=always
        ).text_size_bytes
        assert size.value == inlined


def test_another_measure_of_modules(compiler: Compiler, sample: Corpus) -> None:
    problem = InliningForObjects()
    plain = compiler.compile_module(sample["frame_stream.c"])
    inlined = compiler.compile_module(sample["frame_stream.c"], problem=problem, policy=always)
    with Workshop(problem, jobs=1, timeout_s=120) as workshop:
        (context,) = joined(workshop.contexts(packages(sample, "frame_stream.c")))
        assert context.baseline == WholeObject().score(plain) > plain.text_size_bytes
        assert workshop.score(compiler, context, always) == WholeObject().score(inlined)


def test_what_fails_and_what_asks_nothing_is_left_out(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "broken.bc").write_bytes(b"BC\xc0\xde")
    quiet = 'target triple = "x86_64-unknown-linux-gnu"\ndefine i32 @f() { ret i32 1 }\n'
    optimized = Allocator(compiler, EVICTION).optimize(Module.from_ir(quiet), CompileOptions())
    (tmp_path / "quiet.bc").write_bytes(optimized.module.data)
    corpus = Corpus(tmp_path, ("broken", "quiet"))
    warnings: list[Failure] = []
    with Workshop(EVICTION, jobs=1, timeout_s=60, warn=warnings.append) as workshop:
        assert list(workshop.contexts(Packages.of({"package": corpus}))) == [[], []]
    assert list(map(str, warnings)) == [
        "package: module 'broken': LLVM bitcode parsing error\nExpected a single module"
    ]


def contexts_of(*rows: tuple[float, float, int]) -> list[TrainingContext]:
    return [
        TrainingContext(str(index), Module(str(index), bytes(size)), 1.0, share, potential)
        for index, (share, potential, size) in enumerate(rows)
    ]


def test_what_is_drawn() -> None:
    sampler = Sampler(contexts_of((0.9, 0.5, 100), (0.1, 0.0, 100), (0.9, 0.5, 10_000)))
    drawn = [sampler.draw(1, np.random.default_rng(seed))[0] for seed in range(600)]
    counts = np.bincount(drawn, minlength=3)
    assert counts[0] > 2 * counts[2] > 4 * counts[1] > 0
    assert sorted(sampler.draw(5, np.random.default_rng(0))) == [0, 1, 2]
    assert sampler.draw(2, np.random.default_rng(7)) == sampler.draw(2, np.random.default_rng(7))


def test_what_is_drawn_stands_for_all() -> None:
    """Shares over probabilities: with one drawn, the weighted mean is that of the shares."""
    rows = contexts_of((0.5, 0.2, 100), (0.3, 0.1, 100), (0.2, 0.2, 400))
    sampler = Sampler(rows)
    drawn = [sampler.draw(1, np.random.default_rng(seed))[0] for seed in range(4000)]
    weights = sampler.weights
    sums = np.bincount(drawn, weights[drawn], minlength=3)
    np.testing.assert_allclose(sums / sums.sum(), [0.5, 0.3, 0.2], atol=0.03)
    assert weights.max() <= Sampler.MOST


def test_a_context_that_is_a_function(sample: Corpus) -> None:
    with Workshop(EVICTION, jobs=1, timeout_s=120) as workshop:
        context, *_ = next(workshop.contexts(packages(sample, "bignum.c")))
    assert isinstance(context.code, OptimizedModule)
    assert context.size_bytes == len(context.code.module.data)
