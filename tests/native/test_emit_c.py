"""The C of a model gives the object's answers, whoever compiles it; names that C cannot use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.native._model import compile_model
from tests.native.agreement import Array, buffers
from tests.native.c_files import COMPILERS, CModel, compile_shared, emitted
from tests.native.make_models import FOLDER
from tests.native.test_agreement import MODELS, draw

FEW = ["candidates", "dense", "embedding"]
CPUS = {"x86-64": "-march=x86-64", "haswell": "-march=haswell"}
"""Without and with instructions that multiply and add in one step."""

compilers = pytest.mark.parametrize("compiler", sorted(COMPILERS))
assert_compilers = pytest.mark.skipif(not COMPILERS, reason="needs gcc or clang-22")


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


@assert_compilers
@compilers
@pytest.mark.parametrize("name", FEW)
def test_answers_are_the_objects(name: str, compiler: str, tmp_path: Path) -> None:
    compare(name, compiler, "haswell", tmp_path)


@assert_compilers
@pytest.mark.e2e
@compilers
@pytest.mark.parametrize("cpu", sorted(CPUS))
@pytest.mark.parametrize("name", MODELS)
def test_answers_are_the_objects_for_every_operator(
    name: str, cpu: str, compiler: str, tmp_path: Path
) -> None:
    compare(name, compiler, cpu, tmp_path)
