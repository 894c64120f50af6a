"""Which function calls which: the names behind LLVM's questions about inlining.

LLVM's observations name neither caller nor callee, but what it prints does. With
``-print-pass-numbers`` it says which functions the inliner is about to look at
(``PrintIRInstrumentation`` in ``llvm/lib/Passes/StandardInstrumentations.cpp``), and with remarks
on, its advisor names the callee of each decision, followed by the features
(``MLInlineAdvice::reportContextForRemark`` in ``llvm/lib/Analysis/MLInlineAdvisor.cpp``). A
compilation takes about twice as long meanwhile.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.errors import ModuleError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm._task import COMPILE
from mlgo_gym.objects._functions import FunctionSize, function_sizes
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._policy import PolicyLike, as_policy

CallSite = tuple[str, int]
"""The functions that the inliner looks at, as LLVM prints them, and how many decisions they have
had before: what comes before a decision does not change with other functions' decisions."""

_WITH_NAMES: Final = replace(
    COMPILE,
    printing=("-print-pass-numbers", "-pass-remarks=inline-ml", "-pass-remarks-missed=inline-ml"),
)
_LOOKS_AT: Final = re.compile(r" InlinerPass on \((.*)\)$", re.MULTILINE)
_REMARK: Final = re.compile("remark: .*")


@dataclass(frozen=True, slots=True)
class NamedDecision:
    """One decision: where it was asked, who is called, what LLVM sent, and the answer."""

    site: CallSite
    callee: str
    payload: bytes = field(repr=False)
    action: int

    @property
    def callers(self) -> list[str]:
        """The functions one of which has the call; more than one where they call each other."""
        return self.site[0].split(", ")


@dataclass(frozen=True, slots=True)
class NamedCompilation:
    """A compilation whose decisions have names, with the functions of its object."""

    decisions: tuple[NamedDecision, ...] = field(repr=False)
    functions: Mapping[str, FunctionSize] = field(repr=False)
    text_size_bytes: int
    opt_level: str


class NamingCompiler:
    """Compiles one module under one policy, again and again, and names its decisions.

    Args:
        compiler: what compiles; better one of its own, since other compilations have another
            worker.
        module: what is compiled.
        policy: what answers; it begins anew with each compilation.
        problem: what LLVM asks for; ``None`` is `InliningForSize` with LLVM's growth limit.

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
    ) -> None:
        self.options: Final = options_of(module)
        self._compiler = compiler
        self._module = module
        self._policy = as_policy(policy)
        self._problem = problem or InliningForSize()

    def compile(self, flips: Mapping[CallSite, int] | None = None) -> NamedCompilation:
        """Compile, with other answers at some call sites.

        Raises:
            ModuleError: LLVM refused the module, or what it prints names other decisions than
                those that it asked about.
            CompilationError: LLVM crashed or outran its deadline.
        """
        flips = flips or {}
        reader = _Reader(self._module.name)
        asked: list[tuple[CallSite, bytes, int]] = []
        with (
            self._policy.begin(self._module) as answer,
            self._compiler.start(
                self._module,
                self._problem,
                self.options,
                keep_object=True,
                task=_WITH_NAMES,
                keep_stderr=True,
            ) as compilation,
        ):
            while (observation := compilation.next_observation()) is not None:
                site = reader.site(compilation.take_stderr())
                action = flips.get(site)
                if action is None:
                    action = int(answer(observation))
                asked.append((site, observation.payload, action))
                compilation.answer(action)
            reader.take(compilation.take_stderr())
            result = compilation.result
        callees = reader.callees([payload for _, payload, _ in asked])
        decisions = (
            NamedDecision(site, callee, payload, action)
            for (site, payload, action), callee in zip(asked, callees, strict=True)
        )
        return NamedCompilation(
            tuple(decisions),
            function_sizes(result.object_bytes or b""),
            result.text_size_bytes,
            str(result.settings["opt_level"]),
        )


class _Reader:
    """Reads what LLVM prints."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._callers = ""
        self._counts: Counter[str] = Counter()
        self._remarks: list[str] = []

    def site(self, printed: str) -> CallSite:
        """The call site of the decision that is asked about after this was printed."""
        self.take(printed)
        count = self._counts[self._callers]
        self._counts[self._callers] += 1
        return self._callers, count

    def take(self, printed: str) -> None:
        for callers in _LOOKS_AT.findall(printed):
            self._callers = callers
        self._remarks += _REMARK.findall(printed)

    def callees(self, payloads: list[bytes]) -> list[str]:
        """The decisions' callees, from remarks with their features; LLVM decides others itself."""
        remarks = iter(self._remarks)
        callees = []
        for payload in payloads:
            features = "".join(map(str, np.frombuffer(payload, np.int64).tolist()))
            for remark in remarks:
                head = remark.removesuffix("true").removesuffix("false")
                if head.endswith(features):
                    callees.append(head[: -len(features)].rpartition(": ")[2])
                    break
            else:
                raise ModuleError(
                    self._module,
                    f"expected a remark for each of {len(payloads)} decisions, found "
                    f"{len(self._remarks)} remarks that name {len(callees)}",
                )
        return callees
