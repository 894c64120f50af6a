"""Models under training: a TFLite graph from TensorFlow's own converter, and broken ones."""

from __future__ import annotations

import functools
import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import EnvironmentSetupError, ModelError, TrainingLogError, UsageError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.runners import _interpreter
from mlgo_gym.runners._model_runners import ModelUnderTrainingRunner
from mlgo_gym.runners._policy import RunnerPolicy
from mlgo_gym.stream._training_log import Observation, TrainingLogReader
from mlgo_gym.testing import check_runner

MODEL = Path(__file__).parent.parent / "models" / "inliner"
FEATURES = tuple(each.spec for each in InliningForSize().layout.features)
ADVICE = InliningForSize.advice


@pytest.fixture(autouse=True)
def interpreter() -> Any:
    """Needs one of the two packages that carry TFLite; test_tflite_runtime sees to the other."""
    return _interpreter.interpreter_class()


def make(inputs: Sequence[TensorSpec], output: TensorSpec) -> ModelUnderTrainingRunner:
    return ModelUnderTrainingRunner(MODEL, inputs, output)


@pytest.mark.e2e
def test_it_keeps_the_contract() -> None:
    check_runner(make, FEATURES, ADVICE, needs="cost_estimate")


def reference(values: dict[str, int]) -> Any:
    """What TFLite's own Python interface says, tensor by tensor."""
    interpreter = _interpreter.interpreter_class()(str(MODEL / "model.tflite"))
    interpreter.allocate_tensors()
    for details in interpreter.get_input_details():
        name = details["name"].removeprefix("action_").removesuffix(":0")
        interpreter.set_tensor(details["index"], np.array([values[name]], np.int64))
    interpreter.invoke()
    return {
        each["name"]: interpreter.get_tensor(each["index"])
        for each in interpreter.get_output_details()
    }


def test_equal_to_tflite_itself() -> None:
    random = np.random.default_rng(0)
    with make(InliningForSize().layout.specs, ADVICE) as runner:
        for _ in range(20):
            values = {spec.name: int(random.integers(-1000, 1000)) for spec in runner.inputs}
            for index, spec in enumerate(runner.inputs):
                runner.get_tensor(index)[0] = values[spec.name]
            decision = runner.evaluate()
            expected = reference(values)
            assert decision.tolist() == expected["StatefulPartitionedCall:0"].tolist()
            logits = runner.extra_outputs()["logits"]
            assert logits.tolist() == expected["StatefulPartitionedCall:1"].tolist()


def test_it_drives_the_embedded_llvm(compiler: Compiler, small: Corpus) -> None:
    answers: list[int] = []

    def by_tflite(observation: Observation) -> int:
        values = {name: int(array[0]) for name, array in observation.items()}
        answers.append(int(reference(values)["StatefulPartitionedCall:0"][0]))
        return answers[-1]

    problem = InliningForSize()
    by_function = compiler.compile_module(
        small["frame_stream.c"], problem=problem, policy=by_tflite
    )
    by_runner = compiler.compile_module(
        small["frame_stream.c"], problem=problem, policy=RunnerPolicy(make)
    )
    assert by_runner == by_function
    assert set(answers) == {0, 1}


def test_it_writes_the_training_log(compiler: Compiler, small: Corpus) -> None:
    file = io.BytesIO()
    score = TensorSpec("delta_size", "int64_t", (1,))
    runner = functools.partial(ModelUnderTrainingRunner, MODEL, training_log=file, score=score)
    result = compiler.compile_module(
        small["frame_stream.c"], problem=InliningForSize(), policy=RunnerPolicy(runner)
    )
    reader = TrainingLogReader(io.BytesIO(file.getvalue()))
    assert [spec.name for spec in reader.header.features[-3:]] == [
        "inlining_default",
        "logits",
        "inlining_decision",
    ]
    assert reader.header.score == score
    records = list(reader)
    assert len(records) == result.decisions
    for record in records:
        logits = record.observation["logits"][0]
        assert int(record.observation["inlining_decision"][0]) == int(logits.argmax())


def test_scores_in_the_log() -> None:
    file = io.BytesIO()
    score = TensorSpec("delta_size", "int64_t", (1,))
    with ModelUnderTrainingRunner(
        MODEL, FEATURES, ADVICE, training_log=file, score=score
    ) as runner:
        runner.switch_context("f")
        with pytest.raises(TrainingLogError, match="expected an observation before its outcome"):
            runner.log_score(1)
        runner.evaluate()
        runner.log_score(-7)
    (record,) = TrainingLogReader(io.BytesIO(file.getvalue()))
    assert record.score is not None
    assert record.score.tolist() == [-7]
    with make(FEATURES, ADVICE) as silent, pytest.raises(UsageError, match="has no training log"):
        silent.log_score(1)


