"""Many flips at once: what each of a hundred other answers changes, from one compilation.

Flipping a decision changes the function that has the call, those that this function is inlined
into, and whether the callee is still needed, which its few other callers may answer to. Flips
whose functions do not overlap can be made in the same compilation: the sizes of the functions in
the object say what each of them did. Against compiling again for every flip this costs less by the
number of flips that fit, a few dozen for a C++ file.

What is missed: effects on other functions than those, such as through features that count the whole
module (``node_count``); on real modules the attributed bytes add up to the object's own difference
within a few percent.

LLVM's observations name neither caller nor callee. The worker, which sees the call that is asked
about (`mlgo_gym.llvm.inside._call_site`), tells them as each observation's context, so that a
compilation takes about a tenth longer meanwhile.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import numpy as np

from mlgo_gym.base import EnvironmentSetupError
from mlgo_gym.corpus import FunctionSize, Module, function_sizes
from mlgo_gym.llvm import (
    COMPILE,
    CompilationResult,
    CompileOptions,
    Compiler,
    Task,
    options_of,
)
from mlgo_gym.llvm import flipped as with_flips
from mlgo_gym.problems import InliningForSize, PolicyLike, as_policy
from mlgo_gym.stream import Observation

CallSite = tuple[str, int]
"""A caller, and how many decisions it has had before: what comes before a decision does not change
with other functions' decisions."""

_LEAST: Final = 1e-9
_FEW: Final = 3
"""A callee of at most so many callers: the policy may answer one differently once another's call is
inlined, since the callee's last call is worth more."""


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
                inside={problem: with_flips(sent, flips)} if sent else {},
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


Wanted = Callable[[NamedDecision], float]
"""How much a decision is wanted, from 0 to 1: the chance that it is considered."""


@dataclass(frozen=True, slots=True)
class Flip:
    """Answers tried together: positions of decisions, and the functions that they may change."""

    decisions: tuple[int, ...]
    functions: frozenset[str]


@dataclass(frozen=True, slots=True)
class FlipEffect:
    """The effect of a flip: by how much each changed function is smaller."""

    flip: Flip
    saved_bytes: Mapping[str, int] = field(repr=False)

    def total(self, share: Callable[[str], float] = lambda _: 1.0) -> float:
        """The bytes saved, each function's multiplied with its share."""
        return sum(saved * share(name) for name, saved in self.saved_bytes.items())


def disjoint_flips(
    base: NamedCompilation,
    random: np.random.Generator,
    wanted: Wanted,
    *,
    by_callee: bool,
) -> list[Flip]:
    """Draw flips at random whose effects do not overlap.

    Args:
        base: the compilation that they are flips of.
        random: draws them.
        wanted: how much a decision is wanted, from 0 to 1; it is the chance that it is
            considered, and what is wanted more comes first.
        by_callee: a flip is all calls of one callee; otherwise it is one decision.

    >>> import numpy as np
    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     base = NamingCompiler(compiler, module, InliningForSize.policy()).compile()
    >>> random = np.random.default_rng(0)
    >>> len(disjoint_flips(base, random, lambda decision: 1.0, by_callee=False)) > 1
    True
    """
    influence = _Influence(base.decisions)
    taken: set[str] = set()
    flips = []
    for group in _drawn(base, random, wanted, by_callee=by_callee):
        functions = influence.of(base.decisions[index] for index in group)
        if taken.isdisjoint(functions):
            taken |= functions
            chosen = _other_answers(base.decisions, group, random)
            flips.append(Flip(chosen, frozenset(functions)))
    return flips


def single_flips(
    base: NamedCompilation,
    random: np.random.Generator,
    wanted: Wanted,
    count: int,
    *,
    by_callee: bool,
) -> list[Flip]:
    """At most ``count`` flips as of `disjoint_flips`, to be made each in a compilation of its own.

    They may change the same functions, which are not looked for.
    """
    groups = islice(_drawn(base, random, wanted, by_callee=by_callee), count)
    return [Flip(_other_answers(base.decisions, group, random), frozenset()) for group in groups]


