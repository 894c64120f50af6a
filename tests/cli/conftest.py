"""What tests of commands share: a corpus that is quick to compile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from tests.lab.programs.conftest import corpus

__all__ = ["corpus", "small_folder"]


@pytest.fixture
def small_folder(small: Corpus, tmp_path: Path) -> Path:
    folder = tmp_path / "small corpus"
    folder.mkdir()
    for name in small:
        for suffix in ("bc", "cmd"):
            (folder / f"{name}.{suffix}").write_bytes(
                (small.folder / f"{name}.{suffix}").read_bytes()
            )
    manifest = {"modules": list(small), "has_thinlto": False}
    (folder / "corpus_description.json").write_text(json.dumps(manifest))
    return folder
