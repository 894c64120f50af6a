"""Policies of models: by card, by address, in every mode."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import ModelError, OptionsError, UsageError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._vocabulary import PRESETS, Vocabulary
from mlgo_gym.runners._base import MLModelRunner, ScriptedRunner
from mlgo_gym.runners._load import runner_factory
from mlgo_gym.runners._model_runners import ReleaseModeModelRunner
from mlgo_gym.runners._models import (
    load_model,
    model_policies,
    problem_of_models,
    settings_of_models,
)
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.stream._training_log import Header, Observation

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


def test_what_cards_name(tmp_path: Path) -> None:
    """A known vocabulary, or the file beside it; another is refused before anything is compiled."""
    card = json.loads((MODELS / "never" / "card.json").read_text())
    model = shutil.copytree(MODELS / "never", tmp_path / "model")

    def settings(**named: str) -> dict[str, Any]:
        (model / "card.json").write_text(json.dumps(card | {"settings": named}))
        return settings_of_models([str(MODELS / "never"), str(model)], InliningForSize)

    assert settings() == {}
    assert settings(ir2vec="ones") == {"ir2vec": "ones"}
    assert settings(ir2vec="ir2vec.json") == {"ir2vec": model / "ir2vec.json"}
    assert settings_of_models([str(model)], RegallocEviction) == {}
    with pytest.raises(ModelError) as caught:
        settings(ir2vec="../ir2vec.json")
    assert str(caught.value) == (
        f"model {str(model)!r}: card.json: ir2vec: expected one of {', '.join(PRESETS)}, "
        "ir2vec.json, found '../ir2vec.json'"
    )
    hashes = {
        name: hashlib.sha256(Vocabulary.of(name).data).hexdigest() for name in ("ones", "one-hot")
    }
    settings(ir2vec="ones", ir2vec_sha256=hashes["ones"])
    for problem in (INLINING, InliningForSize(ir2vec="ones")):
        assert load_model(model, problem).problem == problem
    with pytest.raises(ModelError) as caught:
        load_model(model, InliningForSize(ir2vec="one-hot"))
    assert str(caught.value) == (
        f"model {str(model)!r}: ir2vec: expected that of SHA-256 {hashes['ones']}, which it was "
        f"trained with, found {hashes['one-hot']}; what the card names need not be given"
    )


def test_models_elsewhere_have_their_addresses_as_names() -> None:
    """Nobody is asked for anything before LLVM asks."""
    addresses = ["localhost:1", "unix:/nowhere"]
    with model_policies(addresses, "interactive", INLINING) as found:
        assert list(found) == addresses
        assert all(isinstance(each, RunnerPolicy) for each in found.values())


def release_runner() -> MLModelRunner:
    return ReleaseModeModelRunner(MODELS / "inliner", INLINING.layout.specs, INLINING.advice)


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