def effects_of(
    compiler: NamingCompiler, base: NamedCompilation, flips: Sequence[Flip]
) -> list[FlipEffect]:
    """Make flips in one compilation, and return what each changed.

    A flip whose decisions did not come again, or were about another callee, is left out.

    Args:
        compiler: of the module.
        base: what it made without the flips.
        flips: from `disjoint_flips`.

    Raises:
        ModuleError: LLVM refused the module.
        CompilationError: LLVM crashed or outran its deadline.

    >>> import numpy as np
    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     naming = NamingCompiler(compiler, module, InliningForSize.policy())
    ...     base = naming.compile()
    ...     random = np.random.default_rng(0)
    ...     flips = disjoint_flips(base, random, lambda decision: 1.0, by_callee=False)
    ...     effects = effects_of(naming, base, flips)
    >>> 0 < len(effects) <= len(flips)
    True
    """
    other, made = flipped(compiler, base, flips)
    return [
        FlipEffect(flip, _saved(base.functions, other.functions, flip.functions)) for flip in made
    ]


def flipped(
    compiler: NamingCompiler, base: NamedCompilation, flips: Sequence[Flip]
) -> tuple[NamedCompilation, list[Flip]]:
    """Compile with flips; return the compilation and the flips whose decisions came again."""
    other = compiler.compile(
        {
            base.decisions[index].site: 1 - base.decisions[index].action
            for flip in flips
            for index in flip.decisions
        }
    )
    callees = {each.site: each.callee for each in other.decisions}
    return other, [
        flip
        for flip in flips
        if all(
            callees.get(base.decisions[index].site) == base.decisions[index].callee
            for index in flip.decisions
        )
    ]


class _Influence:
    """The functions that a decision may change, by what is inlined where."""

    def __init__(self, decisions: Iterable[NamedDecision]) -> None:
        self._inlined_into: dict[str, set[str]] = defaultdict(set)
        self._callers: dict[str, set[str]] = defaultdict(set)
        self._known: dict[str, set[str]] = {}
        for each in decisions:
            self._callers[each.callee].add(each.caller)
            if each.action:
                self._inlined_into[each.callee].add(each.caller)

    def of(self, decisions: Iterable[NamedDecision]) -> set[str]:
        functions = set()
        for each in decisions:
            functions.add(each.callee)
            functions |= self._holders(each.caller)
            if len(self._callers[each.callee]) <= _FEW:
                for caller in self._callers[each.callee]:
                    functions |= self._holders(caller)
        return functions

    def _holders(self, caller: str) -> set[str]:
        """Functions that have a caller's body, their own or inlined."""
        if caller not in self._known:
            waiting, found = [caller], {caller}
            while waiting:
                for name in self._inlined_into.get(waiting.pop(), ()):
                    if name not in found:
                        found.add(name)
                        waiting.append(name)
            self._known[caller] = found
        return self._known[caller]


def _drawn(
    base: NamedCompilation,
    random: np.random.Generator,
    wanted: Wanted,
    *,
    by_callee: bool,
) -> Iterator[list[int]]:
    """Groups of decisions that are considered, what is wanted more rather first."""
    groups = _groups(base.decisions, by_callee=by_callee)
    weights = np.array([np.mean([wanted(base.decisions[i]) for i in each]) for each in groups])
    keys = random.exponential(size=len(groups)) / np.maximum(weights, _LEAST)
    considered = random.random(len(groups)) < weights
    return (groups[number] for number in np.argsort(keys) if considered[number])


def _groups(decisions: Sequence[NamedDecision], *, by_callee: bool) -> list[list[int]]:
    if not by_callee:
        return [[index] for index in range(len(decisions))]
    groups: dict[str, list[int]] = defaultdict(list)
    for index, each in enumerate(decisions):
        groups[each.callee].append(index)
    return list(groups.values())


def _other_answers(
    decisions: Sequence[NamedDecision], group: Sequence[int], random: np.random.Generator
) -> tuple[int, ...]:
    """Return the decisions to flip so that the whole group gets its minority answer."""
    inlined = sum(decisions[index].action for index in group)
    is_even = 2 * inlined == len(group)
    answer = int(random.integers(2)) if is_even else int(2 * inlined < len(group))
    return tuple(index for index in group if decisions[index].action != answer)


def _saved(
    before: Mapping[str, FunctionSize], after: Mapping[str, FunctionSize], names: Iterable[str]
) -> dict[str, int]:
    saved = {}
    for name in names:
        old, new = before.get(name), after.get(name)
        difference = (old.size_bytes if old else 0) - (new.size_bytes if new else 0)
        if difference:
            saved[name] = difference
    return saved
