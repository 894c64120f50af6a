"""A frozen model's code by operators: named in DWARF, added up, and otherwise the same."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from mlgo_gym.corpus import function_sizes
from mlgo_gym.errors import ModelError
from mlgo_gym.model import compile_model, find_model, freeze
from mlgo_gym.model._model import NativeModel

GRAPH = Path(find_model("inlining-for-size"), "model.tflite")


@pytest.fixture(scope="module")
def profiled() -> NativeModel:
    return compile_model(GRAPH, trusted=True, profile=True)


def code_of(data: bytes) -> bytes:
    (found,) = (each for each in ELFFile(io.BytesIO(data)).iter_sections() if each.name == ".text")
    return bytes(found.data())


def test_the_code_is_the_same(profiled: NativeModel) -> None:
    plain = compile_model(GRAPH, trusted=True)
    assert plain.code == ()
    assert code_of(profiled.object.data) == code_of(plain.object.data)
    assert b"debug" not in plain.object.data
    inputs = [np.ones(port.spec.shape, port.spec.dtype) for port in plain.inputs]
    answers = []
    for model in (plain, profiled):
        outputs = [np.zeros(port.spec.shape, port.spec.dtype) for port in model.outputs]
        with model.bind(inputs, outputs) as bound:
            assert bound.call() == 0
        answers.append([each.tobytes() for each in outputs])
    assert answers[0] == answers[1]


def test_parts_add_up(profiled: NativeModel) -> None:
    assert sum(each.instructions for each in profiled.code) == profiled.instructions
    function = function_sizes(profiled.object.data)["model_evaluate"]
    assert sum(each.size_bytes for each in profiled.code) == function.size_bytes
    *parts, rest = profiled.code
    assert (rest.number, rest.name) == (None, "inputs and outputs")
    assert {each.number for each in parts} == set(range(len(profiled.operators)))
    for each in parts:
        assert each.name in {profiled.operators[each.number or 0], "relu"}


def test_a_fused_layer_shows_what_it_is_made_of(profiled: NativeModel) -> None:
    first = profiled.operators.index("FULLY_CONNECTED")
    dense, relu = (each for each in profiled.code if each.number == first)
    assert (dense.name, relu.name) == ("FULLY_CONNECTED", "relu")
    assert {"dense_1/MatMul", "dense_1/Relu"} <= {*dense.origins}
    assert dense.instructions > relu.instructions > 0
    assert dense.size_bytes > relu.size_bytes > 0


def test_profilers_see_names(profiled: NativeModel) -> None:
    units = ELFFile(io.BytesIO(profiled.object.data)).get_dwarf_info().iter_CUs()
    names = {
        entry.attributes["DW_AT_name"].value.decode()
        for unit in units
        for entry in unit.iter_DIEs()
        if entry.tag == "DW_TAG_subprogram" and "DW_AT_name" in entry.attributes
    }
    assert {"FULLY_CONNECTED", "relu", "model_evaluate"} <= names


def test_of_other_objects_there_is_none(tmp_path: Path) -> None:
    message = r"profile: expected an ELF object with DWARF, found Magic number does not match$"
    with pytest.raises(ModelError, match=message):
        freeze(GRAPH, tmp_path, name="model", target="x86_64-pc-windows-msvc", profile=True)
    assert list(tmp_path.iterdir()) == []
