"""Compilations that are answered, forked, killed and closed in any order: what comes of each."""

from __future__ import annotations

import copy
import math
import os
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import psutil
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import CompilerCrashError, UsageError
from mlgo_gym.llvm._compilation import Compilation
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize
from tests.generated import examples

LIFTED = InliningForSize(size_increase_threshold=math.inf)
BRANCH_LIMIT = 2
ACTIONS = st.integers(0, 1)
RARELY = st.integers(0, 7).map(lambda number: number == 7)


def function(name: str, *callees: str) -> str:
    """A function that calls others, one after the other, each with what the one before gave."""
    lines = [f"define i32 @{name}(i32 %x) {{", "  %v0 = call i32 @get(i32 %x)"]
    for number, callee in enumerate(callees, 1):
        lines.append(f"  %w{number} = call i32 @{callee}(i32 %v{number - 1})")
        lines.append(f"  %v{number} = mul i32 %w{number}, %x")
    return "\n".join([*lines, f"  ret i32 %v{len(callees)}", "}", ""])


TREE = Module.from_ir(
    'target triple = "x86_64-pc-linux-gnu"\ndeclare i32 @get(i32)\n'
    + function("leaf")
    + function("middle", "leaf", "leaf")
    + function("top", "middle", "leaf")
    + function("other", "top", "middle"),
    "tree.c",
)
"""Six decisions or more, as answers go; nearly all answers make code of their own."""


class References:
    """What must come of answers: the module compiled with them in one go, once for each."""

    def __init__(self, compiler: Compiler, module: Module) -> None:
        self.module: Final = module
        self._compiler = compiler
        self._questions: dict[tuple[int, ...], bytes | None] = {}
        self._objects: dict[tuple[int, ...], str] = {}

    def question(self, answers: list[int]) -> bytes | None:
        """The observation after these answers; ``None`` where there is none."""
        if tuple(answers) not in self._questions:
            self._compile(answers)
        return self._questions[tuple(answers)]

    def object_of(self, answers: list[int]) -> str:
        """The object after these answers, which are all."""
        assert self.question(answers) is None
        return self._objects[tuple(answers)]

    def _compile(self, answers: list[int]) -> None:
        given: list[int] = []
        with self._compiler.start(self.module, LIFTED) as compilation:
            while (observation := compilation.next_observation()) is not None:
                self._questions[tuple(given)] = observation.payload
                given.append(answers[len(given)] if len(given) < len(answers) else 0)
                compilation.answer(given[-1])
            self._questions[tuple(given)] = None
            self._objects[tuple(given)] = compilation.result.object_sha256


@dataclass(eq=False)
class Member:
    """A compilation, and what is known of it."""

    compiler: Compiler
    compilation: Compilation
    answers: list[int] = field(default_factory=list)
    is_branch: bool = False
    is_asking: bool = False
    is_over: bool = False
    is_finished: bool = False
    is_killed: bool = False
    ended_unseen: bool = False

    @property
    def name(self) -> str:
        return self.compilation.module.name

    def end(self) -> None:
        """It is closed, here or by its compiler; unless it asked, LLVM may have been faster."""
        self.ended_unseen |= not (self.is_asking or self.is_over)
        self.is_asking, self.is_over = False, True


