"""Allocations: replay, functions alone, modules that are odd, and two problems at once."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import ModuleError, OptionsError, UsageError
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm._task import ALLOCATE
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._inlining_for_size import InliningForSize, always, default
from mlgo_gym.problems._policy import Action, PolicyLike
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction, first_legal, keep, lowest_density
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.rollout._allocation import Allocator, geometric_mean_ratio
from mlgo_gym.rollout._rollout import Decision, RecordingPolicy
from mlgo_gym.runners._base import ScriptedRunner
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.stream._training_log import Observation
from tests.conftest import lacking, require
from tests.problems.test_regalloc import pressure

X86 = 'target triple = "x86_64-unknown-linux-gnu"\n'
SOURCE = Path(__file__).parents[2] / "benchmarks" / "regalloc_score.cpp"


@pytest.fixture
def allocator(compiler: Compiler) -> Allocator:
    return Allocator(compiler, RegallocEviction())


def test_a_recording_replays_to_the_same_object(compiler: Compiler, sample: Corpus) -> None:
    for name in ("expr_vm.c", "matrix.cpp"):
        module, problem, decisions = sample[name], RegallocEviction(), list[Decision]()
        policy = RecordingPolicy(problem.policy("random", 3), problem, decisions)
        first = compiler.compile_module(module, problem=problem, policy=policy)
        replayed = iter([int.from_bytes(each.advice, "little") for each in decisions])
        second = compiler.compile_module(
            module,
            problem=problem,
            policy=lambda _: next(replayed),  # noqa: B023
        )
        plain = compiler.compile_module(module)
        assert first.object_sha256 == second.object_sha256 != plain.object_sha256
        assert first.decisions == second.decisions == len(decisions)


def test_functions_alone_are_allocated_as_in_their_module(
    allocator: Allocator, sample: Corpus
) -> None:
    for name in ("expr_vm.c", "lru_cache.cpp", "hash_map.c"):
        optimized = allocator.optimize(sample[name], options_of(sample[name]))
        optimized = allocator.find_functions(optimized)
        baseline, known = allocator.baseline(optimized)
        result = allocator.allocate(known, first_legal)
        assert result.asked == set(optimized.functions)
        for function, alone in allocator.take_apart(optimized).items():
            own, part = allocator.baseline(alone)
            assert own.scores == {function: baseline.scores[function]}
            assert allocator.allocate(part, first_legal).scores == {
                function: result.scores[function]
            }


@pytest.mark.e2e
def test_the_score_is_llvms_own(allocator: Allocator, sample: Corpus, tmp_path: Path) -> None:
    """LLVM's function is in its libraries, though no compiler calls it; this program does."""
    require("llvm-config-22", "llvm-22")
    if not Path("/usr/include/llvm-22/llvm/CodeGen/MIRParser/MIRParser.h").exists():
        lacking("needs LLVM's headers: apt-get install llvm-22-dev")
    program, text = tmp_path / "score", tmp_path / "x.mir"
    command = ["llvm-config-22", "--cxxflags", "--ldflags", "--libs"]
    flags = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    compiler = require("clang++-22", "clang-22")
    subprocess.run([compiler, "-O1", str(SOURCE), "-o", str(program), *flags], check=True)
    compared = 0
    for name in ("expr_vm.c", "matrix.cpp", "json_write.c", "codec_text.c"):
        module = sample[name]
        _, known = allocator.baseline(allocator.optimize(module, options_of(module)))
        for policy in (first_legal, keep, lowest_density, RegallocEviction.policy("random")):
            answers: dict[Problem, PolicyLike] = {allocator.problem: policy}
            product = allocator.compiler.produce(known.module, known.options, ALLOCATE, answers)
            text.write_bytes(product.data)
            run = subprocess.run([program, text], check=True, capture_output=True, text=True)
            scores = allocator.result(known, product).scores
            for function, score in re.findall(r"^(.*)\t(.*)$", run.stdout, re.MULTILINE):
                assert scores[function].value == pytest.approx(float(score), rel=1e-6)
                compared += 1
    assert compared > 300


