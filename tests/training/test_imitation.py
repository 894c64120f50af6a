"""``clone`` and ``imitate``: networks that answer as recorded."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.errors import OptionsError, TrainingError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.rollout._replay import record
from mlgo_gym.rollout._rollout import Failure
from mlgo_gym.rollout._trace import Trace
from mlgo_gym.search._corpus_search import search_corpus
from mlgo_gym.search._goal import SearchSetting
from mlgo_gym.training import _clone as clone
from mlgo_gym.training import _imitate as imitate
from mlgo_gym.training._data import Data
from mlgo_gym.training._fitting import FitConfig, FittedConfig, rows_of
from mlgo_gym.training._run import TrainingRun

FIT = FitConfig(epochs=30, batch_size=64)


@pytest.fixture
def data(sample: Corpus) -> Data:
    return Data(
        Packages.of({"sample": sample.only(("graph.cpp", "frame_stream.c"))}),
        Packages.of({"sample": sample.only(("scene.cpp", "hash_map.c"))}),
    )


@pytest.mark.e2e
def test_a_clone_of_the_default_changes_nothing(data: Data, tmp_path: Path) -> None:
    config = clone.Config(hidden=(16,), fit=FIT)
    with TrainingRun(tmp_path / "run", "clone", InliningForSize(), config) as run:
        found = clone.train(run, config, data)
    assert found.modules == 2
    assert abs(found.changes["text"]) < 0.03


@pytest.mark.e2e
def test_a_clone_of_another_policy_is_that_policy(data: Data, tmp_path: Path) -> None:
    config = clone.Config(policy="never", hidden=(16,), fit=FIT)
    with TrainingRun(tmp_path / "run", "clone", InliningForSize(), config) as run:
        found = clone.train(run, config, data)
    assert found.changes["text"] > 0.2


@pytest.mark.e2e
def test_eviction_is_cloned_too(data: Data, tmp_path: Path) -> None:
    config = clone.Config(hidden=(16,), fit=FIT)
    with TrainingRun(tmp_path / "run", "clone", RegallocEviction(), config) as run:
        found = clone.train(run, config, data)
    assert set(found.changes) >= {"score", "score_mean"}
    assert abs(found.changes["score_mean"]) < 0.3


@pytest.mark.e2e
def test_traces_of_a_search_are_imitated(data: Data, sample: Corpus, tmp_path: Path) -> None:
    corpus = replace(sample, names=("scene.cpp", "frame_stream.c", "json_write.c"))
    setting = SearchSetting(budget_s=2)
    searches = search_corpus(corpus, tmp_path / "traces", InliningForSize(), setting)
    with closing(searches):
        assert not [each.error for each in searches if each.error]
    config = imitate.Config(traces=str(tmp_path / "traces"), hidden=(16,), fit=FIT)
    with TrainingRun(tmp_path / "run", "imitate", InliningForSize(), config) as run:
        found = imitate.train(run, config, data)
        assert run.model.is_dir()
    assert found.modules == 2
    warnings: list[Failure] = []
    other = InliningForSize(7.0)
    with (
        TrainingRun(tmp_path / "other", "imitate", other, config) as run,
        pytest.raises(TrainingError) as error,
    ):
        imitate.train(run, config, replace(data, warn=warnings.append))
    assert str(error.value) == "imitation: expected recorded decisions, found none"
    path = next((tmp_path / "traces").rglob("frame_stream.c.trace"))
    assert f"trace {str(path)!r}: size_increase_threshold: expected 7.0, found 2.0" in map(
        str, warnings
    )


def test_what_traces_are_imitated(
    data: Data, sample: Corpus, compiler: Compiler, tmp_path: Path
) -> None:
    """Those of the same LLVM and settings; where they depart from the default they weigh more."""
    folder = tmp_path / "traces"
    problem = InliningForSize()

    def trace(name: str, limit: InliningForSize = problem) -> Trace:
        return record(compiler, sample[name], limit, lambda _: 0, keep_observations=True)

    kept = trace("digest.c")
    kept.save(folder / "2.trace")
    replace(kept, llvm_version="21.0").save(folder / "0.trace")
    trace("digest.c", InliningForSize(7.0)).save(folder / "1.trace")
    trace("hash_map.c").save(folder / "3.trace")  # which the result is chosen by
    other = trace("json_write.c")
    other.save(folder / "4.trace")
    config = imitate.Config(traces=str(folder))
    warnings: list[Failure] = []
    with TrainingRun(tmp_path / "run", "imitate", problem, config) as run:
        paths = sorted(folder.iterdir())
        found = list(imitate._episodes(run, config, replace(data, warn=warnings.append), paths))
    assert list(map(len, found)) == [kept.decisions, other.decisions]
    for each in found:
        inlined = each.observations["inlining_default"].reshape(-1) != 0
        assert set(inlined) == {True, False}
        assert each.labels["sample_weight"].tolist() == np.where(inlined, 3.0, 1.0).tolist()
    assert list(map(str, warnings)) == [
        f"trace '{folder}/0.trace': llvm_version: expected {kept.llvm_version}, found 21.0",
        f"trace '{folder}/1.trace': size_increase_threshold: expected 2.0, found 7.0",
    ]


def test_no_traces_is_an_error(data: Data, tmp_path: Path) -> None:
    for folder in ("", str(tmp_path / "nothing")):
        config = imitate.Config(traces=folder)
        with (
            TrainingRun(
                tmp_path / f"run{folder == ''}", "imitate", InliningForSize(), config
            ) as run,
            pytest.raises(OptionsError) as error,
        ):
            imitate.train(run, config, data)
        assert str(error.value) == (
            f"traces: expected a folder with traces, found {folder!r}; "
            "--set traces=DIR names what 'search --output DIR' has left"
        )


def test_no_decisions_is_an_error() -> None:
    with pytest.raises(TrainingError, match="expected recorded decisions, found none"):
        rows_of([], InliningForSize(), FittedConfig())


def test_what_cannot_be_imitated(
    data: Data, sample: Corpus, compiler: Compiler, tmp_path: Path
) -> None:
    """Another problem's decisions, and traces of which none is of these settings."""
    trace = record(
        compiler,
        sample["frame_stream.c"],
        InliningForSize(7.0),
        lambda _: 0,
        keep_observations=True,
    )
    trace.save(tmp_path / "traces" / "0.trace")
    config = imitate.Config(traces=str(tmp_path / "traces"))
    warnings: list[Failure] = []
    for problem, message in (
        (RegallocEviction(), "imitate: expected InliningForSize, found RegallocEviction"),
        (InliningForSize(), "imitation: expected recorded decisions, found none"),
    ):
        run = TrainingRun(tmp_path / problem.name, "imitate", problem, config)
        with run, pytest.raises(TrainingError) as error:
            imitate.train(run, config, replace(data, warn=warnings.append))
        assert str(error.value) == message
    assert list(map(str, warnings)) == [
        f"trace '{tmp_path}/traces/0.trace': size_increase_threshold: expected 2.0, found 7.0"
    ]


