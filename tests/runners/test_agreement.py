"""Native code and TFLite agree on what LLVM really asks, ten thousand times and more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.rollout._rollout import Decision, RecordingPolicy
from mlgo_gym.runners._model_runners import ModelUnderTrainingRunner, ReleaseModeModelRunner

MODEL = Path(__file__).parent.parent / "models" / "inliner"


def recorded(compiler: Compiler, sample: Corpus) -> list[bytes]:
    """What LLVM asks about the sample corpus under several policies."""
    payloads: list[bytes] = []
    for seed in range(4):
        for name in sample:
            policy = InliningForSize.policy("random" if seed else "default", seed)
            decisions: list[Decision] = []
            watched = RecordingPolicy(policy, InliningForSize(), decisions)
            compiler.compile_module(sample[name], problem=InliningForSize(), policy=watched)
            payloads += [each.payload for each in decisions]
    return payloads


@pytest.mark.e2e
def test_decisions_and_logits(compiler: Compiler, sample: Corpus) -> None:
    payloads = recorded(compiler, sample)
    assert len(payloads) > 10_000
    inputs, advice = InliningForSize().layout.specs, InliningForSize.advice
    decisions, ours, theirs = set(), [], []
    with (
        ReleaseModeModelRunner(MODEL, inputs, advice) as native,
        ModelUnderTrainingRunner(MODEL, inputs, advice) as tflite,
    ):
        for payload in payloads:
            native.fill(payload)
            tflite.fill(payload)
            decision = int(native.evaluate()[0])
            assert decision == int(tflite.evaluate()[0])
            decisions.add(decision)
            ours.append(native.extra_outputs()["logits"])
            theirs.append(tflite.extra_outputs()["logits"])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert decisions == {0, 1}
