"""Recording rollouts: with the real compiler, in one go and in two."""

from __future__ import annotations

import io
import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._episodes import Episode
from mlgo_gym.datasets._header import DatasetHeader
from mlgo_gym.datasets._logs import export_log
from mlgo_gym.datasets._record import header_of, record, remaining
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import DatasetError, OptionsError, UsageError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.rollout._log import RolloutLog
from mlgo_gym.rollout._rollout import rollout
from tests.datasets.samples import same

PROBLEM = InliningForSize()


def recorded(
    folder: Path,
    corpus: Corpus,
    *,
    count: int | None = None,
    problem: Problem = PROBLEM,
    jobs: int = 1,
) -> list[str]:
    """Record the first modules of a corpus; returns which."""
    policy = problem.policy("random", 1)
    with DatasetWriter(folder, header_of(problem)) as writer:
        left = remaining(writer, {"small": corpus}, "random 1")
        found = record(writer, left, problem, "random 1", policy, jobs=jobs)
        reports = list(itertools.islice(found, count))
        found.close()
    assert not any(attempt.decisions for report in reports for attempt in report.attempts)
    return [report.module for report in reports if report.is_complete]


def own(small: Corpus, tmp_path: Path) -> Corpus:
    """A copy of a corpus that a test may change."""
    folder = tmp_path / "own"
    folder.mkdir()
    for name in small:
        for suffix in (".bc", ".cmd"):
            shutil.copy(small.folder / f"{name}{suffix}", folder)
    return Corpus(folder, small.names)


@pytest.mark.e2e
def test_in_two_goes_it_is_the_same(small: Corpus, tmp_path: Path) -> None:
    all_at_once = recorded(tmp_path / "one", small, jobs=2)
    assert sorted(all_at_once) == sorted(small)
    first = recorded(tmp_path / "two", small, count=1)
    second = recorded(tmp_path / "two", small)
    assert sorted(first + second) == sorted(small)
    assert recorded(tmp_path / "two", small) == []
    one, two = (
        sorted(
            Dataset.open(tmp_path / name, problem=PROBLEM).episodes(),
            key=lambda each: each.source.module,
        )
        for name in ("one", "two")
    )
    assert len(one) == 3
    assert all(map(same, one, two))
    assert {each.source.module_sha256 for each in one} == {small[name].sha256 for name in small}
    assert {len(set(each.actions.tolist())) for each in one} == {2}


@pytest.mark.e2e
def test_register_allocation(small: Corpus, tmp_path: Path) -> None:
    problem = RegallocEviction()
    assert len(recorded(tmp_path, small, problem=problem)) == 3
    assert recorded(tmp_path, small, problem=problem) == []
    dataset = Dataset.open(tmp_path, problem=problem)
    assert {entry.module for entry in dataset.modules} == set(small)
    assert any(entry.decisions == 0 for entry in dataset.modules)
    for each in dataset.episodes():
        assert each.context
        assert (each.observations["mask"][range(len(each)), each.actions] == 1).all()
    exported, rolled_out = io.BytesIO(), io.BytesIO()
    export_log(dataset, exported)
    log = RolloutLog(rolled_out, problem)
    policies = {"random 1": problem.policy("random", 1)}
    corpus = small.only(entry.module for entry in dataset.modules)
    for report in rollout(corpus, policies, problem, keep_decisions=True):
        log.write(report)
    assert exported.getvalue() == rolled_out.getvalue()


