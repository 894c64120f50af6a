"""Datasets go to Minari and come back; what reads Minari finds what environments show."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
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

h5py = pytest.importorskip("h5py")
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


def test_one_long_site_among_many(tmp_path: Path) -> None:
    made = episode(source(), 1000)
    sites = (Site("caller", "c" * 500_000, ()), *[Site("caller", "callee", ())] * 999)
    object.__setattr__(made, "sites", sites)
    dataset = Dataset.open(write(tmp_path / "set", made))
    with pytest.raises(DatasetError, match="expected at most 134217728 bytes of sites, found 50"):
        export_minari(dataset, NAME)


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
    with pytest.raises(DatasetError, match="expected a new name, found "):
        export_minari(dataset, NAME)
    with pytest.raises(DatasetError, match="Minari does not take it: "):
        export_minari(dataset, "a name!")
    assert minari.load_dataset(NAME).total_steps == 3


def test_a_folder_that_a_name_leads_to_stays(tmp_path: Path) -> None:
    dataset = Dataset.open(write(tmp_path / "set", episode(source())))
    export_minari(dataset, NAME)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").touch()
    for name in (str(tmp_path / "mine"), NAME.partition("/")[0]):
        with pytest.raises(DatasetError, match="expected a new name, found "):
            export_minari(dataset, name)
    assert (tmp_path / "mine" / "thesis").exists()
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
    made = [episode(source(i), i + 1, seed=i, context="f") for i in range(2)]
    export_minari(Dataset.open(write(tmp_path / "set", *made)), NAME)
    with h5py.File(folder / NAME / "data" / "main_data.hdf5", "a") as file:
        group = file["episode_0"]
        kind = group.attrs if place in group.attrs else group
        del kind[place]
        if value is not None:
            kind[place] = value
    assert f"'{NAME}': expected episodes that 'dataset export' wrote: " in refusal(tmp_path)


def refusal(tmp_path: Path) -> str:
    """The error of an import of the set."""
    with pytest.raises(DatasetError) as caught:
        imported(tmp_path / "back")
    return str(caught.value)


def imported(output: Path) -> None:
    found = MinariSet.open(NAME)
    with DatasetWriter(output, found.header) as writer:
        found.write(writer)


def _external(group: Any, secret: Path) -> None:
    outside = [(str(secret), 0, 8 * 4)]
    del group["observations/cost_estimate"]
    group["observations"].create_dataset("cost_estimate", (4,), "<i8", external=outside)


def _external_link(group: Any, secret: Path) -> None:
    del group["rewards"]
    group["rewards"] = h5py.ExternalLink(str(secret), "rewards")


def _soft_link(group: Any, _: Path) -> None:
    del group["rewards"]
    group["rewards"] = h5py.SoftLink("/episode_1/rewards")


def _virtual(group: Any, secret: Path) -> None:
    layout = h5py.VirtualLayout((3,), "<f8")
    layout[:] = h5py.VirtualSource(str(secret), "rewards", (3,))
    del group["rewards"]
    group.create_virtual_dataset("rewards", layout)


def _reference(group: Any, _: Path) -> None:
    del group["rewards"]
    group["rewards"] = np.array([group.ref] * 3, h5py.ref_dtype)


def _not_stored(group: Any, _: Path) -> None:
    del group["rewards"]
    group.create_dataset("rewards", (1 << 31,), "<f8", chunks=(1 << 20,))


def _compressed(group: Any, _: Path) -> None:
    del group["rewards"]
    group.create_dataset("rewards", data=np.zeros(1 << 16), compression="gzip")


def _cycle(group: Any, _: Path) -> None:
    group["infos"]["infos"] = group["infos"]


def _list_of_texts(group: Any, _: Path) -> None:
    group.attrs["module"] = ["m"] * 1000


def _shared(group: Any, _: Path) -> None:
    big = group.create_dataset("big", data=np.zeros(1 << 20))
    for number in range(8):
        group[f"again{number}"] = big


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_external, "cost_estimate: expected data of this file, found that of others"),
        (_external_link, "rewards: expected data of this file, found ExternalLink"),
        (_soft_link, "rewards: expected data of this file, found SoftLink"),
        (_virtual, "rewards: expected data of this file, found that of others"),
        (_reference, "rewards: expected numbers or texts, found object"),
        (_not_stored, "rewards: expected 17179869184 bytes in the file, found fewer"),
        (_compressed, "rewards: expected an array that is not compressed, found one"),
        (_cycle, "infos: expected an array, found Group"),
        (_list_of_texts, "module: expected a text or a number, found another"),
        (_shared, "episode_0: expected arrays that the file holds, found larger ones"),
    ],
)
def test_hostile_files(
    change: Callable[[Any, Path], None], message: str, tmp_path: Path, folder: Path
) -> None:
    """No other file is read, and nothing is made larger than the set's own file."""
    made = [episode(source(i), 3, seed=i, context="f") for i in range(2)]
    export_minari(Dataset.open(write(tmp_path / "set", *made)), NAME)
    secret = tmp_path / "secret"
    with h5py.File(secret, "w") as file:
        file["rewards"] = np.ones(3)
    with h5py.File(folder / NAME / "data" / "main_data.hdf5", "a") as file:
        change(file["episode_0"], secret)
    assert message in refusal(tmp_path)


@pytest.mark.parametrize(
    "values",
    [
        {"mlgo_gym": 5},
        {"env_spec": "[" * 100_000},
        {"env_spec": "[]"},
        {"env_spec": 5},
        {"env_spec": '{"id": 1}'},
    ],
)
def test_hostile_metadata(values: dict[str, Any], tmp_path: Path, folder: Path) -> None:
    export_minari(Dataset.open(write(tmp_path / "set", episode(source()))), NAME)
    set_metadata(folder, **values)
    assert refusal(tmp_path).startswith(f"dataset '{NAME}': Minari cannot read it: ")
    (folder / NAME / "data" / "metadata.json").write_text("[]")
    assert refusal(tmp_path).startswith(f"dataset '{NAME}': Minari cannot read it: ")


def test_no_environment_is_made(tmp_path: Path, folder: Path) -> None:
    """Minari makes the environment of a set whose spaces are missing: any function at all."""
    export_minari(Dataset.open(write(tmp_path / "set", episode(source()))), NAME)
    path = folder / NAME / "data" / "metadata.json"
    metadata = json.loads(path.read_text())
    del metadata["observation_space"], metadata["action_space"]
    run_by_it = {"entry_point": "os:mkdir", "kwargs": {"path": str(tmp_path / "made")}}
    spec = json.loads(metadata["env_spec"]) | run_by_it
    path.write_text(json.dumps(metadata | {"env_spec": json.dumps(spec)}))
    MinariSet.open(NAME)
    assert not (tmp_path / "made").exists()


def test_links_out_of_the_set(tmp_path: Path, folder: Path) -> None:
    export_minari(Dataset.open(write(tmp_path / "set", episode(source()))), NAME)
    data = folder / NAME / "data" / "main_data.hdf5"
    data.symlink_to(data.rename(tmp_path / "elsewhere.hdf5"))
    assert "Minari cannot read it: expected a file in " in refusal(tmp_path)
