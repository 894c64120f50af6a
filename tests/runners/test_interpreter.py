"""Graphs that end TFLite's process, or its time, end an evaluation and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mlgo_gym.base._tensor_spec import TensorSpec
from mlgo_gym.errors import ModelError
from mlgo_gym.problems import InliningForSize
from mlgo_gym.runners import ModelUnderTrainingRunner, _interpreter, runner_factory
from mlgo_gym.runners._interpreter import MAX_TENSORS_BYTES, ChildInterpreter
from tests.model.graphs import Sketch

FINDINGS = Path(__file__).parents[1] / "model" / "findings"
MODEL = Path(__file__).parents[1] / "models" / "inliner"
XNNPACK = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU."
SENT, ADVICE = InliningForSize().layout.specs, InliningForSize.advice


@pytest.fixture(autouse=True)
def _tflite() -> None:
    _interpreter.interpreter_class()


def integer(name: str) -> TensorSpec:
    return TensorSpec(name, "int32_t", (1,))


def model_of(graph: Path, folder: Path) -> Path:
    shutil.copytree(MODEL, folder)
    shutil.copy(graph, folder / "model.tflite")
    return folder


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("no-subgraph", -signal.SIGSEGV, "it said nothing"),
        ("split", -signal.SIGSEGV, XNNPACK),
    ],
)
def test_graphs_that_end_tflite_as_they_are_loaded(
    name: str, status: int, words: str, tmp_path: Path
) -> None:
    graph = FINDINGS / f"ends-tflite-{name}.tflite"
    model = model_of(graph, tmp_path / "model")
    make = runner_factory(str(model), "under-training")
    with pytest.raises(ModelError) as caught:
        make(SENT, ADVICE)
    assert str(caught.value) == (
        f"model '{model}': TFLite ended with status {status} when told to load model.tflite: "
        f"{words}"
    )
    # Who trusts it does so at the own risk: the same graph ends the process that evaluates it.
    code = (
        "import sys; from pathlib import Path; from mlgo_gym.runners._interpreter import load_here;"
        "load_here(Path(sys.argv[1]), 'm')"
    )
    assert subprocess.run([sys.executable, "-c", code, graph], check=False).returncode == status


def test_a_graph_that_ends_tflite_as_it_is_evaluated() -> None:
    child = ChildInterpreter(FINDINGS / "ends-tflite-rank-9.tflite", "m")
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            child.invoke()
        assert str(caught.value) == (
            f"model 'm': TFLite ended with status {-signal.SIGABRT} when told to evaluate "
            f"ends-tflite-rank-9.tflite: {XNNPACK}"
        )
    child.close()
    child.close()


def test_waiting_has_an_end() -> None:
    graph = MODEL / "model.tflite"
    with pytest.raises(ModelError) as slow:
        ChildInterpreter(graph, "m", 0.001)
    assert str(slow.value) == "model 'm': TFLite did not load model.tflite within 0.001 s"
    child = ChildInterpreter(graph, "m")
    child._link.settimeout(0.1)
    os.kill(child._process.pid, signal.SIGSTOP)
    with pytest.raises(ModelError, match=r"^model 'm': TFLite did not evaluate model\.tflite with"):
        child.invoke()
    child.close()


def test_the_child_is_confined() -> None:
    held = subprocess.run(
        [sys.executable, "-c", "from corpus_tools import sandbox; print(sandbox.confine())"],
        capture_output=True,
        text=True,
        check=True,
    )
    child = ChildInterpreter(MODEL / "model.tflite", "m")
    lines = Path(f"/proc/{child._process.pid}/status").read_text().splitlines()
    child.close()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == ("0" if "no seccomp" in held.stdout else "2")


@pytest.mark.parametrize("trusted", [False, True])
def test_an_evaluation_that_fails_is_an_error_and_no_end(trusted: bool, tmp_path: Path) -> None:
    """TFLite refuses to divide by zero, and goes on."""
    sketch = Sketch(lambda _: 0)
    for _ in range(2):
        sketch.input((1,), "int32", 1)
    sketch.step("DIV", sketch.inputs, (1,), ("DivOptions", {}))
    (tmp_path / "model.tflite").write_bytes(sketch.graph().data)
    tensor = {"name": "t2", "port": 0, "type": "int32_t", "shape": [1]}
    (tmp_path / "output_spec.json").write_text(
        json.dumps([{"logging_name": "t2", "tensor_spec": tensor}])
    )
    inputs = [integer(name) for name in ("t0", "t1")]
    with ModelUnderTrainingRunner(tmp_path, inputs, integer("t2"), trusted=trusted) as runner:
        runner.get_tensor(0)[0] = 7
        with pytest.raises(ModelError) as caught:
            runner.evaluate()
        assert str(caught.value).startswith(
            f"model '{tmp_path}': TFLite cannot evaluate model.tflite: "
        )
        runner.get_tensor(1)[0] = 2
        assert runner.evaluate().tolist() == [3]


def test_vast_inputs_are_not_allocated(tmp_path: Path) -> None:
    sketch = Sketch(lambda _: 0)
    sketch.input((1 << 26,), "float32", 1.0)
    sketch.step("RESHAPE", [sketch.inputs[0], sketch.constant([1 << 13, 1 << 13])],
                (1 << 13, 1 << 13), ("ReshapeOptions", {}))  # fmt: skip
    graph = tmp_path / "model.tflite"
    graph.write_bytes(sketch.graph().data)
    with pytest.raises(ModelError) as caught:
        ChildInterpreter(graph, "m")
    assert str(caught.value) == (
        f"model 'm': expected inputs of at most {MAX_TENSORS_BYTES} bytes, found {1 << 28}; "
        "a model that is trusted (--trust-code) may have more"
    )


def test_a_graph_is_read_as_other_files_are(tmp_path: Path) -> None:
    graph = tmp_path / "model.tflite"
    with graph.open("wb") as file:
        file.truncate(6 << 30)
    with pytest.raises(ModelError) as caught:
        ChildInterpreter(graph, "m")
    assert str(caught.value) == (
        f"model 'm': model.tflite: expected at most {1 << 28} bytes, found {6 << 30}"
    )


@pytest.mark.parametrize("trusted", [False, True])
def test_a_graph_of_scalars(tmp_path: Path, trusted: bool) -> None:
    """TFLite gives copies of them, into which nobody can write."""
    sketch = Sketch(lambda _: 0)
    sketch.input((), "int32", 1)
    sketch.step("RESHAPE", [sketch.inputs[0], sketch.constant([1])], (1,), ("ReshapeOptions", {}))
    (tmp_path / "model.tflite").write_bytes(sketch.graph().data)
    tensor = {"name": "t2", "port": 0, "type": "int32_t", "shape": [1]}
    (tmp_path / "output_spec.json").write_text(
        json.dumps([{"logging_name": "t2", "tensor_spec": tensor}])
    )
    with pytest.raises(ModelError) as caught:
        ModelUnderTrainingRunner(tmp_path, [integer("t0")], integer("t2"), trusted=trusted)
    assert str(caught.value) == (
        f"model '{tmp_path}': TFLite cannot load model.tflite: tensor 't0': expected a shape such "
        "as [1], found none"
    )
