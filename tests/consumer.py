"""A program of another project, for type checkers: tests/test_typing.py."""

from __future__ import annotations

from pathlib import Path

from mlgo_gym import SAMPLE_CORPUS, CompilationResult, Compiler, Corpus, InliningForSize
from mlgo_gym.envs import FloatVectorObservation, make_env
from mlgo_gym.evaluation import Scored, evaluate
from mlgo_gym.stream import Observation


def cheap(observation: Observation) -> int:
    return int(observation["cost_estimate"][0] < 30)


def compiled(name: str) -> CompilationResult:
    with Compiler() as compiler:
        module = Corpus.load(SAMPLE_CORPUS)[name]
        return compiler.compile_module(module, problem=InliningForSize(), policy=cheap)


def shape() -> tuple[int, ...] | None:
    env = FloatVectorObservation(make_env("inlining-for-size", derived=True))
    try:
        return env.observation_space.shape
    finally:
        env.close()


def evaluated(folder: Path) -> Scored:
    return evaluate([], folder, policies={"cheap": cheap}, jobs=2)


def size() -> int:
    return compiled("digest.c").text_size_bytes
