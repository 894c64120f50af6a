"""A run's folder: checkpoints that survive, configurations that do not mix, time that counts."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mlgo_gym.errors import TrainingError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.training import _run as run
from mlgo_gym.training._run import TrainingRun
from tests.conftest import no_room


@dataclass(frozen=True)
class Inner:
    epochs: int = 3


@dataclass(frozen=True)
class Config:
    seed: int = 0
    inner: Inner = field(default_factory=Inner)


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    with TrainingRun(tmp_path / "run", "group", InliningForSize(), Config()) as first:
        assert first.restore() is None
        first.save(7, {"weights": np.arange(5.0)}, {"best": 0.5})
        first.save(8, {"weights": np.arange(6.0)}, {"best": 0.25})
    with TrainingRun(
        tmp_path / "run", "group", InliningForSize(), Config(), budget_s=1e-9
    ) as again:
        found = again.restore()
        assert found is not None
        assert found.step == 8
        assert found.arrays["weights"].tolist() == [0, 1, 2, 3, 4, 5]
        assert found.state == {"best": 0.25}
        assert again.is_over


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    TrainingRun(folder, "group", InliningForSize(), Config())
    for trainer, problem, config, difference in (
        ("group", InliningForSize(), Config(seed=4), "config.seed: expected 4, found 0"),
        (
            "group",
            InliningForSize(),
            Config(inner=Inner(9)),
            "config.inner.epochs: expected 9, found 3",
        ),
        ("clone", InliningForSize(), Config(), "trainer: expected 'clone', found 'group'"),
        (
            "group",
            InliningForSize(5.0),
            Config(),
            "problem.size_increase_threshold: expected 5.0, found 2.0",
        ),
    ):
        with pytest.raises(TrainingError) as error:
            TrainingRun(folder, trainer, problem, config)
        assert str(error.value) == (
            f"run {str(folder)!r}: holds a run of another configuration: {difference}"
        )


def test_other_corpora_are_refused(tmp_path: Path) -> None:
    """What was chosen on must not be trained on when the run goes on."""
    kinds = ({"jq": 9}, {"jq": 9, "zopfli": 4})
    provenances = [
        {"command": str(index), "trained_on": {"modules": {"fasttext": 8}}, "validated_on": each}
        for index, each in enumerate(kinds)
    ]
    TrainingRun(tmp_path, "group", InliningForSize(), Config(), provenance=provenances[0])
    again = {**provenances[0], "command": "another"}
    TrainingRun(tmp_path, "group", InliningForSize(), Config(), provenance=again)
    with pytest.raises(TrainingError) as error:
        TrainingRun(tmp_path, "group", InliningForSize(), Config(), provenance=provenances[1])
    assert str(error.value) == (
        f"run {str(tmp_path)!r}: holds a run of another configuration: "
        "data.validated_on.zopfli: expected 4, found None"
    )


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TrainingError) as error:
        TrainingRun(tmp_path, "group", InliningForSize(), Config())
    assert str(error.value) == (
        f"run {str(tmp_path)!r}: expected an empty folder or one with config.json"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_full_disk_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TrainingRun(tmp_path / "run", "group", InliningForSize(), Config()) as training:
        training.save(1, {"weights": np.ones(3)})

        def fails(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", fails)
        with pytest.raises(TrainingError) as error:
            training.save(2, {"weights": np.zeros(3)})
        monkeypatch.undo()
        folder = tmp_path / "run"
        assert str(error.value) == (
            f"run {str(folder)!r}: checkpoint.npz cannot be written: No space left on device"
        )
        found = training.restore()
        assert found is not None
        assert found.step == 1
        assert sorted(path.name for path in folder.iterdir()) == ["checkpoint.npz", "config.json"]


def test_curves_that_tensorflow_cannot_write(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with TrainingRun(folder, "group", InliningForSize(), Config()) as training:
        (folder / "tensorboard").write_text("mine")
        with pytest.raises(TrainingError) as error:
            training.scalars(1, {"loss": 0.5})
    assert (
        str(error.value) == f"run {str(folder)!r}: tensorboard cannot be written: Not a directory"
    )


def test_curves_for_which_there_is_no_room(tmp_path: Path) -> None:
    """It is said in a line, though TensorFlow has three."""
    folder = tmp_path / "run"
    with TrainingRun(folder, "group", InliningForSize(), Config()) as training:
        training.scalars(1, {"loss": 0.5})
        (folder / "progress.jsonl").unlink()
        (folder / "progress.jsonl").symlink_to(os.devnull)  # for which there is always room
        with no_room(), pytest.raises(TrainingError) as error:
            training.scalars(2, {"loss": 0.25})
    (events,) = (folder / "tensorboard").iterdir()
    assert str(error.value) == (
        f"run {str(folder)!r}: tensorboard cannot be written: {events}; File too large"
    )


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    with TrainingRun(tmp_path / "run", "group", InliningForSize(), Config()) as training:
        training.save(1, {"weights": np.ones(300)})
        path = tmp_path / "run" / "checkpoint.npz"
        path.write_bytes(path.read_bytes()[:200])
        with pytest.raises(TrainingError, match=r"checkpoint.npz cannot be read: "):
            training.restore()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": -5}, "step: expected a whole number from 0 to 2,147,483,648, found -5"),
        ({"step": 1.5}, "step: expected a whole number, found 1.5"),
        ({"spent_s": math.nan}, "spent_s: expected a number, found nan"),
        ({"spent_s": math.inf}, "spent_s: expected a number of at least 0, found inf"),
        ({"spent_s": -1e9}, "spent_s: expected a number of at least 0, found -1000000000.0"),
        ({"state": [1]}, "state: expected a JSON object, found [1]"),
        ({"state": {"best": math.nan}}, "state.best: expected a number or null, found nan"),
        ({"state": {"best": "x"}}, "state.best: expected a number or null, found 'x'"),
        ({"state": {}}, "state: expected 'best', found none"),
    ],
)
def test_a_checkpoint_of_a_stranger(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with TrainingRun(tmp_path, "group", InliningForSize(), Config()) as training:
        record = {"step": 1, "spent_s": 2.0, "state": {"best": None}} | changes
        state = np.frombuffer(json.dumps(record).encode(), np.uint8)
        np.savez(tmp_path / "checkpoint.npz", state=state)
        with pytest.raises(TrainingError) as error:
            training.restore({"best": (float, type(None))})
    before = f"run {str(tmp_path)!r}: checkpoint.npz cannot be read"
    assert str(error.value) == f"{before}: {message}"


def test_a_checkpoint_without_a_state(tmp_path: Path) -> None:
    with TrainingRun(tmp_path, "group", InliningForSize(), Config()) as training:
        np.savez(tmp_path / "checkpoint.npz", weights=np.ones(3))
        with pytest.raises(TrainingError, match="read: expected an array 'state', found none"):
            training.restore()


def test_scalars_reach_tensorboard_and_whoever_watches(tmp_path: Path) -> None:
    seen: list[tuple[int, dict[str, float]]] = []
    with TrainingRun(
        tmp_path / "run",
        "group",
        InliningForSize(),
        Config(),
        report=lambda step, values: seen.append((step, dict(values))),
    ) as training:
        training.scalars(1, {"loss": 0.5})
        training.scalars(2, {"loss": 0.25})
    assert seen == [(1, {"loss": 0.5}), (2, {"loss": 0.25})]
    lines = (tmp_path / "run" / "progress.jsonl").read_text().splitlines()
    assert [json.loads(line)["loss"] for line in lines] == [0.5, 0.25]
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"), size_guidance={"tensors": 0})
    events.Reload()
    assert [event.step for event in events.Tensors("loss")] == [1, 2]


def test_time_of_earlier_runs_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(run, "monotonic", lambda: now[0])
    with TrainingRun(
        tmp_path / "run", "group", InliningForSize(), Config(), budget_s=60
    ) as training:
        now[0] += 40
        assert not training.is_over
        training.save(1, {})
    now[0] += 1000
    with TrainingRun(tmp_path / "run", "group", InliningForSize(), Config(), budget_s=60) as again:
        again.restore()
        assert again.spent_s == pytest.approx(40)
        now[0] += 21
        assert again.is_over


def test_time_counts_without_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 25.0])
    monkeypatch.setattr(run, "monotonic", lambda: next(seconds, 0.0))
    with TrainingRun(tmp_path / "run", "group", InliningForSize(), Config(), budget_s=60) as killed:
        killed.scalars(1, {"loss": 1.0})
    with (tmp_path / "run" / "progress.jsonl").open("a") as file:
        file.write('{"step": 2, "spen')  # cut off
    with TrainingRun(tmp_path / "run", "group", InliningForSize(), Config(), budget_s=60) as again:
        assert again.restore() is None
        assert again.spent_s == pytest.approx(25)


def test_a_configuration_that_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('["group"]')
    with pytest.raises(TrainingError) as error:
        TrainingRun(tmp_path, "group", InliningForSize(), Config())
    assert str(error.value) == (
        f"run {str(tmp_path)!r}: config.json: expected a JSON object, found ['group']"
    )


def test_progress_without_a_whole_line_is_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TrainingRun(tmp_path, "group", InliningForSize(), Config())
    progress = tmp_path / "progress.jsonl"
    monkeypatch.setattr(run, "monotonic", lambda: 5.0)
    for text, spent_s in (
        ('{"step": 2, "spen', 0.0),
        ('{"spent_s": 7}\n{"spent_s": null}\n[]\n{"step": 2, "spen', 7.0),
        ('{"spent_s": 7}\n{"spent_s": NaN}\n{"spent_s": -1e9}\n{"spent_s": Infinity}\n', 7.0),
    ):
        progress.write_text(text)
        assert TrainingRun(tmp_path, "group", InliningForSize(), Config()).spent_s == spent_s
