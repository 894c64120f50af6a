"""Recording compilations as traces, repeating them, and recorded answers as policies.

The same module, options, LLVM and answers give the same object, byte for byte. As policies, modules
are answered as traces say, and functions as they once were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

from mlgo_gym.base import OptionsError, TraceError, TrainingLogError, UsageError
from mlgo_gym.corpus import Module
from mlgo_gym.llvm import (
    COMPILE,
    Compilation,
    CompilationResult,
    CompileOptions,
    Compiler,
    llvm_version,
    recorded,
    run_to_end,
    settings_of_code,
    site_of,
)
from mlgo_gym.problems import (
    HASH_SUFFIX,
    Action,
    Answer,
    Policy,
    PolicyLike,
    Problem,
    SentPolicy,
    WatchedPolicy,
    as_policy,
    problems,
    record_of,
)
from mlgo_gym.rollout._trace import Trace
from mlgo_gym.stream import Header, Observation


def record(
    compiler: Compiler,
    module: Module,
    problem: Problem,
    policy: PolicyLike,
    options: CompileOptions | None = None,
    *,
    keep_observations: bool = False,
    sites: bool = False,
) -> Trace:
    """Compile a module under a policy and record it.

    The trace holds the answers and, if observations are kept, what LLVM asked, and with ``sites``
    where. The options are as in `Compiler.start`.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     record(compiler, module, InliningForSize(), lambda observation: 0).module
    'digest.c'
    """
    seen: list[Observation] = []
    if keep_observations or sites:
        policy = WatchedPolicy(policy, problem, lambda asked, _: seen.append(asked))
    running = compiler.running(module, options, {problem: policy}, replace(COMPILE, sites=sites))
    trace = trace_of(run_to_end(running), seen if keep_observations else ())
    return replace(trace, sites=tuple(filter(None, map(site_of, seen))))


def trace_of(compilation: Compilation, observations: Sequence[Observation] = ()) -> Trace:
    """The trace of a compilation that has ended.

    Where it is to hold observations, they are all that were answered, in order.

    Raises:
        UsageError: it does not have one problem, or has no result.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler, compiler.start(module, InliningForSize()) as compilation:
    ...     while compilation.next_observation() is not None:
    ...         compilation.answer(0)
    ...     trace_of(compilation).decisions == compilation.decisions
    True
    """
    if len(compilation.problems) != 1:
        raise UsageError(
            f"module {compilation.module.name!r}: expected one problem, found "
            f"{len(compilation.problems)}"
        )
    (problem,) = compilation.problems
    layout, payloads = record_of(problem, (each.sent for each in observations))
    return Trace.of(compilation.result, layout, compilation.advice, payloads)


def replay(
    compiler: Compiler,
    trace: Trace,
    module: Module,
    options: CompileOptions | None = None,
    *,
    files: Mapping[str, object] | None = None,
) -> CompilationResult:
    """Repeat a compilation of the module that was recorded, and verify the object's hash.

    Without options they are the trace's own; others must be equal to them. A trace names the files
    that its problem was set up with and has their hashes; what it names is not opened, and files
    are given, by setting: ``{"ir2vec": "vocabulary.json"}``.

    Raises:
        TraceError: another module, other options, another LLVM, other observations or another
            number of them, or another object; the message says what was expected and found.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     trace = record(compiler, module, InliningForSize(), lambda observation: 0)
    ...     replay(compiler, trace, module).object_sha256 == trace.object_sha256
    True
    """
    repeated = resume(compiler, trace, module, trace.decisions, options, files=files)
    with repeated as compilation:
        if compilation.next_observation() is not None:
            raise TraceError(
                trace.module, f"expected {trace.decisions} decisions, found that LLVM asks for more"
            )
        result = compilation.result
    if result.object_sha256 != trace.object_sha256:
        raise _differs(trace, "object_sha256", trace.object_sha256, result.object_sha256)
    return result


def resume(
    compiler: Compiler,
    trace: Trace,
    module: Module,
    decisions: int,
    options: CompileOptions | None = None,
    *,
    files: Mapping[str, object] | None = None,
) -> Compilation:
    """Start the recorded compilation and answer so many decisions as recorded.

    What answers the rest is the caller's choice. Options and files are as in `replay`.

    Raises:
        TraceError: as from `replay`, as far as it shows in these decisions.
        UsageError: the trace has fewer decisions.

    >>> from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
    >>> module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    >>> with Compiler() as compiler:
    ...     trace = record(compiler, module, InliningForSize(), lambda observation: 0)
    ...     with resume(compiler, trace, module, 2) as compilation:
    ...         compilation.decisions
    2
    """
    if not 0 <= decisions <= trace.decisions:
        raise UsageError(
            f"trace {trace.module!r}: expected 0 to {trace.decisions} decisions to repeat, "
            f"found {decisions}"
        )
    options_used = _check(trace, module, options)
    problem = problem_of(trace, files or {})
    # Observations are compared here; where there are none, nobody needs to be asked.
    answers = [] if trace.features else [each.tobytes() for each in trace.actions()[:decisions]]
    inside = recorded(problem, answers)
    compilation = compiler.start(module, problem, options_used, inside=inside)
    try:
        _repeat(compilation, trace, decisions)
    except BaseException:
        compilation.close()
        raise
    return compilation


def problem_of(trace: Trace, files: Mapping[str, object] | None = None) -> Problem:
    """The problem that a trace's settings describe, and its observations, where it has them.

    With files, by setting, it can be compiled for; without, it does for what is in the trace.
    """
    known: dict[str, type[Problem]] = {each.name: each for each in problems().values()}
    name = trace.settings.get("problem")
    if not isinstance(name, str) or name not in known:
        raise _differs(trace, "problem", f"one of {', '.join(known)}", name)
    kind = known[name]
    given = settings_of_problem(trace)
    hashes = {f"{key}{HASH_SUFFIX}" for key in kind.file_settings}
    others = given.keys() - {"problem", *kind.file_settings, *hashes}
    words = {each.name for each in fields(kind) if isinstance(each.default, str)}
    own = {
        key: given[key] if key in words else _number(trace, key, given[key])
        for key in given
        if key in others
    }
    for key in kind.file_settings.keys() & given.keys() if files is not None else ():
        own[key] = _file(trace, key, kind, files or {})
    try:
        made = kind(**own)
    except (TypeError, ValueError) as error:
        raise TraceError(trace.module, f"settings of {name}: {error}") from error
    settings = made.settings()
    for key in hashes & settings.keys():
        if settings[key] != given.get(key):
            raise _differs(trace, key, given.get(key), settings[key])
    if not trace.features or made.layout.differences(header := _header(trace)):
        return made
    return made.as_sent(header)


def _header(trace: Trace) -> Header:
    try:
        return Header(trace.features, advice=trace.advice_spec)
    except TrainingLogError as error:
        raise TraceError(trace.module, str(error)) from error


def settings_of_problem(trace: Trace) -> dict[str, Any]:
    """Return the settings of a trace that are its problem's."""
    names = {each.name for each in fields(CompileOptions)}
    return {key: value for key, value in trace.settings.items() if key not in names}


