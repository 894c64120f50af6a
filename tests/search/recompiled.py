"""What other answers save, the plain way: by compiling again for each."""

from __future__ import annotations

from collections.abc import Collection

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._policy import Answer
from mlgo_gym.stream._training_log import Observation


def saved_by_single_flips(compiler: Compiler, module: Module, policy: Answer) -> list[int]:
    """For each decision the bytes of text that the other answer at it alone saves."""
    size, decisions = _compiled(compiler, module, policy, ())
    return [size - _compiled(compiler, module, policy, (at,))[0] for at in range(decisions)]


def saved_together(
    compiler: Compiler, module: Module, policy: Answer, flipped: Collection[int]
) -> int:
    """The bytes of text that the other answers at these decisions save together."""
    size, _ = _compiled(compiler, module, policy, ())
    return size - _compiled(compiler, module, policy, flipped)[0]


def _compiled(
    compiler: Compiler, module: Module, policy: Answer, flipped: Collection[int]
) -> tuple[int, int]:
    def answer(observation: Observation) -> int:
        return int(policy(observation)) ^ (observation.index in flipped)

    result = compiler.compile_module(module, problem=InliningForSize(), policy=answer)
    return result.text_size_bytes, result.decisions
