"""Policies of models: by card, by address, in every mode."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import ModelError, OptionsError, UsageError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.policies._models import model_policies, problem_of_models
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.runners._base import MLModelRunner
from mlgo_gym.runners._load import runner_factory
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.runners._release import ReleaseModeModelRunner
from mlgo_gym.runners._scripted import ScriptedRunner
from mlgo_gym.stream._events import Header, Observation
from mlgo_gym.tensor_spec import TensorSpec

MODELS = Path(__file__).parents[1] / "models"
INLINING = InliningForSize()


def test_the_problem_of_models(tmp_path: Path) -> None:
    eviction, inlining = str(MODELS / "lowest_density"), str(MODELS / "never")
    assert problem_of_models([eviction, inlining]) is RegallocEviction
    assert problem_of_models([str(tmp_path), inlining]) is InliningForSize
    assert problem_of_models([str(tmp_path), "localhost:5000"]) is InliningForSize
    card = json.loads((MODELS / "never" / "card.json").read_text()) | {"problem": "Outlining"}
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(ModelError) as caught:
        problem_of_models([str(tmp_path), inlining])
    assert str(caught.value) == (
        f"model {str(tmp_path)!r}: problem: expected one of InliningForSize, RegallocEviction, "
        "RegallocPriority, found 'Outlining'"
    )


def test_models_elsewhere_have_their_addresses_as_names() -> None:
    """Nobody is asked for anything before LLVM asks."""
    addresses = ["localhost:1", "unix:/nowhere"]
    with model_policies(addresses, "interactive", INLINING) as found:
        assert list(found) == addresses
        assert all(isinstance(each, RunnerPolicy) for each in found.values())


def release_runner() -> MLModelRunner:
    return ReleaseModeModelRunner(MODELS / "inliner", INLINING.sent(), INLINING.advice)


@pytest.mark.parametrize("mode", ["release", "under-training"])
def test_modes_answer_alike(mode: str, compiler: Compiler, sample: Corpus) -> None:
    module = sample["frame_stream.c"]
    answered: list[int] = []
    with release_runner() as runner:

        def answer(observation: Observation) -> int:
            runner.fill(observation.payload)
            answered.append(runner.evaluate().item())
            return answered[-1]

        expected = compiler.compile_module(module, problem=INLINING, policy=answer)
    assert set(answered) == {0, 1}
    with model_policies([str(MODELS / "inliner")], mode, INLINING) as found:
        (policy,) = found.values()
        result = compiler.compile_module(module, problem=INLINING, policy=policy)
    assert result.object_sha256 == expected.object_sha256


def test_a_mode_that_is_none() -> None:
    with pytest.raises(OptionsError) as caught:
        runner_factory("model", "fast")
    assert str(caught.value) == (
        "mode: expected one of release, under-training, interactive, found 'fast'"
    )


@pytest.mark.parametrize("advice", [None, TensorSpec("both", "int64_t", (2,))])
def test_an_advice_that_is_no_number(advice: TensorSpec | None) -> None:
    policy = RunnerPolicy(
        lambda inputs, output: ScriptedRunner(lambda _: [0, 0], inputs, output), keep=True
    )
    size = TensorSpec("size", "int64_t", (1,))
    observation = Observation(Header((size,), advice=advice), "f", 0, bytes(8))
    module = Module.from_ir("")
    with policy.begin(module) as answer, pytest.raises(UsageError) as caught:
        answer(observation)
    assert str(caught.value) == f"runner: expected an advice of one number, found {advice}"
