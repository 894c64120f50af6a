"""What other answers save, the plain way: by compiling again for each."""

from __future__ import annotations

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._policy import Answer
from mlgo_gym.stream._events import Observation


def saved_by_single_flips(compiler: Compiler, module: Module, policy: Answer) -> list[int]:
    """For each decision the bytes of text that the other answer at it alone saves."""

    def size_bytes(flipped: int | None) -> tuple[int, int]:
        def answer(observation: Observation) -> int:
            return int(policy(observation)) ^ (observation.index == flipped)

        result = compiler.compile_module(module, problem=InliningForSize(), policy=answer)
        return result.text_size_bytes, result.decisions

    size, decisions = size_bytes(None)
    return [size - size_bytes(at)[0] for at in range(decisions)]
