"""Frozen models: a C program against object and header, and everything that can be wrong."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_gym.errors import EnvironmentSetupError, ModelError
from mlgo_gym.model._freeze import freeze, load_frozen
from mlgo_gym.model._model import compile_model
from tests.model.agreement import Both, assert_agree
from tests.model.make_models import FOLDER

MODELS = Path(__file__).parents[1] / "models"
CC = shutil.which("cc") or shutil.which("gcc")
PROGRAM = r"""
#include "policy.h"
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  static char memory[POLICY_INPUT_COUNT + POLICY_OUTPUT_COUNT][4096];
  const void *inputs[POLICY_INPUT_COUNT];
  void *outputs[POLICY_OUTPUT_COUNT];
  for (int i = 0; i < POLICY_INPUT_COUNT; ++i) inputs[i] = memory[i];
  for (int i = 0; i < POLICY_OUTPUT_COUNT; ++i) outputs[i] = memory[POLICY_INPUT_COUNT + i];
  for (;;) {
    for (int i = 0; i < POLICY_INPUT_COUNT; ++i)
      if (fread(memory[i], 1, policy_inputs[i].size_bytes, stdin) != policy_inputs[i].size_bytes)
        return 0;
    int32_t status = policy_evaluate(inputs, outputs);
    if (status) { fprintf(stderr, "operator %d\n", status - 1); return 1; }
    for (int i = 0; i < POLICY_OUTPUT_COUNT; ++i)
      fwrite(outputs[i], 1, policy_outputs[i].size_bytes, stdout);
  }
}
"""


@pytest.mark.skipif(CC is None, reason="needs a C compiler: apt-get install gcc")
@pytest.mark.parametrize("name", ["dense", "embedding", "candidates"])
def test_a_c_program_gives_the_same_answers(name: str, tmp_path: Path) -> None:
    path = FOLDER / f"{name}.tflite"
    freeze(path, tmp_path, name="policy")
    (tmp_path / "main.c").write_text(PROGRAM)
    command = [
        str(CC),
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "main.c",
        "policy.o",
        "-o",
        "main",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    both = Both(path, compile_model(path, trusted=True))
    random = np.random.default_rng(3)
    rows, expected = [], []
    with both.bound:
        for _ in range(200):
            values = [
                random.integers(0, 12, port.spec.shape).astype(port.spec.dtype)
                for port in both.native.inputs
            ]
            found, reference = both.run(values)
            assert_agree(found, reference, 1e-4)
            rows.append(b"".join(value.tobytes() for value in values))
            expected.append(b"".join(value.tobytes() for value in found))
    done = subprocess.run(
        [str(tmp_path / "main")], input=b"".join(rows), capture_output=True, check=True
    )
    assert done.stdout == b"".join(expected)


@pytest.mark.skipif(CC is None, reason="needs a C compiler: apt-get install gcc")
def test_what_a_linker_leaves_goes_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real one is told of a temporary folder that is gone afterwards."""
    seen, linker = tmp_path / "seen", tmp_path / "bin" / "cc"
    linker.parent.mkdir()
    linker.write_text(f'#!/bin/sh\necho "$TMPDIR" > {seen}\nexec {shutil.which("cc")} "$@"\n')
    linker.chmod(0o755)
    monkeypatch.setenv("PATH", str(linker.parent), prepend=os.pathsep)
    assert freeze(FOLDER / "dense.tflite", tmp_path / "frozen", name="inliner").shared_library
    told = Path(seen.read_text().strip())
    assert told.parent != tmp_path
    assert not told.exists()


@pytest.mark.skipif(CC is None, reason="needs a C compiler: apt-get install gcc")
def test_shared_library(tmp_path: Path) -> None:
    files = freeze(FOLDER / "sum_int64.tflite", tmp_path, name="policy")
    assert files.shared_library is not None
    library = ctypes.CDLL(str(files.shared_library))
    given = np.arange(12, dtype=np.int64).reshape(4, 3)
    answer = np.zeros(3, np.int64)
    status = library.policy_evaluate(
        (ctypes.c_void_p * 1)(given.ctypes.data), (ctypes.c_void_p * 1)(answer.ctypes.data)
    )
    assert status == 0
    np.testing.assert_array_equal(answer, given.sum(0))


def test_files_and_description(tmp_path: Path) -> None:
    files = freeze(FOLDER / "dense.tflite", tmp_path / "new", name="policy", trusted=True)
    left = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert left == sorted(
        {"policy.h", "policy.json", "policy.o"} | ({"policy.so"} if CC else set())
    )
    native, output_spec = load_frozen(tmp_path / "new")
    again, _ = load_frozen(files.description)
    assert native.object == again.object
    assert output_spec is None
    assert native.inputs == compile_model(FOLDER / "dense.tflite", trusted=True).inputs
    described = json.loads(files.description.read_text())
    assert described["format"] == "mlgo-gym native model"
    assert described["llvm_version"].startswith("2")


def test_a_machine_without_a_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    files = freeze(FOLDER / "dense.tflite", tmp_path / "out", name="policy")
    assert files.shared_library is None
    assert not (tmp_path / "out" / "policy.so").exists()


def test_a_linker_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linker = tmp_path / "cc"
    linker.write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    linker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(EnvironmentSetupError) as caught:
        freeze(FOLDER / "dense.tflite", tmp_path / "out", name="policy", trusted=True)
    assert str(caught.value) == f"{linker} cannot link policy.o: no room"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["policy.h", "policy.o"]


