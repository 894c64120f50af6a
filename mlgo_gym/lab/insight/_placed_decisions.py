"""Decisions with their places: which call was decided about, and which code came of it.

A module is compiled with ids of its calls in debug locations (`mlgo_gym.llvm.Task.debug_info`),
which change no code; the object's debug information then tells which code came of which call.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mlgo_gym.base import EnvironmentSetupError, ModuleError
from mlgo_gym.corpus import (
    Corpus,
    FunctionCode,
    InlinedCode,
    Module,
    ModuleKey,
    Packages,
    PackagesLike,
    function_code,
)
from mlgo_gym.evaluation import Setting
from mlgo_gym.lab.programs import ExecutedFunction, Programs, executed_code
from mlgo_gym.llvm import (
    COMPILE_WITH_DEBUG_INFO,
    Answered,
    CompilationResult,
    Compiler,
    Done,
    Site,
    each,
    options_of,
    run_to_end,
)
from mlgo_gym.problems import DEFAULT_ADVICE, PolicyLike, Problem, in_turn
from mlgo_gym.rollout import Decision, RecordingPolicy

_MACHINE: Final = slice(18, 20)
_ALIKE: Final = (b"\x03\0", b"\x3e\0")
"""Where an ELF object says its machine, and those of x86, 32 and 64 bits."""


class ExecutedProgram(NamedTuple):
    """One of a package's programs that was run: the modules that are linked, and its functions."""

    modules: Collection[str]
    functions: Mapping[str, ExecutedFunction]


Asked = tuple[str, str, tuple[int, ...], int]
"""The key of a decision in its module: caller, callee, the ids of its calls, and how many
decisions about them there were before in that caller."""


@dataclass(frozen=True, slots=True)
class PlacedDecision:
    """One decision, with its place and what came of it.

    Attributes:
        index: which of its compilation's decisions it is, from 0.
        site: where the call is.
        before: how many decisions about the same calls in the same caller there were before: LLVM
            asks again, and what it copies it asks about separately.
        answer: what was answered, 1 to inline.
        default: what LLVM's own heuristic would have answered.
        observation: what LLVM sent, ``[]`` of the dtype of the problem's layout.
        code: the code that came of it, once in each function that it is in.
        executed: the instructions that programs execute in that code; ``None`` where no program was
            run, or where the function that it is in cannot be told from others.
        compiler_s: how long LLVM took from this answer to its next question, in seconds; ``None``
            of the last one, behind which code generation comes.

    >>> decision = PlacedDecision(0, Site("main", "add", ()), 0, 1, 1, None)
    >>> decision.size_bytes, decision.asked
    (0, ('main', 'add', (), 0))
    """

    index: int
    site: Site
    before: int
    answer: int
    default: int
    observation: Any = field(repr=False, compare=False)
    code: tuple[InlinedCode, ...] = field(default=(), repr=False)
    executed: int | None = None
    compiler_s: float | None = None

    @property
    def asked(self) -> Asked:
        """Its ids in the module."""
        return self.site.caller, self.site.callee, self.site.ids, self.before

    @property
    def size_bytes(self) -> int:
        """The code that came of it, with that of calls inside it, in all functions."""
        return sum(each.size_bytes for each in self.code)

    @property
    def own_bytes(self) -> int:
        """Bytes attributed to this decision alone, excluding calls inlined inside it."""
        return sum(each.own_bytes for each in self.code)


@dataclass(frozen=True, slots=True)
class PlacedDecisions:
    """The decisions of one compilation.

    Attributes:
        key: the package and the module.
        decisions: in their order.
        functions: the object's functions by name.
        text_size_bytes: the size of the object's code.
        executed: the instructions that programs execute in functions, of those where it is known.
    """

    key: ModuleKey
    decisions: tuple[PlacedDecision, ...]
    functions: Mapping[str, FunctionCode]
    text_size_bytes: int
    executed: Mapping[str, int] = field(default_factory=dict, repr=False)