def test_a_bad_module_is_reported_and_left_out(small: Corpus, tmp_path: Path) -> None:
    corpus = own(small, tmp_path)
    (corpus.folder / "frame_stream.c.bc").write_bytes(b"no bitcode")
    with DatasetWriter(tmp_path / "set", header_of(PROBLEM)) as writer:
        reports = list(
            record(writer, {"p": corpus}, PROBLEM, "default", InliningForSize.policy("default"))
        )
    errors = {each.module: each.error for each in reports if each.error}
    assert list(errors) == ["frame_stream.c"]
    assert "frame_stream.c" in str(errors["frame_stream.c"])
    found = {entry.module for entry in Dataset.open(tmp_path / "set").modules}
    assert found == {"json_write.c", "hash_map.c"}
    with DatasetWriter(tmp_path / "set", header_of(PROBLEM)) as writer:
        assert list(remaining(writer, {"p": corpus}, "default")) == [("p", "frame_stream.c")]
        assert len(remaining(writer, {"p": corpus}, "never")) == 3
        assert len(remaining(writer, {"q": corpus}, "default")) == 3


def test_a_corpus_that_has_changed(small: Corpus, tmp_path: Path) -> None:
    corpus = own(small, tmp_path)
    recorded(tmp_path / "set", corpus, count=2)
    with DatasetWriter(tmp_path / "set", header_of(PROBLEM)) as writer:
        (name, *_) = (key.module for key in writer.keys)
    shutil.copy(corpus.folder / "frame_stream.c.bc", corpus.folder / "json_write.c.bc")
    shutil.copy(corpus.folder / "frame_stream.c.bc", corpus.folder / "hash_map.c.bc")
    with pytest.raises(DatasetError) as caught:
        recorded(tmp_path / "set", corpus)
    assert f"found {corpus[name].sha256}: the corpus has changed since" in str(caught.value)


def test_a_command_line_that_has_changed(small: Corpus, tmp_path: Path) -> None:
    """A dataset would hold decisions of two levels."""
    corpus = own(small, tmp_path)
    (name, *_) = recorded(tmp_path / "set", corpus, count=1)
    path = corpus.folder / f"{name}.cmd"
    path.write_bytes(path.read_bytes().replace(b"-Oz", b"-O3"))
    with pytest.raises(DatasetError) as caught:
        recorded(tmp_path / "set", corpus)
    assert f"module {name!r} of package 'small': expected level Oz, found O3" in str(caught.value)


def test_a_module_that_is_gone_is_left_to_the_compiler(small: Corpus, tmp_path: Path) -> None:
    corpus = own(small, tmp_path)
    recorded(tmp_path / "set", corpus)
    (corpus.folder / "frame_stream.c.bc").unlink()
    with DatasetWriter(tmp_path / "set", header_of(PROBLEM)) as writer:
        left = remaining(writer, {"small": corpus}, "random 1")
        assert list(left) == [("small", "frame_stream.c")]


def test_another_llvm_is_refused(small: Corpus, tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, DatasetHeader.of(PROBLEM, "21.1.8")) as writer:
        list(
            record(
                writer, small.only(["frame_stream.c"]), PROBLEM, "default",
                InliningForSize.policy("default"),
            )
        )  # fmt: skip
    with pytest.raises(DatasetError, match=r"llvm_version: expected 22\.1\.\d, found 21\.1\.8"):
        recorded(tmp_path, small)


def test_misuse(small: Corpus, tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="opt_level"):
        header_of(PROBLEM, "O9")
    with DatasetWriter(tmp_path, header_of(PROBLEM)) as writer:
        other = InliningForSize(3)
        found = record(writer, small, other, "default", InliningForSize.policy("default"))
        with pytest.raises(UsageError) as caught:
            next(found)
    assert "expected settings {'problem': 'InliningForSize'" in str(caught.value)


def test_where_each_decision_is(small: Corpus, tmp_path: Path) -> None:
    corpora = {"small": small.only(["frame_stream.c"])}
    policy = PROBLEM.policy("never")
    read: list[Episode] = []
    for sites in (False, True):
        with DatasetWriter(tmp_path / str(sites), header_of(PROBLEM)) as writer:
            list(record(writer, corpora, PROBLEM, "never", policy, sites=sites))
        read += Dataset.open(tmp_path / str(sites)).episodes()
    plain, sited = read
    assert same(replace(sited, sites=()), plain)
    assert [site.caller for site in sited.sites] == [s.calls[-1].function for s in sited.sites]
