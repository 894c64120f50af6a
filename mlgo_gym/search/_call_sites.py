"""Names of caller and callee behind LLVM's questions about inlining.

LLVM's observations name neither caller nor callee. The worker, which sees the call that is asked
about (`mlgo_gym.llvm.inside._call_site`), tells them as each observation's context, so that a
compilation takes about a tenth longer meanwhile.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mlgo_gym.base import EnvironmentSetupError
from mlgo_gym.corpus import FunctionSize, Module, function_sizes
from mlgo_gym.llvm import (
    COMPILE,
    CompilationResult,
    CompileOptions,
    Compiler,
    Task,
    flipped,
    options_of,
)
from mlgo_gym.problems import InliningForSize, PolicyLike, as_policy
from mlgo_gym.stream import Observation

CallSite = tuple[str, int]
"""A caller, and how many decisions it has had before: what comes before a decision does not change
with other functions' decisions."""


@dataclass(frozen=True, slots=True)
class NamedDecision:
    """One decision: where it was asked, who is called, what LLVM sent, and the answer."""

    site: CallSite
    callee: str
    payload: bytes = field(repr=False)
    action: int

    @property
    def caller(self) -> str:
        """The function that has the call."""
        return self.site[0]


@dataclass(frozen=True, slots=True)
class NamedCompilation:
    """A compilation whose decisions have names, with the functions of its object."""

    decisions: tuple[NamedDecision, ...] = field(repr=False)
    functions: Mapping[str, FunctionSize] = field(repr=False)
    result: CompilationResult = field(repr=False)

    @property
    def text_size_bytes(self) -> int:
        """The bytes of the object's code."""
        return self.result.text_size_bytes

    @property
    def opt_level(self) -> str:
        """The level that it was compiled at."""
        return str(self.result.settings["opt_level"])


class NamingCompiler:
    """Compiles one module under one policy, again and again, and names its decisions.

    Args:
        compiler: what compiles; better one of its own, since other compilations have another
            worker.
        module: what is compiled.
        policy: what answers; it begins anew with each compilation.
        problem: what LLVM asks for; ``None`` is `InliningForSize` with LLVM's growth limit.
        task: the product of a compilation, apart from names.
        options: how it is compiled; ``None`` is as the module's command line says.

    Attributes:
        options: how it is compiled.

    Raises:
        ModuleError: the module's command line cannot be honoured.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     named = NamingCompiler(compiler, module, InliningForSize.policy()).compile()
    >>> named.decisions[0].callee in named.functions or named.decisions[0].callee != ""
    True
    """

    def __init__(
        self,
        compiler: Compiler,
        module: Module,
        policy: PolicyLike,
        problem: InliningForSize | None = None,
        *,
        task: Task = COMPILE,
        options: CompileOptions | None = None,
    ) -> None:
        self.options: Final = options or options_of(module)
        self.compiler: Final = compiler
        self.module: Final = module
        self._policy = as_policy(policy)
        self._problem = problem or InliningForSize()
        self._task = replace(task, names=True)

    def compile(self, flips: Mapping[CallSite, int] | None = None) -> NamedCompilation:
        """Compile, with other answers at some call sites.

        Raises:
            ModuleError: LLVM refused the module.
            EnvironmentSetupError: names are not told by the worker that there is.
            CompilationError: LLVM crashed or outran its deadline.
        """
        flips = flips or {}
        problem, counts = self._problem, Counter[str]()
        decisions: list[NamedDecision] = []
        sent = self._policy.for_worker(problem)
        with (
            self._policy.begin(self.module) as answer,
            self.compiler.start(
                self.module,
                problem,
                self.options,
                keep_object=True,
                task=self._task,
                inside={problem: flipped(sent, flips)} if sent else {},
            ) as compilation,
        ):
            for observation in compilation:
                decisions += _answered(compilation.take_kept(problem), counts)
                site, callee = _named(observation, counts)
                action = flips.get(site)
                if action is None:
                    action = int(answer(observation))
                decisions.append(NamedDecision(site, callee, observation.payload, action))
                compilation.answer(action)
            decisions += _answered(compilation.take_kept(problem), counts)
            result = compilation.result
        return NamedCompilation(
            tuple(decisions),
            function_sizes(result.object_bytes or b""),
            result,
        )


def _answered(
    kept: Iterable[tuple[Observation, bytes]], counts: Counter[str]
) -> Iterator[NamedDecision]:
    """The decisions that were made in the worker."""
    for observation, advice in kept:
        action = int.from_bytes(advice, sys.byteorder, signed=True)
        yield NamedDecision(*_named(observation, counts), observation.payload, action)


def _named(observation: Observation, counts: Counter[str]) -> tuple[CallSite, str]:
    """Return the call site of the next decision, and the callee."""
    names = observation.context.split("\0")
    if len(names) != 2:
        raise EnvironmentSetupError(
            f"names: expected those of caller and callee, found {names}; workers tell them on Linux"
        )
    caller, callee = names
    counts[caller] += 1
    return (caller, counts[caller] - 1), callee
