"""Exact advantages: what the other answer to each decision would have led to.

The policy compiles the module once. At each decision a branch takes the other answer and goes on
under the policy, so what two branches have in common is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.errors import OptionsError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._policy import Answer
from mlgo_gym.records._replay import trace_of
from mlgo_gym.records._trace import Trace
from mlgo_gym.search._crew import Crew
from mlgo_gym.stream._events import Observation


@dataclass(frozen=True, slots=True)
class Advantages:
    """What flipping each decision changes.

    Attributes:
        trace: the policy's own compilation, with its observations.
        saved_bytes: ``float64 [decisions]``: the bytes of text that taking the other answer at
            this one decision, and the policy's ever after, would have saved. Positive means that
            the other answer is better; NaN that LLVM crashed or hung there.
    """

    trace: Trace
    saved_bytes: np.ndarray[Any, np.dtype[np.float64]]


def advantages(
    compiler: Compiler,
    module: Module,
    policy: Answer,
    problem: InliningForSize | None = None,
    options: CompileOptions | None = None,
    *,
    jobs: int = 1,
    is_wanted: Callable[[Observation], bool] = lambda _: True,
) -> Advantages:
    """Flip every decision of a policy on a module.

    Args:
        compiler: what compiles.
        module: what is compiled.
        policy: a function of the observation alone.
        problem: what LLVM asks for; ``None`` is `InliningForSize` with LLVM's growth limit.
        options: as in `Compiler.start`.
        jobs: how many branches go on at once.
        is_wanted: which decisions to flip; the others have NaN.

    Raises:
        OptionsError: ``jobs`` is not above 0.
        ModuleError: LLVM refused the module.
        CompilationError: LLVM crashed or outran its deadline under the policy itself.
    """
    if jobs < 1:
        raise OptionsError(f"jobs: expected a number above 0, found {jobs}")
    observations: list[Observation] = []
    sizes: dict[int, int] = {}
    with (
        compiler.start(module, problem or InliningForSize(), options) as trunk,
        Crew[int](policy, jobs) as crew,
    ):
        while (observation := trunk.next_observation()) is not None:
            action = policy(observation)
            if is_wanted(observation):
                branch = trunk.fork()
                branch.answer(1 - action)
                crew.add(branch, trunk.decisions)
            trunk.answer(action)
            observations.append(observation)
            sizes |= {tag: end.text_size_bytes for tag, end in crew.drain() if end}
        sizes |= {tag: end.text_size_bytes for tag, end in crew.drain(is_last=True) if end}
        trace = trace_of(trunk, observations)
    saved = np.full(trace.decisions, np.nan)
    for index, size_bytes in sizes.items():
        saved[index] = trace.text_size_bytes - size_bytes
    return Advantages(trace, saved)
