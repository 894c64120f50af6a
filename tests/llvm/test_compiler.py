"""Compilations with real LLVM: equality, answers, deadlines, crashes, kills, and what is left."""

from __future__ import annotations

import gc
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.errors import (
    CompilationTimeoutError,
    CompilerCrashError,
    EnvironmentSetupError,
    ModuleError,
    OptionsError,
    PolicyError,
    UsageError,
)
from mlgo_gym.llvm import _compilation, _exchange
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.llvm.worker import _binding as binding
from mlgo_gym.problems._inlining_for_size import InliningForSize, always, default, never
from mlgo_gym.problems._layout import Feature, Layout
from mlgo_gym.problems._policy import SentPolicy
from mlgo_gym.stream._channel import Channel
from mlgo_gym.stream._training_log import Observation
from tests.llvm.process.killed_parent import children_of_killed
from tests.waiting import wait_for

LIFTED = InliningForSize(size_increase_threshold=math.inf)

CALLS = """
target triple = "x86_64-pc-linux-gnu"
define internal i32 @callee(i32 %x) minsize optsize noinline_hint {
  %y = mul i32 %x, %x
  %z = add i32 %y, 7
  ret i32 %z
}
define i32 @caller(i32 %x) minsize optsize {
  %a = call i32 @callee(i32 %x)
  %b = call i32 @callee(i32 %a)
  ret i32 %b
}
""".replace(" noinline_hint", "")

BAD_ASSEMBLY = """
target triple = "x86_64-pc-linux-gnu"
define internal i32 @callee(i32 %x) { ret i32 %x }
define i32 @caller(i32 %x) {
  call void asm sideeffect "no_such_instruction", ""()
  %y = call i32 @callee(i32 %x)
  ret i32 %y
}
"""


@pytest.fixture
def compiler(own_compiler: Compiler) -> Compiler:
    return own_compiler


def test_text_in_text_out(compiler: Compiler) -> None:
    module = Module.from_ir(CALLS)
    left = compiler.compile_module(module, problem=LIFTED, policy=never)
    inlined = compiler.compile_module(module, problem=LIFTED, policy=always)
    assert left.decisions == inlined.decisions == 2
    # Not inlined, callee and both calls stay; inlined, the internal callee disappears.
    assert left.text_size_bytes > inlined.text_size_bytes
    assert left.settings["opt_level"] == "Oz"


@pytest.mark.parametrize(
    ("attributes", "level"),
    [
        (("optsize", "minsize optsize"), "Oz"),
        (("", "minsize optsize"), "Oz"),
        (("", "optsize"), "Os"),
        (("", ""), "O2"),
    ],
)
def test_the_level_of_the_attributes(
    attributes: tuple[str, str], level: str, compiler: Compiler
) -> None:
    """Whatever the order of the functions."""
    for order in (attributes, attributes[::-1]):
        text = "".join(
            f"define void @f{number}() {each} {{\n ret void\n}}\n"
            for number, each in enumerate(order)
        )
        assert compiler.compile_module(Module.from_ir(text)).settings["opt_level"] == level


@pytest.mark.e2e
def test_default_answers_change_nothing(compiler: Compiler, sample: Corpus) -> None:
    """With the limit lifted: the object is that of LLVM left alone, byte for byte."""
    for name in sample:
        plain = compiler.compile_module(sample[name], keep_object=True)
        asked = compiler.compile_module(
            sample[name], problem=LIFTED, policy=default, keep_object=True
        )
        assert asked.object_bytes == plain.object_bytes
        assert asked.decisions > 0


def test_same_decisions_same_bytes(compiler: Compiler, small: Corpus) -> None:
    def alternate(observation: Observation) -> int:
        return observation.index % 2

    hashes = {
        compiler.compile_module(small[name], problem=LIFTED, policy=alternate).object_sha256
        for _ in range(3)
        for name in small
    }
    assert len(hashes) == len(small)


@pytest.mark.parametrize("level", ["O1", "O2", "O3", "Os", "Oz"])
def test_code_is_that_of_clang(
    level: str, compiler: Compiler, sample: Corpus, clang22: str, tmp_path: Path
) -> None:
    source = sample.folder.parent / "src" / "json_write.c"
    bitcode, native = tmp_path / "x.bc", tmp_path / "x.o"
    flags = [clang22, f"-{level}", "-fPIC", "-c", str(source)]
    subprocess.run([*flags, "-o", native], check=True)
    subprocess.run(
        [*flags, "-Xclang", "-disable-llvm-optzns", "-emit-llvm", "-o", bitcode], check=True
    )
    result = compiler.compile_module(
        Module.from_file(bitcode), CompileOptions(level), keep_object=True
    )
    assert result.object_bytes is not None
    ours = binding.section_contents(result.object_bytes, ".text")
    assert ours == binding.section_contents(native.read_bytes(), ".text")


