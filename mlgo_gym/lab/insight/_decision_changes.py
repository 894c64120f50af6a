"""Differences of two policies: where their ways part, and which functions change."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from mlgo_gym.base import InternalError
from mlgo_gym.corpus import ModuleKey, Packages
from mlgo_gym.evaluation import Setting
from mlgo_gym.lab.insight._placed_decisions import PlacedDecision, PlacedDecisions
from mlgo_gym.llvm import Compiler, Done, Product, Task, each, options_of
from mlgo_gym.problems import in_turn


@dataclass(frozen=True, slots=True)
class OtherDecision:
    """A decision that was taken differently; ``None`` where it was not asked for.

    Attributes:
        before: under the first policy.
        after: under the second.
        callee_bytes: how much more code there is under the second of the callee by itself, where
            one policy alone leaves it any, in equal parts for the decisions that are about it;
            code that came of calls in it is theirs.

    >>> from mlgo_gym.llvm import Site
    >>> leave = PlacedDecision(0, Site("main", "add", ()), 0, 0, 1, None)
    >>> inline = PlacedDecision(0, Site("main", "add", ()), 0, 1, 1, None)
    >>> OtherDecision(leave, inline).answers
    (0, 1)
    """

    before: PlacedDecision | None
    after: PlacedDecision | None
    callee_bytes: float = 0.0

    @property
    def shown(self) -> PlacedDecision:
        """The decision itself, as the second policy was asked, or else the first."""
        found = self.after or self.before
        if found is None:
            raise InternalError("decision: expected one that a policy was asked for, found none")
        return found

    @property
    def answers(self) -> tuple[int | None, int | None]:
        """The answers of both."""
        before, after = (each.answer if each else None for each in (self.before, self.after))
        return before, after

    @property
    def difference_bytes(self) -> int:
        """How much more code came of the call under the second policy, with calls inside it."""
        before, after = (each.size_bytes if each else 0 for each in (self.before, self.after))
        return after - before

    @property
    def cost_bytes(self) -> float:
        """The bytes it adds to the module: its own code, and its part of the callee.

        No byte is of two decisions.
        """
        return self.own_difference_bytes + self.callee_bytes

    @property
    def own_difference_bytes(self) -> int:
        """The change of the code that came of the call, without calls inside it."""
        before, after = (each.own_bytes if each else 0 for each in (self.before, self.after))
        return after - before

    @property
    def difference_executed(self) -> int | None:
        """How many more instructions are executed in that code; ``None`` where it is not known."""
        return _difference(*(each.executed if each else 0 for each in (self.before, self.after)))


@dataclass(frozen=True, slots=True)
class FunctionChange:
    """A function under both policies.

    Attributes:
        key: the package and the module.
        function: its symbol.
        before_bytes: its code under the first policy; ``None`` where it is not there.
        after_bytes: likewise under the second.
        executed: the instructions that programs execute in it under both; ``None`` where it is not
            known.
        decisions: what was decided differently in it, in order.
    """

    key: ModuleKey
    function: str
    before_bytes: int | None
    after_bytes: int | None
    decisions: tuple[OtherDecision, ...] = field(default=(), repr=False)
    executed: tuple[int | None, int | None] = (None, None)

    @property
    def difference_bytes(self) -> int:
        """How much larger it is under the second policy."""
        return (self.after_bytes or 0) - (self.before_bytes or 0)

    @property
    def around_bytes(self) -> int:
        """The part of the difference that came of no decision in it: calls, and code around them.

        A call that is gone takes with it what it takes to call: moves of arguments and results,
        and registers that are saved.
        """
        return self.difference_bytes - sum(each.own_difference_bytes for each in self.decisions)

    @property
    def difference_executed(self) -> int | None:
        """How many more instructions are executed in it; ``None`` where it is not known."""
        return _difference(*self.executed)


@dataclass(frozen=True, slots=True)
class ModuleChange:
    """A module under two policies.

    Attributes:
        key: the package and the module.
        text_bytes: its code under both.
        first: where their ways part; ``None`` where they never do.
        functions: those that differ, the largest difference first: of what is executed, where that
            is known, else of size.
    """

    key: ModuleKey
    text_bytes: tuple[int, int]
    first: OtherDecision | None
    functions: tuple[FunctionChange, ...]

    @property
    def costs(self) -> list[float]:
        """The bytes that each decision adds to the module."""
        return [other.cost_bytes for each in self.functions for other in each.decisions]

    @property
    def around_bytes(self) -> float:
        """The part of the change that is of no decision: calls, and code around them."""
        return self.text_bytes[1] - self.text_bytes[0] - math.fsum(self.costs)


def compare_decisions(before: PlacedDecisions, after: PlacedDecisions) -> ModuleChange:
    """Compare the decisions of two compilations of a module, function by function.

    LLVM asks the same until answers differ; from there on decisions are the same if they are about
    the same calls in the same caller.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> from mlgo_gym.lab.insight import place_decisions
    >>> module, problem = Corpus.load(SAMPLE_CORPUS)["digest.c"], InliningForSize()
    >>> with Compiler() as compiler:
    ...     before = place_decisions(compiler, module, problem, problem.policy())
    ...     after = place_decisions(compiler, module, problem, lambda observation: 0)
    >>> change = compare_decisions(before, after)
    >>> change.first.answers, change.text_bytes == (before.text_size_bytes, after.text_size_bytes)
    ((1, 0), True)
    """
    known = {each.asked: each for each in before.decisions}
    others: dict[str, list[OtherDecision]] = {}
    for decision in after.decisions:
        same = known.pop(decision.asked, None)
        if same is None or same.answer != decision.answer:
            others.setdefault(decision.site.caller, []).append(OtherDecision(same, decision))
    for decision in known.values():
        others.setdefault(decision.site.caller, []).append(OtherDecision(decision, None))
    others = _with_callees(others, before, after)
    names = dict.fromkeys((*before.functions, *after.functions, *others))
    functions = [
        FunctionChange(
            after.key,
            name,
            _size(before, name),
            _size(after, name),
            tuple(others.get(name, ())),
            (_executed(before, name), _executed(after, name)),
        )
        for name in names
    ]
    changed = [
        each
        for each in functions
        if each.difference_bytes or each.decisions or each.difference_executed
    ]
    changed.sort(key=_importance)
    sizes = before.text_size_bytes, after.text_size_bytes
    return ModuleChange(after.key, sizes, _first(before, after), tuple(changed))


def _importance(function: FunctionChange) -> tuple[int, int, str]:
    executed = abs(function.difference_executed or 0)
    return -executed, -abs(function.difference_bytes), function.function


def _with_callees(
    others: dict[str, list[OtherDecision]], before: PlacedDecisions, after: PlacedDecisions
) -> dict[str, list[OtherDecision]]:
    """Return decisions with their parts of functions that only one policy leaves."""
    counts = Counter(
        each.shown.site.callee for found in others.values() for each in found if 1 in each.answers
    )
    parts = {}
    for callee in counts.keys() & (before.functions.keys() ^ after.functions.keys()):
        is_after = callee in after.functions
        rest_bytes = (after if is_after else before).functions[callee].rest_bytes
        parts[callee] = (rest_bytes if is_after else -rest_bytes) / counts[callee]
    return {
        caller: [
            replace(each, callee_bytes=parts.get(each.shown.site.callee, 0.0))
            if 1 in each.answers
            else each
            for each in found
        ]
        for caller, found in others.items()
    }


def _first(before: PlacedDecisions, after: PlacedDecisions) -> OtherDecision | None:
    for one, other in zip(before.decisions, after.decisions, strict=False):
        if one.answer != other.answer:
            return OtherDecision(one, other)
    return None


def _size(placed: PlacedDecisions, function: str) -> int | None:
    found = placed.functions.get(function)
    return found.size_bytes if found else None


def _executed(placed: PlacedDecisions, function: str) -> int | None:
    """Return the instructions executed in a function; 0 in one that is not there."""
    return placed.executed.get(function) if function in placed.functions else 0


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


@dataclass(frozen=True, slots=True)
class LineDecisions:
    """The decisions of two policies about the calls of one function in one line.

    Attributes:
        callee: the symbol of the function that is called.
        asked: how often both were asked about it, wherever the line's code has come to.
        inlined: how often both answered to inline it.
        own_bytes: the code that came of it, without that of calls inside it.
    """

    callee: str
    asked: tuple[int, int]
    inlined: tuple[int, int]
    own_bytes: tuple[int, int]

    @property
    def difference_bytes(self) -> int:
        """How much more code came of it under the second policy."""
        before, after = self.own_bytes
        return after - before


class DecidedLines:
    """Adds up the decisions of modules by file and line; those without lines are left out."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, int, str], Counter[tuple[str, int]]] = defaultdict(
            Counter
        )

    def add(self, before: PlacedDecisions, after: PlacedDecisions) -> None:
        """Take in a module under both policies."""
        for which, placed in enumerate((before, after)):
            for decision in placed.decisions:
                call = decision.site.calls[0] if decision.site.calls else None
                if call and call.line:
                    counts = self._counts[call.file, call.line, decision.site.callee]
                    counts["asked", which] += 1
                    counts["inlined", which] += int(decision.answer > 0)
                    counts["bytes", which] += decision.own_bytes

    def files(self) -> Mapping[str, Mapping[int, list[LineDecisions]]]:
        """The decisions in each line of each file, in order."""
        found: defaultdict[str, dict[int, list[LineDecisions]]] = defaultdict(dict)
        for (file, line, callee), counts in sorted(self._counts.items()):
            numbers = ((counts[name, 0], counts[name, 1]) for name in ("asked", "inlined", "bytes"))
            found[file].setdefault(line, []).append(LineDecisions(callee, *numbers))
        return found


