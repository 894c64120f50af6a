"""Single compilations with real LLVM: what they print, and how they end."""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import CompilationTimeoutError, CompilerCrashError, UsageError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize

LIFTED = InliningForSize(size_increase_threshold=math.inf)

NAMED = """
target triple = "x86_64-pc-linux-gnu"
define internal i32 @{name}_callee(i32 %x) {{
  %y = mul i32 %x, %x
  ret i32 %y
}}
define i32 @{name}(i32 %x) {{
  %a = call i32 @{name}_callee(i32 %x)
  ret i32 %a
}}
"""


@pytest.fixture
def compiler(own_compiler: Compiler) -> Compiler:
    return own_compiler


class Printing(InliningForSize):
    """Has LLVM print each function that goes through the inliner."""

    def advisor_options(self, channel_base: str) -> tuple[str, ...]:
        return (*super().advisor_options(channel_base), "-print-before=inline")


def named(name: str) -> Module:
    return Module.from_ir(NAMED.format(name=name), name)


def descriptors() -> set[int]:
    with os.scandir("/proc/self/fd") as entries:
        found = {int(each.name) for each in entries}
    return {each for each in found if Path(f"/proc/self/fd/{each}").exists()}


def test_iterating(compiler: Compiler, sample: Corpus) -> None:
    """Each observation comes once it was answered, as `next_observation` has it."""
    module = sample["codec_text.c"]
    with compiler.start(module, InliningForSize()) as compilation:
        payloads = []
        for observation in compilation:
            payloads.append(observation.payload)
            compilation.answer(0)
        assert compilation.result.decisions == len(payloads) > 1
    with compiler.start(module, InliningForSize()) as compilation:
        questions = iter(compilation)
        assert next(questions).payload == payloads[0]
        with pytest.raises(UsageError) as error:
            next(questions)
    assert str(error.value) == (
        "module 'codec_text.c': expected an answer to each observation, found none"
    )


@contextlib.contextmanager
def a_pipe_at(numbers: set[int]) -> Iterator[int]:
    """A pipe with something in it, at each of these descriptors; the one to look at it with."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.write(writing, b"somebody else's")
    for each in numbers - {reading, writing}:
        os.dup2(reading, each)
    try:
        yield reading
    finally:
        for each in {*numbers, reading, writing}:
            os.close(each)


@pytest.mark.parametrize("is_branch", [False, True])
def test_standard_error_of_a_worker_that_has_gone(
    is_branch: bool, compiler: Compiler, small: Corpus
) -> None:
    """Its descriptor's number is another's by then."""
    before = descriptors()
    compilation = compiler.start(small["frame_stream.c"], LIFTED, keep_stderr=True)
    assert compilation.next_observation() is not None
    if is_branch:
        before = descriptors()
        compilation = compilation.fork()
    its_own = descriptors() - before
    os.kill(compilation.worker_pid, signal.SIGKILL)
    compilation.answer(1)
    with pytest.raises(CompilerCrashError):
        compilation.next_observation()
    assert not its_own & descriptors()
    with a_pipe_at(its_own) as reading:
        assert compilation.take_stderr() == ""
        assert os.read(reading, 100) == b"somebody else's"


def test_standard_error_stays_with_its_compilation(compiler: Compiler) -> None:
    """What is left when it ends can be taken; what the next one prints is the next one's."""
    first = compiler.start(named("first"), Printing(math.inf), keep_stderr=True)
    while first.next_observation() is not None:
        first.answer(0)
    second = compiler.start(named("second"), Printing(math.inf), keep_stderr=True)
    while second.next_observation() is not None:
        second.answer(0)
    printed = first.take_stderr(), second.take_stderr()
    assert ["@first(" in each for each in printed] == [True, False]
    assert ["@second(" in each for each in printed] == [False, True]
    assert (first.take_stderr(), second.take_stderr()) == ("", "")


def test_the_deadline_is_for_all_of_it(small: Corpus) -> None:
    """It does not start anew when something is answered, or when it branches."""
    with Compiler(timeout_s=100) as compiler:
        trunk = compiler.start(small["frame_stream.c"], LIFTED)
        assert trunk.next_observation() is not None
        assert 0 < trunk.remaining_s < 100
        trunk.charge(60)
        with trunk.fork() as branch:
            for each in (trunk, branch):
                each.answer(0)
                assert each.next_observation() is not None
                assert 0 < each.remaining_s < 40
            trunk.charge(60)
            assert branch.remaining_s > 0
            os.kill(trunk.worker_pid, signal.SIGSTOP)
            trunk.answer(0)
            with pytest.raises(CompilationTimeoutError, match="took more than its 100 s after 2 d"):
                trunk.next_observation()


def test_an_abandoned_compilation_has_a_moment(sample: Corpus) -> None:
    """And not what is left of its deadline."""
    with Compiler(timeout_s=1000) as compiler:
        compilation = compiler.start(sample["symbolic.cpp"], LIFTED)
        assert compilation.next_observation() is not None
        assert compilation.remaining_s > 10
        compilation.close()
        assert compilation.remaining_s <= 1
