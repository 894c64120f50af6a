"""``mlgo-gym rollout``, ``compile`` and ``freeze``: what they say of models and modules."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.llvm._compiler import llvm_version
from mlgo_gym.problems._inlining_for_size import InliningForSize
from tests.cli.command import run
from tests.cli.test_evaluate import MODELS, copied

BROKEN = "module 'json_write.c': LLVM bitcode parsing error\nInvalid bitcode signature"


@pytest.fixture
def one_of_two(sample: Corpus, tmp_path: Path) -> Path:
    folder = copied(sample, ("json_write.c", "frame_stream.c"), tmp_path / "corpus")
    (folder / "json_write.c.bc").write_bytes(b"no bitcode")
    return folder


@pytest.mark.e2e
def test_a_model_of_another_llvm(sample: Corpus, tmp_path: Path) -> None:
    corpus = copied(sample, ("frame_stream.c",), tmp_path / "corpus")
    shutil.copytree(MODELS / "never", tmp_path / "never")
    sent = [spec.name for spec in InliningForSize().layout.specs]
    for features, new in ((sent[1:], sent[0]), (sent, "none")):
        card = {"problem": "InliningForSize", "llvm_version": "21.0.1", "features": features}
        (tmp_path / "never" / "card.json").write_text(json.dumps(card))
        done = run("rollout", "--corpus", corpus, "--model", "never", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (
            0,
            f"mlgo-gym: model 'never' was trained on LLVM 21.0.1, this is LLVM {llvm_version()}; "
            f"inputs that it does not know: {new}\n",
        )


def test_traces_beside_a_broken_module(one_of_two: Path, tmp_path: Path) -> None:
    arguments = ("--policy", "never", "--traces", "traces", "--log", "x.log")
    done = run("rollout", "--corpus", one_of_two, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: {BROKEN}\n")
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["frame_stream.c.trace"]
    assert "decisions in x.log" in done.stdout


def test_a_corpus_is_compiled_beside_a_broken_module(one_of_two: Path, tmp_path: Path) -> None:
    done = run("compile", "--corpus", one_of_two, "-o", "out", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, f"mlgo-gym: {BROKEN}\n")
    errors = {each["module"]: each.get("error") for each in json.loads(done.stdout)["modules"]}
    assert errors == {"json_write.c": BROKEN, "frame_stream.c": None}
    assert [path.name for path in (tmp_path / "out").rglob("*.o")] == ["frame_stream.c.o"]


def test_freezing_without_a_linker(tmp_path: Path) -> None:
    command = ("freeze", "--model", MODELS / "never", "--output", "frozen", "--json")
    done = run(*command, cwd=tmp_path, PATH="")
    assert (done.returncode, done.stderr) == (
        0,
        "mlgo-gym: no linker found, so there is no shared library\n",
    )
    names = sorted(path.name for path in (tmp_path / "frozen").iterdir())
    assert sorted(Path(each).name for each in json.loads(done.stdout)) == names
    assert names == ["model.h", "model.json", "model.o"]