def _file(trace: Trace, key: str, kind: type[Problem], files: Mapping[str, object]) -> Any:
    """Return the file that a setting names: a given one, or a name of the problem's own."""
    name = trace.settings[key]
    if key in files or name in kind.file_settings[key]:
        return files.get(key, name)
    expected = f"the file that was {name!r}, of SHA-256 {trace.settings.get(f'{key}{HASH_SUFFIX}')}"
    raise _differs(trace, key, expected, f"none; give it as --{key} or in files")


def options_of_trace(trace: Trace) -> CompileOptions:
    """The options that a trace was recorded with; its level is the one that was used."""
    names = [each.name for each in fields(CompileOptions)]
    if missing := [name for name in names if name not in trace.settings]:
        expected = ", ".join(names)
        raise TraceError(trace.module, f"settings: expected {expected}, found no {missing}")
    try:
        return CompileOptions(**{name: _frozen(trace.settings[name]) for name in names})
    except OptionsError as error:
        raise TraceError(trace.module, f"settings: {error}") from error


def _number(trace: Trace, key: str, value: Any) -> float:
    try:
        return value if isinstance(value, int) else float(value)  # infinity is a string in JSON
    except (TypeError, ValueError) as error:
        raise _differs(trace, f"settings: {key}", "a number", repr(value)) from error