def test_the_command_line_decides(compiler: Compiler) -> None:
    module = Module("x", CALLS.encode(), ("-cc1", "-O2", "-vectorize-loops"), is_text=True)
    assert compiler.compile_module(module).settings["opt_level"] == "O2"
    options = options_of(module, "Oz")
    assert compiler.compile_module(module, options).settings["opt_level"] == "Oz"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "empty.bc",
            b"",
            "module 'empty.bc': LLVM bitcode parsing error\nfile too small to contain bitcode "
            "header",
        ),
        (
            "random.bc",
            b"\x07random bytes",
            "module 'random.bc': LLVM bitcode parsing error\nInvalid bitcode signature",
        ),
        (
            "broken.ll",
            b"define i32 @f() {",
            "module 'broken.ll': LLVM IR parsing error\n<string>:1:18: error: found end of file "
            "when expecting more instructions\ndefine i32 @f() {\n                 ^",
        ),
        (
            "latin1.ll",
            b"; \xe9\n",
            "module 'latin1.ll': 'utf-8' codec can't decode byte 0xe9 in position 2: invalid "
            "continuation byte",
        ),
        (
            "unverified.ll",
            b"define i32 @f() {\n ret i32 1\n}\ndefine i32 @g() {\n %x = call i32 @f(i32 1)\n"
            b" ret i32 %x\n}\n@a = alias i32, ptr @b\n@b = alias i32, ptr @a\n",
            "module 'unverified.ll': Aliases cannot form a cycle\nptr @a\n"
            "Aliases cannot form a cycle\nptr @b",
        ),
        (
            "target.ll",
            b'target triple = "pdp11-dec-unix"\ndefine i32 @f() {\n ret i32 1\n}\n',
            "module 'target.ll': No available targets are compatible with triple "
            '"pdp11-dec-unix"',
        ),
        (
            "command.ll",
            b"define i32 @f() {\n ret i32 1\n}\n",
            "module 'command.ll': command line: expected -cc1 first, found 'clang'",
        ),
    ],
)
def test_what_llvm_refuses(compiler: Compiler, name: str, data: bytes, message: str) -> None:
    command = ("clang",) if name == "command.ll" else None
    module = Module(name, data, command, is_text=name.endswith(".ll"))
    with pytest.raises(ModuleError) as caught:
        compiler.compile_module(module)
    assert str(caught.value) == message
    assert caught.value.module == name
    compiler.compile_module(Module.from_ir(CALLS))  # the compiler goes on


