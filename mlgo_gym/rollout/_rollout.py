"""Rollouts: policies over the modules of a corpus, each beside LLVM's own heuristic.

Every module is compiled once plainly and once under each policy, in the same worker, so that all
results come out of the same pipeline. What they are compared by depends on the problem; see
`rollout._measures`. Several workers may share the modules; reports come in the corpus's order
whatever their number, unless they are asked for as they are finished.

A policy answers one observation at a time, in the loop of each worker: best for frozen models and
functions. For networks that are faster with many at once there is `runners.BatchedPolicy`.

The best of several compilations of a module is the whole, or the best of each function. Registers
are allocated function by function, and what is decided in one changes no other. Where a measure is
by function, a module is therefore compiled once more, and each of its functions comes out as under
whoever was best there: by recorded answers, or, where nobody was better than LLVM's own heuristic,
by that. Otherwise the best is one of the results that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

from mlgo_gym.base import CompilationError, InputError, MlgoGymError
from mlgo_gym.corpus import Module, ModuleKey, Packages, PackagesLike, language_of
from mlgo_gym.llvm import (
    DEFAULT_TIMEOUT_S,
    CompilationResult,
    CompileOptions,
    Compiler,
    Jobs,
    Site,
    each,
    options_of,
    site_of,
)
from mlgo_gym.problems import Layout, PolicyLike, Problem, WatchedPolicy, record_of
from mlgo_gym.rollout._measures import Measure, Result, Unit, check_alone, check_sites, measure_of
from mlgo_gym.rollout._replay import RecordedContexts
from mlgo_gym.rollout._trace import Trace
from mlgo_gym.stream import Observation

Best = Mapping[str, str]
"""The name of the best of each context, or of the whole as ``""``."""

_Error = TypeVar("_Error", bound=MlgoGymError)
_Value = TypeVar("_Value")

BASELINE: Final = "LLVM"
"""The name of LLVM's own heuristic among the policies."""

SMALLEST: Final = "smallest"
"""The name of the best of all, LLVM's own heuristic among them."""

Case = tuple[Compiler, Module, CompileOptions, Problem]
"""A module to compile: the first arguments of a `Unit`."""


def joins(problem: Problem) -> bool:
    """Whether the best of each function of a module can be had."""
    return problem.can_leave and measure_of(problem).by_function


def best_of(measure: Measure, results: Mapping[str, Result], *, by_function: bool = False) -> Best:
    """Whose result is best, the first of equal ones; LLVM's own is the first there is."""
    own = next(iter(results.values()))
    rewards = {name: measure.rewards(result, own) for name, result in results.items()}
    contexts = [each for each in measure.rewards(own, own) if bool(each) == by_function]
    return {each: max(rewards, key=lambda name: rewards[name][each]) for each in contexts}


