"""Training by name: what there is no trainer for, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.errors import OptionsError, TrainingError
from mlgo_gym.training._train import Watcher, imported, train


class Kept(Watcher):
    """All that a watcher is told."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.stages: list[str] = []

    def doing(self, what: str) -> None:
        self.stages.append(what)

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def test_a_trainer_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(OptionsError) as error:
        train("ppo", SAMPLE_CORPUS, output=tmp_path / "run")
    assert str(error.value) == (
        "trainer: expected one of clone, imitate, advantage, group, found 'ppo'"
    )
    assert not (tmp_path / "run").exists()


def test_what_is_left_out_is_said_once(tmp_path: Path) -> None:
    """Two packages have the same broken module, and nothing else."""
    (tmp_path / "broken.c.bc").write_bytes(b"no bitcode")
    broken = Corpus(tmp_path, ("broken.c",))
    watcher = Kept()
    with pytest.raises(TrainingError, match="expected modules to train on, found none"):
        train(
            "advantage",
            {"a": broken, "b": broken, "c": broken},
            output=tmp_path / "run",
            hold_out_packages=["c"],
            watcher=watcher,
        )
    assert watcher.stages == ["survey"]
    assert watcher.warnings == [
        "module 'broken.c': LLVM bitcode parsing error\nInvalid bitcode signature; left out"
    ]


def test_a_part_of_training_that_is_not_there() -> None:
    """It is no missing extra."""
    with pytest.raises(ModuleNotFoundError) as error:
        imported("nothing")
    assert error.value.name == "mlgo_gym.training._nothing"