Answers = Mapping[ModuleKey, tuple[Sequence[int], Sequence[int]]]
"""The answers of both policies in each module, in the order of LLVM's questions."""


@dataclass(frozen=True, slots=True)
class FunctionTexts:
    """A function in LLVM's assembly; what is not there is empty.

    Attributes:
        key: the package and the module.
        function: its symbol.
        plain: as the bitcode has it.
        optimised: as it is optimised under the first and under the second policy.
    """

    key: ModuleKey
    function: str
    plain: str
    optimised: tuple[str, str]


def function_texts(
    packages: Packages, chosen: Iterable[FunctionChange], answers: Answers, setting: Setting
) -> Generator[Done[ModuleKey, list[FunctionTexts]]]:
    """The texts of functions, module by module; compiles each module again under both policies."""
    names: dict[ModuleKey, list[str]] = {}
    for function in chosen:
        names.setdefault(function.key, []).append(function.function)

    def work(compiler: Compiler, key: ModuleKey) -> list[FunctionTexts]:
        module, problem = packages[key], setting.problem
        options, wanted = options_of(module, setting.opt_level), tuple(dict.fromkeys(names[key]))
        plain = compiler.produce(module, options, Task(False, "text", functions=wanted))
        texts = [_parts(plain)]
        for answered in answers[key]:
            answer = {problem: in_turn(answered)}
            made = compiler.produce(module, options, Task(product="text", functions=wanted), answer)
            texts.append(_parts(made))
        columns = zip(wanted, *texts, strict=True)
        return [FunctionTexts(key, name, text, (one, two)) for name, text, one, two in columns]

    compiler = partial(Compiler, timeout_s=setting.timeout_s)
    return each(names, work, compiler, jobs=setting.jobs, in_order=True)


def _parts(product: Product) -> list[str]:
    found, start = [], 0
    for size in product.sizes:
        found.append(product.data[start : start + size].decode())
        start += size
    return found
