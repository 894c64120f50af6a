"""The release runner: its contract, its bindings, its errors."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.errors import ModelError, UsageError
from mlgo_gym.model._freeze import freeze
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.runners._model_runners import ReleaseModeModelRunner
from tests.conftest import one_in
from tests.model.agreement import interpreter
from tests.model.make_models import FOLDER

INPUTS = tuple(TensorSpec(f"f{number}", "int64_t", (1,)) for number in range(9))
DECISION = TensorSpec("inlining_decision", "int64_t", (1,))
ENTRIES = (
    {
        "logging_name": "inlining_decision",
        "tensor_spec": {"name": "PartitionedCall", "port": 0, "type": "int64_t", "shape": [1]},
    },
    {
        "logging_name": "logit",
        "tensor_spec": {"name": "PartitionedCall", "port": 1, "type": "float", "shape": [1, 1]},
    },
)


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "policy"
    folder.mkdir()
    shutil.copy(FOLDER / "dense.tflite", folder / "model.tflite")
    (folder / "output_spec.json").write_text(json.dumps(ENTRIES))
    return folder


def fill(runner: ReleaseModeModelRunner, random: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    for index, spec in enumerate(runner.inputs):
        runner.get_tensor(index)[...] = random.integers(-50, 5000, spec.shape)
    return [runner.get_tensor(index).copy() for index in range(len(runner.inputs))]


@pytest.mark.e2e
@pytest.mark.parametrize("frozen", one_in(2, [True, False]))
def test_decisions_are_those_of_tflite(model_dir: Path, tmp_path: Path, frozen: bool) -> None:
    if frozen:
        freeze(model_dir, tmp_path / "frozen", name="policy")
    source = tmp_path / "frozen" if frozen else model_dir
    random = np.random.default_rng(5)
    tflite = interpreter(FOLDER / "dense.tflite")
    indices = {each["name"]: each["index"] for each in tflite.get_input_details()}
    outputs = {each["name"]: each["index"] for each in tflite.get_output_details()}
    decisions = set()
    with ReleaseModeModelRunner(source, INPUTS, DECISION) as runner:
        assert runner.ignored_inputs == ()
        views = [runner.get_tensor(index) for index in range(len(INPUTS))]
        for _ in range(10_000):
            values = fill(runner, random)
            for spec, value in zip(INPUTS, values, strict=True):
                tflite.set_tensor(indices[f"action_{spec.name}:0"], value)
            tflite.invoke()
            answer = runner.evaluate()
            assert answer == tflite.get_tensor(outputs["PartitionedCall:0"])
            assert bytes(runner.evaluate_untyped()) == answer.tobytes()
            np.testing.assert_allclose(
                runner.extra_outputs()["logit"],
                tflite.get_tensor(outputs["PartitionedCall:1"]),
                rtol=1e-5,
                atol=1e-5,
            )
            decisions.add(int(answer[0]))
        for index, (view, value) in enumerate(zip(views, values, strict=True)):
            assert view is runner.get_tensor(index) or np.shares_memory(
                view, runner.get_tensor(index)
            )
            np.testing.assert_array_equal(view, value)
    assert decisions == {0, 1}


def test_a_graph_goes_before_what_was_frozen(tmp_path: Path) -> None:
    """LLVM's own answer is to inline; without the graph the frozen model says never."""
    models, folder = Path(__file__).parents[1] / "models", tmp_path / "model"
    shutil.copytree(models / "default", folder)
    freeze(models / "never", folder, name="never")
    for expected in (1, 0):
        inputs, output = InliningForSize().layout.specs, InliningForSize.advice
        with ReleaseModeModelRunner(folder, inputs, output, trusted=True) as runner:
            for index in range(len(inputs)):
                runner.get_tensor(index)[...] = 1
            assert runner.evaluate().item() == expected
        (folder / "model.tflite").unlink(missing_ok=True)


def test_an_older_model_ignores_new_inputs(model_dir: Path) -> None:
    new = (TensorSpec("is_new", "float", (2, 2)), *INPUTS)
    with (
        ReleaseModeModelRunner(model_dir, new, DECISION, trusted=True) as runner,
        ReleaseModeModelRunner(model_dir, INPUTS, DECISION, trusted=True) as older,
    ):
        assert runner.ignored_inputs == ("is_new",)
        runner.get_tensor(0)[...] = 7
        for index in range(9):
            runner.get_tensor(index + 1)[...] = index * 31
            older.get_tensor(index)[...] = index * 31
        assert runner.evaluate() == older.evaluate()
        assert runner.extra_outputs() == older.extra_outputs()