def test_named_cpu(tmp_path: Path) -> None:
    files = freeze(FOLDER / "dense.tflite", tmp_path, name="policy", cpu="generic")
    assert json.loads(files.description.read_text())["cpu"] == "generic"
    with pytest.raises(ModelError) as caught:
        freeze(FOLDER / "dense.tflite", tmp_path, name="policy", cpu="z80")
    assert str(caught.value) == (
        f"model '{FOLDER / 'dense.tflite'}': expected a CPU that LLVM knows, found 'z80'"
    )


def test_name_is_an_identifier(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        freeze(FOLDER / "dense.tflite", tmp_path, name="a-b")
    assert str(caught.value) == "model 'a-b': expected a C identifier as name, found 'a-b'"


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentSetupError) as caught:
        freeze(FOLDER / "dense.tflite", tmp_path / "file", name="policy", trusted=True)
    assert str(caught.value).startswith(f"cannot write to {tmp_path}/file: ")


def _set(key: str, value: Any) -> Any:
    def change(folder: Path) -> None:
        path = folder / "policy.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda folder: (folder / "policy.o").unlink(),
            "expected one frozen model in the folder",
        ),
        (
            lambda folder: (folder / "policy.json").write_text("{"),
            "policy.json: expected JSON: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1)",
        ),
        (
            lambda folder: (folder / "policy.json").write_text("{}"),
            "policy.json: not a frozen model: KeyError('format')",
        ),
        (
            lambda folder: (folder / "policy.o").write_bytes(b"\x7fELF"),
            "policy.o: not the object that policy.json describes",
        ),
        (
            _set("version", 2),
            "policy.json: expected format 'mlgo-gym native model' 1, "
            "found 'mlgo-gym native model' 2",
        ),
        (
            _set("instructions", "many"),
            "policy.json: expected a number of instructions, found 'many'",
        ),
        (_set("features", "+time-travel"), "made for generic: this CPU lacks time-travel"),
        (
            _set("inputs", [{"tensor": "x", "spec": {"name": "x"}}]),
            "policy.json: not a frozen model: SpecError(\"tensor spec 'x': expected the "
            'properties name, type, port and shape, found no type, port, shape")',
        ),
    ],
)
def test_damaged_files(change: Any, message: str, tmp_path: Path) -> None:
    freeze(FOLDER / "dense.tflite", tmp_path, name="policy", cpu="generic")
    change(tmp_path)
    with pytest.raises(ModelError) as caught:
        load_frozen(tmp_path)
    assert str(caught.value) == f"model '{tmp_path}': {message}"


def test_made_for_another_machine(tmp_path: Path) -> None:
    freeze(FOLDER / "dense.tflite", tmp_path, name="policy", trusted=True)
    _set("triple", "z80-unknown-none")(tmp_path)
    with pytest.raises(ModelError) as caught:
        load_frozen(tmp_path)
    assert str(caught.value).endswith("found one for z80-unknown-none")


def test_what_no_object_was_made_of(tmp_path: Path) -> None:
    """A description of other values, an object that is gone, and one that is none."""
    freeze(FOLDER / "dense.tflite", tmp_path, name="policy", trusted=True)
    path = tmp_path / "policy.json"
    described = json.loads(path.read_text())
    _set("name", 5)(tmp_path)
    with pytest.raises(ModelError) as caught:
        load_frozen(path)
    assert str(caught.value).startswith(f"model '{path}': policy.json: expected texts, found {{")
    path.write_text(json.dumps(described))
    (tmp_path / "policy.o").unlink()
    with pytest.raises(ModelError) as caught:
        load_frozen(path)
    assert str(caught.value) == (
        f"model '{path}': policy.o cannot be read: No such file or directory"
    )


def test_what_a_model_needs_besides_comes_along(tmp_path: Path) -> None:
    """Its card, and the file that names its own setting; a stranger's card leads nowhere else."""
    model = shutil.copytree(MODELS / "short", tmp_path / "in" / "model")
    about = json.loads((model / "card.json").read_text())
    settings = {"ir2vec": "ir2vec.json", "../secret": "../secret.json", "other": "x.json"}
    settings["policy"] = "policy.json"  # the name of the description
    (model / "card.json").write_text(json.dumps(about | {"settings": settings}))
    with pytest.raises(ModelError) as caught:
        freeze(model, tmp_path / "out" / "frozen", name="policy")
    problem = "ir2vec.json cannot be read: No such file or directory"
    assert str(caught.value) == f"model '{model}': {problem}"
    for name in ("ir2vec.json", "../secret.json", "x.json", "policy.json"):
        (model / name).write_text(name)
    freeze(model, tmp_path / "out" / "frozen", name="policy")
    load_frozen(tmp_path / "out" / "frozen")
    made = {each.name for each in (tmp_path / "out").rglob("*.json")}
    assert made == {"policy.json", "card.json", "ir2vec.json"}
    assert (tmp_path / "out" / "frozen" / "ir2vec.json").read_text() == "ir2vec.json"


def test_what_a_model_needs_is_not_anybodys(tmp_path: Path) -> None:
    """A link out of the model is not followed: it may lead to what the user alone may read."""
    model = shutil.copytree(MODELS / "short", tmp_path / "in" / "model")
    about = json.loads((model / "card.json").read_text())
    settings = {"ir2vec": "ir2vec.json"}
    (model / "card.json").write_text(json.dumps(about | {"settings": settings}))
    (tmp_path / "secret").write_text("{}")
    (model / "ir2vec.json").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError) as caught:
        freeze(model, tmp_path / "out", name="policy")
    assert str(caught.value) == (
        f"model '{model}': ir2vec.json cannot be read: expected a file in '{model}', found a link "
        f"to {tmp_path / 'secret'}"
    )
    assert not (tmp_path / "out").exists()
