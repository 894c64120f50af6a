"""Options that commands share, and what commands tell the shell."""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mlgo_gym.cli._doctor import _DISTRIBUTIONS, _EXTRAS, _check_extra
from mlgo_gym.cli._main import main
from mlgo_gym.cli._values import above_zero
from mlgo_gym.cli.dataset._export import _finite
from tests.cli.command import run

MODELS = Path(__file__).parents[1] / "models"


@pytest.mark.parametrize(("text", "value"), [("2", 2.0), ("1e-3", 0.001), ("inf", float("inf"))])
def test_numbers_above_zero(text: str, value: float) -> None:
    assert above_zero(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "nan", "two", ""])
def test_numbers_that_are_not(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as error:
        above_zero(text)
    assert str(error.value) == f"expected a number above 0, found {text!r}"


@pytest.mark.parametrize("text", ["nan", "inf", "none"])
def test_numbers_that_are_not_finite(text: str) -> None:
    assert _finite("-0.5") == -0.5
    with pytest.raises(argparse.ArgumentTypeError) as error:
        _finite(text)
    assert str(error.value) == f"expected a number, found {text!r}"


def test_a_policy_and_a_model(small_folder: Path, tmp_path: Path) -> None:
    arguments = ("--policy", "never", "--model", MODELS / "never")
    done = run("rollout", "--corpus", small_folder, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "mlgo-gym: error: expected --policy or --model, found both\n",
    )


@pytest.mark.parametrize(
    "words", ["evaluate --plots=", "freeze --output=", "corpus verify --clang=", "profile show ''"]
)
def test_a_value_that_is_empty(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A variable that is not set is no folder, above all not the current one."""
    with pytest.raises(SystemExit):
        main(shlex.split(words))
    assert "expected a value, found ''" in capsys.readouterr().err


def test_what_an_extra_brings() -> None:
    found = _check_extra("plots", "plot", "no_such_package", "numpy")
    assert (found.is_ok, found.is_required) == (True, False)
    assert found.found.startswith("numpy ")
    found = _check_extra("plots", "plot", "no_such_package", "no_other")
    assert (found.name, found.is_ok, found.is_required) == ("plots", False, False)
    assert found.found == "needs no_such_package; run: pip install 'mlgo-gym[plot]'"


@pytest.mark.parametrize("name", sorted(_EXTRAS.keys() - {"training"}))
def test_the_extra_that_is_advised_brings_the_package(name: str) -> None:
    """By the package's own metadata; only Keras, for training, comes by way of TensorFlow."""
    extra, package, *_ = _EXTRAS[name]
    needed = {
        Requirement(each).name
        for each in requires("mlgo-gym") or ()
        if (marker := Requirement(each).marker) and marker.evaluate({"extra": extra})
    }
    assert _DISTRIBUTIONS.get(package, package.replace("_", "-")) in needed


def test_a_reader_that_has_seen_enough() -> None:
    """Of a pipe whose other end is closed: status 1, and nothing is said."""
    reader, writer = os.pipe()
    os.close(reader)
    errors = io.StringIO()
    pipe = io.TextIOWrapper(io.FileIO(writer, "w"), "utf-8", write_through=True)
    with pipe, redirect_stdout(pipe), redirect_stderr(errors):
        assert main(["corpus", "recipes", "--json"]) == 1
    assert errors.closed


def test_a_doctor_without_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    done = run("doctor", "--json", cwd=tmp_path)
    checks = {each["name"]: each for each in json.loads(done.stdout)}
    assert done.returncode == 1
    assert not checks["embedded LLVM"]["is_ok"]
    assert checks["embedded LLVM"]["found"].startswith("worker: cannot start /nowhere/python: ")
    assert "ML inline advisor" not in checks
