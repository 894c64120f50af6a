"""One self-check of what is taken of LLVM's memory: each facility must tell what is known.

Facilities read LLVM's memory at places that LLVM does not promise
(docs/explanation/llvm-memory.md). In another LLVM they may read something else there, and tell it
as if it were true. So before one is first used in a process, a probe is compiled with it, whose
right answers stand here. Where a worker tells something else, dies or refuses, the facility is
refused, and all others go on working.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from mlgo_gym.base import EnvironmentSetupError, MlgoGymError
from mlgo_gym.corpus import Module
from mlgo_gym.llvm._loading import recorded
from mlgo_gym.llvm._task import COMPILE, Task
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.llvm.inside import _call_site, _hotness, _live_range, _sites
from mlgo_gym.llvm.inside._symbols import symbols
from mlgo_gym.problems import NO_CUTOFF, InliningForSize, Problem, RegallocEviction

if TYPE_CHECKING:
    from mlgo_gym.llvm._compiler import Compiler

_Row = tuple[int, ...] | str
_Check = Callable[["Compiler"], None]
_Compilers = AbstractContextManager["Compiler"]

_CALLS: Final = """
declare void @outside(i32)
@table = global [2 x ptr] [ptr @work, ptr @work]
define internal void @work(i32 %x) !prof !8 {
  call void @outside(i32 %x)
  %y = mul i32 %x, %x
  call void @outside(i32 %y)
  ret void
}
define linkonce_odr hidden void @shared(i32 %x) {
  call void @outside(i32 %x)
  ret void
}
define void @first(i32 %x) !prof !7 {
  call void @work(i32 %x)
  call void @work(i32 7)
  %y = add i32 %x, 1
  call void @shared(i32 %y)
  ret void
}
define void @second(i32 %x) !prof !6 {
  call void @work(i32 %x)
  ret void
}
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"ProfileSummary", !1}
!1 = !{!{!"ProfileFormat", !"InstrProf"}, !{!"TotalCount", i64 4096}, !{!"MaxCount", i64 1024},
       !{!"MaxInternalCount", i64 1024}, !{!"MaxFunctionCount", i64 1024}, !{!"NumCounts", i64 4},
       !{!"NumFunctions", i64 3}, !{!"DetailedSummary", !2}}
!2 = !{!3, !4, !5}
!3 = !{i32 500000, i64 1024, i32 2}
!4 = !{i32 990000, i64 512, i32 2}
!5 = !{i32 999999, i64 1, i32 4}
!6 = !{!"function_entry_count", i64 0}
!7 = !{!"function_entry_count", i64 512}
!8 = !{!"function_entry_count", i64 1024}
"""
"""LLVM asks about the four calls of defined functions, in this order."""

_LOCAL, _SHARED = (1, 0, 0, 3, 2, 2, 4), (0, 1, 1, 1, 1, 0, 2)
_DERIVED: Final = ((*_LOCAL, 5), (*_LOCAL, 5), (*_SHARED, 5), (*_LOCAL, 2))
"""`_call_site.FEATURES` of each call; the callers have 5 and 2 instructions."""

# An eighth of all counts is 320 - 3 * 8, a quarter 320 - 2 * 8.
_COUNTED: Final = (1, 1, 296, 304, 296, 990_000, 1, 0)
_HOTNESS: Final = (
    _COUNTED,
    _COUNTED,
    (1, 0, 296, 0, 296, 990_000, 1, 0),
    (1, 1, 0, 304, 0, NO_CUTOFF, 0, 1),
)
"""`_hotness.HOTNESS_FEATURES` of each call."""

_NAMES: Final = ("first\0work", "first\0work", "first\0shared", "second\0work")
_SITES: Final = tuple(
    f'{names}\0[[{identity}, "{names.partition(chr(0))[0]}", {number}, "", 0, 0]]'
    for names, identity, number in zip(_NAMES, (4, 5, 6, 7), (0, 1, 2, 0), strict=True)
)
"""The calls of `outside` in `work` and `shared` are the first three."""

_VALUES: Final = 36
_MOST_REGISTERS: Final = 4096
"""More than the probe's virtual registers, those that LLVM makes by splitting included."""


