"""A model under a compiler that sends more than it knows: the same answers, the same object."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.problems._vocabulary import Vocabulary
from tests.cc.conftest import AS_DEFAULT, MODELS, SOURCE, Driver
from tests.cc.test_streams import speaking

# A clang that asks what it is told to, and writes down what it is answered.
ASKS = """
with open("asked", "rb") as asked, open(f"{base}.out", "wb") as out:
    out.write(asked.read())
    out.flush()
    with open(f"{base}.in", "rb", buffering=0) as answers, open("answered", "wb") as answered:
        answered.write(answers.read(8))
"""


def asked(mask: list[int], density: list[float]) -> bytes:
    """What LLVM would send with as many positions, which its main branch no longer has 33 of."""
    wide = {"port": 0, "shape": [1, len(mask)]}
    features = [
        {"name": "mask", "type": "int64_t", **wide},
        {"name": "use_def_density", "type": "float", **wide},
    ]
    advice = {"name": "index_to_evict", "type": "int64_t", "port": 0, "shape": [1]}
    header = json.dumps({"features": features, "advice": advice}, separators=(",", ":"))
    tensors = np.array(mask, np.int64).tobytes() + np.array(density, np.float32).tobytes()
    return f'{header}\n{{"context":"f"}}\n{{"observation":0}}\n'.encode() + tensors + b"\n"


@pytest.mark.parametrize(
    ("mask", "density", "expected"),
    [
        ([1] * 17, [9.0] * 3 + [1.0] + [9.0] * 13, 3),
        ([1] * 17, [9.0] * 16 + [1.0], 16),
        ([0] * 15 + [1] * 2, [1.0] * 15 + [8.0, 9.0], 15),
        ([0, 1], [1.0, 9.0], 1),
        ([1] * 33, [9.0] * 32 + [1.0], 32),
        ([1] * 40, [9.0] * 39 + [1.0], None),
    ],
)
def test_fewer_positions_than_a_model_has(
    mask: list[int],
    density: list[float],
    expected: int | None,
    *,
    driver: Driver,
    way: Mapping[str, str],
    tmp_path: Path,
) -> None:
    """The last one asks, in the model as in LLVM; what lies between is no choice."""
    (tmp_path / "f.c").write_text(SOURCE)
    (tmp_path / "asked").write_bytes(asked(mask, density))
    settings = speaking(driver, tmp_path, ASKS) | {
        "MLGO_INLINING_MODEL": "",
        "MLGO_REGALLOC_MODEL": str(MODELS / "lowest_density"),
        "MLGO_STRICT": "1",
        **way,
    }
    done = driver.run("-O2", "-c", "f.c", cwd=tmp_path, settings=settings)
    if expected is None:
        assert (done.returncode, done.stderr.decode()) == (
            1,
            "mlgo-cc: error: the regalloc model takes 'use_def_density' as float of 132 bytes, "
            "this clang sends float of 160 bytes\n",
        )
        return
    assert (done.returncode, done.stderr) == (0, b"")
    assert int.from_bytes((tmp_path / "answered").read_bytes(), sys.byteorder) == expected


@pytest.mark.e2e
@pytest.mark.parametrize("model", ["default", "never", "inliner"])
def test_features_that_a_model_does_not_know(driver: Driver, tmp_path: Path, model: str) -> None:
    (tmp_path / "f.c").write_text(SOURCE)
    (tmp_path / "v.json").write_bytes(Vocabulary.of("one-hot").data)
    embeddings = [
        word
        for option in ("-ml-inliner-ir2vec-vocab-file", "-ir2vec-vocab-path")
        for word in ("-mllvm", f"{option}={tmp_path}/v.json")
    ]
    settings = AS_DEFAULT | {"MLGO_INLINING_MODEL": str(MODELS / model)}
    objects = []
    for more in ([], embeddings):
        done = driver.run("-Oz", *more, "-c", "f.c", cwd=tmp_path, settings=settings)
        assert (done.returncode, done.stderr) == (0, b"")
        objects.append((tmp_path / "f.o").read_bytes())
    assert objects[0] == objects[1]
    (tmp_path / "v.json").write_bytes(b"{}")  # it was read
    done = driver.run("-Oz", *embeddings, "-c", "f.c", cwd=tmp_path, settings=settings)
    assert done.returncode != 0
