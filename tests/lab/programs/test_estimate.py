"""The estimate of what is executed: read off LLVM's text, and against what valgrind counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym import Compiler, Corpus, InliningForSize, Module
from mlgo_gym.corpus import SAMPLE_CORPUS
from mlgo_gym.envs import make_env
from mlgo_gym.errors import ModuleError
from mlgo_gym.lab.programs import Estimate, Programs, attach_profile, collect_profile, meter_named
from mlgo_gym.llvm import CompilationResult, options_of
from mlgo_gym.llvm._task import COMPILE_WITH_ESTIMATE
from mlgo_gym.llvm.text._executed import executed_instructions
from mlgo_gym.rollout import Result, measure_named
from tests.conftest import require

PRINTED = """block-frequency-info: f
 - BB0[]: float = 1.0, int = 8, count = 5

block-frequency-info: f
 - BB0[]: float = 1.0, int = 8, count = 10
 - BB1[a]: float = 4.0, int = 32, count = 40
 - BB7: float = 0.5, int = 4, count = 5

block-frequency-info: unknown
 - BB0[]: float = 1.0, int = 8
"""
X86 = """\t.text
\t.globl\tf                               # -- Begin function f
f:                                      # @f
# %bb.0:
\txorl\t%eax, %eax
\tmovl\t%eax, %edx
.LBB0_1:                                # =>This Inner Loop Header: Depth=1
\taddl\t$-1, %edi
                                        # kill: def $eax killed $eax killed $rax
\t#APP
\tnop
\t#NO_APP
\tjne\t.LBB0_1
# %bb.2:
\tlock\t\taddl\t%eax, (%rdi)
.LBB0_7:
\tretq
.Lfunc_end0:
\t.size\tf, .Lfunc_end0-f
                                        # -- End function
\t.globl\tunknown                         # -- Begin function unknown
unknown:
# %bb.0:
\tretq
"""
EXPECTED = 2 * 10 + 3 * 40 + 1 * 40 + 1 * 5


def test_blocks_by_how_often_they_run() -> None:
    """What LLVM has printed last counts; a block that it has put in counts as that before it."""
    assert executed_instructions(X86, PRINTED, 0) == EXPECTED
    aarch64 = X86.replace("# ", "// ").replace("\t//", "\t#")
    assert executed_instructions(aarch64, PRINTED, 0) == EXPECTED


def test_no_block_runs_more_often_than_any_did() -> None:
    assert executed_instructions(X86, PRINTED, 30) == 2 * 10 + 3 * 30 + 1 * 30 + 1 * 5


FUNCTION = """\t.{linkage}\t{name}                     # -- Begin function {name}
{name}:
# %bb.0:
\tnop
\t{call}
                                        # -- End function
"""
TABLE = """block-frequency-info: {name}
 - BB0[]: float = 1.0, int = 8, count = {count}