class Tries:
    """A unit's compilations: LLVM's own, which is the first, and those under policies.

    Args:
        unit: what is compiled.
        problem: what LLVM asks for.
        own: what LLVM's own heuristic is called.
        by_function: the best of each function is wanted, for which answers are remembered.
    """

    def __init__(self, unit: Unit, problem: Problem, own: str, *, by_function: bool) -> None:
        self._unit = unit
        self._problem = problem
        self._own = own
        self._by_function = by_function
        self._policies: dict[str, PolicyLike] = {}
        self._answers: dict[str, dict[str, list[bytes]]] = {}
        self.results: dict[str, Result] = {own: unit.baseline()}

    def attempt(self, name: str, policy: PolicyLike) -> Result:
        """Compile with a policy; what fails is not among the `results`."""
        answers: dict[str, list[bytes]] = {}

        def watch(observation: Observation, advice: bytes) -> None:
            answers.setdefault(observation.context, []).append(advice)

        watched = WatchedPolicy(policy, self._problem, watch) if self._by_function else policy
        result = self._unit.attempt(watched)
        self.results[name], self._policies[name], self._answers[name] = result, policy, answers
        return result

    def best(self, measure: Measure) -> tuple[Best, Result]:
        """Return the best by the unit's own measure, and its result.

        Never worse than the best of the whole, which takes its place where functions are not by
        themselves after all, as with ``-enable-ipra``.
        """
        best = best_of(measure, self.results, by_function=self._by_function)
        result = self.made(best)
        whole = min(self.results, key=lambda name: measure.score(self.results[name]))
        if measure.score(result) <= measure.score(self.results[whole]):
            return best, result
        return {"": whole}, self.results[whole]

    def made(self, best: Best) -> Result:
        """Return the result of the best, if need be of one more compilation."""
        whole = self._whole(best)
        if whole is not None:
            return self.results[whole]
        return self._unit.attempt(self._joined(best))

    def answering(self, best: Best) -> PolicyLike | None:
        """Return a policy that answers like the best; ``None`` for LLVM's own heuristic."""
        whole = self._whole(best)
        return self._joined(best) if whole is None else self._policies.get(whole)

    def kept(self, best: Best, decisions: Mapping[str, Sequence[Decision]]) -> list[Decision]:
        """Return the decisions that the best compilation took over, in LLVM's order."""
        if whole := best.get(""):
            return list(decisions.get(whole, ()))
        return [
            decision
            for context in self._contexts()
            for decision in decisions.get(self._who(best, context), ())
            if decision.context == context
        ]

    def _contexts(self) -> dict[str, None]:
        """In which LLVM asks, in its order, which is the same under every policy."""
        return {context: None for each in self._answers.values() for context in each}

    def _who(self, best: Best, context: str) -> str:
        return best.get("") or best.get(context, self._own)

    def _whole(self, best: Best) -> str | None:
        names = {self._who(best, context) for context in self._contexts()} or {self._own}
        names = {best[""]} if "" in best else names
        return names.pop() if len(names) == 1 else None

    def _joined(self, best: Best) -> RecordedContexts:
        chosen = {context: self._who(best, context) for context in self._contexts()}
        answers = {
            context: self._answers[name][context]
            for context, name in chosen.items()
            if name != self._own
        }
        left = [context for context, name in chosen.items() if name == self._own]
        return RecordedContexts(self._problem, answers, left)


@dataclass(frozen=True, slots=True)
class Decision:
    """The raw tensors of an observation, and of the advice that answered it, and its context.

    All that LLVM `sent` is there where it is not as the problem documents it, and the `site` where
    sites are asked for.

    >>> Decision(payload=bytes(8), advice=bytes(8), context="main").context
    'main'
    """

    payload: bytes
    advice: bytes
    context: str = ""
    sent: Observation | None = None
    site: Site | None = None


class RecordingPolicy(WatchedPolicy):
    """A policy that also puts every decision into a list."""

    def __init__(self, policy: PolicyLike, problem: Problem, decisions: list[Decision]) -> None:
        def watch(observation: Observation, advice: bytes) -> None:
            sent = None if observation.sent is observation else observation.sent
            site = site_of(observation)
            context = "" if site else observation.context
            decisions.append(Decision(observation.payload, advice, context, sent, site))

        super().__init__(policy, problem, watch)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, and where it happened; as text, what commands print.

    >>> print(Failure(InputError("expected a number"), "policy never").within("package lua"))
    package lua: policy never: expected a number
    """

    error: MlgoGymError
    where: str = ""

    def within(self, where: str) -> Failure:
        """Return the failure with a wider place in front; ``""`` adds nothing."""
        return Failure(self.error, ": ".join(filter(None, (where, self.where))))

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.where, str(self.error))))


def without_frames(error: _Error) -> _Error:
    """The error without tracebacks: their frames would keep modules and objects in memory."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:  # a context may lead back to where it began
            seen.add(id(each))
            each.__traceback__ = None
            left += [each.__cause__, each.__context__]
    return error


