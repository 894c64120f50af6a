"""``mlgo-gym train``: the whole path, and command lines that cannot be right."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.cli._main import main
from mlgo_gym.errors import OptionsError
from mlgo_gym.training._distillation import AdvantageConfig
from mlgo_gym.training._train import TRAINERS, configured, imported

QUICK = [
    *("--set", "rounds=1", "--set", "batches=1", "--set", "hidden=[8]", "--set", "fit.epochs=2"),
    *("--set", "teacher.iterations=10", "--set", "teacher.least_leaf_rows=2"),
]


@pytest.mark.e2e
def test_from_a_corpus_to_a_model_that_is_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    command = ["train", "advantage", "--output", str(folder), "--budget", "6s", *QUICK]
    assert main([*command, "--json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    assert printed["model"] == str(folder / "model")
    assert printed["validation"]["modules"] == 5
    card = json.loads((folder / "model" / "card.json").read_text())
    assert card["trainer"] == "advantage"
    assert card["command"].startswith("mlgo-gym")
    assert card["trained_on"]["modules"] == {"sample": 17}
    assert card["results"]["validation"] == printed["validation"]
    arguments = ["rollout", "--model", str(folder / "model"), "--json"]
    assert main(arguments) == 0
    assert main(["train", "advantage", "--output", str(folder), *QUICK, "--seed", "3"]) == 1
    assert "holds a run of another configuration: config.seed: expected 3, found 0" in (
        capfd.readouterr().err
    )


def test_every_trainer_is_there() -> None:
    for name in TRAINERS:
        assert callable(imported(name).train)
        getattr(imported(name), f"{name.capitalize()}Config")(seed=1)


def test_settings_reach_the_configuration() -> None:
    config = configured(
        AdvantageConfig(), ["rounds=5", "hidden=[4, 2]", "fit.epochs=7", "linked_weight=1"]
    )
    assert (config.rounds, config.hidden, config.fit.epochs) == (5, (4, 2), 7)
    assert config.linked_weight == pytest.approx(1.0)
    for setting, message in (
        ("rounds", "--set: expected NAME=VALUE, found 'rounds'"),
        ("rounds=many", "--set rounds: expected a value of type int, found 'many'"),
        (
            "fit.speed=1",
            "--set fit.speed: expected one of epochs, batch_size, learning_rate, weight_decay, "
            "found 'speed'",
        ),
        ("seed.x=1", "--set seed.x: expected a value of type int, found 1"),
    ):
        with pytest.raises(OptionsError) as error:
            configured(AdvantageConfig(), [setting])
        assert str(error.value) == message


def test_a_package_that_is_not_there_cannot_be_held_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "advantage", "--output", str(tmp_path / "run"), "--hold-out", "zlib"]
    assert main(command) == 1
    assert capfd.readouterr().err.strip() == (
        "mlgo-gym: error: hold-out: expected packages out of sample, found 'zlib'"
    )
    assert not (tmp_path / "run").exists()


def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("mlgo_gym.training") or name == "sklearn":
            raise ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")
        return real(name, *arguments, **options)

    monkeypatch.setattr("importlib.import_module", without)
    assert main(["train", "advantage", "--output", str(tmp_path / "run")]) == 1
    assert capfd.readouterr().err.strip() == (
        "mlgo-gym: error: train: expected the package 'tensorflow', found none; "
        "pip install 'mlgo-gym[train]' brings it"
    )