def test_truncated_bitcode(compiler: Compiler, small: Corpus) -> None:
    data = small["frame_stream.c"].data
    for length in range(4, len(data), len(data) // 12):
        with pytest.raises((ModuleError, CompilerCrashError)):
            compiler.compile_module(Module("cut", data[:length]))
    assert compiler.compile_module(small["frame_stream.c"]).text_size_bytes > 0


def test_a_module_without_functions(compiler: Compiler) -> None:
    module = Module.from_ir('target triple = "x86_64-pc-linux-gnu"\n')
    result = compiler.compile_module(module, problem=LIFTED, policy=default)
    assert (result.decisions, result.text_size_bytes) == (0, 0)


def test_another_target(compiler: Compiler) -> None:
    module = Module.from_ir(CALLS.replace("x86_64-pc-linux-gnu", "aarch64-linux-gnu"))
    result = compiler.compile_module(module, problem=LIFTED, policy=default)
    assert (result.decisions, result.text_size_bytes % 4) == (2, 0)


def test_a_crash_names_module_status_and_last_words(compiler: Compiler) -> None:
    with pytest.raises(CompilerCrashError) as caught:
        compiler.compile_module(
            Module.from_ir(BAD_ASSEMBLY, "bad.ll"), problem=LIFTED, policy=default
        )
    error = caught.value
    assert str(error).startswith("module 'bad.ll': LLVM ended with exit status 1; its last words:")
    assert (error.module, error.exit_status) == ("bad.ll", 1)
    assert any("no_such_instruction" in line for line in error.stderr_tail)
    assert compiler.worker_pid is None
    assert compiler.compile_module(Module.from_ir(CALLS)).text_size_bytes > 0


@pytest.mark.parametrize(
    "triple", ["powerpc64-linux-gnu", "wasm32-unknown-unknown", "hexagon-unknown-linux"]
)
def test_another_target_before_it_changes_nothing(
    compiler: Compiler, sample: Corpus, triple: str
) -> None:
    """These targets write how they like jump tables into LLVM's options, which outlive them."""
    module = sample["regex_parse.c" if "hexagon" in triple else "regex_match.c"]
    before = compiler.compile_module(module, CompileOptions("O2")).object_sha256
    text = f'target triple = "{triple}"\ndefine i32 @f() {{ ret i32 9 }}\n'
    compiler.compile_module(Module.from_ir(text), CompileOptions("O2"))
    assert compiler.compile_module(module, CompileOptions("O2")).object_sha256 == before


def test_a_killed_worker_is_replaced(compiler: Compiler, small: Corpus) -> None:
    compilation = compiler.start(small["frame_stream.c"], LIFTED)
    assert compilation.next_observation() is not None
    first = compiler.worker_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    compilation.answer(1)
    with pytest.raises(CompilerCrashError) as caught:
        compilation.next_observation()
    assert str(caught.value) == "module 'frame_stream.c': LLVM ended with signal 9 (SIGKILL)"
    assert caught.value.exit_status == -signal.SIGKILL
    assert compilation.next_observation() is None
    with pytest.raises(
        UsageError, match="^module 'frame_stream.c': the compilation has no result$"
    ):
        _ = compilation.result
    assert compiler.compile_module(small["frame_stream.c"]).text_size_bytes > 0
    assert compiler.worker_pid != first


def test_a_hanging_worker_is_killed(small: Corpus) -> None:
    with Compiler(timeout_s=120) as compiler:
        compilation = compiler.start(small["frame_stream.c"], LIFTED)
        assert compilation.next_observation() is not None
        pid = compiler.worker_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        compilation.charge(compilation.remaining_s)
        compilation.answer(1)
        with pytest.raises(CompilationTimeoutError) as caught:
            compilation.next_observation()
        assert str(caught.value) == (
            "module 'frame_stream.c': LLVM took more than its 120 s after 1 decisions; "
            "timeout_s or --timeout lifts the limit"
        )
        assert not psutil.pid_exists(pid)


def test_the_callers_time_does_not_count(small: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    passed_s = [0]
    monkeypatch.setattr(_exchange, "monotonic", lambda: time.monotonic() + passed_s[0])
    with Compiler(timeout_s=120) as compiler:
        compilation = compiler.start(small["json_write.c"], LIFTED)
        assert compilation.next_observation() is not None
        left_s = compilation.remaining_s
        passed_s[0] += 1000
        assert compilation.remaining_s == left_s
        while compilation.next_observation() is not None:
            compilation.answer(0)
        assert compilation.result.decisions > 1


class Chatty(InliningForSize):
    """Makes LLVM write far more to standard error than a pipe holds."""

    def advisor_options(self, channel_base: str) -> tuple[str, ...]:
        return (*super().advisor_options(channel_base), "-print-after-all")


def test_standard_error_is_drained(compiler: Compiler, small: Corpus) -> None:
    result = compiler.compile_module(
        small["frame_stream.c"], problem=Chatty(math.inf), policy=default
    )
    assert result.text_size_bytes > 0


class OtherFeatures(InliningForSize):
    def documented_layout(self) -> Layout:
        layout = super().documented_layout()
        other = Feature(self.advice, "", "", 0, 1)
        return Layout(self.name, self.advice, (*layout.features[1:], other), layout.extras)


def test_features_that_llvm_does_not_send(compiler: Compiler) -> None:
    with pytest.raises(EnvironmentSetupError) as caught:
        compiler.compile_module(Module.from_ir(CALLS), problem=OtherFeatures(), policy=default)
    assert str(caught.value) == (
        "InliningForSize: this LLVM describes the problem differently: feature "
        "'inlining_decision': expected int64_t (1,), found none"
    )
    assert compiler.compile_module(Module.from_ir(CALLS)).text_size_bytes > 0


def test_an_abandoned_compilation(
    compiler: Compiler, sample: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_compilation, "_ABANDON_TIMEOUT_S", compiler.timeout_s)  # however busy
    compiler.compile_module(sample["frame_stream.c"])
    pid = compiler.worker_pid
    for _ in range(3):
        compilation = compiler.start(sample["symbolic.cpp"], LIFTED)
        assert compilation.next_observation() is not None
        compilation.close()
        compilation.close()
        with pytest.raises(UsageError, match="the compilation has no result"):
            _ = compilation.result
    assert compiler.compile_module(sample["frame_stream.c"]).text_size_bytes > 0
    assert compiler.worker_pid == pid  # what was left was finished, not killed


def test_starting_the_next_closes_the_last(compiler: Compiler, small: Corpus) -> None:
    first = compiler.start(small["frame_stream.c"], LIFTED)
    assert first.next_observation() is not None
    second = compiler.start(small["json_write.c"], LIFTED)
    assert second.next_observation() is not None
    with pytest.raises(UsageError, match="^module 'frame_stream.c': no decision is pending$"):
        first.answer(1)


def test_a_policy_that_raises(compiler: Compiler, small: Corpus) -> None:
    def broken(observation: Observation) -> int:
        raise ZeroDivisionError(observation.index)

    with pytest.raises(ZeroDivisionError):
        compiler.compile_module(small["frame_stream.c"], problem=LIFTED, policy=broken)
    assert compiler.compile_module(small["frame_stream.c"]).text_size_bytes > 0


def test_an_illegal_action_leaves_the_decision_pending(compiler: Compiler) -> None:
    compilation = compiler.start(Module.from_ir(CALLS), LIFTED)
    observation = compilation.next_observation()
    with pytest.raises(UsageError, match="^inlining_decision: expected 0 or 1, found 2$"):
        compilation.answer(2)
    assert compilation.next_observation() is observation
    compilation.answer(1)


def test_calls_that_have_no_meaning(compiler: Compiler) -> None:
    module = Module.from_ir(CALLS)
    with pytest.raises(UsageError, match="^compile_module: expected a problem with"):
        compiler.compile_module(module, policy=default)
    compilation = compiler.start(module, None)
    with pytest.raises(UsageError, match="^module '<ir>': no decision is pending$"):
        compilation.answer(1)
    compiler.close()
    compiler.close()
    with pytest.raises(UsageError, match="^compiler: closed$"):
        compiler.compile_module(module)


@pytest.mark.parametrize(
    ("name", "value"), [("timeout_s", 0), ("timeout_s", math.nan), ("memory_limit_bytes", -1)]
)
def test_limits(name: str, value: float) -> None:
    with pytest.raises(OptionsError) as caught:
        Compiler(**{name: value})  # type: ignore[arg-type]
    assert str(caught.value) == f"{name}: expected a number above 0, found {value!r}"


def test_a_worker_that_has_grown_is_replaced(small: Corpus) -> None:
    with Compiler(memory_limit_bytes=1) as compiler:
        pids = set()
        for name in small:
            compiler.compile_module(small[name])
            pids.add(compiler.worker_pid)
    assert len(pids) == len(small)


def in_forked_child(check: Callable[[], bool]) -> bool:
    """Run a check in a forked process, and exit without this one's clean-up."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if check() else 2
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def test_a_forked_process_gets_its_own_worker(compiler: Compiler, small: Corpus) -> None:
    expected = compiler.compile_module(small["frame_stream.c"]).object_sha256
    parents_worker = compiler.worker_pid

    def check() -> bool:
        for _ in range(2):
            if compiler.compile_module(small["frame_stream.c"]).object_sha256 != expected:
                return False
        own_worker = compiler.worker_pid
        compiler.close()
        return own_worker not in {parents_worker, None}

    assert in_forked_child(check)
    assert compiler.worker_pid == parents_worker
    assert compiler.compile_module(small["frame_stream.c"]).object_sha256 == expected


def test_a_forked_process_cannot_disturb_a_compilation(compiler: Compiler, small: Corpus) -> None:
    compilation = compiler.start(small["frame_stream.c"], LIFTED)
    assert compilation.next_observation() is not None

    def check() -> bool:
        for call in (compilation.next_observation, lambda: compilation.answer(1)):
            with pytest.raises(UsageError, match="belongs to the process that this one was fork"):
                call()
        compilation.close()
        compiler.close()
        gc.collect()
        return True

    assert in_forked_child(check)
    while compilation.next_observation() is not None:
        compilation.answer(0)
    assert compilation.result.decisions > 1


def test_forgotten_compilers_leave_nothing(small: Corpus) -> None:
    """What the fixture of every test looks for, after nobody closed anything."""
    for _ in range(3):
        compiler = Compiler()
        assert compiler.start(small["frame_stream.c"], LIFTED).next_observation() is not None
        del compiler
        gc.collect()


def test_an_interrupt_while_the_worker_starts(small: Corpus) -> None:
    compiler = Compiler()
    children = set(psutil.Process().children())

    def interrupt() -> None:
        wait_for(lambda: set(psutil.Process().children()) - children)
        compiler.interrupt()

    threading.Thread(target=interrupt).start()

    def compile_for_ever() -> None:
        while True:
            compiler.compile_module(small["frame_stream.c"], problem=LIFTED, policy=always)

    with pytest.raises((CompilerCrashError, UsageError)):
        compile_for_ever()
    with pytest.raises(UsageError, match="^compiler: closed$"):
        compiler.compile_module(small["frame_stream.c"])
    compiler.close()


def test_timeouts_of_any_length(small: Corpus) -> None:
    for timeout_s in (math.inf, 1e12):
        with Compiler(timeout_s=timeout_s) as compiler:
            assert compiler.compile_module(small["frame_stream.c"]).text_size_bytes > 0


def test_the_large_code_model_has_text_too(compiler: Compiler, small: Corpus) -> None:
    options = CompileOptions("Oz", code_model="large")
    result = compiler.compile_module(small["frame_stream.c"], options)
    assert ".ltext" in dict(result.sections)
    assert result.text_size_bytes > compiler.compile_module(small["frame_stream.c"]).text_size_bytes


def test_a_worker_found_dead_is_reaped(compiler: Compiler, small: Corpus) -> None:
    compiler.compile_module(small["frame_stream.c"])
    pid = compiler.worker_pid
    assert pid is not None
    psutil.Process(pid).kill()
    psutil.Process(pid).wait()
    compiler.compile_module(small["frame_stream.c"])
    gc.collect()  # an unreaped process would be a ResourceWarning, and so an error


def test_a_temporary_folder_that_cannot_be_used(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    with pytest.raises(EnvironmentSetupError) as caught:
        compiler.compile_module(Module.from_ir(CALLS), problem=LIFTED, policy=default)
    assert str(caught.value).startswith(
        "channel: cannot make FIFOs in the temporary folder: [Errno 2] No such file or directory: "
        "'/no/such/folder/mlgo-gym-channel-"
    )
    assert str(caught.value).endswith("; TMPDIR names another")


def test_a_killed_parent_leaves_no_worker(own_temporary_folder: Path) -> None:
    """SIGKILL the process that owns a worker in the middle of a decision."""
    script = """
        import signal
        from mlgo_gym import SAMPLE_CORPUS, Compiler, Corpus, InliningForSize
        compiler = Compiler()
        module = Corpus.load(SAMPLE_CORPUS)["frame_stream.c"]
        compilation = compiler.start(module, InliningForSize())
        compilation.next_observation()
        print(compiler.worker_pid, flush=True)
        signal.pause()
    """
    (worker,) = children_of_killed(script, own_temporary_folder)
    worker.wait()  # SIGIO from the kernel; it is not our child, so its status is not known
    assert not list(own_temporary_folder.glob("mlgo-gym-*"))


def test_fifos_of_a_dead_process_are_swept(compiler: Compiler) -> None:
    """And nothing else: not what is alive, and no folder that has anything but FIFOs in it."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    channel = Channel()
    own = Path(channel.base).parent
    prefix = own.name.removesuffix(own.name.partition(f"{os.getpid()}")[2]).removesuffix(
        str(os.getpid())
    )
    stale = own.with_name(f"{prefix}{process.pid}-abc")
    full = own.with_name(f"{prefix}{process.pid}-def")
    foreign = own.with_name(f"mlgo-gym-{process.pid}-results")
    for each in (stale, full, foreign):
        each.mkdir()
        os.mkfifo(each / "channel.in")
    (full / "thesis.txt").write_text("years of work")
    compiler.compile_module(Module.from_ir(CALLS))
    assert [each.exists() for each in (own, stale, full, foreign)] == [True, False, True, True]
    assert (full / "thesis.txt").read_text() == "years of work"
    channel.close()
    shutil.rmtree(full)
    shutil.rmtree(foreign)


def test_a_policy_that_a_worker_cannot_load_is_refused_each_time(small: Corpus) -> None:
    problem = InliningForSize()
    sent = SentPolicy("damaged", {"kind": "recorded"}, b"")
    with Compiler() as compiler:
        for _ in range(2):
            with pytest.raises(PolicyError, match="advice_bytes"):
                compiler.start(small["frame_stream.c"], problem, inside={problem: sent})
