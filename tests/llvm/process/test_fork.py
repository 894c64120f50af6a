"""Forks of real compilations: what branches share, what they do not, and what is left of them."""

from __future__ import annotations

import math
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import CompilationTimeoutError, CompilerCrashError, OptionsError, UsageError
from mlgo_gym.llvm._compilation import Compilation
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._task import ALLOCATE, OPTIMIZE
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.problems._policy import Answer
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction, lowest_density
from tests.llvm.process.killed_parent import children_of_killed
from tests.waiting import wait_for

LIFTED = InliningForSize(size_increase_threshold=math.inf)


@pytest.fixture(params=["process", "replay"])
def either(request: pytest.FixtureRequest) -> Iterator[Compiler]:
    """A compiler for each way to branch off."""
    with Compiler(timeout_s=120, fork_by_replay=request.param == "replay") as compiler:
        yield compiler


def advance(compilation: Compilation, decisions: int, action: int = 0) -> None:
    for _ in range(decisions):
        assert compilation.next_observation() is not None
        compilation.answer(action)
    assert compilation.next_observation() is not None


def finish(compilation: Compilation, action: int) -> str:
    while compilation.next_observation() is not None:
        compilation.answer(action)
    return compilation.result.object_sha256


def scratch(compiler: Compiler, module: Module, prefix: list[int], then: int) -> str:
    """The object of these answers, compiled from the start."""
    with compiler.start(module, LIFTED) as compilation:
        for action in prefix:
            assert compilation.next_observation() is not None
            compilation.answer(action)
        return finish(compilation, then)


def test_branches_go_on_by_themselves(either: Compiler, sample: Corpus) -> None:
    module = sample["frame_stream.c"]
    with Compiler() as other:
        expected = [
            scratch(other, module, [0, 0, 0], 0),
            scratch(other, module, [0, 0, 0], 1),
            scratch(other, module, [0, 0, 0, 1, 1], 0),
        ]
    assert len(set(expected)) == 3
    with either.start(module, LIFTED) as trunk:
        advance(trunk, 3)
        first = trunk.fork()
        assert first.is_replayed == either.fork_by_replay
        assert first.advice == trunk.advice
        advance(first, 2, action=1)
        second = first.fork()  # a fork of a fork
        assert finish(second, 0) == expected[2]
        assert finish(trunk, 0) == expected[0]
        assert finish(first, 1) == expected[1]
        assert second.result.decisions != first.result.decisions


def test_the_pending_observation_is_the_same(either: Compiler, small: Corpus) -> None:
    trunk = either.start(small["frame_stream.c"], LIFTED)
    advance(trunk, 2)
    with trunk.fork() as branch:
        mine, its = trunk.next_observation(), branch.next_observation()
        assert mine is not None
        assert its is not None
        assert (mine.index, mine.context, mine.payload) == (its.index, its.context, its.payload)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_closing_one_leaves_the_others_alone(order: tuple[int, ...], small: Corpus) -> None:
    with Compiler() as compiler:
        trunk = compiler.start(small["frame_stream.c"], LIFTED, keep_object=True)
        advance(trunk, 1)
        first = trunk.fork()
        second = first.fork()
        family = [trunk, first, second]
        for index in order[:2]:
            family[index].close()
            family[index].close()
        left = family[order[2]]
        assert finish(left, 1) == scratch(compiler, small["frame_stream.c"], [0], 1)
        assert left.result.object_bytes


def test_branches_outlive_compiler_and_worker(small: Corpus) -> None:
    with Compiler() as other:
        expected = scratch(other, small["frame_stream.c"], [0, 0], 1)
    compiler = Compiler()
    trunk = compiler.start(small["frame_stream.c"], LIFTED)
    advance(trunk, 2)
    branches = [trunk.fork() for _ in range(3)]
    worker = compiler.worker_pid
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    assert finish(branches[0], 1) == expected
    with pytest.raises(CompilerCrashError, match="LLVM ended with signal 9"):
        trunk.fork()
    grandchild = branches[1].fork()  # its worker's parent is this process, not the dead worker
    compiler.close()
    assert finish(branches[1], 1) == finish(branches[2], 1) == finish(grandchild, 1) == expected