def _pressure() -> str:
    """A function with more live values than any target has registers."""
    loads = "\n".join(f"  %v{each} = load volatile i64, ptr @g" for each in range(_VALUES))
    stores = "\n".join(f"  store volatile i64 %v{each}, ptr @g" for each in range(_VALUES))
    return f"@g = global i64 0\ndefine void @f() {{\n{loads}\n{stores}\n  ret void\n}}\n"


def _check_calls(
    compiler: Compiler, problem: Problem, task: Task, expected: Sequence[_Row]
) -> None:
    module, derived = Module.from_ir(_CALLS, "probe"), problem.layout.derived
    found: list[_Row] = []
    with compiler.start(module, problem, task=task) as compilation:
        for observation in compilation:
            values = tuple(int(observation[name][0]) for name in derived)
            found.append(values if derived else observation.context)
            compilation.answer(0)
    if found != list(expected):
        first = next(
            (pair for pair in zip(expected, found, strict=False) if pair[0] != pair[1]),
            (f"{len(expected)} questions", f"{len(found)}"),
        )
        raise EnvironmentSetupError(f"a probe: expected {first[0]!r}, found {first[1]!r}")


def _check_derived(compiler: Compiler) -> None:
    _check_calls(
        compiler, InliningForSize(derived=True, size_increase_threshold=math.inf), COMPILE, _DERIVED
    )


def _check_hotness(compiler: Compiler) -> None:
    _check_calls(
        compiler, InliningForSize(hotness=True, size_increase_threshold=math.inf), COMPILE, _HOTNESS
    )


def _check_sites(compiler: Compiler) -> None:
    problem = InliningForSize(size_increase_threshold=math.inf)
    _check_calls(compiler, problem, Task(names=True), _NAMES)
    _check_calls(compiler, problem, Task(sites=True), _SITES)


def _check_live_ranges(compiler: Compiler) -> None:
    found = set()
    module = Module.from_ir(_pressure(), "probe")
    with compiler.start(module, RegallocEviction(live_range=True)) as compilation:
        for observation in compilation:
            found.add(int(observation[_live_range.FEATURE][0]))
            compilation.answer(compilation.asked_by.fallback_action(observation))
    wrong = [each for each in found if not 0 <= each < _MOST_REGISTERS]
    if wrong or len(found) < _VALUES:
        raise EnvironmentSetupError(
            f"a probe: expected at least {_VALUES} virtual registers from 0 to "
            f"{_MOST_REGISTERS - 1}, found {len(found) - len(wrong)} and {len(wrong)} others"
        )


def _check_left(compiler: Compiler) -> None:
    module = Module.from_ir(_pressure(), "probe")
    plain = compiler.compile_module(module)
    with compiler.start(module, RegallocEviction(), task=Task(left=("f",))) as compilation:
        if compilation.next_observation() is not None:
            raise EnvironmentSetupError("a probe: expected no question, found one")
        if compilation.result.object_sha256 != plain.object_sha256:
            raise EnvironmentSetupError("a probe: expected LLVM's own object, found another")


def _check_answers(compiler: Compiler) -> None:
    module, problem = (
        Module.from_ir(_CALLS, "probe"),
        InliningForSize(size_increase_threshold=math.inf),
    )
    with compiler.start(module, problem) as compilation:
        for _ in compilation:
            compilation.answer(0)
        inside = recorded(problem, compilation.advice)
    with compiler.start(module, problem, inside=inside) as compilation:
        if compilation.next_observation() is not None:
            raise EnvironmentSetupError("the host answers in their place: slower, equal results")


def _check_forks(compiler: Compiler) -> None:
    module = Module.from_ir(_CALLS, "probe")
    with compiler.start(module, InliningForSize()) as compilation, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        compilation.next_observation()
        with compilation.fork() as branch:
            if branch.is_replayed:
                raise EnvironmentSetupError("modules are compiled again: slower, equal results")


def _check_sections(compiler: Compiler) -> None:
    module = Module.from_ir("@data = global i32 7\ndefine void @f() { ret void }", "probe")
    options = CompileOptions(function_sections=True, data_sections=True, addrsig=True)
    found = {name for name, _ in compiler.compile_module(module, options).sections}
    if missing := {".text.f", ".data.data", ".llvm_addrsig"} - found:
        raise EnvironmentSetupError(f"a probe: expected the section {min(missing)!r}, found none")