@pytest.mark.parametrize(
    ("inputs", "output", "message"),
    [
        (INPUTS[1:8], DECISION, "needs inputs that are not offered: 'f0', 'f8'"),
        (
            (TensorSpec("f0", "float", (1,)), *INPUTS[1:]),
            DECISION,
            "input 'f0': the model takes int64_t [1], offered is float [1]",
        ),
        (
            (*INPUTS[:8], TensorSpec("f8", "int64_t", (1, 1))),
            DECISION,
            "input 'f8': the model takes int64_t [1], offered is int64_t [1, 1]",
        ),
        (
            INPUTS,
            TensorSpec("inlining_decision", "float", (1,)),
            "decision 'inlining_decision': expected float [1], found int64_t [1]",
        ),
    ],
)
def test_what_does_not_fit(
    model_dir: Path, inputs: tuple[TensorSpec, ...], output: TensorSpec, message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        ReleaseModeModelRunner(model_dir, inputs, output, trusted=True)
    assert str(caught.value) == f"model '{model_dir}/model.tflite': {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "output_spec.json: expected JSON: Expecting value: line 1 column 2 (char 1)"),
        ("[]", "output_spec.json: expected a list of outputs, found []"),
        ("[{}]", "output_spec.json: expected a logging_name, found {}"),
        (
            f"[[{'0,' * 9999}0]]",
            "output_spec.json: expected a logging_name, found [0, 0, 0, 0, 0, 0, ...]",
        ),
        (
            '[{"logging_name": "x"}]',
            "output_spec.json: tensor spec: expected a JSON object, found None",
        ),
        (
            json.dumps([ENTRIES[0] | {"logging_name": "x", "tensor_spec": ENTRIES[0]["tensor_spec"]
                        | {"name": "y"}}]),  # type: ignore[operator]
            "expected an output 'y:0', found 'inlining_decision' ('PartitionedCall:0'), "
            "'logit' ('PartitionedCall:1')",
        ),
        (
            json.dumps([ENTRIES[0] | {"logging_name": "index_to_evict"}]),
            "expected the decision 'inlining_decision' as the first output, "
            "found 'index_to_evict'",
        ),
        (
            json.dumps([ENTRIES[0] | {"tensor_spec": ENTRIES[0]["tensor_spec"]
                        | {"shape": [2]}}]),  # type: ignore[operator]
            "output 'inlining_decision': expected int64_t [2], found int64_t [1]",
        ),
    ],
)  # fmt: skip
def test_output_spec(model_dir: Path, text: str, message: str) -> None:
    (model_dir / "output_spec.json").write_text(text)
    with pytest.raises(ModelError) as caught:
        ReleaseModeModelRunner(model_dir, INPUTS, DECISION, trusted=True)
    assert (
        str(caught.value)
        .removeprefix(f"model '{model_dir}': ")
        .removeprefix(f"model '{model_dir}/model.tflite': ")
        == message
    )


def test_without_output_spec(model_dir: Path) -> None:
    (model_dir / "output_spec.json").unlink()
    with ReleaseModeModelRunner(model_dir, INPUTS, DECISION, trusted=True) as runner:
        assert list(runner.extra_outputs()) == ["logit"]
    with pytest.raises(ModelError) as caught:
        ReleaseModeModelRunner(
            model_dir, INPUTS, TensorSpec("advice", "int64_t", (1,)), trusted=True
        )
    assert str(caught.value) == (
        f"model '{model_dir}/model.tflite': expected an output 'advice' or output_spec.json, "
        "found 'inlining_decision', 'logit'"
    )


@pytest.mark.parametrize(
    ("model", "values", "operator"),
    [
        ("gather", {"at": 3}, "GATHER"),
        ("gather", {"at": -1}, "GATHER"),
        ("div_int32", {"y": 0}, "DIV"),
    ],
)
def test_values_it_is_not_defined_for(model: str, values: dict[str, int], operator: str) -> None:
    path = FOLDER / f"{model}.tflite"
    shapes = {
        "gather": (("x", "float", (2, 3, 4)), ("at", "int32_t", (2, 2))),
        "div_int32": (("x", "int32_t", (3, 5)), ("y", "int32_t", (5,))),
    }[model]
    output = {"gather": ("float", (2, 2, 2, 4)), "div_int32": ("int32_t", (3, 5))}[model]
    inputs = [TensorSpec(*each) for each in shapes]
    with ReleaseModeModelRunner(
        path, inputs, TensorSpec("answer", *output), trusted=True
    ) as runner:
        for index, spec in enumerate(inputs):
            runner.get_tensor(index)[...] = values.get(spec.name, 1)
        for evaluate in (runner.evaluate, runner.evaluate_untyped):
            with pytest.raises(ModelError) as caught:
                evaluate()
            assert str(caught.value) == (
                f"model '{path}': operator 0 ({operator}): expected indices in range and integer "
                "divisors other than 0"
            )
        for index in range(2):
            runner.get_tensor(index)[...] = 1
        runner.evaluate()


def test_closed(model_dir: Path) -> None:
    runner = ReleaseModeModelRunner(model_dir, INPUTS, DECISION, trusted=True)
    view = runner.get_tensor(3)
    runner.close()
    runner.close()
    view[...] = 3
    for evaluate in (runner.evaluate, runner.evaluate_untyped):
        with pytest.raises(UsageError) as caught:
            evaluate()
        assert str(caught.value) == "ReleaseModeModelRunner: closed"


def test_nothing_heavy_is_imported(model_dir: Path) -> None:
    program = (
        "import sys\n"
        "from mlgo_gym.runners._model_runners import ReleaseModeModelRunner\n"
        "from mlgo_gym.base._tensor_spec import TensorSpec\n"
        "specs = [TensorSpec(f'f{n}', 'int64_t', (1,)) for n in range(9)]\n"
        "out = TensorSpec('inlining_decision', 'int64_t', (1,))\n"
        "with ReleaseModeModelRunner(sys.argv[1], specs, out) as runner:\n"
        "    print(runner.evaluate())\n"
        "heavy = {'tensorflow', 'tflite_runtime', 'ai_edge_litert', 'tflite'} & set(sys.modules)\n"
        "print(sorted(heavy))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(model_dir)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"
