"""``mlgo-gym vocabulary train``: its files, what LLVM makes of them, and what it refuses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from corpus_tools.manifest import MANIFEST_NAME
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS
from mlgo_gym.problems._vocabulary import Vocabulary
from tests.cli.command import check_refused, run
from tests.conftest import require

TRAIN = ("vocabulary", "train", "--output", "v.json")


@pytest.fixture
def tool() -> str:
    return require("llvm-ir2vec-22", "llvm-22")


def trained(folder: Path, corpus: Path, *options: str) -> tuple[bytes, str]:
    folder.mkdir()
    done = run(*TRAIN, "--corpus", corpus, *options, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "v.json: " in done.stdout
    return (folder / "v.json").read_bytes(), (folder / "v.card.json").read_text()


def test_two_runs_make_the_same_bytes(tool: str, small_folder: Path, tmp_path: Path) -> None:
    del tool
    options = ("--dimension", "5", "--epochs", "2", "--seed", "3")
    first, second = (trained(tmp_path / each, small_folder, *options) for each in "ab")
    assert first == second
    card = json.loads(first[1])
    assert (card["dimension"], card["epochs"], card["seed"]) == (5, 2, 3)


def test_a_module_that_is_left_out(tool: str, small_folder: Path, tmp_path: Path) -> None:
    del tool
    (small_folder / "json_write.c.bc").write_bytes(b"no bitcode")
    done = run(*TRAIN, "--corpus", small_folder, "--dimension", "4", "--epochs", "1", cwd=tmp_path)
    message = "module 'json_write.c': expected bitcode, found something else; left out"
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: {message}\n")
    assert (tmp_path / "v.json").exists()


@pytest.mark.smoke
@pytest.mark.e2e
def test_llvm_takes_what_the_sample_makes(tool: str, small_folder: Path, tmp_path: Path) -> None:
    """LLVM's tool does, and so does the LLVM that compiles."""
    done = run(*TRAIN, "--json", cwd=tmp_path)
    card = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    path = tmp_path / "v.json"
    assert (card["vocabulary"], card["card"]) == ("v.json", "v.card.json")
    found = Vocabulary.of(path)
    assert (found.dimension, found.sha256) == (75, card["sha256"])
    assert card["trained_on"]["modules"] == {"sample": 22}
    assert card["mean_rank"] < 3
    module = SAMPLE_CORPUS / "frame_stream.c.bc"
    command = [tool, "embeddings", f"--ir2vec-vocab-path={path}", str(module)]
    text = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert text.count("Function:") > 3
    compiled = run("rollout", "--corpus", small_folder, "--ir2vec", "v.json", cwd=tmp_path)
    assert (compiled.returncode, compiled.stderr) == (0, "")


def test_what_is_refused(small_folder: Path, tmp_path: Path) -> None:
    train = (*TRAIN, "--corpus", small_folder)
    done = run(*train, "--dimension", "0", cwd=tmp_path)
    said = "argument --dimension: expected a whole number of at least 1, found '0'"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        f"mlgo-gym vocabulary train: error: {said}",
    )
    for options, environment, message in (
        (
            ("--dimension", "5000"),
            {},
            "dimension: expected a number from 1 to 4096, found 5000",
        ),
        (
            (),
            {"PATH": ""},
            "vocabulary: expected llvm-ir2vec of LLVM 22 on PATH, found none; on Debian or "
            "Ubuntu: apt-get install llvm-22",
        ),
        (
            ("--output", "small corpus/json_write.c.bc/v.json"),
            {},
            "cannot write 'small corpus/json_write.c.bc/v.json': Not a directory",
        ),
    ):
        done = run(*train, *options, cwd=tmp_path, **environment)
        assert (done.returncode, done.stderr) == (1, f"mlgo-gym: error: {message}\n")
    manifest = {"modules": [], "has_thinlto": False}
    (small_folder / MANIFEST_NAME).write_text(json.dumps(manifest))
    message = f"corpus {str(small_folder)!r}: expected at least one module, found none"
    check_refused(message, *train, cwd=tmp_path)
    assert [path.name for path in tmp_path.glob("v.*")] == []
