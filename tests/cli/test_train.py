"""``mlgo-gym train``: the whole path, and command lines that cannot be right."""

from __future__ import annotations

import builtins
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.cli._main import main
from mlgo_gym.cli._train import Shown
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.errors import OptionsError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.training._distillation import AdvantageConfig
from mlgo_gym.training._run import TrainingRun
from mlgo_gym.training._train import (
    TRAINERS,
    check_trainer_settings,
    configured,
    imported,
    provenance,
)
from tests.cli.command import run
from tests.cli.test_evaluate import MODELS, copied

QUICK = [
    *("--set", "rounds=1", "--set", "batches=1", "--set", "hidden=[8]", "--set", "fit.epochs=2"),
    *("--set", "teacher.iterations=10", "--set", "teacher.least_leaf_rows=2"),
]


@pytest.mark.smoke
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
        imported(name).Config(seed=1)


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
    # tune sets some, and its user others.
    assert configured(AdvantageConfig(), ["rounds=5", "rounds=6"]).rounds == 6
    with pytest.raises(OptionsError, match="^--set rounds: expected one value, found 2$"):
        check_trainer_settings("advantage", ["rounds=5", "hidden=[4]", "rounds=6"])


def test_a_package_that_is_not_there_cannot_be_held_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "advantage", "--output", str(tmp_path / "run"), "--hold-out", "zlib"]
    assert main(command) == 1
    assert capfd.readouterr().err.strip() == (
        "mlgo-gym: error: hold-out: expected packages out of sample, found 'zlib'"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("clone", "--reward", "cost"),
            "clone: expected no reward, since it answers as a policy does, whatever that is good "
            "for, found 'cost'",
        ),
        (
            ("advantage", "--most-text", "1"),
            "most_text: expected a reward other than text, found None",
        ),
    ],
)
def test_rewards_that_are_none(
    options: tuple[str, ...], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *options, "--output", str(tmp_path / "run")]) == 1
    assert capfd.readouterr().err.strip() == f"mlgo-gym: error: {message}"
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


@pytest.mark.e2e
def test_a_finished_run_is_summed_up(small: Corpus, tmp_path: Path) -> None:
    """Its model is validated once more, and that is all."""
    corpus = copied(small, ("hash_map.c", "frame_stream.c"), tmp_path / "corpus")
    command = ("train", "advantage", "--corpus", corpus, "--output", "run", "--set", "rounds=1")
    kept, held_out = Packages.of(corpus).hold_out()
    config = configured(AdvantageConfig(), ["rounds=1"])
    with TrainingRun(
        tmp_path / "run", "advantage", InliningForSize(), config,
        provenance=provenance(kept, held_out),
    ) as going:  # fmt: skip
        going.save(1, {}, {"validations": []})
        (going.directory / "survey.json").write_text("{}")
        shutil.copytree(MODELS / "never", going.model)
    done = run(*command, "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    found = result["validation"]
    assert (result["model"], result["left_out"], found["modules"]) == ("run/model", [], 1)
    assert result["spent_s"] >= 0
    done = run(*command, cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "Model: run/model",
        "On 1 held-out modules, against LLVM's own heuristic:",
        *(
            f"  {key.replace('_', ' ')}: {value:+.2%}"
            for key, value in found.items()
            if isinstance(value, float)
        ),
        f"  modules worse by more than 1 %: {found['worse_modules']}",
    ]
    assert "  linked text: +" in done.stdout


def test_what_is_shown_of_a_run() -> None:
    lines: list[str] = []
    shown = Shown(lines.append, Output(as_json=False))
    shown.report(3, {"fit/loss": 0.123456, "fit/agreement": 1.0})
    shown.doing("fitting")
    shown.report(12, {"loss": 20000.0})
    assert lines == [
        "training",
        "training 3:  loss 0.1235  agreement 1",
        "fitting",
        "fitting 12:  loss 2e+04",
    ]


def test_what_a_run_leaves_out_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    Shown(lambda _: None, Output(as_json=True)).warn("module 'a': broken; left out")
    assert capsys.readouterr() == ("", "mlgo-gym: module 'a': broken; left out\n")
