"""Questions to a worker other than compilations: answers, and everything that can go wrong."""

from __future__ import annotations

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.curation._facts import describe_module, profile_path
from mlgo_gym.errors import CompilationTimeoutError, CompilerCrashError, ModuleError, UsageError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._request import SplitRequest
from mlgo_gym.llvm.command._options import CompileOptions
from mlgo_gym.problems._inlining_for_size import InliningForSize


def test_between_compilations(compiler: Compiler, small: Corpus) -> None:
    module = small["frame_stream.c"]
    before = compiler.compile_module(module)
    facts = describe_module(compiler, module)
    assert facts.instructions > 100
    assert (facts.name, facts.sha256) == (module.name, module.sha256)
    assert compiler.compile_module(module).object_sha256 == before.object_sha256


def test_an_unfinished_compilation_is_closed(compiler: Compiler, small: Corpus) -> None:
    compilation = compiler.start(small["frame_stream.c"], InliningForSize())
    assert compilation.next_observation() is not None
    assert describe_module(compiler, small["frame_stream.c"]).bodies
    with pytest.raises(UsageError):
        _ = compilation.result


def test_a_module_that_llvm_refuses(compiler: Compiler) -> None:
    with pytest.raises(ModuleError) as caught:
        describe_module(compiler, Module("bad", b"BC\xc0\xde"))
    assert str(caught.value) == (
        "module 'bad': LLVM bitcode parsing error\nExpected a single module"
    )
    assert compiler.worker_pid is not None  # it goes on


def test_a_worker_that_dies(compiler: Compiler) -> None:
    request = SplitRequest(True, CompileOptions().target(), "many", (), ())  # type: ignore[arg-type]
    module = Module.from_ir("define void @f() { ret void }", "x")
    with pytest.raises(CompilerCrashError, match="^module 'x': LLVM ended with exit status 1; "):
        compiler.inquire(module, request)
    assert not describe_module(compiler, Module.from_ir("")).bodies


def test_a_deadline(small: Corpus) -> None:
    with Compiler(timeout_s=1e-6) as compiler:
        with pytest.raises(CompilationTimeoutError) as caught:
            describe_module(compiler, small["frame_stream.c"])
        assert str(caught.value) == (
            "module 'frame_stream.c': LLVM took more than its 1e-06 s; "
            "timeout_s or --timeout lifts the limit"
        )
        assert compiler.worker_pid is None


def test_a_closed_compiler() -> None:
    compiler = Compiler()
    compiler.close()
    with pytest.raises(UsageError, match="^compiler: closed$"):
        describe_module(compiler, Module.from_ir(""))


@pytest.mark.parametrize(
    ("command", "path"),
    [
        (["-cc1", "-O2"], None),
        (["-cc1", "-fprofile-sample-use=s.prof"], "s.prof"),
        (
            ["-cc1", "-fprofile-instrument-use-path=a", "-fprofile-instrument-use-path=b"],
            "b",
        ),
    ],
)
def test_profiles_that_command_lines_name(command: list[str], path: str | None) -> None:
    assert profile_path(command) == path