def test_a_newer_model_counts_from_the_next_runner(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    old = ModelUnderTrainingRunner(folder, FEATURES, ADVICE)
    graph = (folder / "model.tflite").read_bytes()
    (folder / "model.tflite").unlink()
    (folder / "model.tflite").write_bytes(_negated(graph))
    new = ModelUnderTrainingRunner(folder, FEATURES, ADVICE)
    for runner in (old, new):
        for index in range(len(FEATURES)):
            runner.get_tensor(index)[0] = index * index
        runner.evaluate()
    before, after = (runner.extra_outputs()["logits"][0].tolist() for runner in (old, new))
    assert before[0] != before[1]
    assert after == before[::-1]
    for runner in (old, new):
        runner.close()


def _negated(graph: bytes) -> bytes:
    """The same graph with the columns of the last layer's weights swapped."""
    weights = np.random.default_rng(5)
    weights.normal(0, 0.3, (38, 16))
    last = weights.normal(0, 0.3, (16, 2)).astype(np.float32).T
    stored = np.ascontiguousarray(last).tobytes()
    assert graph.count(stored) == 1
    return graph.replace(stored, np.ascontiguousarray(last[::-1]).tobytes())


def _broken(folder: Path, spec: object = None, graph: bytes | None = None) -> Path:
    shutil.copytree(MODEL, folder, dirs_exist_ok=True)
    if spec is not None:
        text = spec if isinstance(spec, str) else json.dumps(spec)
        (folder / "output_spec.json").write_text(text)
    if graph is not None:
        (folder / "model.tflite").write_bytes(graph)
    return folder


def _output(**changes: object) -> dict[str, object]:
    spec = {"name": "StatefulPartitionedCall", "port": 0, "type": "int64_t", "shape": [1]}
    return {"logging_name": "inlining_decision", "tensor_spec": spec | changes}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "{",
            "output_spec.json: expected JSON: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1)",
        ),
        ("{}", "output_spec.json: expected a list of outputs, found {}"),
        ([3], "output_spec.json: expected a logging_name, found 3"),
        (
            [_output() | {"logging_name": "index_to_evict"}],
            "expected the decision 'inlining_decision' as the first output, found 'index_to_evict'",
        ),
        (
            [_output(type="float")],
            "decision 'inlining_decision': expected int64_t [1], found float [1]",
        ),
        (
            [_output(name="gone")],
            "expected an output 'gone:0', found 'StatefulPartitionedCall:0', "
            "'StatefulPartitionedCall:1'",
        ),
        (
            [_output(), _output(port=1)],
            "output 'inlining_decision': expected int64 [1], found float32 [1, 2]",
        ),
    ],
)
def test_output_specs_that_cannot_be(tmp_path: Path, spec: object, message: str) -> None:
    folder = _broken(tmp_path / "model", spec)
    with pytest.raises(ModelError) as caught:
        ModelUnderTrainingRunner(folder, FEATURES, ADVICE)
    assert str(caught.value) == f"model '{folder}': {message}"


def test_models_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as nothing:
        ModelUnderTrainingRunner(tmp_path, FEATURES, ADVICE)
    assert str(nothing.value) == (
        f"model '{tmp_path}': output_spec.json cannot be read: No such file or directory"
    )
    folder = _broken(tmp_path / "model")
    (folder / "model.tflite").unlink()
    with pytest.raises(ModelError) as no_graph:
        ModelUnderTrainingRunner(folder, FEATURES, ADVICE)
    assert str(no_graph.value) == f"model '{folder}': expected model.tflite in it, found none"


def test_a_graph_that_is_none(tmp_path: Path) -> None:
    folder = _broken(tmp_path / "model", graph=b"not a flatbuffer")
    with pytest.raises(ModelError, match=r"TFLite cannot load model\.tflite: "):
        ModelUnderTrainingRunner(folder, FEATURES, ADVICE)


def test_inputs_that_do_not_fit(tmp_path: Path) -> None:
    model = _broken(tmp_path / "model")
    (model / "card.json").unlink()
    without = [spec for spec in FEATURES if spec.name != "threshold"]
    with pytest.raises(ModelError) as missing:
        ModelUnderTrainingRunner(model, without, ADVICE)
    assert str(missing.value) == (
        f"model '{model}': needs inputs that are not offered: 'threshold'"
    )
    floats = [
        TensorSpec(spec.name, "float" if spec.name == "threshold" else spec.type, spec.shape)
        for spec in FEATURES
    ]
    with pytest.raises(ModelError) as other:
        ModelUnderTrainingRunner(model, floats, ADVICE)
    assert str(other.value) == (
        f"model '{model}': input 'threshold': expected float32 [1], found int64 [1]"
    )


def test_no_tflite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_interpreter, "INTERPRETERS", ("no_such_package.interpreter",))
    with pytest.raises(EnvironmentSetupError) as caught:
        ModelUnderTrainingRunner(MODEL, FEATURES, ADVICE)
    assert str(caught.value) == (
        "models under training: need TFLite; run: pip install 'mlgo-gym[tflite]'"
    )