@dataclass(frozen=True, slots=True)
class Attempt:
    """One module compiled under one policy.

    Attributes:
        result: what came out; ``None`` where it failed.
        error: why it failed.
        decisions: every decision, in order, where they were asked for.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> corpus = Corpus.load(SAMPLE_CORPUS).only(["digest.c"])
    >>> policies = {"never": lambda observation: 0}
    >>> (report,) = rollout(corpus, policies, InliningForSize())
    >>> report.attempts[0].policy, report.attempts[0].error
    ('never', None)
    """

    policy: str
    result: Result | None
    error: MlgoGymError | None = None
    decisions: tuple[Decision, ...] = field(default=(), repr=False)

    def trace(self, problem: Problem, *, keep_observations: bool = False) -> Trace | None:
        """The recorded compilation, where the decisions were kept.

        ``None`` where it failed, and where a trace cannot hold it: one holds the answers to one
        problem, and what object they make. What LLVM asked is in it if observations are kept, and
        where, if sites were asked for.
        """
        result = self.result
        if not isinstance(result, CompilationResult) or result.settings["problem"] != problem.name:
            return None
        layout, decisions = self.recorded(problem)
        observations = [each.payload for each in decisions if keep_observations]
        trace = Trace.of(result, layout, [each.advice for each in decisions], observations)
        return replace(trace, sites=tuple(each.site for each in decisions if each.site))

    def recorded(self, problem: Problem) -> tuple[Layout, tuple[Decision, ...]]:
        """The decisions with all that LLVM sent, and their layout: `Problem.recorded_layout`."""
        layout, payloads = record_of(problem, (each.sent for each in self.decisions if each.sent))
        if layout == problem.layout:
            return layout, self.decisions
        kept = zip(self.decisions, payloads, strict=True)
        return layout, tuple(replace(each, payload=payload, sent=None) for each, payload in kept)


