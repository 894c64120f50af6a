"""A model under a compiler that sends more than it knows: the same answers, the same object."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlgo_gym.problems._vocabulary import Vocabulary
from tests.driver.conftest import AS_DEFAULT, MODELS, SOURCE, Driver


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
