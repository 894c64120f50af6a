"""The C of a model gives the object's answers, whoever compiles it; names that C cannot use."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.errors import EnvironmentSetupError, ModelError
from mlgo_gym.model._emit_c import lower_to_c
from mlgo_gym.model._graph import Graph
from mlgo_gym.model._model import compile_model
from mlgo_gym.model._tflite_reader import port_name, read_tflite
from tests.model.agreement import Array, buffers
from tests.model.c_files import COMPILERS, CModel, compile_shared, emitted
from tests.model.make_models import FOLDER
from tests.model.test_agreement import MODELS, draw
from tests.model.test_limits import long_chain

FEW = ["candidates", "dense", "embedding"]
CPUS = {"x86-64": "-march=x86-64", "haswell": "-march=haswell"}
"""Without and with instructions that multiply and add in one step."""

compilers = pytest.mark.parametrize("compiler", sorted(COMPILERS))
needs_compilers = pytest.mark.skipif(not COMPILERS, reason="needs gcc or clang-22")


def agree(found: list[Array], expected: list[Array]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(np.signbit(one), np.signbit(other))


def compare(name: str, compiler: str, cpu: str, folder: Path) -> None:
    path = FOLDER / f"{name}.tflite"
    library = compile_shared(compiler, emitted(path, folder), CPUS[cpu])
    native = compile_model(path, cpu=cpu)
    given, expected = buffers(native.inputs), buffers(native.outputs)
    mine = CModel(library, given, buffers(native.outputs))
    random = np.random.default_rng(7)
    with native.bind(given, expected) as bound:
        for _ in range(100):
            for buffer, port in zip(given, native.inputs, strict=True):
                buffer[...] = draw(random, name, port.spec)
            assert bound.call() == mine.call() == 0
            agree(mine.outputs, expected)


@needs_compilers
@compilers
@pytest.mark.parametrize("name", FEW)
def test_answers_are_the_objects(name: str, compiler: str, tmp_path: Path) -> None:
    compare(name, compiler, "haswell", tmp_path)


@needs_compilers
@pytest.mark.e2e
@compilers
@pytest.mark.parametrize("cpu", sorted(CPUS))
@pytest.mark.parametrize("name", MODELS)
def test_answers_are_the_objects_for_every_operator(
    name: str, cpu: str, compiler: str, tmp_path: Path
) -> None:
    compare(name, compiler, cpu, tmp_path)


def renamed(name: str) -> Graph:
    read = read_tflite(FOLDER / "dense.tflite")
    return dataclasses.replace(
        read, inputs=(dataclasses.replace(read.inputs[0], name=name), *read.inputs[1:])
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("2nd", "a character that no identifier has, or too many"),
        ("a b", "a character that no identifier has, or too many"),
        ("naïve", "a character that no identifier has, or too many"),
        ("", "a character that no identifier has, or too many"),
        ("x" * 202, "a character that no identifier has, or too many"),
        ("while", "a keyword of C"),
        ("bool", "a keyword of C"),
        ("inputs", "a name that the file itself may use"),
        ("t_1", "a name that the file itself may use"),
        ("_Atomic", "a name that the file itself may use"),
        ("int64_t", "a name that the file itself may use"),
        ("policy_exp", "a name that the file itself may use"),
    ],
)
def test_names_that_c_cannot_use(name: str, found: str) -> None:
    with pytest.raises(ModelError) as caught:
        lower_to_c(renamed(name), name="policy", sha256="")
    source = renamed(name).source
    expected = "expected a name that C can use as a variable's"
    assert str(caught.value) == f"model '{source}': feature {name!r}: {expected}, found {found}"


def test_two_features_of_one_name() -> None:
    """What a converter puts around a name is no part of it."""
    read = read_tflite(FOLDER / "dense.tflite")
    first, second = (port_name(name) for name in ("action_users:0", "serving_default_users:0"))
    one, other, *rest = read.inputs
    one, other = (dataclasses.replace(one, name=first), dataclasses.replace(other, name=second))
    ports = (one, other, *rest)
    with pytest.raises(ModelError) as caught:
        dataclasses.replace(read, inputs=ports)
    names = [port.name for port in ports]
    assert str(caught.value) == (
        f"model '{read.source}': expected inputs with different names, found {names}"
    )


def test_nothing_ends_a_comment() -> None:
    graph = read_tflite(FOLDER / "dense.tflite")
    tensors = tuple(
        dataclasses.replace(each, name=f"*/ int x;\n#error {number} \\")
        for number, each in enumerate(graph.tensors)
    )
    text = lower_to_c(dataclasses.replace(graph, tensors=tensors), name="policy", sha256="")
    assert "/* Operator 0: CAST ?? int x;??error " in text
    assert "#error" not in text


@pytest.mark.parametrize("name", ["candidates"])
def test_a_file_reads_well(name: str, tmp_path: Path) -> None:
    """Features by name, weights as tables, loops over operators: all there is."""
    text = emitted(FOLDER / f"{name}.tflite", tmp_path).read_text()
    assert "  const int64_t *const mask = inputs[2];\n" in text
    assert "/* Tensordot;Relu: weights, 3 x 24 */\nstatic _Alignas(64) const float c_1[72]" in text
    assert "    t_5[i_6] = mask[i_6] > c_0[0];\n" in text
    assert all(len(line) <= 110 for line in text.splitlines())
    header = (tmp_path / "policy.h").read_text()
    assert "  policy_in_mask = 2,\n" in header


@needs_compilers
@compilers
def test_a_function_that_fails_says_where(compiler: str, tmp_path: Path) -> None:
    library = compile_shared(compiler, emitted(FOLDER / "div_int32.tflite", tmp_path))
    native = compile_model(FOLDER / "div_int32.tflite", trusted=True)
    given, made = buffers(native.inputs), buffers(native.outputs)
    with native.bind(given, made) as bound:
        assert bound.call() == CModel(library, given, made).call() == 1


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentSetupError) as caught:
        emitted(FOLDER / "dense.tflite", tmp_path / "file")
    assert str(caught.value).startswith(f"cannot write to {tmp_path}/file: ")


def test_too_many_lines() -> None:
    with pytest.raises(ModelError) as caught:
        lower_to_c(long_chain(20_000), name="policy", sha256="")
    assert "expected at most 65536 lines of C, found " in str(caught.value)