def test_a_killed_branch_is_an_error_of_its_own(compiler: Compiler, small: Corpus) -> None:
    trunk = compiler.start(small["frame_stream.c"], LIFTED)
    advance(trunk, 1)
    branch = trunk.fork()
    os.kill(branch.worker_pid, signal.SIGKILL)
    branch.answer(1)
    with pytest.raises(CompilerCrashError) as caught:
        branch.next_observation()
    assert str(caught.value) == "module 'frame_stream.c': LLVM ended with signal 9 (SIGKILL)"
    assert finish(trunk, 0)


def test_a_hanging_branch_has_its_own_deadline(small: Corpus) -> None:
    with Compiler(timeout_s=120) as compiler:
        trunk = compiler.start(small["frame_stream.c"], LIFTED)
        advance(trunk, 1)
        branch = trunk.fork()
        os.kill(branch.worker_pid, signal.SIGSTOP)
        branch.charge(branch.remaining_s)
        branch.answer(0)
        with pytest.raises(CompilationTimeoutError, match="took more than its 120 s after 2 dec"):
            branch.next_observation()
        assert finish(trunk, 0)


def test_a_worker_that_hangs_when_it_is_to_fork(small: Corpus) -> None:
    with Compiler(timeout_s=120) as compiler:
        trunk = compiler.start(small["frame_stream.c"], LIFTED)
        advance(trunk, 1)
        worker = compiler.worker_pid
        assert worker is not None
        os.kill(worker, signal.SIGSTOP)
        trunk.charge(trunk.remaining_s)
        with pytest.raises(CompilationTimeoutError, match="took more than its 120 s after 1 decis"):
            trunk.fork()
        assert compiler.compile_module(small["frame_stream.c"]).text_size_bytes > 0


def before_the_first_wait(compiler: Compiler, module: Module) -> Compilation:
    return compiler.start(module, LIFTED)


def after_an_answer(compiler: Compiler, module: Module) -> Compilation:
    compilation = compiler.start(module, LIFTED)
    assert compilation.next_observation() is not None
    compilation.answer(0)
    return compilation


def after_the_end(compiler: Compiler, module: Module) -> Compilation:
    compilation = compiler.start(module, LIFTED)
    finish(compilation, 0)
    return compilation


def after_closing(compiler: Compiler, module: Module) -> Compilation:
    compilation = compiler.start(module, LIFTED)
    assert compilation.next_observation() is not None
    compilation.close()
    return compilation


def without_questions(compiler: Compiler, module: Module) -> Compilation:
    return compiler.start(module, None)


@pytest.mark.parametrize(
    "state",
    [before_the_first_wait, after_an_answer, after_the_end, after_closing, without_questions],
)
def test_no_decision_is_pending(
    compiler: Compiler, small: Corpus, state: Callable[[Compiler, Module], Compilation]
) -> None:
    compilation = state(compiler, small["frame_stream.c"])
    with pytest.raises(UsageError) as caught:
        compilation.fork()
    assert str(caught.value) == "module 'frame_stream.c': fork: no decision is pending"
    while compilation.next_observation() is not None:  # nothing was harmed
        compilation.answer(0)


def two_problems(compiler: Compiler, module: Module) -> Compilation:
    return compiler.start(module, [LIFTED, RegallocEviction()])


def no_object(compiler: Compiler, module: Module) -> Compilation:
    return compiler.start(module, LIFTED, task=OPTIMIZE)


@pytest.mark.parametrize(
    ("state", "found"), [(two_problems, "2 and object"), (no_object, "1 and bitcode")]
)
def test_what_cannot_branch(
    compiler: Compiler,
    small: Corpus,
    state: Callable[[Compiler, Module], Compilation],
    found: str,
) -> None:
    compilation = state(compiler, small["frame_stream.c"])
    observation = compilation.next_observation()
    with pytest.raises(UsageError) as caught:
        compilation.fork()
    assert str(caught.value) == (
        "module 'frame_stream.c': fork: expected one problem, and an object or an allocation to "
        f"make, found {found}"
    )
    assert compilation.next_observation() is observation  # nothing was harmed


def stopped_early(compiler: Compiler, module: Module) -> None:
    compiler.produce(module, CompileOptions("Oz"), ALLOCATE)


