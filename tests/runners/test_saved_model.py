"""Models as TensorFlow saves them: look-alikes of the released ones, in every mode."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import EnvironmentSetupError, MlgoGymError, ModelError, OptionsError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.model import freeze
from mlgo_gym.problems import InliningForSize, Problem, RegallocEviction
from mlgo_gym.rollout._rollout import Decision, RecordingPolicy
from mlgo_gym.runners import ModelUnderTrainingRunner, ReleaseModeModelRunner
from tests.runners.saved import saved_model

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[type[Problem], Path]:
    folder = tmp_path_factory.mktemp("saved")
    return {kind: saved_model(kind, folder) for kind in (InliningForSize, RegallocEviction)}


@pytest.mark.parametrize("kind", [InliningForSize, RegallocEviction])
def test_runners_agree(
    kind: type[Problem],
    models: dict[type[Problem], Path],
    compiler: Compiler,
    sample: Corpus,
    tmp_path: Path,
) -> None:
    """In release mode, frozen, and under training; features are found by their names."""
    model, problem = models[kind], kind()
    freeze(model, tmp_path / "frozen", name="saved", trusted=True)
    inputs, advice = problem.layout.specs, kind.advice
    decisions: list[Decision] = []
    for name in ("digest.c", "scene.cpp", "bignum.c"):
        watched = RecordingPolicy(problem.policy("random", 1), problem, decisions)
        compiler.compile_module(sample[name], problem=problem, policy=watched)
    with (
        ReleaseModeModelRunner(model, inputs, advice, trusted=True) as native,
        ReleaseModeModelRunner(tmp_path / "frozen", inputs, advice) as frozen,
        ModelUnderTrainingRunner(model, inputs, advice, trusted=True) as tflite,
    ):
        answers = []
        for each in decisions:
            found = []
            for runner in (native, frozen, tflite):
                runner.fill(each.payload)
                found.append(int(runner.evaluate()[0]))
            answers.append(found)
    assert len(answers) > 20
    assert all(len(set(found)) == 1 for found in answers)
    assert len({found[0] for found in answers}) > 1


def test_what_is_refused(
    models: dict[type[Problem], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, advice = InliningForSize().layout.specs, InliningForSize.advice
    model = models[InliningForSize]

    def refusal(kind: type[MlgoGymError], folder: Path, *, trusted: bool) -> str:
        with pytest.raises(kind) as error:
            ReleaseModeModelRunner(folder, inputs, advice, trusted=trusted)
        return str(error.value)

    assert refusal(OptionsError, model, trusted=False) == (
        f"model {str(model)!r}: expected model.tflite, found a SavedModel, which TensorFlow would "
        "run as this user; if you trust it, pass --trust-code (in Python trusted=True, for mlgo-cc "
        "MLGO_TRUST_CODE=1)"
    )
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "saved_model.pb").write_bytes(b"\xff" * 99)
    assert refusal(ModelError, broken, trusted=True).startswith(
        f"model {str(broken)!r}: TensorFlow cannot convert saved_model.pb: "
    )
    (tmp_path / "tensorflow.py").write_text('raise ModuleNotFoundError("No module")')
    paths = [str(tmp_path), *filter(None, sys.path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    assert refusal(EnvironmentSetupError, model, trusted=True) == (
        f"model {str(model)!r}: expected TensorFlow, which converts a SavedModel, found none; pip "
        "install 'mlgo-gym[train]' brings it"
    )