def test_default_answers_of_the_inliner_and_a_policy_for_eviction(
    compiler: Compiler, sample: Corpus
) -> None:
    """Two problems in one compilation, each with its channel: a runner here, a function there."""
    module = sample["expr_vm.c"]
    asked: list[str] = []

    def evict(observation: Observation) -> Action:
        asked.append(observation.context)
        return first_legal(observation)

    inlining = InliningForSize()
    alone = compiler.compile_module(module, problem=RegallocEviction(), policy=first_legal)
    both = compiler.compile_module(
        module, problem=inlining, policy=default, also={RegallocEviction(): evict}
    )
    assert both.object_sha256 == alone.object_sha256
    assert both.decisions > alone.decisions == len(asked)
    assert both.settings["problem"] == ["InliningForSize", "RegallocEviction"]
    runner = RunnerPolicy(
        lambda inputs, output: ScriptedRunner(
            lambda values: int(values["mask"][0].argmax()), inputs, output
        )
    )
    by_runner = compiler.compile_module(
        module, problem=inlining, policy=default, also={RegallocEviction(): runner}
    )
    assert by_runner.object_sha256 == both.object_sha256
    three = compiler.compile_module(
        module,
        problem=inlining,
        policy=always,
        also={RegallocEviction(): keep, RegallocPriority(): lambda o: float(o["li_size"][0])},
    )
    assert three.decisions > both.decisions


MODULES = {
    "no functions": "@x = global i32 1\n",
    "declarations only": "declare void @f()\n",
    "no eviction": "define i32 @f(i32 %x) {\n  ret i32 %x\n}\n",
    "a name with a quote and spaces": 'define i32 @"it\'s { odd"(i32 %x) {\n  ret i32 %x\n}\n',
    "an endless loop": "define void @f() {\n  br label %l\nl:\n  br label %l\n}\n",
    "inline assembly that takes all registers": (
        'define i64 @f(i64 %x) {\n  call void asm sideeffect "", '
        '"~{rax},~{rbx},~{rcx},~{rdx},~{rsi},~{rdi},~{r8},~{r9},~{r10},~{r11},~{r12},~{r13},'
        '~{r14},~{r15},~{dirflag},~{fpsr},~{flags}"()\n  ret i64 %x\n}\n'
    ),
    "module assembly, constructors, an alias, a table of addresses": (
        'module asm ".globl odd"\n'
        "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] "
        "[{ i32, ptr, ptr } { i32 1, ptr @g, ptr null }]\n"
        "@h = alias void (), ptr @g\n"
        "@table = internal constant [2 x ptr] "
        "[ptr blockaddress(@f, %a), ptr blockaddress(@f, %b)]\n"
        "define internal void @g() {\n  ret void\n}\n"
        "define i32 @f(i64 %i) {\n  %p = getelementptr [2 x ptr], ptr @table, i64 0, i64 %i\n"
        "  %t = load ptr, ptr %p\n  call void @h()\n  indirectbr ptr %t, [label %a, label %b]\n"
        "a:\n  ret i32 1\nb:\n  ret i32 2\n}\n"
    ),
}


@pytest.mark.parametrize("text", MODULES.values(), ids=list(MODULES))
def test_odd_modules(allocator: Allocator, text: str) -> None:
    module = Module.from_ir(X86 + text, "odd")
    optimized = allocator.optimize(module, CompileOptions("O2"))
    baseline, known = allocator.baseline(optimized)
    result = allocator.allocate(allocator.find_functions(known), first_legal)
    assert result.scores == baseline.scores
    defined = tuple(baseline.scores)
    for name, part in allocator.take_apart(replace(known, functions=defined)).items():
        assert allocator.baseline(part)[0].scores == {name: baseline.scores[name]}


NAMES = (
    "plain", "\x01as it is", "a\\b", "a\\5cb", "ends in \\", "it's", 'say "hi"', "two words",
    "tab\tx", "line\nx", "a: b", "true", "123", "~", ".:x", " leads", "trails ", "-[Foo bar:]",
    "#x", "@f(", "f\x1b[0m", "nul\x7f", "caf\N{LATIN SMALL LETTER E WITH ACUTE}",
    "\N{GRINNING FACE}", "\x85", "\xa0", "\N{LINE SEPARATOR}",
    "\N{ZERO WIDTH NO-BREAK SPACE}mark", "'", "- BB0[entry]: float = 1.0, int = 1",
)  # fmt: skip


def written(name: bytes) -> str:
    """A function whose name is escaped as LLVM's assembly wants it."""
    escaped = "".join(f"\\{byte:02X}" for byte in name)
    return f'define i32 @"{escaped}"(i32 %x) {{\n  %y = mul i32 %x, {len(name)}\n  ret i32 %y\n}}\n'


def test_names_of_any_form(compiler: Compiler) -> None:
    """They come as LLVM's assembly, as YAML, as JSON and as they are; all are matched."""
    allocator = Allocator(compiler, RegallocPriority())
    module = Module.from_ir(X86 + "".join(written(name.encode()) for name in NAMES), "odd")
    optimized = allocator.find_functions(allocator.optimize(module, CompileOptions("O2")))
    assert optimized.functions == NAMES
    baseline, known = allocator.baseline(optimized)
    assert tuple(baseline.scores) == NAMES
    assert baseline.score > 0
    parts = allocator.take_apart(known)
    assert tuple(parts) == NAMES
    for name, part in parts.items():
        assert allocator.baseline(part)[0].scores == {name: baseline.scores[name]}


