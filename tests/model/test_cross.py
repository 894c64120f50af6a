"""Objects and C for another architecture: AArch64, run by qemu; and what cannot be made for one."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.errors import ModelError
from mlgo_gym.model._freeze import freeze, load_frozen
from mlgo_gym.model._model import compile_model
from tests.model.agreement import buffers
from tests.model.c_files import COMPILERS, emitted
from tests.model.make_models import FOLDER
from tests.model.test_agreement import draw
from tests.model.test_freeze import PROGRAM

TRIPLE = "aarch64-linux-gnu"
QEMU, CROSS = shutil.which("qemu-aarch64"), shutil.which(f"{TRIPLE}-gcc")
MODEL = FOLDER / "dense.tflite"


@pytest.mark.skipif(not (QEMU and CROSS), reason="apt-get install qemu-user gcc-aarch64-linux-gnu")
@pytest.mark.e2e
@pytest.mark.parametrize("maker", ["object", "gcc", "clang-22"])
@pytest.mark.parametrize("name", ["candidates", "dense", "embedding", "logistic", "log", "softmax"])
def test_answers_on_aarch64_are_those_here(name: str, maker: str, tmp_path: Path) -> None:
    path = FOLDER / f"{name}.tflite"
    source = emitted(path, tmp_path)
    flags = ["-std=c11", "-O3", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-c"]
    if maker == "object":
        freeze(path, tmp_path, name="policy", target=TRIPLE)
    elif maker == "gcc":
        subprocess.run([str(CROSS), *flags, source.name], cwd=tmp_path, check=True)
    else:
        command = [COMPILERS[maker], f"--target={TRIPLE}", "-isystem", f"/usr/{TRIPLE}/include"]
        subprocess.run([*command, *flags, source.name], cwd=tmp_path, check=True)
    (tmp_path / "main.c").write_text(PROGRAM)
    link = [str(CROSS), "-O1", "-static", "main.c", "policy.o", "-lm", "-o", "main"]
    subprocess.run(link, cwd=tmp_path, check=True)
    rows, expected = _here(name, path)
    done = subprocess.run([str(QEMU), "main"], cwd=tmp_path, input=rows, stdout=-1, check=True)
    assert done.stdout == expected


@pytest.mark.skipif("clang-22" not in COMPILERS, reason="needs clang-22")
def test_clang_needs_nothing_of_the_other_system(tmp_path: Path) -> None:
    source = emitted(FOLDER / "softmax.tflite", tmp_path)  # without math.h, which is the system's
    command = [COMPILERS["clang-22"], f"--target={TRIPLE}", "-ffreestanding", "-std=c11", "-O3"]
    subprocess.run([*command, "-Werror", "-c", source.name], cwd=tmp_path, check=True)
    assert (tmp_path / "policy.o").read_bytes()[18:20] == b"\xb7\x00"


def _here(name: str, path: Path) -> tuple[bytes, bytes]:
    """Observations, and the answers of an object for a CPU that fuses as AArch64 does."""
    native = compile_model(path, cpu="haswell")
    given, made = buffers(native.inputs), buffers(native.outputs)
    random = np.random.default_rng(5)
    rows, answers = [], []
    with native.bind(given, made) as bound:
        for _ in range(100):
            for buffer, port in zip(given, native.inputs, strict=True):
                buffer[...] = draw(random, name, port.spec)
            assert bound.call() == 0
            rows.append(b"".join(buffer.tobytes() for buffer in given))
            answers.append(b"".join(buffer.tobytes() for buffer in made))
    return b"".join(rows), b"".join(answers)


def test_an_object_for_another_machine_is_not_loaded_here(tmp_path: Path) -> None:
    files = freeze(MODEL, tmp_path, name="policy", target=TRIPLE)
    assert files.shared_library is None
    described = json.loads(files.description.read_text())
    assert (described["triple"], described["cpu"]) == (TRIPLE, "generic")
    data = files.object.read_bytes()
    assert (data[:4], data[18:20]) == (b"\x7fELF", b"\xb7\x00")  # EM_AARCH64
    here = compile_model(MODEL, trusted=True).object.triple
    with pytest.raises(ModelError) as caught:
        load_frozen(tmp_path)
    assert str(caught.value) == (
        f"model '{tmp_path}': expected an object for {here}, found one for {TRIPLE}"
    )


@pytest.mark.parametrize(
    ("target", "cpu", "message"),
    [
        ("z80-none", None, "expected a target that LLVM has, found 'z80-none'"),
        (
            "powerpc64-linux-gnu",
            None,
            "expected a little-endian target, found 'powerpc64-linux-gnu'",
        ),
        (TRIPLE, "znver4", "expected a CPU that LLVM knows, found 'znver4'"),
    ],
)
def test_targets_that_cannot_be(target: str, cpu: str | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        freeze(MODEL, tmp_path, name="policy", target=target, cpu=cpu)
    assert str(caught.value) == f"model '{MODEL}': {message}"


def test_an_object_by_the_triple_of_this_machine_is_loaded(tmp_path: Path) -> None:
    here = compile_model(MODEL, trusted=True).object.triple
    files = freeze(MODEL, tmp_path, name="policy", target=here)
    native, _ = load_frozen(tmp_path)
    assert (native.object.triple, native.object.cpu, files.shared_library) == (
        here,
        "generic",
        None,
    )