def asked_for_two(compiler: Compiler, module: Module) -> None:
    evict: dict[Problem, Answer] = {RegallocEviction(): lowest_density}
    compiler.compile_module(module, problem=LIFTED, policy=default, also=evict)


@pytest.mark.parametrize("first", [stopped_early, asked_for_two])
def test_options_of_an_earlier_compilation_do_not_reach_the_handler(
    compiler: Compiler, small: Corpus, first: Callable[[Compiler, Module], None]
) -> None:
    module = small["frame_stream.c"]
    first(compiler, module)
    with compiler.start(module, LIFTED) as trunk:
        advance(trunk, 1)
        with trunk.fork() as branch:
            assert not branch.is_replayed
            found = finish(branch, 1)
    assert found == scratch(compiler, module, [0], 1)


def test_register_allocation_branches_too(either: Compiler, small: Corpus) -> None:
    module, problem = small["hash_map.c"], RegallocEviction()
    alone = either.compile_module(module, problem=problem, policy=lowest_density)
    with either.start(module, problem) as trunk:
        for _ in range(3):
            observation = trunk.next_observation()
            assert observation is not None
            trunk.answer(lowest_density(observation))
        assert trunk.next_observation() is not None
        with trunk.fork() as branch:
            while (observation := branch.next_observation()) is not None:
                branch.answer(lowest_density(observation))
            assert branch.result == alone


def test_too_many_branches(small: Corpus) -> None:
    with Compiler(branch_limit=2) as compiler:
        trunk = compiler.start(small["frame_stream.c"], LIFTED)
        advance(trunk, 1)
        first, second = trunk.fork(), trunk.fork()
        for each in (trunk, first):
            with pytest.raises(UsageError) as caught:
                each.fork()
            assert str(caught.value) == (
                "module 'frame_stream.c': expected fewer than 2 live branches before a fork, "
                "found 2; close one, or raise branch_limit"
            )
        finish(first, 0)  # a branch that has ended counts no more
        third = trunk.fork()
        second.close()
        third.close()
        assert finish(trunk, 0)


@pytest.mark.parametrize("limit", [0, -1, 2.5])
def test_limits(limit: float) -> None:
    with pytest.raises(OptionsError) as caught:
        Compiler(branch_limit=limit)  # type: ignore[arg-type]
    assert str(caught.value) == f"branch_limit: expected a whole number above 0, found {limit!r}"


def descriptors_of(compilation: Compilation) -> int:
    """How many its worker has."""
    return len(list(Path(f"/proc/{compilation.worker_pid}/fd").iterdir()))


@pytest.mark.parametrize("spare", [0, 3])
def test_where_forking_does_not_work_it_is_said(
    compiler: Compiler, small: Corpus, spare: int
) -> None:
    trunk = compiler.start(small["frame_stream.c"], LIFTED)
    advance(trunk, 1)
    descriptors = descriptors_of(trunk)
    limit = (descriptors + spare, descriptors + spare)  # of six that a branch takes
    resource.prlimit(trunk.worker_pid, resource.RLIMIT_NOFILE, limit)
    message = "^fork: the system refuses to clone the worker; compiling again instead$"
    with pytest.warns(RuntimeWarning, match=message):
        branch = trunk.fork()
    assert branch.is_replayed
    wait_for(lambda: descriptors_of(trunk) == descriptors)
    assert finish(branch, 0) == finish(trunk, 0)


def test_a_signal_without_a_request_changes_nothing(compiler: Compiler, small: Corpus) -> None:
    expected = scratch(compiler, small["frame_stream.c"], [], 0)
    worker = compiler.worker_pid
    assert worker is not None
    with compiler.start(small["frame_stream.c"], LIFTED) as compilation:
        while compilation.next_observation() is not None:
            os.kill(worker, signal.SIGUSR2)
            compilation.answer(0)
            os.kill(worker, signal.SIGUSR2)
        assert compilation.result.object_sha256 == expected


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: reads /proc")
def test_a_fresh_branch_has_few_pages_of_its_own(compiler: Compiler, sample: Corpus) -> None:
    trunk = compiler.start(sample["symbolic.cpp"], LIFTED)
    advance(trunk, 5)
    with trunk.fork() as branch:
        lines = Path(f"/proc/{branch.worker_pid}/smaps_rollup").read_text().splitlines()
        private = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
        assert sum(private) < 1024