@dataclass(frozen=True, slots=True)
class ModuleReport:
    """One module under every policy.

    Attributes:
        measure: how it was compiled, and what its policies are compared by.
        baseline: the plain compilation; ``None`` where it failed.
        attempts: one for each policy, in the order in which they were given.
        error: why the plain compilation failed; then there are no attempts.
        not_honoured: what the embedded compiler leaves out of the module's command line.
        package: the name of the package that the module is of; ``""`` where there is but a corpus.
        language: what the module is written in, as `language_of` has it; ``""`` if it is not known.
        module_sha256: the hash of the module's bytes; ``""`` if they are not known.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> corpus = Corpus.load(SAMPLE_CORPUS).only(["digest.c"])
    >>> policies = {"never": lambda observation: 0}
    >>> (report,) = rollout(corpus, policies, InliningForSize())
    >>> report.module, report.is_complete
    ('digest.c', True)
    """

    module: str
    measure: Measure
    baseline: Result | None
    attempts: tuple[Attempt, ...]
    error: MlgoGymError | None = None
    not_honoured: tuple[str, ...] = ()
    package: str = ""
    language: str = ""
    module_sha256: str = ""

    @property
    def key(self) -> ModuleKey:
        """The package and the module."""
        return ModuleKey(self.package, self.module)

    @property
    def results(self) -> dict[str, Result]:
        """What there is by policy, `BASELINE` among them and first; what failed is left out."""
        found = {BASELINE: self.baseline} | {each.policy: each.result for each in self.attempts}
        return {name: each for name, each in found.items() if each is not None}

    @property
    def is_complete(self) -> bool:
        """Whether the plain compilation and every attempt have a result."""
        return self.baseline is not None and all(each.result for each in self.attempts)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Why the plain compilation, or else attempts, failed."""
        if self.error:
            return (Failure(self.error),)
        failed = ((each.policy, each.error) for each in self.attempts if each.error)
        return tuple(Failure(error, f"policy {policy}") for policy, error in failed)

    def attempt(self, policy: str) -> Attempt | None:
        """The attempt of a policy; ``None`` where the plain compilation failed."""
        return next((each for each in self.attempts if each.policy == policy), None)

    def without_decisions(self) -> ModuleReport:
        """Return the report without the attempts' decisions, which take the most memory."""
        return replace(self, attempts=tuple(replace(each, decisions=()) for each in self.attempts))

    def reward(self, attempt: Attempt) -> float | None:
        """The share of the baseline's score that an attempt saved; ``None`` where one failed."""
        return self.rewards(attempt).get("")

    def rewards(self, attempt: Attempt) -> dict[str, float]:
        """Return the reward of each context that is scored; ``""`` is the whole module.

        Empty where the attempt or the baseline failed.
        """
        if self.baseline is None or attempt.result is None:
            return {}
        return self.measure.rewards(attempt.result, self.baseline)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How modules are compared under policies: the keywords of `rollout` that say so."""

    opt_level: str | None = None
    measure: Measure | None = None
    also: Mapping[Problem, PolicyLike] = field(default_factory=dict)
    keep_decisions: bool = False
    sites: bool = False
    keep_smaller: bool = False

    def measure_for(self, problem: Problem) -> Measure:
        """The measure that policies for a problem are compared by."""
        return self.measure or measure_of(problem)


def rollout(
    corpora: PackagesLike,
    policies: Mapping[str, PolicyLike],
    problem: Problem,
    *,
    jobs: Jobs = 1,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    in_order: bool = True,
    opt_level: str | None = None,
    measure: Measure | None = None,
    also: Mapping[Problem, PolicyLike] = MappingProxyType({}),
    keep_decisions: bool = False,
    sites: bool = False,
    keep_smaller: bool = False,
) -> Generator[ModuleReport]:
    """Compile modules plainly and under each policy.

    A module that LLVM refuses, or crashes or hangs on, is reported with its error; the others
    go on. A policy that raises ends the rollout. Closing the iterator early ends the workers.
    With one job policies are called in the caller's thread, with more in as many threads at once.

    Args:
        corpora: the modules, of packages or of a corpus; `only` takes some of them.
        policies: by name; each begins and ends with every compilation.
        problem: what LLVM asks for.
        jobs: how many workers compile at once.
        timeout_s: how long LLVM may take for one compilation, in seconds.
        in_order: reports come in the order of the modules. Otherwise the largest modules are
            started first, and reports come as they are finished: no worker waits for the last.
        opt_level: clang's level to compile at; ``None`` takes each module's own.
        measure: what policies are compared by; ``None`` takes the problem's own.
        also: further problems of the same compilations, each with what answers it, for a measure
            that makes objects.
        keep_decisions: attempts hold their decisions.
        sites: each of them says where it is.
        keep_smaller: add `SMALLEST`, the best by the measure, or, of objects whose problem is
            scored without, by the problem's: of the module, or of each function.

    Yields:
        One report for each module.

    Raises:
        OptionsError: ``jobs`` is not above 0, there is no such level, the problem is not one that
            others can be beside, or its decisions have no sites.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
    >>> corpus = Corpus.load(SAMPLE_CORPUS).only(["digest.c"])
    >>> policies = {"never": lambda observation: 0}
    >>> (report,) = rollout(corpus, policies, InliningForSize())
    >>> report.reward(report.attempts[0]) <= 0
    True
    """
    how = Comparison(opt_level, measure, also, keep_decisions, sites, keep_smaller)
    return made_of_reports(
        Packages.of(corpora),
        policies,
        problem,
        _as_it_is,
        how,
        jobs=jobs,
        timeout_s=timeout_s,
        in_order=in_order,
    )


def made_of_reports(
    packages: Packages,
    policies: Mapping[str, PolicyLike],
    problem: Problem,
    make: Callable[[ModuleReport], _Value],
    how: Comparison,
    *,
    jobs: Jobs,
    timeout_s: float,
    in_order: bool,
) -> Generator[_Value]:
    """Yield a function's value for each report; other arguments are as in `rollout`."""
    CompileOptions(how.opt_level)
    measure = how.measure_for(problem)
    check_alone(measure, problem, how.also)
    check_sites(problem, wanted=how.sites)
    work = partial(_made, make=make, policies=policies, problem=problem, how=how)
    compiler, size = partial(Compiler, timeout_s=timeout_s), packages.size_bytes
    read = packages.keyed
    running = each(packages, work, compiler, read=read, jobs=jobs, size=size, in_order=in_order)
    with closing(running) as found:
        for done in found:
            package, name = done.item
            if done.error is None:
                yield done.value
                continue
            error = without_frames(done.error)
            yield make(ModuleReport(name, measure, None, (), error, package=package))


