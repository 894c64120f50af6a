"""A policy in PyTorch, made by hand, as a model directory; its answers are compared.

It needs PyTorch and ``pip install 'mlgo-gym[tflite,train]'``.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import torch

from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
from mlgo_gym.problems import Action
from mlgo_gym.runners import RunnerPolicy, runner_factory
from mlgo_gym.stream import Observation
from mlgo_gym.training import VectorNormalization, export_torch

problem = InliningForSize()
names = problem.layout.feature_names

# Inline what costs less than 30, on the logarithm that SignedLogObservation makes of it.
layer = torch.nn.Linear(len(names), 2)
with torch.no_grad():
    layer.weight.zero_()
    layer.weight[0, names.index("cost_estimate")] = 1.0
    layer.bias.copy_(torch.tensor([0.0, math.log(1 + 29.5)]))
policy = torch.nn.Sequential(layer)


def in_torch(observation: Observation) -> int:
    x = np.array([observation[name][0] for name in names], np.float64)
    x = np.sign(x) * np.log1p(np.abs(x))
    with torch.no_grad():
        return int(policy(torch.from_numpy(x.astype(np.float32))).argmax())


with tempfile.TemporaryDirectory() as folder, Compiler() as compiler:
    model = Path(folder) / "model"
    export_torch(policy, problem, model, normalization=VectorNormalization(signed_log=True))
    answers: list[tuple[Action, ...]] = []
    module = Corpus.load(SAMPLE_CORPUS)["scene.cpp"]
    with (
        RunnerPolicy(runner_factory(str(model), "release")).begin(module) as native,
        RunnerPolicy(runner_factory(str(model), "under-training")).begin(module) as tflite,
    ):

        def compare(observation: Observation) -> Action:
            each = (in_torch(observation), native(observation), tflite(observation))
            answers.append(each)
            return each[0]

        result = compiler.compile_module(module, problem=problem, policy=compare)
same = sum(len(set(each)) == 1 for each in answers)
print(f"{same} of {len(answers)} answers agree in PyTorch, native code and TFLite;", end=" ")
print(f"{result.module}: {result.text_size_bytes} bytes")