def test_forgotten_branches_leave_nothing(compiler: Compiler, small: Corpus) -> None:
    """What the fixture of every test looks for, after nobody closed the branches."""
    trunk = compiler.start(small["frame_stream.c"], LIFTED)
    advance(trunk, 1)
    for _ in range(3):
        trunk.fork().fork()


def test_a_forked_process_lets_go_of_branches(compiler: Compiler, small: Corpus) -> None:
    trunk = compiler.start(small["frame_stream.c"], LIFTED)
    advance(trunk, 1)
    branch = trunk.fork()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with pytest.raises(UsageError, match="belongs to the process that this one was forked"):
                branch.fork()
            branch.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert finish(branch, 0) == finish(trunk, 0)


def test_a_killed_parent_leaves_no_branch(own_temporary_folder: Path) -> None:
    """SIGKILL the process that owns a worker and branches, also of a worker that is dead."""
    script = """
        import os, signal, psutil
        from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
        compiler = Compiler()
        trunk = compiler.start(Corpus.load(SAMPLE_CORPUS)["frame_stream.c"], InliningForSize())
        trunk.next_observation()
        branch = trunk.fork()
        twig = branch.fork()
        os.kill(compiler.worker_pid, signal.SIGKILL)
        print(*(each.pid for each in psutil.Process().children()), flush=True)
        signal.pause()
    """
    children = children_of_killed(script, own_temporary_folder)
    assert len(children) == 4  # the dead one's two branches, it itself, and the zygote
    for child in children:
        child.wait()
    assert not list(own_temporary_folder.glob("mlgo-gym-*"))


@pytest.mark.e2e
def test_branches_answer_to_the_same_policy(compiler: Compiler, sample: Corpus) -> None:
    """LLVM's default answers from any fork on: the object of LLVM left alone."""
    plain = compiler.compile_module(sample["frame_stream.c"]).object_sha256
    with compiler.start(sample["frame_stream.c"], LIFTED) as trunk:
        hashes = set()
        while (observation := trunk.next_observation()) is not None:
            if observation.index % 3 == 0:
                with trunk.fork() as branch:
                    while (pending := branch.next_observation()) is not None:
                        branch.answer(default(pending))
                    hashes.add(branch.result.object_sha256)
            trunk.answer(default(observation))
    assert hashes == {plain}


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_ten_thousand_forks_leave_nothing(sample: Corpus, own_temporary_folder: Path) -> None:
    """Branches that end, are closed, are killed, or lose their worker, in random order."""
    generator = np.random.default_rng(7)
    before, others = len(list(Path("/proc/self/fd").iterdir())), psutil.Process().children()
    forks = 0
    while forks < 10_000:
        with Compiler() as compiler:
            trunk = compiler.start(sample["frame_stream.c"], LIFTED)
            advance(trunk, int(generator.integers(20)))
            live = [trunk]
            for _ in range(100):
                branch = live[generator.integers(len(live))].fork()
                forks += 1
                live = _disturb(branch, live, generator)
            _kill_one(generator, compiler)
            for branch in live[1:]:
                branch.close()
        assert psutil.Process().children() == others
        assert not list(own_temporary_folder.iterdir())
        assert len(list(Path("/proc/self/fd").iterdir())) <= before


def _disturb(
    branch: Compilation, live: list[Compilation], generator: np.random.Generator
) -> list[Compilation]:
    match int(generator.integers(10)):
        case 0:
            finish(branch, int(generator.integers(2)))
        case 1 | 2 | 3 | 4 | 5:
            branch.close()
        case 6:
            os.kill(branch.worker_pid, signal.SIGKILL)
            branch.answer(0)
            with pytest.raises(CompilerCrashError):
                finish(branch, 0)
        case _:
            live = [*live, branch]
    if len(live) > 20:
        live.pop(1).close()
    return live


def _kill_one(generator: np.random.Generator, compiler: Compiler) -> None:
    if int(generator.integers(2)) and compiler.worker_pid is not None:
        os.kill(compiler.worker_pid, signal.SIGKILL)
