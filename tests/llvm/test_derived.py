"""Features of a call site that LLVM does not send: they are counted right, and change nothing."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._record import header_of
from mlgo_gym.datasets._record import record as record_dataset
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import EnvironmentSetupError, OptionsError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm.inside._call_site import FEATURES, SYMBOLS
from mlgo_gym.llvm.inside._library import library_path
from mlgo_gym.llvm.inside._symbols import offsets_of
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.problems._policy import Policy
from mlgo_gym.rollout._replay import record, replay
from mlgo_gym.rollout._trace import Trace
from mlgo_gym.runners._policy import WorkerPolicy
from mlgo_gym.search._attribution import NamingCompiler
from mlgo_gym.stream._training_log import Observation

DERIVED = InliningForSize(derived=True, size_increase_threshold=math.inf)
MODULE = Module.from_ir(
    """
@table = global ptr @local

define internal i32 @local(i32 %x) {
  %y = mul i32 %x, %x
  %z = add i32 %y, 3
  ret i32 %z
}
define linkonce_odr hidden i32 @shared(i32 %x) {
  %y = call i32 @local(i32 %x)
  %z = call i32 @local(i32 %y)
  ret i32 %z
}
define i32 @first(i32 %x) minsize optsize {
  %a = call i32 @shared(i32 %x)
  ret i32 %a
}
define i32 @second(ptr %p) minsize optsize personality ptr null {
  %a = call i32 @first(i32 1)
  %b = invoke i32 @shared(i32 %a) to label %good unwind label %bad
good:
  ret i32 %b
bad:
  %caught = landingpad { ptr, i32 } cleanup
  ret i32 0
}
""",
    "sites",
)


def answer_as_llvm(observation: Observation) -> int:
    return int(observation["inlining_default"][0])


def asked(compiler: Compiler, problem: InliningForSize, module: Module) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []

    def answer(observation: Observation) -> int:
        seen.append({name: array.tolist() for name, array in observation.items()})
        return 0

    compiler.compile_module(module, problem=problem, policy=answer)
    return seen


def test_they_are_counted(compiler: Compiler) -> None:
    """All calls are left, so the module is as it is written, but for what is simplified."""
    seen = [tuple(each[name][0] for name in FEATURES) for each in asked(compiler, DERIVED, MODULE)]
    of_local = (1, 0, 0, 2, 1, 1, 3, 3)
    assert seen[:2] == [of_local, of_local]
    assert (0, 1, 1, 2, 2, 0, 3, 2) in seen  # shared, by first
    assert seen[3][:-1] == (0, 0, 0, 1, 1, 0, 2)  # first, by second


def test_the_names_are_the_problems() -> None:
    assert DERIVED.layout.derived == FEATURES
    assert all(each.is_derived == (each.spec.name in FEATURES) for each in DERIVED.layout.features)


def test_sizes_are_ir2vecs(sample: Corpus, compiler: Compiler) -> None:
    """LLVM counts the callee's instructions by a vocabulary of ones, too."""
    problem = InliningForSize(ir2vec="ones", derived=True)
    for seen in asked(compiler, problem, sample["json_write.c"]):
        assert seen["callee_embedding"] == seen["callee_instruction_count"]


@pytest.mark.parametrize("name", ["scene.cpp", "digest.c"])
@pytest.mark.parametrize("policy", [default, WorkerPolicy(answer_as_llvm)])
def test_nothing_changes(name: str, policy: Policy, sample: Corpus, compiler: Compiler) -> None:
    plain = compiler.compile_module(sample[name])
    done = compiler.compile_module(sample[name], problem=DERIVED, policy=policy)
    assert done.object_sha256 == plain.object_sha256
    assert done.decisions > 0


def test_a_function_in_the_worker_sees_them(sample: Corpus, compiler: Compiler) -> None:
    def by_uses(observation: Observation) -> int:
        return int(observation["callee_call_sites"][0] + observation["callee_is_local"][0] == 2)

    with Compiler() as alone:
        results = [
            each.compile_module(sample["scene.cpp"], problem=DERIVED, policy=policy)
            for each, policy in ((alone, by_uses), (compiler, WorkerPolicy(by_uses)))
        ]
    assert results[0].object_sha256 == results[1].object_sha256
    plain = compiler.compile_module(sample["scene.cpp"])
    assert results[0].object_sha256 != plain.object_sha256


def test_labels_are_named(sample: Corpus, compiler: Compiler) -> None:
    """What LLVM prints has its own features alone."""
    found = [
        NamingCompiler(compiler, sample["digest.c"], default, problem).compile().decisions
        for problem in (InliningForSize(derived=True), InliningForSize())
    ]
    assert [each.callee for each in found[0]] == [each.callee for each in found[1]]


def test_an_environment_forks(sample: Corpus) -> None:
    env: Any = gymnasium.make("mlgo_gym/InliningForSize-v0", corpus=sample, derived=True)
    with env:
        check_env(env.unwrapped, skip_render_check=True)
        env.reset(options={"module": "digest.c"})
        for _ in range(3):
            env.step(0)
        with env.unwrapped.fork() as branch:
            ends = []
            for each in (env.unwrapped, branch):
                seen, is_over = [], False
                while not is_over:
                    observation, reward, is_over, _, _ = each.step(1)
                    seen.append({key: value.tolist() for key, value in observation.items()})
                ends.append((reward, seen))
    assert ends[0] == ends[1]
    assert any(each["callee_is_local"] for each in ends[0][1])


def test_traces_and_datasets_have_them(sample: Corpus, compiler: Compiler, tmp_path: Path) -> None:
    module = sample["digest.c"]
    record(compiler, module, DERIVED, default, keep_observations=True).save(tmp_path / "trace")
    trace = Trace.load(tmp_path / "trace")
    assert trace.settings["derived"] is True
    assert {spec.name for spec in trace.features} >= {*FEATURES}
    assert replay(compiler, trace, module).object_sha256 == trace.object_sha256
    with DatasetWriter(tmp_path / "dataset", header_of(DERIVED)) as writer:
        corpora = {"sample": sample.only(["digest.c"])}
        list(record_dataset(writer, corpora, DERIVED, "default", default))
    assert {*Dataset.open(tmp_path / "dataset").layout.feature_names} >= {*FEATURES}


def test_what_the_setting_cannot_be() -> None:
    with pytest.raises(OptionsError) as caught:
        InliningForSize(derived="yes")  # type: ignore[arg-type]
    assert str(caught.value) == "derived: expected True or False, found 'yes'"


def test_a_library_without_its_symbols(tmp_path: Path) -> None:
    """As distributions strip them."""
    library = tmp_path / "library.so"
    shutil.copy("/proc/self/exe", library)
    assert offsets_of(SYMBOLS, str(library)) == {}
    damaged = library.with_name("damaged.so")
    damaged.write_bytes(library.read_bytes()[:5000])
    with pytest.raises(EnvironmentSetupError, match="its symbols cannot be read: "):
        offsets_of(SYMBOLS, str(damaged))


def test_symbols_are_what_binutils_finds() -> None:
    names = ("LLVMGetLinkage", SYMBOLS[0])
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("needs nm")
    done = subprocess.run([nm, library_path()], capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    found = {line[2]: int(line[0], 16) for line in lines if len(line) == 3 and line[2] in names}
    assert offsets_of(names, library_path()) == found
