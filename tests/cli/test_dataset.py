"""``mlgo-gym dataset`` as users run it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlgo_gym.cli.dataset._record import _digest
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.rollout._trace import Trace
from mlgo_gym.stream._training_log import TrainingLogReader
from tests.cli.command import run
from tests.cli.test_evaluate import copied

WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None
from mlgo_gym.cli._main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, small: Corpus) -> Path:
    """A dataset of three modules, and the training log that a rollout of the same writes."""
    folder = tmp_path_factory.mktemp("recorded")
    corpus = folder / "small"
    corpus.mkdir()
    for name in small:
        for suffix in (".bc", ".cmd"):
            (corpus / f"{name}{suffix}").write_bytes(
                (small.folder / f"{name}{suffix}").read_bytes()
            )
    # As recording takes them: the largest first.
    manifest = {"modules": sorted(small, key=small.size_bytes, reverse=True), "has_thinlto": False}
    (corpus / "corpus_description.json").write_text(json.dumps(manifest))
    done = run("dataset", "record", "--corpus", "small", "--output", "set", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "137 decisions of 3 modules in set\n"
    done = run("rollout", "--corpus", "small", "--log", "rollout.log", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.mark.smoke
@pytest.mark.e2e
def test_it_is_recorded_once(recorded: Path) -> None:
    before = sorted((recorded / "set").iterdir())
    done = run("dataset", "record", "--corpus", "small", "--output", "set", cwd=recorded)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "0 decisions of 0 modules in set; 3 modules were there already\n"
    assert sorted((recorded / "set").iterdir()) == before


def test_other_options_are_refused(recorded: Path) -> None:
    arguments = ("dataset", "record", "--corpus", "small", "--output", "set", "--opt-level", "O2")
    done = run(*arguments, cwd=recorded)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "mlgo-gym: error: dataset 'set/part-00000.parquet': opt_level: expected O2, "
        "found each module's own\n"
    )


def test_info(recorded: Path) -> None:
    done = run("dataset", "info", "set", "--json", cwd=recorded)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["problem"] == "InliningForSize"
    assert found["settings"] == InliningForSize().settings()
    assert (found["levels"], found["forced_level"]) == (["Oz"], "none")
    assert (found["modules"], found["decisions"], found["parts"]) == (3, 137, 1)
    assert found["packages"] == {"small": {"modules": 3, "decisions": 137}}
    assert found["policies"] == ["default"]
    assert set(found["labelled"].values()) == {0}
    done = run("dataset", "info", "set", cwd=recorded)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("InliningForSize", "llvm version", "small", "137"):
        assert word in done.stdout


def test_the_log_is_that_of_a_rollout(recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    done = run("dataset", "export", "set", "--log", path, cwd=recorded)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"137 decisions in {path}\n"
    assert path.read_bytes() == (recorded / "rollout.log").read_bytes()


def test_logs_in_and_out(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.log").write_text("no log")
    arguments = ("import", recorded / "rollout.log", "bad.log", "--llvm-version", "22.1.0")
    done = run("dataset", *arguments, "--output", "set", "--json", cwd=tmp_path)
    assert done.returncode == 1
    problem = "left out: dataset 'bad.log': training log, byte 0: "
    assert done.stderr.startswith(f"mlgo-gym: bad.log: {problem}")
    found = json.loads(done.stdout)
    assert found["imported"] == {str(recorded / "rollout.log"): 137}
    assert list(found["skipped"]) == ["bad.log"]
    done = run("dataset", "import", recorded / "rollout.log", "--output", "set", cwd=tmp_path)
    assert done.returncode == 1
    assert "dataset 'set/part-00000.parquet': llvm_version: expected unknown" in done.stderr
    done = run("dataset", "export", "set", "--log", "out.log", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out.log").read_bytes() == (recorded / "rollout.log").read_bytes()


@pytest.fixture(scope="module")
def traces(recorded: Path) -> list[Path]:
    """Traces of the same modules, with observations."""
    arguments = ("rollout", "--corpus", "small", "--policy", "never", "--traces", "traces")
    assert run(*arguments, "--observations", cwd=recorded).returncode == 0
    return sorted((recorded / "traces").iterdir())


def test_traces(recorded: Path, traces: list[Path], tmp_path: Path) -> None:
    arguments: list[str | Path] = [*traces, "--output", "set", "--package", "small"]
    done = run("dataset", "import", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "125 decisions of 3 files in set\n"
    dataset = Dataset.open(tmp_path / "set", recorded / "set", problem=InliningForSize())
    assert {each.source.package for each in dataset.episodes()} == {"small"}
    done = run("dataset", "import", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    for trace in traces:
        assert f"mlgo-gym: {trace}: left out: it is there already\n" in done.stderr
    done = run("dataset", "export", "set", "--tfrecord", "out.tfrecord", cwd=tmp_path)
    assert done.returncode == 1
    assert "expected a reward, found none; missing_reward stands in for it" in done.stderr


@pytest.mark.usefixtures("traces")
def test_recorded_from_traces(recorded: Path, tmp_path: Path) -> None:
    arguments = ("dataset", "record", "--corpus", "small", "--traces", "traces")
    done = run(*arguments, "--output", tmp_path / "traced", cwd=recorded)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"125 decisions of 3 modules in {tmp_path / 'traced'}\n"
    done = run(
        "dataset", "record", "--corpus", "small", "--policy", "never", "--output",
        tmp_path / "never", cwd=recorded,
    )  # fmt: skip
    assert done.returncode == 0
    for one, other in zip(
        Dataset.open(tmp_path / "traced").episodes(),
        Dataset.open(tmp_path / "never").episodes(),
        strict=True,
    ):
        assert one.observations.tobytes() == other.observations.tobytes()
        assert one.reward == other.reward
        assert one.source.policy == f"traces{_digest(recorded / 'traces')}"
    done = run(*arguments, "--policy", "never", "--output", tmp_path / "set", cwd=recorded)
    assert done.returncode == 1
    assert "--traces: expected nothing else that answers, found --policy" in done.stderr
    (tmp_path / "none").mkdir()
    done = run("dataset", "record", "--traces", "none", "--output", "set", cwd=tmp_path)
    assert done.returncode == 1
    assert "--traces 'none': expected *.trace in it, found none" in done.stderr


def test_traces_of_another_llvm(traces: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other.trace"
    dataclasses.replace(Trace.load(traces[0]), llvm_version="9.0.1").save(other)
    done = run("dataset", "import", traces[0], other, traces[1], "--output", "set", cwd=tmp_path)
    assert done.returncode == 1
    reason = "left out: llvm_version: expected 22."
    assert done.stderr.startswith(f"mlgo-gym: {other}: {reason}")
    assert done.stderr.endswith(", found 9.0.1\n")
    assert "of 2 files in set" in done.stdout
    done = run("dataset", "import", other, "--output", "set", cwd=tmp_path)
    assert done.returncode == 1
    assert "dataset 'set/part-00000.parquet': llvm_version: expected 9.0.1" in done.stderr


def test_tfrecord(recorded: Path, tmp_path: Path) -> None:
    done = run("dataset", "export", recorded / "set", "--tfrecord", "out.tfrecord", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "3 trajectories in out.tfrecord\n"
    assert [each.name for each in tmp_path.iterdir()] == ["out.tfrecord"]


def test_mixed_datasets(recorded: Path, tmp_path: Path) -> None:
    done = run("dataset", "import", recorded / "rollout.log", "--output", "set", cwd=tmp_path)
    assert done.returncode == 0
    both = (recorded / "set", "set")
    done = run("dataset", "info", *both, cwd=tmp_path)
    assert done.returncode == 1
    assert "mixed: set/part-00000.parquet: llvm_version: expected 22.1." in done.stderr
    done = run("dataset", "export", *both, "--log", "out.log", cwd=tmp_path)
    assert done.returncode == 1
    assert "llvm_version" in done.stderr
    assert not (tmp_path / "out.log").exists()
    done = run("dataset", "export", *both, "--log", "out.log", "--allow-mixed", cwd=tmp_path)
    assert done.returncode == 0
    with (tmp_path / "out.log").open("rb") as file:
        assert len(list(TrainingLogReader(file))) == 2 * 137


def test_one_bad_module_among_good_ones(small_folder: Path, tmp_path: Path) -> None:
    (small_folder / "frame_stream.c.bc").write_bytes(b"no bitcode")
    arguments = ("dataset", "record", "--corpus", small_folder, "--policy", "random")
    done = run(*arguments, "--seed", "7", "--output", "set", "--json", cwd=tmp_path)
    assert done.returncode == 1
    assert "frame_stream.c" in done.stderr
    found = json.loads(done.stdout)
    assert (found["modules"], found["failed"], found["policy"]) == (
        2,
        ["frame_stream.c"],
        "random 7",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info"], "the following arguments are required: DIR"),
        (["record"], "the following arguments are required: --output"),
        (["export", "set"], "one of the arguments --log --tfrecord --minari is required"),
        (["export", "set", "--tfrecord", "x", "--missing-reward", "nan"],
         "argument --missing-reward: expected a number, found 'nan'"),
    ],
)  # fmt: skip
def test_wrong_arguments(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = run("dataset", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


def test_import_of_nothing_and_of_both(tmp_path: Path) -> None:
    for more, found in ((), "neither"), (("x.log", "--minari", "a/b-v0"), "both"):
        done = run("dataset", "import", *more, "--output", "set", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (
            1,
            f"mlgo-gym: error: dataset import: expected files or --minari, found {found}\n",
        )


def test_without_pyarrow(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_PYARROW, "dataset", "info", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "mlgo-gym: error: datasets: need pyarrow; run: pip install 'mlgo-gym[datasets]'\n"
    )


MODELS = Path(__file__).parents[1] / "models"


@pytest.mark.e2e
def test_a_model_is_recorded_under_its_files_hash(small: Corpus, tmp_path: Path) -> None:
    """Another model of the same folder name is another policy, and goes on beside it."""
    corpus = copied(small, ("frame_stream.c",), tmp_path / "corpus")
    command = ("dataset", "record", "--corpus", corpus, "--output", "set", "--model", "m", "--json")
    names = []
    for model in ("never", "default"):
        shutil.copytree(MODELS / model, tmp_path / "m")
        done = run(*command, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        digest = hashlib.sha256()
        for path in sorted((tmp_path / "m").iterdir()):
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
        result = json.loads(done.stdout)
        assert result["policy"] == f"m {digest.hexdigest()[:12]}"
        assert (result["modules"], result["modules_there_already"]) == (1, 0)
        assert result["decisions"] > 10
        again = json.loads(run(*command, cwd=tmp_path).stdout)
        assert (again["modules"], again["modules_there_already"]) == (0, 1)
        names.append(result["policy"])
        shutil.rmtree(tmp_path / "m")
    modules = Dataset.open(tmp_path / "set").modules
    assert sorted(each.key.policy for each in modules) == sorted(names)


def test_the_hash_of_a_model(tmp_path: Path) -> None:
    """Of a file its own; of an address there is none."""
    (tmp_path / "model").write_bytes(b"graph")
    digest = hashlib.sha256(b"." + hashlib.sha256(b"graph").digest()).hexdigest()
    assert _digest(tmp_path / "model") == f" {digest[:12]}"
    assert _digest(tmp_path / "localhost:5000") == ""