def _as_it_is(report: ModuleReport) -> ModuleReport:
    return report


def _made(
    compiler: Compiler,
    read: tuple[ModuleKey, Module],
    *,
    make: Callable[[ModuleReport], _Value],
    policies: Mapping[str, PolicyLike],
    problem: Problem,
    how: Comparison,
) -> _Value:
    key, module = read
    report = compared(compiler, module, policies, problem, how)
    return make(replace(report, package=key.package))


def compared(
    compiler: Compiler,
    module: Module,
    policies: Mapping[str, PolicyLike],
    problem: Problem,
    how: Comparison,
) -> ModuleReport:
    """Compile one module plainly and under each policy; what fails is in the report."""
    measure = how.measure_for(problem)
    about: dict[str, Any] = {"language": language_of(module), "module_sha256": module.sha256}
    try:
        options = options_of(module, how.opt_level)
        about["not_honoured"] = options.not_honoured
        case = (compiler, module, options, problem)
        unit = measure.unit(*case, how.also, sites=how.sites)
        tries = Tries(unit, problem, BASELINE, by_function=how.keep_smaller and joins(problem))
        attempts = attempted(tries, policies, problem, keeps=how.keep_decisions)
        if how.keep_smaller and all(each.result for each in attempts):
            _, smallest = smallest_of(case, tries, attempts, policies, measure)
            attempts.append(smallest)
    except (CompilationError, InputError) as error:
        return ModuleReport(module.name, measure, None, (), without_frames(error), **about)
    return ModuleReport(module.name, measure, tries.results[BASELINE], tuple(attempts), **about)


def attempted(
    tries: Tries, policies: Mapping[str, PolicyLike], problem: Problem, *, keeps: bool
) -> list[Attempt]:
    """Compile under each policy; with ``keeps``, attempts hold their decisions."""
    return [_attempted(tries, *each, problem, keeps=keeps) for each in policies.items()]


def smallest_of(
    case: Case,
    tries: Tries,
    attempts: Iterable[Attempt],
    policies: Mapping[str, PolicyLike],
    measure: Measure,
) -> tuple[Best, Attempt]:
    """Find the best of a module's compilations, which is another attempt, `SMALLEST`.

    Args:
        case: the arguments of the module's units. Where the measure makes objects and the problem's
            own does not, the module is compiled again, and judged by the problem's own.
        tries: the compilations.
        attempts: those under policies, none of which failed.
        policies: by name.
        measure: the score that attempts are compared by.
    """
    *_, problem = case
    own = measure_of(problem)
    if measure.makes_objects and not own.makes_objects:
        again = Tries(own.unit(*case), problem, BASELINE, by_function=joins(problem))
        for name, policy in policies.items():
            again.attempt(name, policy)
        best, _ = again.best(own)
        made = tries.made(best)
    else:
        best, made = tries.best(measure)
    decisions = {each.policy: each.decisions for each in attempts}
    return best, Attempt(SMALLEST, made, None, tuple(tries.kept(best, decisions)))


def _attempted(
    tries: Tries, name: str, policy: PolicyLike, problem: Problem, *, keeps: bool
) -> Attempt:
    decisions: list[Decision] = []
    answering = RecordingPolicy(policy, problem, decisions) if keeps else policy
    try:
        return Attempt(name, tries.attempt(name, answering), None, tuple(decisions))
    except (CompilationError, InputError) as error:
        return Attempt(name, None, without_frames(error), tuple(decisions))
