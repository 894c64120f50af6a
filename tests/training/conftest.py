"""What tests of training share: recorded decisions of the sample corpus, and data to train on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.problems._policy import Action
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction, legal_positions
from mlgo_gym.stream._training_log import Observation
from mlgo_gym.training._data import Data
from tests.lab.programs.conftest import corpus

__all__ = ["Recorded", "corpus", "data_of", "eviction", "inlining", "record"]

Recorded = np.ndarray[Any, Any]


def data_of(corpus: Corpus, *names: str, jobs: int = 1, **more: Any) -> Data:
    """Some modules to train on, and another one to choose on."""
    packages = Packages.of({"sample": corpus.only(names)})
    held_out = Packages.of({"held-out": corpus.only(("lru_cache.cpp",))})
    return Data(packages, held_out, jobs=jobs, **more)


def record(sample: Corpus, problem: Problem, names: tuple[str, ...]) -> Recorded:
    payloads: list[bytes] = []

    def answer(observation: Observation) -> Action:
        payloads.append(observation.payload)
        if isinstance(problem, InliningForSize):
            return default(observation)
        return legal_positions(observation)[0]

    with Compiler(timeout_s=120) as compiler:
        for name in names:
            compiler.compile_module(sample[name], problem=problem, policy=answer)
    return problem.layout.array(payloads)


@pytest.fixture(scope="session")
def inlining(sample: Corpus) -> Recorded:
    return record(sample, InliningForSize(), ("scene.cpp", "json_read.c", "frame_stream.c"))


@pytest.fixture(scope="session")
def eviction(sample: Corpus) -> Recorded:
    return record(sample, RegallocEviction(), ("bignum.c", "frame_stream.c", "scene.cpp"))
