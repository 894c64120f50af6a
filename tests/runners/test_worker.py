"""Policies that answer inside the worker, where LLVM asks."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import PolicyError, UsageError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm._loading import recorded
from mlgo_gym.model import find_model
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.problems._policy import Answer, Policy, PolicyLike, SentPolicy, as_policy
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction, lowest_density
from mlgo_gym.problems._regalloc_priority import RegallocPriority, by_size
from mlgo_gym.rollout._replay import record, replay, resume
from mlgo_gym.rollout._rollout import Decision, RecordingPolicy, rollout
from mlgo_gym.runners._models import model_policies
from mlgo_gym.runners._policy import WorkerPolicy
from mlgo_gym.stream._training_log import Observation

LIFTED = InliningForSize(size_increase_threshold=math.inf)
FUNCTIONS: list[tuple[Problem, Answer]] = [
    (LIFTED, default),
    (RegallocEviction(), lowest_density),
    (RegallocPriority(), by_size),
]


class NotAskedHere(Policy):
    """Answers in the worker alone."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def begin(self, module: Module) -> AbstractContextManager[Answer]:
        def fail(observation: Observation) -> int:
            raise AssertionError(f"{module.name}: asked {dict(observation)}")

        return nullcontext(fail)

    def for_worker(self, problem: Problem) -> SentPolicy | None:
        return self._policy.for_worker(problem)


def decisions_of(
    compiler: Compiler, module: Module, problem: Problem, policy: PolicyLike
) -> tuple[str, list[Decision]]:
    decisions: list[Decision] = []
    recording = RecordingPolicy(policy, problem, decisions)
    result = compiler.compile_module(module, problem=problem, policy=recording)
    assert result.decisions == len(decisions) > 0
    return result.object_sha256, decisions


@pytest.mark.parametrize(("problem", "answer"), FUNCTIONS, ids=lambda each: type(each).__name__)
def test_a_function_answers_as_it_does_here(
    compiler: Compiler, sample: Corpus, problem: Problem, answer: Answer
) -> None:
    module = sample["expr_compile.c"]
    there = decisions_of(compiler, module, problem, NotAskedHere(WorkerPolicy(answer)))
    assert there == decisions_of(compiler, module, problem, answer)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        pytest.param("inlining-for-size", LIFTED, marks=pytest.mark.e2e),
        pytest.param("regalloc-eviction", RegallocEviction(), marks=pytest.mark.e2e),
    ],
)
def test_a_model_answers_as_it_does_here(
    compiler: Compiler, sample: Corpus, model: str, problem: Problem
) -> None:
    module = sample["expr_compile.c"]
    with model_policies([find_model(model)], "release", problem) as found:
        (policy,) = found.values()
        there = decisions_of(compiler, module, problem, NotAskedHere(policy))
        with policy.begin(module) as answer:
            assert there == decisions_of(compiler, module, problem, answer)


def test_two_problems_are_answered_in_one_worker(compiler: Compiler, sample: Corpus) -> None:
    module, eviction = sample["scene.cpp"], RegallocEviction()
    here, there = (
        compiler.compile_module(module, problem=LIFTED, policy=first, also={eviction: second})
        for first, second in (
            (default, lowest_density),
            (NotAskedHere(WorkerPolicy(default)), NotAskedHere(WorkerPolicy(lowest_density))),
        )
    )
    assert here.object_sha256 == there.object_sha256
    assert here.decisions == there.decisions > 0


@pytest.mark.e2e
def test_rollouts_use_it(sample: Corpus) -> None:
    corpus = sample.only(("frame_stream.c", "json_write.c", "expr_compile.c"))
    with model_policies([find_model("inlining-for-size")], "release", LIFTED) as found:
        (model,) = found.values()
        policies: dict[str, PolicyLike] = {
            "model": NotAskedHere(model),
            "function": NotAskedHere(WorkerPolicy(default)),
            "here": default,
        }
        for report in rollout(corpus, policies, LIFTED, jobs=2, keep_decisions=True):
            model_attempt, function, here = report.attempts
            assert here.result == function.result
            assert here.decisions == function.decisions
            assert model_attempt.trace(LIFTED) is not None


def of_a_file(observation: Observation) -> int:
    with open("/etc/hostname") as file:
        return len(file.read() + repr(observation))


def always_seven(observation: Observation) -> int:
    return 7 + len(observation) - len(observation)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: of_a_file, "PermissionError: [Errno 13] Permission denied: '/etc/hostname'"),
        (lambda: divided, "ZeroDivisionError: integer division or modulo by zero"),
    ],
)
def test_what_a_function_raises_is_told_and_the_worker_lives(
    compiler: Compiler, sample: Corpus, answer: Callable[[], Answer], message: str
) -> None:
    module = sample["scene.cpp"]
    policy = WorkerPolicy(answer())
    with pytest.raises(PolicyError) as caught:
        compiler.compile_module(module, problem=LIFTED, policy=policy)
    assert str(caught.value).startswith(f"a policy raised in the worker: {message}\n\nTraceback")
    assert caught.value.traceback.endswith(f"{message}\n")
    pid = compiler.worker_pid
    assert compiler.compile_module(module).decisions == 0
    assert compiler.worker_pid == pid