class Family(RuleBasedStateMachine):
    """The compilations of one compiler, or several after one another."""

    members = Bundle("members")

    def __init__(self, references: References, *, by_replay: bool) -> None:
        super().__init__()
        self.references = references
        self.by_replay = by_replay
        self.before = leftovers()
        self.all: list[Member] = []
        self.compiler = self._new_compiler()

    def _new_compiler(self) -> Compiler:
        return Compiler(timeout_s=120, branch_limit=BRANCH_LIMIT, fork_by_replay=self.by_replay)

    def _end_trunk(self) -> None:
        for each in self.all:
            if each.compiler is self.compiler and not each.is_branch:
                each.end()

    def _added(self, member: Member) -> Member:
        self.all.append(member)
        return member

    @initialize(target=members, actions=st.lists(ACTIONS, min_size=1, max_size=4))
    def first(self, actions: list[int]) -> Member:
        """Somewhere in the middle, with as many branches as there may be."""
        trunk = self.start()
        for action in actions:
            self.answer(trunk, action, is_early=False)
        branches = [self.fork(trunk, is_early=False) for _ in range(BRANCH_LIMIT)]
        return multiple(trunk, *branches)  # type: ignore[return-value]

    @rule(target=members)
    def start(self) -> Member:
        """It ends the one before, not its branches."""
        compilation = self.compiler.start(self.references.module, LIFTED)
        self._end_trunk()
        return self._added(Member(self.compiler, compilation))

    @rule(member=members, is_polled=st.booleans())
    def look(self, member: Member, is_polled: bool) -> None:
        if is_polled and not member.is_killed and member.compilation.is_ready():
            assert member.compilation.is_ready()
        may_crash = member.is_killed and not (member.is_asking or member.is_over)
        try:
            observation = member.compilation.next_observation()
        except CompilerCrashError as error:
            assert may_crash, error
            assert str(error) == f"module {member.name!r}: LLVM ended with signal 9 (SIGKILL)"
            member.is_over = True
            return
        if member.is_over:
            assert observation is None
            return
        expected = self.references.question(member.answers)
        assert (observation.payload if observation else None) == expected
        member.is_asking = observation is not None
        member.is_over = member.is_finished = observation is None

    @rule(member=members, action=ACTIONS, is_early=RARELY)
    def answer(self, member: Member, action: int, is_early: bool) -> None:
        if not is_early:
            self.look(member, is_polled=False)
        if not member.is_asking:
            refused(member, lambda: member.compilation.answer(action), "no decision is pending")
            return
        member.compilation.answer(action)
        member.answers.append(action)
        member.is_asking = False
        if member.is_killed:
            with pytest.raises(CompilerCrashError, match=r"LLVM ended with signal 9 \(SIGKILL\)$"):
                member.compilation.next_observation()
            member.is_over = True

    @rule(member=members, actions=st.lists(ACTIONS, min_size=1, max_size=4))
    def finish(self, member: Member, actions: list[int]) -> None:
        """Answer to the end, with these again and again."""
        while not member.is_over:
            action = actions[len(member.answers) % len(actions)]
            self.answer(member, action, is_early=False)

    @rule(target=members, member=members, is_early=RARELY)
    def fork(self, member: Member, is_early: bool) -> Member:
        if not is_early:
            self.look(member, is_polled=False)
        if not member.is_asking:
            refused(member, member.compilation.fork, "fork: no decision is pending")
            return multiple()  # type: ignore[return-value]
        if self._live(member.compiler) >= BRANCH_LIMIT:
            refused(member, member.compilation.fork, f"expected fewer than {BRANCH_LIMIT} live bra")
            return multiple()  # type: ignore[return-value]
        if member.is_killed and not self.by_replay:
            with pytest.raises(CompilerCrashError, match="LLVM ended with signal 9"):
                member.compilation.fork()
            member.is_asking, member.is_over = False, True
            return multiple()  # type: ignore[return-value]
        branch = member.compilation.fork()
        assert branch.is_replayed == self.by_replay
        answers = list(member.answers)
        return self._added(Member(member.compiler, branch, answers, is_branch=True, is_asking=True))

    def _live(self, compiler: Compiler) -> int:
        ours = [each for each in self.all if each.compiler is compiler]
        return sum(each.is_branch and not each.is_over for each in ours)

    @rule(member=members)
    def kill(self, member: Member) -> None:
        """Kill its worker, and wait until it is dead; nobody is told."""
        if not member.is_over and not member.is_killed:
            pid = member.compilation.worker_pid
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            member.is_killed = True

    @rule(member=members)
    def close(self, member: Member) -> None:
        member.compilation.close()
        member.compilation.close()
        member.end()

    @rule(member=members, copied=st.sampled_from([copy.copy, copy.deepcopy]))
    def copy(self, member: Member, copied: Callable[[Compilation], object]) -> None:
        refused(member, lambda: copied(member.compilation), "a running compilation cannot be copi")

    @rule()
    def close_compiler(self) -> None:
        """Branches outlive it."""
        self.compiler.close()
        self._end_trunk()
        self.compiler = self._new_compiler()

    @invariant()
    def nobody_is_disturbed(self) -> None:
        for each in self.all:
            given = np.frombuffer(b"".join(each.compilation.advice), np.int64)
            assert given.tolist()[: len(each.answers)] == each.answers
            assert each.is_over or len(given) == len(each.answers)
            if each.is_asking:
                observation = each.compilation.next_observation()
                assert observation is not None
                assert observation.payload == self.references.question(each.answers)

    @invariant()
    def what_came_out_is_kept(self) -> None:
        for each in self.all:
            if each.ended_unseen:
                continue
            if each.is_finished:
                result = each.compilation.result
                assert result.object_sha256 == self.references.object_of(each.answers)
                assert result.decisions == len(each.answers)
            else:
                refused(each, partial(getattr, each.compilation, "result"), "the compilation has n")

    @invariant()
    def those_that_are_over_say_so(self) -> None:
        for each in self.all:
            if each.is_over:
                assert each.compilation.next_observation() is None
                assert each.compilation.is_ready()

    def teardown(self) -> None:
        try:
            for number, each in enumerate(self.all):
                self.finish(each, [number % 2, 1])
            self.what_came_out_is_kept()
        finally:
            for each in self.all:
                each.compilation.close()
            self.compiler.close()
        assert leftovers() == self.before


def refused(member: Member, asked: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        asked()
    assert str(caught.value).startswith(f"module {member.name!r}: {message}")


def leftovers() -> tuple[set[int], set[str], set[str]]:
    """Child processes, descriptors, and temporary files."""
    processes = {each.pid for each in psutil.Process().children(recursive=True)}
    links = {str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    return processes, links, set(map(str, Path(tempfile.gettempdir()).iterdir()))


def run(references: References, given: settings, *, by_replay: bool = False) -> None:
    class Ours(Family):
        def __init__(self) -> None:
            super().__init__(references, by_replay=by_replay)

    run_state_machine_as_test(Ours, settings=given)


@pytest.mark.e2e
@pytest.mark.hypothesis
@pytest.mark.parametrize(("by_replay", "usual", "steps"), [(False, 8, 25), (True, 3, 15)])
def test_in_whatever_order(by_replay: bool, usual: int, steps: int, compiler: Compiler) -> None:
    run(References(compiler, TREE), examples(usual, steps=steps, is_dear=True), by_replay=by_replay)


@pytest.mark.hypothesis
@pytest.mark.stress
def test_a_module_of_the_corpus_in_whatever_order(compiler: Compiler, sample: Corpus) -> None:
    run(References(compiler, sample["regex_match.c"]), examples(3, steps=30, is_dear=True))