@pytest.mark.e2e
def test_a_clone_in_no_time(sample: Corpus, tmp_path: Path) -> None:
    """Of the first module alone, after one epoch."""
    packages = Packages.of({"sample": sample.only(("frame_stream.c", "hash_map.c"))})
    data = Data(packages, Packages.of({"sample": sample.only(("json_write.c",))}))
    config = clone.Config(policy="never", hidden=(2,), fit=FIT)
    folder = tmp_path / "run"
    with TrainingRun(folder, "clone", InliningForSize(), config, budget_s=1e-6) as run:
        assert clone.train(run, config, data).modules == 1
    (recorded,) = Dataset.open(folder / "decisions").modules
    assert recorded.key.policy == "never"
    progress = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    assert [each["step"] for each in progress if "fit/loss" in each] == [0]


def test_nothing_to_clone(tmp_path: Path) -> None:
    (tmp_path / "broken.c.bc").write_bytes(b"no bitcode")
    warnings: list[Failure] = []
    broken = Packages.of({"mine": Corpus(tmp_path, ("broken.c",))})
    config = clone.Config()
    run = TrainingRun(tmp_path / "run", "clone", InliningForSize(), config)
    with run, pytest.raises(TrainingError) as error:
        clone.train(run, config, Data(broken, broken, warn=warnings.append))
    assert str(error.value) == ("clone: expected modules to train on, found none that compiles")
    assert set(map(str, warnings)) == {
        "module 'broken.c': LLVM bitcode parsing error\nInvalid bitcode signature"
    }