def divided(observation: Observation) -> int:
    return 1 // (len(observation) - len(observation))


def test_an_answer_that_llvm_does_not_take_is_refused_as_here(
    compiler: Compiler, sample: Corpus
) -> None:
    module = sample["scene.cpp"]
    with pytest.raises(UsageError) as caught:
        compiler.compile_module(module, problem=LIFTED, policy=WorkerPolicy(always_seven))
    assert str(caught.value) == "inlining_decision: expected 0 or 1, found 7"


def test_a_function_is_sent_as_its_source(compiler: Compiler, sample: Corpus) -> None:
    def at_most(observation: Observation) -> int:
        return int(math.sqrt(observation["cost_estimate"][0] ** 2) < 50)

    module = sample["scene.cpp"]
    policy = WorkerPolicy(at_most)
    sent = policy.for_worker(LIFTED)
    assert sent is not None
    assert (sent.about["kind"], sent.about["imports"]) == ("source", {"math": "math"})
    there = decisions_of(compiler, module, LIFTED, NotAskedHere(policy))
    assert there == decisions_of(compiler, module, LIFTED, at_most)


def test_what_cannot_be_sent_is_refused() -> None:
    limit = 3

    def bound(observation: Observation) -> int:
        return int(observation["cost_estimate"][0] < limit)

    def global_too(observation: Observation) -> int:
        return int(observation["cost_estimate"][0] < len(FUNCTIONS))

    class Counting:
        def __call__(self, observation: Observation) -> int:
            return len(observation)

    expected: dict[Answer, str] = {
        bound: "expected nothing from around it but modules, found 'limit'",
        global_too: "expected nothing from around it but modules, found 'FUNCTIONS'",
        Counting(): "expected a function, found Counting",
        (lambda observation: len(observation) % 2): "expected a name, which a lambda has not",
    }
    for answer, reason in expected.items():
        with pytest.raises(UsageError) as caught:
            WorkerPolicy(answer)
        name = getattr(answer, "__qualname__", repr(answer))
        assert str(caught.value) == f"policy {name}: cannot be sent to a worker: {reason}"


def test_what_cannot_be_imported_there_is_told(compiler: Compiler, sample: Corpus) -> None:
    def lost(observation: Observation) -> int:
        return int(missing_module.answer(observation))  # type: ignore[name-defined]  # noqa: F821 - there for a moment

    globals()["missing_module"] = type(math)("missing_module")
    try:
        with pytest.raises(PolicyError) as caught:
            compiler.compile_module(sample["scene.cpp"], problem=LIFTED, policy=WorkerPolicy(lost))
    finally:
        del globals()["missing_module"]
    assert str(caught.value).startswith(
        "a policy raised in the worker: ModuleNotFoundError: No module named 'missing_module'\n"
    )
    assert compiler.compile_module(sample["scene.cpp"]).decisions == 0


def test_somebody_here_goes_on_where_a_record_ends(compiler: Compiler, sample: Corpus) -> None:
    module = sample["expr_compile.c"]
    trace = record(compiler, module, LIFTED, default)
    assert replay(compiler, trace, module).object_sha256 == trace.object_sha256
    middle = trace.decisions // 2
    with resume(compiler, trace, module, middle) as compilation:
        assert compilation.decisions == middle
        with compilation.fork() as branch:
            for each in (compilation, branch):
                while (observation := each.next_observation()) is not None:
                    each.answer(default(observation))
                assert each.result.object_sha256 == trace.object_sha256
                assert each.result.decisions == trace.decisions


def test_what_is_answered_before_is_kept_in_order(compiler: Compiler, sample: Corpus) -> None:
    module = sample["expr_compile.c"]
    trace = record(compiler, module, LIFTED, default)

    class Begun(Policy):
        def begin(self, module: Module) -> AbstractContextManager[Answer]:
            return as_policy(default).begin(module)

        def for_worker(self, problem: Problem) -> SentPolicy | None:
            answers = [each.tobytes() for each in trace.actions()[:5]]
            return recorded(problem, answers)[problem]

    there = decisions_of(compiler, module, LIFTED, Begun())
    assert there == decisions_of(compiler, module, LIFTED, default)


def test_a_branch_by_replay_is_answered_there(sample: Corpus) -> None:
    module = sample["scene.cpp"]
    with (
        Compiler(fork_by_replay=True) as compiler,
        compiler.start(module, LIFTED, options_of(module)) as compilation,
    ):
        for _ in range(7):
            observation = compilation.next_observation()
            assert observation is not None
            compilation.answer(default(observation))
        compilation.next_observation()
        with compilation.fork() as branch:
            assert branch.is_replayed
            assert branch.decisions == 7
            assert branch.advice == compilation.advice
