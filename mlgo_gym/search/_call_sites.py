"""Which function calls which: the names behind LLVM's questions about inlining.

LLVM's observations name neither caller nor callee, but what it prints does. With
``-print-pass-numbers`` it says which functions the inliner is about to look at
(``PrintIRInstrumentation`` in ``llvm/lib/Passes/StandardInstrumentations.cpp``), and with remarks
on, its advisor names the callee of each decision, followed by the features
(``MLInlineAdvice::reportContextForRemark`` in ``llvm/lib/Analysis/MLInlineAdvisor.cpp``). What of
that says nothing of the inliner never leaves the worker, so that a compilation takes about a tenth
longer meanwhile.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mlgo_gym.corpus._corpus import Module
from mlgo_gym.errors import ModuleError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm._task import COMPILE
from mlgo_gym.objects._functions import FunctionSize, function_sizes
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._policy import PolicyLike, as_policy
from mlgo_gym.stream._events import Observation

CallSite = tuple[str, int]
"""The functions that the inliner looks at, as LLVM prints them, and how many decisions they have
had before: what comes before a decision does not change with other functions' decisions."""

_WITH_NAMES: Final = replace(
    COMPILE,
    printing=("-print-pass-numbers", "-pass-remarks=inline-ml", "-pass-remarks-missed=inline-ml"),
)
_LOOKS_AT: Final = re.compile(r" InlinerPass on \((.*)\)$", re.MULTILINE)
_REMARK: Final = re.compile("remark: .*")
_WORD_BYTES: Final = 8
_UNKNOWN: Final = "?"
_NOT_LLVMS: Final = InliningForSize.optional["derived"]


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
        asked: list[tuple[CallSite, Observation, int]] = []
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
                asked.append((site, observation, action))
                compilation.answer(action)
            reader.take(compilation.take_stderr())
            result = compilation.result
        callees = reader.callees([observation.sent for _, observation, _ in asked])
        decisions = (
            NamedDecision(site, callee, observation.payload, action)
            for (site, observation, action), callee in zip(asked, callees, strict=True)
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

    def callees(self, asked: Sequence[Observation]) -> list[str]:
        """The decisions' callees, from remarks with their features; LLVM decides others itself."""
        remarks = iter(self._remarks)
        callees: list[str] = []
        for observation in asked:
            features = _as_printed(observation)
            named = (_callee(remark, *features) for remark in remarks)
            found = next((name for name in named if name is not None), None)
            if found is None:
                raise ModuleError(
                    self._module,
                    f"expected a remark for each of {len(asked)} decisions, found "
                    f"{len(self._remarks)} remarks that name {len(callees)}",
                )
            callees.append(found)
        return callees


def _as_printed(sent: Observation) -> tuple[str, str, str]:
    """A decision's features in a remark: those before and behind `_UNKNOWN`, if that is between.

    Of each of LLVM's tensors the first eight bytes are printed, as an integer. Behind a shorter one
    it is not known what lies there.
    """
    words = (
        sent.payload[where][:_WORD_BYTES]
        for name, (_, where) in sent.header.slices.items()
        if name not in _NOT_LLVMS
    )
    text = "".join(
        str(int.from_bytes(word, sys.byteorder, signed=True))
        if len(word) == _WORD_BYTES
        else _UNKNOWN
        for word in words
    )
    before, unknown, rest = text.partition(_UNKNOWN)
    return before, unknown, rest.rpartition(_UNKNOWN)[2]


def _callee(remark: str, before: str, unknown: str, after: str) -> str | None:
    """The name in front of these features; None where a remark has others."""
    head = remark.removesuffix("true").removesuffix("false")
    name, found, between = head.removesuffix(after).rpartition(before)
    fits = found and head.endswith(after) and (unknown or not between)
    return name.rpartition(": ")[2] if fits and not between.strip("-0123456789") else None
