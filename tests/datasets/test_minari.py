"""Datasets go to Minari and come back; what reads Minari finds what environments show."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from mlgo_gym import SAMPLE_CORPUS, Corpus
from mlgo_gym.cli._main import main
from mlgo_gym.datasets import Dataset, DatasetWriter, header_of, record
from mlgo_gym.errors import DatasetError
from mlgo_gym.llvm._site import Site
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from tests.cli.command import run
from tests.datasets.samples import episode, same, source, write

minari = pytest.importorskip("minari", reason="needs Minari: pip install 'mlgo-gym[minari]'")

from mlgo_gym.datasets._minari import MinariSet, export_minari  # noqa: E402

NAME = "inlining/test-v0"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Minari keeps its sets."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def assert_equal(found: Dataset, expected: Dataset) -> None:
    assert found.header == expected.header
    assert all(same(*pair) for pair in zip(found.episodes(), expected.episodes(), strict=True))


def there_and_back(dataset: Dataset, folder: Path) -> Dataset:
    assert export_minari(dataset, NAME) == dataset.row_count
    found = MinariSet.open(NAME)
    with DatasetWriter(folder, found.header) as writer:
        found.write(writer)
    return Dataset.open(folder)


@pytest.mark.parametrize("problem", [InliningForSize(), RegallocEviction(), RegallocPriority()])
def test_of_any_bytes(problem: Problem, tmp_path: Path) -> None:
    """NaN and infinity that LLVM sends come back, though environments do not show them."""
    made = [episode(source(i), i + 1, seed=i, context="f", problem=problem) for i in range(3)]
    dataset = Dataset.open(write(tmp_path / "set", *made, problem=problem))
    assert_equal(there_and_back(dataset, tmp_path / "back"), dataset)


def test_sites(tmp_path: Path) -> None:
    made = episode(source(), 2)
    sites = tuple(Site("caller", f"größe{number}", ()) for number in range(2))
    object.__setattr__(made, "sites", sites)
    dataset = Dataset.open(write(tmp_path / "set", made))
    assert_equal(there_and_back(dataset, tmp_path / "back"), dataset)


def test_it_is_what_the_environment_shows(tmp_path: Path) -> None:
    problem = InliningForSize()
    corpus = Corpus.load(SAMPLE_CORPUS).only(["digest.c"])
    with DatasetWriter(tmp_path / "set", header_of(problem)) as writer:
        policy = problem.policy("never")
        list(record(writer, {"sample": corpus}, problem, "never", policy))
    assert main(["dataset", "export", str(tmp_path / "set"), "--minari", NAME]) == 0
    found = minari.load_dataset(NAME)
    (kept,) = found.iterate_episodes()
    env = found.recover_environment()
    (metadata,) = found.storage.get_episode_metadata([0])
    observation, _ = env.reset(options=metadata["options"])
    rewards, ended, number = 0.0, False, 0
    while not ended:
        for name, values in observation.items():
            np.testing.assert_array_equal(kept.observations[name][number], values)
        observation, reward, ended, _, _ = env.step(kept.actions[number])
        rewards += float(reward)
        number += 1
    env.close()
    assert number == len(kept.actions) == found.total_steps
    assert math.isclose(rewards, kept.rewards.sum())
    for name, values in observation.items():
        np.testing.assert_array_equal(kept.observations[name][number], values)
    assert kept.terminations.tolist() == [False] * (number - 1) + [True]
    assert not kept.truncations.any()


def test_commands(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", episode(source(), 4))
    # As users start it: the program alone registers no environments.
    program = Path(sys.executable).with_name("mlgo-gym")
    done = subprocess.run(
        [program, "dataset", "export", "set", "--minari", NAME],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"4 decisions in Minari's {NAME}\n"
    done = run("dataset", "import", "--minari", NAME, "--output", "back", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"4 decisions of {NAME} in back\n"
    done = run("dataset", "import", "--minari", NAME, "--output", "back", cwd=tmp_path)
    assert done.stdout == f"0 decisions of {NAME} in back; 4 were there already\n"
    assert_equal(Dataset.open(tmp_path / "back"), Dataset.open(folder))


def test_a_name_that_is_taken_or_is_none(tmp_path: Path) -> None:
    dataset = Dataset.open(write(tmp_path / "set", episode(source())))
    export_minari(dataset, NAME)
    with pytest.raises(DatasetError, match="expected a new name, found a set of this name"):
        export_minari(dataset, NAME)
    with pytest.raises(DatasetError, match="Minari does not take it: "):
        export_minari(dataset, "a name!")
    assert minari.load_dataset(NAME).total_steps == 3


def test_a_reward_that_is_not_known(tmp_path: Path) -> None:
    made = episode(source(), context="f")
    object.__setattr__(made, "reward", math.nan)
    dataset = Dataset.open(write(tmp_path / "set", made))
    with pytest.raises(DatasetError, match="'f': expected an episode whose reward is known"):
        export_minari(dataset, NAME)
    assert NAME not in minari.list_local_datasets()


def set_metadata(folder: Path, **values: Any) -> None:
    path = folder / NAME / "data" / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_sets_that_do_not_fit(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(DatasetError, match=f"^dataset '{NAME}': Minari cannot read it: "):
        MinariSet.open(NAME)
    export_minari(Dataset.open(write(tmp_path / "set", episode(source()))), NAME)
    spec = gymnasium.spec("mlgo_gym/RegallocEviction-v0").to_json()
    set_metadata(folder, env_spec=spec)
    with pytest.raises(DatasetError) as caught:
        MinariSet.open(NAME)
    assert str(caught.value) == (
        f"dataset '{NAME}': environment: expected mlgo_gym/InliningForSize-v0, "
        "found mlgo_gym/RegallocEviction-v0"
    )
    set_metadata(folder, mlgo_gym='{"format": 2}')
    with pytest.raises(DatasetError, match="format: expected 1, found 2"):
        MinariSet.open(NAME)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("settings", "{"),
        ("settings", "[]"),
        ("module", None),
        ("score", "x"),
        ("rewards", None),
        ("rewards", np.zeros(0)),
        ("actions", None),
        ("infos", None),
    ],
)
def test_damaged_episodes(place: str, value: Any, tmp_path: Path, folder: Path) -> None:
    h5py = pytest.importorskip("h5py")
    made = [episode(source(i), i + 1, seed=i, context="f") for i in range(2)]
    export_minari(Dataset.open(write(tmp_path / "set", *made)), NAME)
    with h5py.File(folder / NAME / "data" / "main_data.hdf5", "a") as file:
        group = file["episode_0"]
        kind = group.attrs if place in group.attrs else group
        del kind[place]
        if value is not None:
            kind[place] = value
    found = MinariSet.open(NAME)
    with DatasetWriter(tmp_path / "back", found.header) as writer, pytest.raises(DatasetError) as e:
        found.write(writer)
    assert f"'{NAME}': expected episodes that 'dataset export' wrote: " in str(e.value)
