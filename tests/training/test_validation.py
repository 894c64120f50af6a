"""What models are chosen by."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.rollout._allocation import Allocator, OptimizedModule
from mlgo_gym.rollout._rollout import Failure
from mlgo_gym.training._data import Data, TrainingContext, Workshop
from mlgo_gym.training._export import CompiledNetwork
from mlgo_gym.training._networks import Normalization, network_features, network_for
from mlgo_gym.training._validation import Validation, validate, validate_functions
from tests.training.conftest import Recorded

EVICTION = RegallocEviction()
MODULES = ("bignum.c", "expr_vm.c")


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


@pytest.fixture
def workshop() -> Iterator[Workshop]:
    with Workshop(EVICTION, jobs=1, timeout_s=120) as workshop:
        yield workshop


@pytest.fixture(scope="module")
def contexts(sample: Corpus) -> list[TrainingContext]:
    packages = Packages.of({"sample": sample.only(MODULES)})
    with Workshop(EVICTION, jobs=1, timeout_s=120) as workshop:
        return [each for found in workshop.contexts(packages) for each in found]


@pytest.fixture(scope="module")
def network(eviction: Recorded) -> Iterator[CompiledNetwork]:
    """It answers by chance."""
    statistics = Normalization.fit(EVICTION.layout.columns(eviction), network_features(EVICTION))
    network = network_for(EVICTION, statistics, (8,), 0)
    generator = np.random.default_rng(0)
    network.set_weights([generator.normal(0, 3, each.shape) for each in network.get_weights()])
    with CompiledNetwork(network, EVICTION) as compiled:
        yield compiled


@pytest.mark.e2e
def test_functions_by_themselves_give_what_modules_do(
    workshop: Workshop,
    contexts: list[TrainingContext],
    network: CompiledNetwork,
    compiler: Compiler,
    sample: Corpus,
) -> None:
    modules, functions = [], []
    allocator = Allocator(compiler, EVICTION)
    for name in MODULES:
        optimized = allocator.optimize(sample[name], options_of(sample[name]))
        baseline, optimized = allocator.baseline(optimized)
        found = allocator.allocate(optimized, network.answer)
        modules.append(math.log(found.score / baseline.score))
        functions += [
            math.log(found.scores[each].value / baseline.scores[each].value) for each in found.asked
        ]
    validation = validate_functions(workshop, contexts, network)
    expected = {"score_module_mean": np.mean(modules), "score_mean": np.mean(functions)}
    assert validation.changes == pytest.approx({k: math.expm1(v) for k, v in expected.items()})
    assert any(modules)
    assert validation.worse == sum(each > math.log(1.01) for each in modules) > 0
    assert (validation.modules, validation.failed) == (2, 0)


@pytest.mark.e2e
def test_a_function_that_fails_is_left_out(
    workshop: Workshop, contexts: list[TrainingContext], network: CompiledNetwork
) -> None:
    code = contexts[0].code
    assert isinstance(code, OptimizedModule)
    broken = replace(code, module=replace(code.module, data=b"BC"))
    found = validate_functions(workshop, [replace(contexts[0], code=broken)], network)
    assert (found.failed, found.modules) == (1, 1)
    assert found.changes == {"score_module_mean": 0.0, "score_mean": 0.0}


@pytest.mark.e2e
def test_no_function_asks(workshop: Workshop, network: CompiledNetwork) -> None:
    assert validate_functions(workshop, [], network).modules == 0


MODELS = Path(__file__).parents[1] / "models"


@pytest.mark.e2e
def test_a_model_is_validated_on_what_compiles(sample: Corpus, tmp_path: Path) -> None:
    (tmp_path / "broken.c.bc").write_bytes(b"no bitcode")
    held_out = Packages.of(
        {"sample": sample.only(("frame_stream.c",)), "mine": Corpus(tmp_path, ("broken.c",))}
    )
    warnings: list[Failure] = []
    data = Data(held_out, held_out, warn=warnings.append)
    found = {
        name: validate(MODELS / name, data, InliningForSize()) for name in ("default", "never")
    }
    assert [(each.modules, each.failed) for each in found.values()] == [(1, 1)] * 2
    assert found["default"].changes == dict.fromkeys(found["default"].changes, 0.0)
    assert found["default"].worse == 0 < found["never"].worse
    assert found["never"].changes["text"] > 0
    assert found["never"].to_json()["failed_modules"] == 1
    assert set(map(str, warnings)) == {
        "mine: module 'broken.c': LLVM bitcode parsing error\nInvalid bitcode signature"
    }