"""


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"f": 10, "g": 1000, "h": 80}, 2 * (10 + 10 + 10)),
        ({"f": 10, "g": 4, "h": 80}, 2 * (10 + 4 + 4)),  # no more than all there are
        ({"f": 10, "g": 0, "h": 80}, 2 * 10),
        ({"g": 1000, "h": 80}, 0),
    ],
)
def test_what_other_modules_have_counts_as_it_is_called_here(
    entries: dict[str, int], expected: int
) -> None:
    code = (("globl", "f", "callq\tg@PLT"), ("weak", "g", "jmp\th@PLT"), ("weak", "h", "retq"))
    assembly = "".join(FUNCTION.format(linkage=a, name=b, call=c) for a, b, c in code)
    printed = "".join(TABLE.format(name=name, count=count) for name, count in entries.items())
    assert executed_instructions(assembly, printed, 0) == pytest.approx(expected)


def test_a_call_of_itself() -> None:
    code = (("globl", "f", "callq\tg@PLT"), ("weak", "g", "jne\tg@PLT"))
    assembly = "".join(FUNCTION.format(linkage=a, name=b, call=c) for a, b, c in code)
    printed = TABLE.format(name="f", count=10) + TABLE.format(name="g", count=500)
    assert executed_instructions(assembly, printed, 0) == pytest.approx(2 * (10 + 500))


def test_no_counts() -> None:
    assert (
        executed_instructions(X86, PRINTED[PRINTED.index("block-frequency-info: u") :], 0) is None
    )
    module = Corpus.load(SAMPLE_CORPUS)["digest.c"]
    with Compiler() as compiler:
        result = compiler.compile_module(module, task=COMPILE_WITH_ESTIMATE)
    with pytest.raises(ModuleError) as error:
        Estimate().score(result)
    assert str(error.value) == (
        "module 'digest.c': expected counts of its functions in its bitcode, found none; "
        "'mlgo-gym profile attach' puts them there"
    )


def test_more_than_can_be() -> None:
    module = Module.from_ir(COUNTED.format("x86_64-unknown-linux-gnu"))
    with Compiler() as compiler:
        result = compiler.compile_module(module, task=COMPILE_WITH_ESTIMATE)
    assert result.executed_before == 10 * 3 + 20 * 3
    assert result.executed_instructions is not None
    Estimate().score(replace(result, executed_instructions=135.0))
    with pytest.raises(ModuleError) as error:
        Estimate().score(replace(result, executed_instructions=136.0))
    assert str(error.value) == (
        "module '<ir>': expected at most 135 instructions that are executed, 1.5 times those "
        "before optimisation, found 136 by LLVM's block frequencies, which are wrong there"
    )


COUNTED = """
target triple = "{}"
declare void @use(i32)
define void @leaf(i32 %x) !prof !3 {{
  %y = mul i32 %x, %x
  call void @use(i32 %y)
  ret void
}}
define void @f(i32 %n) !prof !2 {{
  call void @leaf(i32 %n)
  call void @leaf(i32 7)
  ret void
}}
!2 = !{{!"function_entry_count", i64 10}}
!3 = !{{!"function_entry_count", i64 20}}
"""


@pytest.mark.parametrize("triple", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"])
def test_of_a_module(triple: str) -> None:
    """All calls inlined, the callee is not executed any more; the object is the same as ever."""
    module = Module.from_ir(COUNTED.format(triple))
    with Compiler() as compiler:
        plain = compiler.compile_module(module)
        never, always = (
            compiler.compile_module(
                module,
                problem=InliningForSize(),
                policy=lambda _, answer=answer: answer,
                task=COMPILE_WITH_ESTIMATE,
                keep_object=True,
            )
            for answer in (0, 1)
        )
        again = compiler.compile_module(module, task=COMPILE_WITH_ESTIMATE)
    assert plain.executed_instructions is None
    assert again.object_sha256 == plain.object_sha256
    assert always.object_bytes is not None
    assert always.object_bytes[:4] == b"\x7fELF"
    assert None not in {never.executed_instructions, always.executed_instructions}
    assert Estimate().score(always) < Estimate().score(never)
    assert Estimate().score(never) % 10 == pytest.approx(0)


def test_a_branch_has_its_own() -> None:
    module = Module.from_ir(COUNTED.format("x86_64-unknown-linux-gnu"))
    problem = InliningForSize()
    scores = {}
    with Compiler() as compiler:
        for answer in (0, 1):
            result = compiler.compile_module(
                module, problem=problem, policy=lambda _, a=answer: a, task=COMPILE_WITH_ESTIMATE
            )
            scores[answer] = Estimate().score(result)
        with compiler.start(module, problem, task=COMPILE_WITH_ESTIMATE) as trunk:
            assert trunk.next_observation() is not None
            with trunk.fork() as branch:
                for compilation, answer in ((branch, 1), (trunk, 0)):
                    while compilation.next_observation() is not None:
                        compilation.answer(answer)
                    assert Estimate().score(compilation.result) == scores[answer]
    assert scores[0] != scores[1]


class Wrong(Estimate):
    """Refuses whatever a policy has decided."""

    def score(self, result: Result) -> float:
        if isinstance(result, CompilationResult) and result.decisions:
            result = replace(result, executed_instructions=1e9)
        return super().score(result)


def test_an_episode_that_leads_to_what_cannot_be() -> None:
    module = Module.from_ir(COUNTED.format("x86_64-unknown-linux-gnu"))
    env = make_env("inlining-for-size", reward=Wrong())
    env.reset(options={"module": module})
    is_cut = has_ended = False
    while not (is_cut or has_ended):
        _, reward, has_ended, is_cut, info = env.step(0)
    env.close()
    assert (is_cut, reward) == (True, -1.0)
    assert info["error"].startswith("module '<ir>': expected at most 135 instructions")


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    require("llvm-profdata-22", "llvm-22")
    folder: Path = tmp_path_factory.mktemp("counted") / "sample"
    plain = Corpus.load(SAMPLE_CORPUS)
    attach_profile(plain, collect_profile(plain).profile, folder)
    return Corpus.load(folder)


@pytest.mark.e2e
def test_a_mix_of_rewards(counted: Corpus) -> None:
    """The reward of a mix is that of its parts."""
    env = make_env("inlining-for-size", counted, reward="text:0.5,estimate:0.5")
    _, info = env.reset(options={"module": "json_read.c"})
    has_ended = False
    while not has_ended:
        _, reward, has_ended, _, info = env.step(1)
    env.close()
    ratios = [info[key] / info[f"baseline_{key}"] for key in ("estimate", "text_size_bytes")]
    assert reward == pytest.approx(1 - np.sqrt(ratios[0] * ratios[1]))


@pytest.mark.e2e
def test_against_what_is_counted(counted: Corpus) -> None:
    """Whole programs, and how much more they execute with nothing inlined in a module."""
    require("valgrind", "valgrind")
    name = "json_read.c"
    measure = measure_named("instructions", counted)
    with Compiler() as compiler, Programs(counted) as programs:
        never = compiler.compile_module(
            counted[name],
            options_of(counted[name]),
            problem=InliningForSize(),
            policy=lambda _: 0,
            task=COMPILE_WITH_ESTIMATE,
            keep_object=True,
        )
        plain = compiler.compile_module(counted[name], task=COMPILE_WITH_ESTIMATE, keep_object=True)
        workload = programs.workloads["json"]
        with programs.linked(workload, {name: plain}) as program:
            (reading,) = meter_named("instructions").read(workload, [program])
    change = measure.score(never) - measure.score(plain)
    measure.close()
    assert reading.value > Estimate().score(plain)
    assert Estimate().score(never) - Estimate().score(plain) == pytest.approx(change, rel=0.2)