def place_decisions(
    compiler: Compiler,
    module: Module,
    problem: Problem,
    policy: PolicyLike,
    *,
    opt_level: str | None = None,
    package: str = "",
) -> PlacedDecisions:
    """Compile a module under a policy, for its decisions with their places and code.

    Raises:
        ModuleError: LLVM refused the module, its object is none of ELF, or with debug information
            its code is another, as on AArch64 at -Oz.
        CompilationError: LLVM crashed or outran its deadline.
        EnvironmentSetupError: workers tell no sites here.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     placed = place_decisions(compiler, module, InliningForSize(), lambda observation: 1)
    >>> sum(each.own_bytes for each in placed.decisions) <= placed.text_size_bytes
    True
    """
    recorded: list[Decision] = []
    options = options_of(module, opt_level)
    answers = {problem: RecordingPolicy(policy, problem, recorded)}
    running = compiler.running(module, options, answers, COMPILE_WITH_DEBUG_INFO, keep_object=True)
    compilation = run_to_end(running)
    result = compilation.result
    try:
        functions = function_code(result.object_bytes or b"")
    except ValueError as error:
        raise ModuleError(module.name, str(error)) from error
    if (result.object_bytes or b"")[_MACHINE] not in _ALIKE:
        again = in_turn(map(_answer, recorded))
        plain = compiler.compile_module(module, options, problem=problem, policy=again)
        _check_alike(module, plain, result)
    asked = list(_placed(recorded, problem, compilation.answers))
    decisions = _with_code(asked, functions.values())
    return PlacedDecisions(
        ModuleKey(package, module.name), decisions, functions, result.text_size_bytes
    )


def placed_decisions(
    corpora: PackagesLike,
    policies: Mapping[str, PolicyLike],
    setting: Setting,
    executed: Mapping[tuple[str, str], Sequence[ExecutedProgram]] = MappingProxyType({}),
) -> Generator[Done[ModuleKey, dict[str, PlacedDecisions]]]:
    """Place the decisions of each module of corpora under each policy, in order.

    Args:
        corpora: the modules.
        policies: by their names.
        setting: how they are compiled.
        executed: what programs execute, by package and policy, if they were run.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
    >>> corpus, problem = Corpus.load(SAMPLE_CORPUS).only(["digest.c"]), InliningForSize()
    >>> policies = {"never": lambda observation: 0}
    >>> (done,) = placed_decisions(corpus, policies, Setting(problem))
    >>> any(each.answer for each in done.value["never"].decisions)
    False
    """
    packages = Packages.of(corpora)
    work = partial(
        _placed_under,
        policies=dict(policies),
        problem=setting.problem,
        opt_level=setting.opt_level,
        executed=dict(executed),
    )
    compiler = partial(Compiler, timeout_s=setting.timeout_s)
    return each(packages, work, compiler, read=packages.keyed, jobs=setting.jobs, in_order=True)


def _placed_under(
    compiler: Compiler,
    read: tuple[ModuleKey, Module],
    *,
    policies: Mapping[str, PolicyLike],
    problem: Problem,
    opt_level: str | None,
    executed: Mapping[tuple[str, str], Sequence[ExecutedProgram]],
) -> dict[str, PlacedDecisions]:
    (package, _), module = read
    how: dict[str, Any] = {"opt_level": opt_level, "package": package}
    made = {}
    for name, policy in policies.items():
        placed = place_decisions(compiler, module, problem, policy, **how)
        functions = executed.get((package, name))
        made[name] = placed if functions is None else with_executed(placed, functions)
    return made


def with_executed(placed: PlacedDecisions, executed: Sequence[ExecutedProgram]) -> PlacedDecisions:
    """Return decisions with the instructions that programs execute in the code of each.

    A function is known by its name and size, in programs that the module is linked into: what
    another module has by that name may be linked instead, and is then another's.
    """
    programs = [each.functions for each in executed if placed.key.name in each.modules]
    known: dict[str, list[ExecutedFunction]] = {}
    for name, function in placed.functions.items():
        found = [each[name] for each in programs if name in each]
        if found and all(each.size_bytes == function.size_bytes for each in found):
            known[name] = found
    return replace(
        placed,
        decisions=tuple(_counted(each, known) for each in placed.decisions),
        executed={
            name: sum(each.within(0, each.size_bytes) for each in found)
            for name, found in known.items()
        },
    )