class _Use(NamedTuple):
    """Names of features that a compilation derives, its task and its options."""

    derives: frozenset[str]
    task: Task
    options: CompileOptions


@dataclass(frozen=True, slots=True)
class _Probe:
    """How a facility is checked, when it is needed, and which symbols of LLVM's library it needs.

    The check raises an `MlgoGymError` where the facility tells something else than is known.
    """

    check: _Check
    is_needed: Callable[[_Use], bool]
    symbols: Sequence[str] = ()


FACILITIES: Final = {
    "derived features": _Probe(
        _check_derived,
        lambda use: not use.derives.isdisjoint(_call_site.FEATURES),
        _call_site.SYMBOLS,
    ),
    "hotness": _Probe(
        _check_hotness,
        lambda use: not use.derives.isdisjoint(_hotness.HOTNESS_FEATURES),
        _call_site.CALL_SITE_SYMBOLS,
    ),
    "names and sites of calls": _Probe(
        _check_sites,
        lambda use: use.task.knows_calls,
        (*_call_site.SYMBOLS, *_sites.SYMBOLS),
    ),
    "live ranges": _Probe(
        _check_live_ranges,
        lambda use: _live_range.FEATURE in use.derives,
        _live_range.RANGE_SYMBOLS,
    ),
    "functions left to LLVM": _Probe(
        _check_left,
        lambda use: bool(use.task.left),
        _live_range.SYMBOLS,
    ),
    "sections of functions and data": _Probe(
        _check_sections,
        lambda use: use.options.function_sections or use.options.data_sections,
    ),
}
"""Facilities that depend on LLVM's memory and are refused where LLVM is another."""
_REPLACED: Final[dict[str, _Check]] = {
    "answers inside workers": _check_answers,
    "forks of compilations": _check_forks,
}
"""Facilities that depend on LLVM's memory or the system, and have another way where it fails."""

_FAILURES: Final[dict[str, str | None]] = {}
"""The faults of each facility that was checked in this process."""


def facilities_of(derives: Iterable[str], task: Task, options: CompileOptions) -> frozenset[str]:
    """Return the facilities that a compilation uses.

    >>> sorted(facilities_of(["live_range"], COMPILE, CompileOptions()))
    ['live ranges']
    """
    use = _Use(frozenset(derives), task, options)
    return frozenset(name for name, probe in FACILITIES.items() if probe.is_needed(use))


def require(facilities: Iterable[str], compilers: Sequence[_Compilers]) -> None:
    """Refuse facilities that do not work with the LLVM that is there.

    Args:
        facilities: some of `FACILITIES`.
        compilers: what probes are compiled with. Where one fails the next one is tried, since the
            limits of the first may be too narrow for a probe.

    Raises:
        EnvironmentSetupError: a facility does not tell what is known of its probe.
    """
    for facility in sorted(facilities):
        if facility not in _FAILURES:
            _FAILURES[facility] = _failure_of(FACILITIES[facility], compilers)
        if reason := _FAILURES[facility]:
            raise EnvironmentSetupError(
                f"{facility}: not with this LLVM: {reason}; install the llvmlite that mlgo_gym "
                "asks for"
            )


def check_memory(compiler: Compiler) -> dict[str, str | None]:
    """Return what is wrong with each use of LLVM's memory, or ``None``.

    >>> from mlgo_gym import Compiler
    >>> with Compiler() as compiler:
    ...     set(check_memory(compiler).values())
    {None}
    """
    found: dict[str, str | None] = {}
    checks = _REPLACED | {name: probe.check for name, probe in FACILITIES.items()}
    for name, check in checks.items():
        try:
            check(compiler)
        except MlgoGymError as error:
            found[name] = str(error)
        else:
            found[name] = None
    return found


def _failure_of(probe: _Probe, compilers: Sequence[_Compilers]) -> str | None:
    reason: str | None = None
    for each in compilers:
        try:
            known = symbols()
            if missing := [name for name in probe.symbols if name not in known]:
                return f"expected the symbol {missing[0]!r} in its library, found none"
            with each as compiler:
                probe.check(compiler)
        except MlgoGymError as error:
            reason = str(error)
        else:
            return None
    return reason
