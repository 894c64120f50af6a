"""Beam search over the decisions of one module."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.errors import CompilationError, OptionsError
from mlgo_gym.llvm._compilation import Compilation
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._policy import Answer
from mlgo_gym.records._replay import trace_of
from mlgo_gym.records._trace import Trace
from mlgo_gym.stream._events import Observation


@dataclass(frozen=True, slots=True)
class _Member:
    """A compilation under way, and where it ends if the policy goes on: text in bytes, object."""

    compilation: Compilation
    size_bytes: int
    object_sha256: str


def beam_search(
    compiler: Compiler,
    module: Module,
    policy: Answer,
    problem: InliningForSize | None = None,
    options: CompileOptions | None = None,
    *,
    width: int = 2,
    is_wanted: Callable[[Observation], bool] = lambda _: True,
) -> Trace:
    """Follow the best few ways through a module's decisions; the best of them at the end.

    At each decision every member of the beam may also take the other answer. What a way is worth
    is the exact size that it ends with when the policy goes on, found in a branch. Of ways that end
    with the same object one is kept, then the ``width`` smallest. The result is never larger than
    the policy's own.

    Args:
        compiler: what compiles.
        module: what is compiled.
        policy: a function of the observation alone.
        problem: what LLVM asks for; ``None`` is `InliningForSize` with LLVM's growth limit.
        options: as in `Compiler.start`.
        width: how many ways are kept.
        is_wanted: at which decisions the other answer is looked at.

    Raises:
        OptionsError: the width is not above 0.
        ModuleError: LLVM refused the module.
        CompilationError: LLVM crashed or outran its deadline under the policy itself.
    """
    if width < 1:
        raise OptionsError(f"width: expected a number above 0, found {width}")
    chosen = problem or InliningForSize()
    plain = compiler.compile_module(module, options, problem=chosen, policy=policy)
    with ExitStack() as stack:
        trunk = stack.enter_context(compiler.start(module, chosen, options))
        beam = [_Member(trunk, plain.text_size_bytes, plain.object_sha256)]
        while any(member.compilation.next_observation() is not None for member in beam):
            others = [each for member in beam for each in _children(member, policy, is_wanted)]
            for each in others:
                stack.enter_context(each.compilation)
            beam = _best([*beam, *others], width)
        return trace_of(beam[0].compilation)


def _children(
    member: _Member, policy: Answer, is_wanted: Callable[[Observation], bool]
) -> list[_Member]:
    """Answer the member's decision as the policy does; the other answer is its child."""
    compilation = member.compilation
    observation = compilation.next_observation()
    if observation is None:
        return []
    action = policy(observation)
    children = []
    if is_wanted(observation):
        child = compilation.fork()
        child.answer(1 - action)
        try:
            if child.next_observation() is not None:
                children.append(_valued(child, policy))
            else:
                children.append(
                    _Member(child, child.result.text_size_bytes, child.result.object_sha256)
                )
        except CompilationError:
            child.close()
    compilation.answer(action)
    return children


def _valued(compilation: Compilation, policy: Answer) -> _Member:
    """A member, once a branch of it has gone on under the policy to the end."""
    with compilation.fork() as branch:
        while (observation := branch.next_observation()) is not None:
            branch.answer(policy(observation))
        result = branch.result
    return _Member(compilation, result.text_size_bytes, result.object_sha256)


def _best(members: list[_Member], width: int) -> list[_Member]:
    """The smallest of different ends; the rest is closed. Earlier members win ties."""
    best: list[_Member] = []
    for member in sorted(members, key=lambda each: each.size_bytes):
        if len(best) < width and all(member.object_sha256 != each.object_sha256 for each in best):
            best.append(member)
        else:
            member.compilation.close()
    return best