def _counted(
    decision: PlacedDecision, known: Mapping[str, Sequence[ExecutedFunction]]
) -> PlacedDecision:
    if not all(code.function in known for code in decision.code):
        return decision
    counts = (
        function.within(start, end)
        for code in decision.code
        for start, end in code.ranges
        for function in known[code.function]
    )
    return replace(decision, executed=sum(counts))


def _answer(decision: Decision) -> int:
    return int.from_bytes(decision.advice, sys.byteorder, signed=True)


def _check_alike(module: Module, plain: CompilationResult, result: CompilationResult) -> None:
    """See that debug information has changed no code, where LLVM may do so.

    LLVM's outliner counts the instructions that describe frames (``MachineOutliner.cpp``), which
    debug information brings; x86 outlines nothing by itself.
    """
    if plain.text_size_bytes != result.text_size_bytes:
        raise ModuleError(
            module.name,
            f"expected {plain.text_size_bytes} bytes of code with debug information, too, found "
            f"{result.text_size_bytes}: sites have no code on this target",
        )


def _placed(
    recorded: Sequence[Decision], problem: Problem, answers: Sequence[Answered]
) -> Iterable[PlacedDecision]:
    observations = problem.layout.array(each.payload for each in recorded)
    times = (1e-9 * (after.asked_ns - each.answered_ns) for each, after in pairwise(answers))
    columns = zip(recorded, observations, [*times, None][: len(recorded)], strict=True)
    counts = Counter[tuple[str, str, tuple[int, ...]]]()
    for index, (decision, observation, compiler_s) in enumerate(columns):
        site = decision.site
        if site is None:
            raise EnvironmentSetupError(
                f"sites: expected workers that tell them, as on Linux, found {decision.context!r}"
            )
        known = site.caller, site.callee, site.ids
        yield PlacedDecision(
            index,
            site,
            counts[known],
            _answer(decision),
            int(observation[DEFAULT_ADVICE].item()),
            observation,
            compiler_s=compiler_s,
        )
        counts[known] += 1


def _with_code(
    decisions: Sequence[PlacedDecision], functions: Iterable[FunctionCode]
) -> tuple[PlacedDecision, ...]:
    """Give each piece of code to the decision to inline that names most of its calls.

    Of those that name the same, it is the one in the function that the code is in.
    """
    inlined = {each.site.ids: each.index for each in decisions if each.answer}
    own = {(each.site.caller, each.site.ids): each.index for each in decisions if each.answer}
    found: defaultdict[int, list[InlinedCode]] = defaultdict(list)
    for code in (code for function in functions for code in function.inlined):
        index = own.get((code.function, code.ids))
        counts = iter(range(len(code.ids), 0, -1))
        while index is None and (count := next(counts, None)):
            index = inlined.get(code.ids[:count])
        if index is not None:
            found[index].append(code)
    return tuple(replace(each, code=tuple(found[each.index])) for each in decisions)


def executed_programs(
    corpora: Mapping[str, Corpus], policies: Mapping[str, PolicyLike], setting: Setting
) -> Iterator[tuple[tuple[str, str], list[ExecutedProgram]]]:
    """Run the programs of each package under each policy: both their names, and what is executed.

    Args:
        corpora: packages that have workloads.
        policies: by name.
        setting: how modules are compiled.
    """
    for package, corpus in corpora.items():
        made_of = partial(Programs, corpus, opt_level=setting.opt_level, jobs=setting.jobs)
        with closing(made_of(timeout_s=setting.timeout_s)) as programs:
            for name, policy in policies.items():
                found = []
                for workload in programs.workloads.values():
                    made = programs.compiled(workload, {setting.problem: policy})
                    with programs.linked(workload, made) as program:
                        functions = executed_code(workload, program)
                        found.append(ExecutedProgram(frozenset(made), functions))
                yield (package, name), found