@pytest.mark.parametrize("name", [b"latin \xe9", b"\xff", "\N{REPLACEMENT CHARACTER}".encode()])
def test_names_that_are_not_utf_8(name: bytes, allocator: Allocator) -> None:
    """LLVM writes another one, so its score would be nobody's."""
    module = Module.from_ir(X86 + written(b"f") + written(name), "odd")
    optimized = allocator.optimize(module, CompileOptions("O2"))
    with pytest.raises(ModuleError) as caught:
        allocator.baseline(optimized)
    found = name.decode("utf-8", "replace")
    assert str(caught.value) == (
        f"module 'odd': register allocation: expected functions named in UTF-8, found {found!r}"
    )


def test_names_that_read_as_what_llvm_prints(allocator: Allocator) -> None:
    module = Module.from_ir(X86 + written(b"f\nblock-frequency-info: g"), "odd")
    optimized = allocator.optimize(module, CompileOptions("O2"))
    with pytest.raises(ModuleError) as caught:
        allocator.baseline(optimized)
    assert str(caught.value) == (
        "module 'odd': register allocation: expected block frequencies of its functions, found "
        "those of 'g'"
    )


@pytest.mark.parametrize("problem", [InliningForSize(), RegallocEviction(), RegallocPriority()])
def test_a_module_without_functions_never_asks(
    compiler: Compiler, problem: InliningForSize | RegallocEviction | RegallocPriority
) -> None:
    module = Module.from_ir(X86 + "@x = global i32 1\n", "empty")
    assert compiler.compile_module(module, problem=problem, policy=lambda _: 0).decisions == 0


def test_a_target_that_cannot_be_scored(allocator: Allocator) -> None:
    module = Module.from_ir('target triple = "riscv64-linux-gnu"\n' + MODULES["no eviction"], "m")
    optimized = allocator.optimize(module, CompileOptions("O2"))
    with pytest.raises(ModuleError) as caught:
        allocator.baseline(optimized)
    assert str(caught.value) == (
        "module 'm': register allocation: expected a target out of x86_64, i386, i686, aarch64, "
        "arm64, found 'riscv64'"
    )


def test_calls_in_the_wrong_order(compiler: Compiler, sample: Corpus) -> None:
    module = sample["json_write.c"]
    with compiler.start(module, None) as compilation:
        with pytest.raises(UsageError, match="^module 'json_write.c': the compilation has no prod"):
            _ = compilation.product
        with pytest.raises(UsageError, match="^module 'json_write.c': no decision is pending$"):
            _ = compilation.asked_by
    with pytest.raises(OptionsError) as caught:
        compiler.start(module, None, CompileOptions(), task=ALLOCATE)
    assert str(caught.value) == "opt_level: expected that of the optimised module, found None"


def test_a_worker_that_printed_frequencies_still_says_its_last_words(
    allocator: Allocator, sample: Corpus
) -> None:
    module = sample["json_write.c"]
    allocator.baseline(allocator.optimize(module, options_of(module)))
    worker = allocator.compiler._worker
    assert worker is not None
    assert worker.stderr.tail() == ()


def test_high_pressure_is_bounded(allocator: Allocator) -> None:
    """Whatever is answered, LLVM comes to an end."""
    module = pressure("x86_64-linux-gnu", 60)
    optimized = allocator.optimize(module, CompileOptions("O2"))
    baseline, known = allocator.baseline(optimized)
    for policy in (first_legal, keep, RegallocEviction.policy("random")):
        result = allocator.allocate(known, policy)
        assert result.score >= 0.5 * baseline.score
        assert result.decisions > 50


def test_geometric_means_leave_zeros_out() -> None:
    mean = geometric_mean_ratio({"a": 4, "b": 0, "c": 1}, {"a": 1, "b": 2, "c": 0})
    assert mean.ratio == pytest.approx(4.0)
    assert (mean.count, mean.left_out) == (1, 2)
    assert geometric_mean_ratio({}, {}).ratio == 1.0


def test_opt_agrees_that_functions_can_stand_alone(
    allocator: Allocator, sample: Corpus, opt22: str
) -> None:
    """What is taken apart passes the verifier of LLVM's own tool."""
    module = sample["lru_cache.cpp"]
    optimized = allocator.find_functions(allocator.optimize(module, options_of(module)))
    for part in allocator.take_apart(optimized).values():
        command = [opt22, "-passes=verify", "-disable-output", "-"]
        subprocess.run(command, input=part.module.data, check=True)
