"""The contract, over the runners that need no model file; and runners that break it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mlgo_gym.base._tensor_spec import SCALAR_TYPES, TensorSpec
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import SpecError, UsageError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.rollout._rollout import rollout
from mlgo_gym.runners._base import MLModelRunner, NoInferenceModelRunner, ScriptedRunner
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.testing import ContractError, check_runner

INPUTS = tuple(
    TensorSpec(name.strip("_t"), name, shape)
    for name, shape in zip(SCALAR_TYPES, [(1,), (), (3,), (1, 33)] * 3, strict=False)
)
OUTPUT = TensorSpec("decision", "int64_t", (1,))


def scripted(inputs: Sequence[TensorSpec], output: TensorSpec) -> ScriptedRunner:
    return ScriptedRunner(lambda values: int(values[INPUTS[0].name].sum()) % 2, inputs, output)


def test_scripted_keeps_the_contract() -> None:
    check_runner(scripted, INPUTS, OUTPUT)


def test_no_inference_keeps_the_contract() -> None:
    check_runner(NoInferenceModelRunner, INPUTS, OUTPUT, has_model=False)
    runner = NoInferenceModelRunner(INPUTS, OUTPUT)
    with pytest.raises(UsageError, match="^NoInferenceModelRunner: has no model to evaluate$"):
        runner.evaluate()


def test_inputs_of_one_word_each() -> None:
    """These are filled in one assignment; in the order of the inputs, whatever the memory's."""
    inputs = [TensorSpec(f"x{index}", kind, (1,)) for index, kind in enumerate(
        ["int64_t", "double", "uint64_t"] * 5
    )]  # fmt: skip
    check_runner(lambda specs, output: ScriptedRunner(lambda _: 1, specs, output), inputs, OUTPUT)
    block = np.zeros(len(inputs), np.int64)

    class Backwards(NoInferenceModelRunner):
        def __init__(self) -> None:
            MLModelRunner.__init__(self, inputs, OUTPUT)
            for index, spec in enumerate(inputs):
                place = len(inputs) - 1 - index
                self.set_up_buffer_for_tensor(index, spec, block[place : place + 1])

    runner = Backwards()
    runner.fill(np.arange(len(inputs)).tobytes())
    assert block.tolist() == list(range(len(inputs)))[::-1]


class Resetting(ScriptedRunner):
    def _evaluate(self) -> bytes:
        answer = super()._evaluate()
        self.get_tensor(0)[...] = 0
        return answer


class Moving(ScriptedRunner):
    def get_tensor(self, index: int) -> np.ndarray[Any, Any]:
        return super().get_tensor(index).copy()


class Immortal(ScriptedRunner):
    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Resetting, "inputs after evaluating: expected"),
        (Moving, "untyped view of 'floa': expected"),
        (Immortal, "evaluate after close: expected UsageError, found none"),
    ],
)
def test_the_suite_finds_what_is_broken(kind: type[ScriptedRunner], message: str) -> None:
    with pytest.raises(ContractError, match=f"^{message}"):
        check_runner(lambda inputs, output: kind(lambda _: 1, inputs, output), INPUTS, OUTPUT)


def test_a_model_that_ignores_a_missing_input_is_found() -> None:
    with pytest.raises(ContractError, match="^missing input 'floa': expected an error, fo"):
        check_runner(NoInferenceModelRunner, INPUTS, OUTPUT, needs="floa", has_model=False)


def test_buffers_that_do_not_fit() -> None:
    class Picky(NoInferenceModelRunner):
        def __init__(self) -> None:
            MLModelRunner.__init__(self, [OUTPUT], OUTPUT)

    runner = Picky()
    with pytest.raises(UsageError, match="^input 0 \\('decision'\\): not set up$"):
        runner.get_tensor(0)
    with pytest.raises(SpecError, match="^input 0: expected TensorSpec"):
        runner.set_up_buffer_for_tensor(0, INPUTS[0], None)
    with pytest.raises(SpecError, match="^input 'decision': expected 8 bytes, found 16$"):
        runner.set_up_buffer_for_tensor(0, OUTPUT, np.zeros(2, np.int64))
    frozen = np.zeros(1, np.int64)
    frozen.flags.writeable = False
    with pytest.raises(SpecError, match="^input 'decision': expected contiguous, writable memory"):
        runner.set_up_buffer_for_tensor(0, OUTPUT, frozen)
    own = np.zeros(1, np.int64)
    runner.set_up_buffer_for_tensor(0, OUTPUT, own)
    runner.get_tensor(0)[0] = 5
    assert own.tolist() == [5]
    with pytest.raises(UsageError, match="^input 0 \\('decision'\\): set up twice$"):
        runner.set_up_buffer_for_tensor(0, OUTPUT, None)


@pytest.mark.parametrize("inputs", [[], [OUTPUT, OUTPUT]])
def test_inputs_that_make_no_sense(inputs: list[TensorSpec]) -> None:
    with pytest.raises(SpecError, match="^runner: expected inputs with different names, found"):
        NoInferenceModelRunner(inputs, OUTPUT)


def test_a_script_of_values() -> None:
    runner = ScriptedRunner([1, 0], [OUTPUT], OUTPUT)
    assert [runner.evaluate().tolist() for _ in range(2)] == [[1], [0]]
    with pytest.raises(UsageError, match="^ScriptedRunner: expected another answer in the scri"):
        runner.evaluate()


def test_a_runner_drives_the_embedded_llvm(compiler: Compiler, small: Corpus) -> None:
    contexts: list[str] = []

    class Echo(ScriptedRunner):
        def switch_context(self, name: str) -> None:
            contexts.append(name)

    def echo(inputs: Sequence[TensorSpec], output: TensorSpec) -> Echo:
        return Echo(lambda values: values["inlining_default"], inputs, output)

    by_function = compiler.compile_module(
        small["frame_stream.c"], problem=InliningForSize(), policy=default
    )
    by_runner = compiler.compile_module(
        small["frame_stream.c"], problem=InliningForSize(), policy=RunnerPolicy(echo)
    )
    assert by_runner == by_function
    assert contexts == [""]
    with pytest.raises(UsageError, match="^compile_module: expected a problem with a policy"):
        compiler.compile_module(small["frame_stream.c"], policy=default)
    for report in rollout(small, {"echo": RunnerPolicy(echo)}, InliningForSize(), jobs=2):
        assert report.reward(report.attempts[0]) == 0.0