def _frozen(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value  # as JSON has it


def _check(trace: Trace, module: Module, options: CompileOptions | None) -> CompileOptions:
    if module.sha256 != trace.module_sha256:
        raise _differs(trace, "module_sha256", trace.module_sha256, module.sha256)
    recorded = options_of_trace(trace)
    given, own = (settings_of_code(each.settings()) if each else {} for each in (options, recorded))
    for name, value in given.items():
        if value != own[name]:
            raise _differs(trace, name, own[name], value)
    return recorded


def _repeat(compilation: Compilation, trace: Trace, decisions: int) -> None:
    if compilation.llvm_version != trace.llvm_version:
        raise _differs(trace, "llvm_version", trace.llvm_version, compilation.llvm_version)
    actions = trace.actions()
    observation = compilation.next_observation()
    while (index := compilation.decisions) < decisions:
        if observation is None:
            raise TraceError(
                trace.module, f"expected {trace.decisions} decisions, found only {index}"
            )
        compare_with_trace(trace, index, observation)
        compilation.answer(actions[index].item())
        observation = compilation.next_observation()


def compare_with_trace(trace: Trace, index: int, observation: Observation) -> None:
    """See that LLVM asks what it asked, where the trace has that."""
    features = observation.header.features
    if index == 0 and trace.features and trace.features != features:
        raise _differs(trace, "features", [each.name for each in trace.features], list(observation))
    recorded = trace.observation(index)
    if recorded is None or recorded == observation.payload:
        return
    expected = Observation(observation.header, observation.context, index, recorded)
    for name in expected:
        if expected[name].tobytes() != observation[name].tobytes():
            where = f"decision {index}, feature {name!r}"
            raise _differs(trace, where, expected[name].tolist(), observation[name].tolist())


def _differs(trace: Trace, what: str, expected: object, found: object) -> TraceError:
    return TraceError(trace.module, f"{what}: expected {expected}, found {found}")


class RecordedPolicy(Policy):
    """Answers as traces do, and modules that have none as another policy does.

    A module is known by its hash. LLVM must ask as often as it did, and the same where the trace
    has observations.

    Args:
        traces: of modules.
        other: what answers modules that have none.
    """

    def __init__(self, traces: Iterable[Trace], other: PolicyLike) -> None:
        self._traces: Mapping[str, Trace] = {each.module_sha256: each for each in traces}
        self._other = as_policy(other)

    def for_module(self, module: Module) -> Policy:
        """The recorded answers of a module, or the other policy's part in it."""
        trace = self._traces.get(module.sha256)
        return RecordedAnswers(trace) if trace else self._other.for_module(module)

    def begin(self, module: Module) -> AbstractContextManager[Answer]:
        """The answers to one module.

        Raises:
            TraceError: as from `RecordedAnswers.begin`.
        """
        return self.for_module(module).begin(module)


class RecordedAnswers(Policy):
    """The answers of one trace, given in the worker where there is nothing to compare."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._asked = 0

    def for_module(self, module: Module) -> Policy:  # noqa: ARG002 (each counts for itself)
        """Return a policy that gives the recorded answers from the first on."""
        return RecordedAnswers(self._trace)

    @contextmanager
    def begin(self, module: Module) -> Iterator[Answer]:  # noqa: ARG002
        """The recorded answers.

        Raises:
            TraceError: at the end, LLVM has asked less often; of an answer, it asks more often, or
                something else.
        """
        trace, self._asked = self._trace, 0
        actions = trace.actions().ravel().tolist()

        def recorded(observation: Observation) -> Action:
            if self._asked >= len(actions):
                what = f"expected {len(actions)} decisions, found that LLVM asks for more"
                raise TraceError(trace.module, what)
            compare_with_trace(trace, self._asked, observation)
            self._asked += 1
            action: Action = actions[self._asked - 1]
            return action

        yield recorded
        if self._asked < len(actions):
            what = f"expected {len(actions)} decisions, found only {self._asked}"
            raise TraceError(trace.module, what)

    def for_worker(self, problem: Problem) -> SentPolicy | None:
        """Return the same answers for the worker, unless observations are to be compared."""
        if self._trace.features:
            return None
        advice = [each.tobytes() for each in self._trace.actions()]
        sent = recorded(problem, advice).get(problem)
        return replace(sent, keep=True) if sent else None

    def answered(self, decisions: Sequence[tuple[Observation, bytes]]) -> None:
        """Count what was answered in the worker."""
        self._asked += len(decisions)


@dataclass(frozen=True, eq=False)
class RecordedContexts(Policy):
    """Answers in each context as it was once answered there.

    Attributes:
        problem: what was asked for.
        answers: the raw advice of each context, in the order in which LLVM comes to them.
        left: functions in which it is not asked (`Policy.left`).
    """

    problem: Problem
    answers: Mapping[str, Sequence[bytes]]
    left: Collection[str] = ()

    def begin(self, module: Module) -> AbstractContextManager[Answer]:
        """The recorded answers.

        Raises:
            TraceError: of an answer, LLVM asks where it did not, or more often.
        """

        def answer(observation: Observation) -> Action:
            known = self.answers.get(observation.context, ())
            if observation.index >= len(known):
                what = f"expected {len(known)} decisions, found that LLVM asks for more"
                raise TraceError(module.name, f"{observation.context!r}: {what}")
            action: Action = self.problem.advice.decode(known[observation.index]).item()
            return action

        return nullcontext(answer)

    def for_worker(self, problem: Problem) -> SentPolicy | None:
        """Return the same answers for the worker, one after the other."""
        advice = [each for known in self.answers.values() for each in known]
        return recorded(problem, advice).get(problem)


def check_settings(trace: Trace, problem: Problem, options: CompileOptions) -> None:
    """See that a trace was recorded as modules are compiled now.

    Raises:
        TraceError: another problem or LLVM, or a setting of another value; the message says which.
    """
    recorded = settings_of_problem(trace) | options_of_trace(trace).settings()
    recorded |= {"llvm_version": trace.llvm_version}
    found = problem.settings() | options.settings() | {"llvm_version": llvm_version()}
    for name in dict.fromkeys((*found, *recorded)):
        value = found.get(name)
        if name == "opt_level" and value is None:  # LLVM chooses, as it did
            continue
        if _plain(recorded.get(name)) != _plain(value):
            what = f"{name}: expected {recorded.get(name)}, found {value}"
            raise TraceError(trace.module, what)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
