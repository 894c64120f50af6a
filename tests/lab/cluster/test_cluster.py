"""A Ray cluster of several nodes on this machine: the same results, whoever goes meanwhile."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from corpus_tools import Clang, build_corpus, find_clang, load_recipe
from mlgo_gym.cli._main import main
from mlgo_gym.cli.show._output import Output
from mlgo_gym.corpus import _corpus
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus, Module
from mlgo_gym.corpus._packages import Packages
from mlgo_gym.curation import _building
from mlgo_gym.curation._building import Builders
from mlgo_gym.datasets._dataset import Dataset
from mlgo_gym.datasets._record import header_of, record
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import (
    EnvironmentSetupError,
    ModuleError,
    OptionsError,
    PolicyError,
    UsageError,
)
from mlgo_gym.evaluation._evaluate import evaluate
from mlgo_gym.evaluation._summary import ModuleScores
from mlgo_gym.lab.cluster import _ray_executor, _ray_worker
from mlgo_gym.lab.cluster._cluster import RayCluster
from mlgo_gym.lab.cluster._ray_worker import FREE_BYTES, facts
from mlgo_gym.lab.cluster.commands._ray import _cluster
from mlgo_gym.lab.programs._program import Programs
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._schedule import Jobs, each, workers
from mlgo_gym.llvm._zygote import zygote_pid
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.rollout._rollout import ModuleReport, rollout
from mlgo_gym.search._corpus_search import search_corpus
from mlgo_gym.search._goal import SearchSetting
from mlgo_gym.testing import check_executor
from mlgo_gym.training import _group as group
from mlgo_gym.training._advantage import train
from mlgo_gym.training._data import Data
from mlgo_gym.training._labels import LabelSetting, label_modules
from mlgo_gym.training._run import TrainingRun
from tests.cli.command import run
from tests.cli.test_corpus_build import tiny
from tests.cli.test_timeline import lanes
from tests.lab.cluster import work
from tests.training.test_advantage import QUICK
from tests.training.test_group import QUICK as GROUP
from tests.waiting import remove, wait_for

ROOT = Path(__file__).parents[3]
PROBLEM = InliningForSize()
EVICTION = RegallocEviction()
COMPILER = "mlgo_gym.llvm.worker._zygote_child"
BARE = "import sys; sys.modules.update(tensorflow=None, keras=None)"
"""What has nodes lack what only the head needs."""

NAMES = ("bignum.c", "digest.c", "hash_map.c", "json_write.c", "lru_cache.cpp", "scene.cpp")


@pytest.fixture(autouse=True)
def own_temporary_folder() -> None:
    """What a cluster leaves is looked for when it has ended: it starts processes when it likes."""


class Nodes:
    """A cluster: a head, and nodes of one CPU each that come and go."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster  # noqa: PLC0415 (slow to import)

        self._path = os.pathsep.join([str(folder), str(ROOT)])
        self._arguments: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 << 20}
        # The usual port of a head's agent is taken where another test has a cluster, too.
        head = {"include_dashboard": False, "dashboard_agent_listen_port": 0, **self._arguments}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address

    def add(self, **variables: str) -> Any:
        path = os.pathsep.join(filter(None, [variables.get("PYTHONPATH"), self._path]))
        return self._cluster.add_node(env_vars={**variables, "PYTHONPATH": path}, **self._arguments)

    def kill(self, node: Any) -> None:
        self._cluster.remove_node(node, allow_graceful=False)

    def leave_one(self) -> None:
        for node in self.others:
            self.kill(node)
        self.settle()

    def settle(self) -> None:
        """Wait until Ray knows who is there, also of who was killed a moment ago."""
        ray = importlib.import_module("ray")
        wait_for(lambda: sum(each["Alive"] for each in ray.nodes()) == 1 + len(self.others))

    @property
    def others(self) -> list[Any]:
        return list(self._cluster.worker_nodes)

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """One cluster for all, which this process is connected to."""
    before = children()
    # Sockets have short names, and processes that are killed leave files.
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="ray-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex())  # else one is written to ~/.ray
        patch.setenv("RAY_worker_niceness", "0")  # else it is 15: others would starve them
        (folder / "sitecustomize.py").write_text(BARE)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(ROOT)]))
        made = Nodes(folder)
        with RayCluster(made.address):
            yield made
        made.close()
    wait_for(lambda: not children() - before)
    remove(folder)


def children() -> set[int]:
    """This process's, but for the zygote that all its workers come from."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                found.add(child.pid)
    return found - {zygote_pid()}


@contextmanager
def three(nodes: Nodes) -> Iterator[None]:
    """The cluster has three nodes at least."""
    while len(nodes.others) < 2:
        nodes.add()
    nodes.settle()
    yield


def scores(jobs: Jobs, track: Callable[..., Any] = lambda found, _: found) -> str:
    """An evaluation of a model and two policies, all of it."""
    policies: dict[str, PolicyLike] = {"never": lambda _: 0, "random": PROBLEM.policy("random", 3)}
    corpus = {"sample": Corpus.load(SAMPLE_CORPUS).only(NAMES)}
    found = evaluate("inlining-for-size", corpus, policies=policies, jobs=jobs, track=track)
    return f"{found}\n{found.scores!r}"


def labels(jobs: Jobs) -> list[tuple[str, bytes]]:
    """What a round of labels says of two modules."""
    packages = Packages.of({"sample": Corpus.load(SAMPLE_CORPUS).only(("digest.c", "scene.cpp"))})
    setting = LabelSetting(jobs=jobs)
    found = label_modules(packages, PROBLEM.policy("never"), "never", {}, setting)
    return [
        (f"{done.item}: {name}", column.tobytes())
        for done in found
        if (episode := done.value.episode)
        for name, column in episode.labels.items()
    ]


def reports(jobs: Jobs) -> list[ModuleReport]:
    corpus = {"sample": Corpus.load(SAMPLE_CORPUS).only(NAMES)}
    policies = {"always": PROBLEM.policy("always")}
    return list(rollout(corpus, policies, PROBLEM, jobs=jobs, keep_decisions=True))


def dataset(jobs: Jobs, folder: Path) -> dict[str, bytes]:
    """What a dataset's files hold."""
    corpora = {"sample": Corpus.load(SAMPLE_CORPUS).only(NAMES)}
    with DatasetWriter(folder, header_of(PROBLEM)) as writer:
        list(record(writer, corpora, PROBLEM, "never", PROBLEM.policy("never"), jobs=jobs))
    return files(folder)


def training(jobs: Jobs, folder: Path) -> dict[str, bytes]:
    """What a run of two rounds leaves."""
    names = ("graph.cpp", "lru_cache.cpp", "scene.cpp"), ("frame_stream.c", "interval_tree.cpp")
    with TrainingRun(folder, "advantage", PROBLEM, QUICK) as run:
        train(run, QUICK, data_of(*names, jobs=jobs))
    return left(folder)


def trials(
    jobs: Jobs, folder: Path, report: Callable[..., None] = lambda *_: None
) -> dict[str, bytes]:
    """What `group` leaves: two generations of functions, and one of modules."""
    names = ("expr_vm.c", "frame_stream.c"), ("codec_text.c",)
    for problem, generations in ((EVICTION, 2), (PROBLEM, 1)):
        config = replace(GROUP, generations=generations)
        with TrainingRun(folder / problem.name, "group", problem, config, report=report) as run:
            group.train(run, config, data_of(*names, jobs=jobs))
    return left(folder)


def data_of(*names: Sequence[str], jobs: Jobs) -> Data:
    sample = Corpus.load(SAMPLE_CORPUS)
    trained_on, held_out = (Packages.of({"sample": sample.only(each)}) for each in names)
    return Data(trained_on, held_out, jobs=jobs)


def left(folder: Path) -> dict[str, bytes]:
    """What a run leaves, but for times and what TensorFlow names as it likes."""
    timed = ("checkpoint.npz", "progress.jsonl", "tensorboard", "saved_model.pb", "model.tflite")
    found = files(folder)
    arrays = {
        f"{path.relative_to(folder)}:{name}": array.tobytes()
        for path in folder.rglob("checkpoint.npz")
        for name, array in np.load(path).items()
        if name != "state"
    }
    return arrays | {
        name: each for name, each in found.items() if not any(e in name for e in timed)
    }


def files(folder: Path) -> dict[str, bytes]:
    found = (each for each in folder.rglob("*") if each.is_file() and each.name != ".lock")
    return {str(each.relative_to(folder)): each.read_bytes() for each in found}


def values(items: Iterable[int], done: Callable[..., Any], jobs: Jobs) -> list[Any]:
    return [found.value for found in each(items, done, work.Desk, jobs=jobs, in_order=True)]


@pytest.mark.e2e
def test_equal_results_wherever(nodes: Nodes, tmp_path: Path) -> None:
    """One worker here, two here, one node, three nodes."""

    def results(jobs: Jobs, name: str) -> tuple[Any, ...]:
        return scores(jobs), reports(jobs), dataset(jobs, tmp_path / name)

    plain = results(1, "one")
    assert results(2, "two") == plain
    nodes.leave_one()
    with RayCluster(nodes.address) as cluster:
        assert results(cluster, "node") == plain
        with three(nodes):
            assert results(cluster, "nodes") == plain


@pytest.mark.e2e
def test_equal_labels_and_models(nodes: Nodes, tmp_path: Path) -> None:
    plain = training(1, tmp_path / "one")
    assert {"labels/part-00001.parquet", "model/weights.npz", "survey.json"} <= plain.keys()
    assert training(2, tmp_path / "two") == plain
    nodes.leave_one()
    with RayCluster(nodes.address) as cluster:
        assert training(cluster, tmp_path / "node") == plain
    with three(nodes), RayCluster(nodes.address) as cluster:
        assert training(cluster, tmp_path / "nodes") == plain


@pytest.mark.e2e
def test_equal_trials(nodes: Nodes, tmp_path: Path) -> None:
    """Also where a node goes between two generations."""

    def report(step: int, values: Mapping[str, float]) -> None:
        if step == 1 and "collect/decisions" in values:
            nodes.kill(nodes.others[0])

    plain = trials(1, tmp_path / "one")
    for problem in (EVICTION, PROBLEM):
        assert {
            f"{problem.name}/{each}"
            for each in ("contexts/trained-on.npz", "checkpoint.npz:average.0")
        } <= plain.keys()
    with three(nodes), RayCluster(nodes.address) as cluster:
        assert trials(cluster, tmp_path / "nodes", report) == plain


@pytest.mark.e2e
def test_nodes_that_join_and_go(nodes: Nodes) -> None:
    """While there is work: who joins has a share, and what who goes had is done again."""
    with three(nodes), RayCluster(nodes.address) as cluster:
        seen: set[int] = set()
        found = each(range(10_000), work.process, work.Desk, jobs=cluster)
        with closing(found):
            for done in found:
                seen.add(done.value)
                if len(seen) == 3:
                    break
            nodes.kill(nodes.others[0])
            nodes.add()
            for done in found:
                seen.add(done.value)
                if len(seen) == 4 and lost_workers(cluster):
                    break
        assert (len(seen), lost_workers(cluster)) == (4, 1)


def lost_workers(cluster: RayCluster) -> int:
    """How many are known to be: of who has nothing to do it is not noticed."""
    return sum(each.lost_workers for each in cluster.work)


@pytest.mark.e2e
@pytest.mark.parametrize("moment", [1, 3, 5])
def test_a_node_that_is_killed(nodes: Nodes, moment: int) -> None:
    def track(found: Iterable[ModuleScores], _: int) -> Iterator[ModuleScores]:
        for count, done in enumerate(found, 1):
            if count == moment:
                nodes.kill(nodes.others[0])
            yield done

    with three(nodes), RayCluster(nodes.address) as cluster:
        assert scores(cluster, track) == scores(1)


@pytest.mark.e2e
def test_what_each_node_has_done(nodes: Nodes) -> None:
    """What a lost worker had is counted where it was done; one that failed is a failure."""
    corpus = {"sample": Corpus.load(SAMPLE_CORPUS).only(NAMES)}
    policies = {"always": PROBLEM.policy("always")}
    with three(nodes), RayCluster(nodes.address) as cluster:
        assert cluster.work == []
        asked = 0
        found = rollout(corpus, policies, PROBLEM, jobs=cluster, keep_decisions=True)
        with closing(found):
            for count, report in enumerate(found):
                asked += len(report.attempts[0].decisions)
                if count == 0:
                    nodes.kill(nodes.others[0])
        list(each(range(4), work.picky, work.Desk, jobs=cluster))
        by_node = cluster.work
    assert {each.node for each in by_node} == {socket.gethostname()}
    assert sum(each.items for each in by_node) == len(NAMES) + 4
    assert sum(each.failures for each in by_node) == 2
    assert sum(each.compilations for each in by_node) == 2 * len(NAMES)
    assert sum(each.decisions for each in by_node) == asked > 100
    assert all(each.busy_s > 0 for each in by_node if each.items)


@pytest.mark.e2e
def test_a_timeline_of_nodes(
    nodes: Nodes,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is drawn is what is drawn of workers here, in lanes of nodes, and none overlaps."""
    monkeypatch.setattr(_ray_executor, "_MEETING_S", 300.0)  # however busy
    command = ["rollout", "--policy", "never", "--json", "--timeline"]

    def drawn(*arguments: str) -> tuple[list[Any], list[str]]:
        path = tmp_path / "timeline"
        assert main([*command, str(path), *arguments]) == 0
        capfd.readouterr()
        found = lanes(path.read_bytes())
        slices = [
            (level, name, str(notes.get("decisions", notes.get("answer"))))
            for slices in found.values()
            for name, _, _, notes, level in slices
        ]
        return sorted(slices), sorted(found)

    with three(nodes):
        there, names = drawn("--ray", nodes.address)
    here, _ = drawn()
    assert there == here
    assert len(names) > 1
    for name in names:
        assert re.fullmatch(rf"{re.escape(socket.gethostname())}: worker \d+", name)


@pytest.mark.e2e
def test_a_cluster_keeps_the_contract(nodes: Nodes, tmp_path: Path) -> None:
    with three(nodes), RayCluster(nodes.address, workers=2) as cluster:
        check_executor(cluster, workers=2, folder=tmp_path)
    wait_for(lambda: not actors())


@pytest.mark.e2e
def test_what_a_policy_raises_on_a_node(nodes: Nodes) -> None:
    with RayCluster(nodes.address) as cluster:
        with pytest.raises(PolicyError, match="ValueError: 0"):
            values([0], work.refuse, cluster)
        assert values(range(50), work.double, cluster) == [2 * item for item in range(50)]


@pytest.mark.e2e
def test_an_item_that_takes_its_workers_along(nodes: Nodes) -> None:
    with RayCluster(nodes.address) as cluster:
        found = list(each(range(6), work.deadly, work.Desk, jobs=cluster, in_order=True))
    errors = {done.item: str(done.error) for done in found if done.error}
    assert errors == {
        3: "module '3': expected a worker that does it, found 4 that were lost over it"
    }
    assert [done.value for done in found if not done.error] == [0, 2, 4, 8, 10]


def actors() -> list[int]:
    """The workers of a cluster, as Ray calls them."""
    return [each for each in children() if "ray::RemoteWorker" in command(each)]


def command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:
        return ""


@pytest.mark.e2e
def test_workers_and_their_compilers_end(nodes: Nodes) -> None:
    """Also where a compiler is at work."""
    corpus = Corpus.load(SAMPLE_CORPUS)
    with RayCluster(nodes.address) as cluster:
        before = children()
        found = each(corpus.names, work.compiled, Compiler, read=corpus.__getitem__, jobs=cluster)
        with closing(found):
            next(found)
            assert actors()
        wait_for(lambda: not [each for each in children() - before if COMPILER in command(each)])


@pytest.mark.e2e
def test_modules_that_only_the_head_can_read(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They travel, however large they are; one that cannot be read is an error of its own."""
    monkeypatch.setattr(_corpus, "file_stamp", lambda path: (len(path), 0))  # as here alone
    monkeypatch.setattr(_ray_executor, "SMALL_BYTES", 3000)
    monkeypatch.setattr(_ray_executor, "STORED_BYTES", 10_000)
    sample = Corpus.load(SAMPLE_CORPUS)
    shutil.copytree(sample.folder, tmp_path / "corpus")
    corpus = Corpus.load(tmp_path / "corpus").only(NAMES)
    (corpus.folder / "digest.c.bc").unlink()
    packages = Packages.of(corpus)
    for read in (packages.keyed, lambda key: (key, packages[key])):
        with RayCluster(nodes.address) as cluster:
            found = list(
                each(packages, work.named, work.Desk, read=read, jobs=cluster, in_order=True)
            )
        assert [done.item.name for done in found if done.error] == ["digest.c"]
        for done in found:
            if not done.error:
                assert done.value == (done.item.name, sample[done.item.name])


@pytest.mark.e2e
def test_modules_that_nodes_can_read(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read here, but for what is there no more."""
    shutil.copytree(SAMPLE_CORPUS, tmp_path / "corpus")
    packages = Packages.of(Corpus.load(tmp_path / "corpus").only(NAMES))
    (tmp_path / "corpus" / "digest.c.bc").unlink()
    monkeypatch.setattr(_corpus, "_read", unread)
    with RayCluster(nodes.address) as cluster:
        found = list(each(packages, work.named, work.Desk, read=packages.keyed, jobs=cluster))
    errors = {done.item.name: str(done.error) for done in found if done.error}
    assert errors == {"digest.c": "module 'digest.c': not read here"}
    assert {done.value[0] for done in found if not done.error} == {*NAMES} - {"digest.c"}


def unread(name: str, *_: object, **__: object) -> Module:
    raise ModuleError(name, "not read here")


OTHERWISE = {
    "Python": "import platform; platform.python_version = lambda: '0.1.1'",
    "LLVM": "import sys\nif any('default_worker' in each for each in sys.orig_argv):\n"
    "    import llvmlite.binding; llvmlite.binding.llvm_version_info = 0, 1, 1",
}
"""What has a node say another version of what is no package."""


@pytest.mark.e2e
@pytest.mark.parametrize("what", ["Python", "Ray", "mlgo_gym", "llvmlite", "LLVM"])
def test_a_node_with_another_version(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It is refused before anybody has worked."""
    monkeypatch.setattr(_ray_executor, "_MEETING_S", 300.0)  # however busy
    if what in OTHERWISE:
        (tmp_path / "sitecustomize.py").write_text(OTHERWISE[what])
    else:
        about = tmp_path / f"{what.lower()}-0.1.1.dist-info"
        about.mkdir()
        name = what.lower().replace("_", "-")
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.1\n")
    node = nodes.add(PYTHONPATH=str(tmp_path))
    marks = tmp_path / "marks"
    marks.mkdir()
    try:
        with (
            RayCluster(nodes.address) as cluster,
            pytest.raises(EnvironmentSetupError) as error,
        ):
            list(each(range(50), work.Mark(marks), work.Desk, jobs=cluster))
    finally:
        nodes.kill(node)
    expected = facts()[what]
    found = " ".join(["0.1.1", *expected.split()[1:]])  # the code of mlgo_gym is the same
    assert str(error.value) == (
        f"ray: node {socket.gethostname()}: {what}: expected {expected}, as here, found {found}: "
        "results could not be compared"
    )
    assert list(marks.iterdir()) == []


@pytest.mark.e2e
def test_work_that_cannot_be_sent(nodes: Nodes) -> None:
    lock = threading.Lock()
    with (
        RayCluster(nodes.address) as cluster,
        pytest.raises(UsageError, match=r"^ray: expected work that can be sent, found .*lock"),
    ):
        list(each([1], lambda _, item: (lock, item), work.Desk, jobs=cluster))


class Elsewhere:
    """Work that can be loaded nowhere but here."""

    def __call__(self, _: work.Desk, item: int) -> int:
        return item

    def __reduce__(self) -> tuple[Callable[[], Elsewhere], tuple[()]]:
        return work.unloadable, ()


@pytest.mark.e2e
def test_work_that_a_node_cannot_load(nodes: Nodes) -> None:
    with (
        RayCluster(nodes.address) as cluster,
        pytest.raises(EnvironmentSetupError, match="cannot load what it is to do: .*CPU lacks"),
    ):
        values([1], Elsewhere(), cluster)


@pytest.mark.e2e
def test_workers_that_stay_open_leave_room(nodes: Nodes) -> None:
    """For other work between two runs of theirs, but not amid one."""
    with RayCluster(nodes.address) as cluster, workers(work.Desk, cluster) as staying:
        for _ in range(2):
            found = each(range(3), work.double, staying, in_order=True)
            assert [done.value for done in found] == [0, 2, 4]
            assert values(range(3), work.double, cluster) == [0, 2, 4]
        with closing(each(range(100), work.double, staying)) as running:
            next(running)
            with pytest.raises(UsageError, match="expected one run at a time"):
                values([1], work.double, cluster)
            assert len(list(running)) == 99


@pytest.mark.e2e
def test_labels_and_programs(nodes: Nodes) -> None:
    """What trainers and programs are made of, beside rollouts."""
    corpus = Corpus.load(SAMPLE_CORPUS)

    def objects(jobs: Jobs) -> list[str]:
        with Programs(corpus, jobs=jobs) as programs:
            return [each.object_sha256 for each in programs.plain().values()]

    with RayCluster(nodes.address) as cluster:
        assert labels(cluster) == labels(1)
        assert sorted(objects(cluster)) == sorted(objects(2))


@pytest.mark.e2e
def test_a_search(nodes: Nodes, tmp_path: Path) -> None:
    """What is found on nodes is written here, and gone on with."""
    corpus = Corpus.load(SAMPLE_CORPUS).only(("digest.c", "scene.cpp"))
    setting = SearchSetting(budget_s=0.5)
    with RayCluster(nodes.address) as cluster:
        found = list(search_corpus(corpus, tmp_path, PROBLEM, setting, jobs=cluster))
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "digest.c.search.json", "digest.c.trace", "scene.cpp.search.json", "scene.cpp.trace"
    ]  # fmt: skip
    again = list(search_corpus(corpus, tmp_path, PROBLEM, setting))
    assert sorted(again, key=str) == sorted(found, key=str)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ["search", "--build", "compile_commands.json"],
            "search: expected --build without --ray: clang compiles a build here",
        ),
    ],
)
def test_what_is_done_here_alone(
    nodes: Nodes,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    command: list[str],
    message: str,
) -> None:
    assert main([*command, "--output", str(tmp_path / "new"), "--ray", nodes.address]) == 1
    assert capfd.readouterr().err == f"mlgo-gym: error: {message}\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.e2e
def test_a_search_by_a_reward(nodes: Nodes, tmp_path: Path) -> None:
    """An estimate is had anywhere; programs run here alone."""
    packages = {"sample": Corpus.load(SAMPLE_CORPUS).only(("json_write.c",))}
    setting = SearchSetting(budget_s=0.5)
    with RayCluster(nodes.address) as cluster:
        by = partial(search_corpus, packages, tmp_path, PROBLEM, setting, jobs=cluster)
        (found,) = by(reward="text:0.5,estimate:0.5")
        assert "expected counts of its functions" in str(found.error)
        with pytest.raises(UsageError, match="^reward 'instructions': expected workers on this"):
            list(by(reward="instructions"))


@pytest.mark.e2e
def test_a_build(nodes: Nodes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two packages, the second with a source that does not compile; no node sees the sources."""
    header = {"lib/twice.h": "#include <string.h>\n#define TWICE(x) (2 * (x))\n"}
    good = {f"lib/{name}.c": f'#include "twice.h"\nint {name}(int x) {{ return TWICE(x); }}\n'
            for name in "abcd"}  # fmt: skip
    cpp = {"lib/e.cpp": "#include <vector>\nstd::vector<int> e() { return {__LINE__}; }\n"}
    bad = {"b.c": "int b(void) { return __LINE__; }\n", "c.c": "#error no\n"}
    recipes = [
        tiny(tmp_path, "good", header | good | cpp, globs=["lib/*.c", "lib/*.cpp"]),
        tiny(tmp_path, "bad", bad),
    ]
    command = ["corpus", "build", *map(str, recipes), "--keep-going", "--cache"]
    command += [str(tmp_path / "cache"), "--json", "--output"]

    def built(folder: Path, *arguments: str) -> tuple[Any, ...]:
        assert main([*command, str(folder), *arguments]) == 1
        said = capfd.readouterr()
        found = json.loads(said.out)["recipes"]
        return [(each["outcome"], each["modules"]) for each in found], said.err, files(folder)

    with three(nodes):
        found = built(tmp_path / "there", "--ray", nodes.address)
    assert found == built(tmp_path / "here")
    assert found[0] == [("built", 5), ("incomplete", 1)]
    assert "c.c: clang exited with 1" in found[1]
    assert not list(Path(os.environ["TMPDIR"]).glob("corpus_tools.*"))  # nodes' own


@pytest.mark.e2e
def test_a_build_with_another_clang(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or with other headers: it is refused, and nothing is left."""
    (recipe,) = [load_recipe(str(tiny(tmp_path, "one", {"a.c": "int a;\n"})))]
    clang = find_clang()
    with RayCluster(nodes.address) as cluster, Builders(cluster) as builders:

        def build(clang: Clang) -> str:
            with pytest.raises(EnvironmentSetupError) as error:
                build_corpus(
                    recipe,
                    tmp_path / "out",
                    clang=clang,
                    jobs=builders,
                    cache_dir=tmp_path / "cache",
                )
            assert not (tmp_path / "out").exists()
            return str(error.value)

        other = build(replace(clang, banner="clang version 22.9.9"))
        monkeypatch.setattr(_building, "_HEADERS", ("stdint.h",))
        headers = build(clang)
    about = "corpora could not be compared"
    assert other == (
        f"node {socket.gethostname()}: clang: expected clang version 22.9.9, as here, "
        f"found {clang.banner}: {about}"
    )
    assert re.fullmatch(
        rf"node \S+: the headers of C, C\+\+ and Python: expected \w{{12}}, as here, "
        rf"found \w{{12}}: {about}",
        headers,
    )


@pytest.mark.e2e
@pytest.mark.parametrize("command", ["rollout", "evaluate"])
def test_a_command(nodes: Nodes, capfd: pytest.CaptureFixture[str], command: str) -> None:
    """Its output is the same, and nothing of Ray's is in it."""
    arguments = [command, "--policy", "never", "--json"]
    assert main(arguments) == 0
    expected = capfd.readouterr()
    assert main([*arguments, "--ray", nodes.address, "--ray-workers", "2"]) == 0
    assert capfd.readouterr() == expected


@pytest.mark.e2e
def test_messages_of_ray_are_no_output(nodes: Nodes, capfd: pytest.CaptureFixture[str]) -> None:
    """Ray prints that a node died; a command's JSON stays JSON."""
    ray = importlib.import_module("ray")
    utils = importlib.import_module("ray._private.utils")
    client = ray._private.worker.global_worker.gcs_client
    options = argparse.Namespace(command="rollout", ray=nodes.address)
    printed = {"out": "", "err": ""}

    def has_said() -> bool:
        out, err = capfd.readouterr()
        printed["out"] += out
        printed["err"] += err
        return "a node died" in printed["err"]

    with _cluster(options, Output(as_json=True)):
        utils.publish_error_to_driver("test", "a node died", client)
        wait_for(has_said)
        sys.stdout.write("{}\n")
    assert printed["out"] + capfd.readouterr().out == "{}\n"


def reported(nodes: Nodes, *arguments: str | Path) -> tuple[int, list[dict[str, Any]]]:
    """The exit status of ``doctor --ray``, and what it says."""
    done = run("doctor", "--ray", nodes.address, "--json", *arguments, cwd=Path("/"))
    return done.returncode, json.loads(done.stdout)


@pytest.mark.e2e
def test_a_doctor_of_nodes(nodes: Nodes, tmp_path: Path) -> None:
    """Also where others keep every CPU; of two corpora the second is there for the head alone."""
    shutil.copytree(SAMPLE_CORPUS, tmp_path / "corpus")
    with three(nodes):
        status, found = reported(nodes, "--corpus", SAMPLE_CORPUS, "--corpus", tmp_path / "corpus")
        assert status == 0
        assert len(found) >= 3
        for each in found:
            assert (each["state"], each["found"], each["runs"]) == ("ok", "", facts())
            assert (each["cpus"], each["seen"], each["asked"]) == (1, 2, 2)
            assert each["free_bytes"] > FREE_BYTES
            assert each["memory_bytes"] == psutil.virtual_memory().total
        shown = run("doctor", "--ray", nodes.address, cwd=tmp_path, COLUMNS="250").stdout
        assert shown.count(f"Python {facts()['Python']}, Ray ") == len(found)


@pytest.mark.e2e
def test_a_doctor_of_nodes_that_could_not_work(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has another LLVM, one has none of this package, and one no space."""
    about = tmp_path / "other" / "llvmlite-0.1.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: llvmlite\nVersion: 0.1.1\n")
    (tmp_path / "none").mkdir()  # Ray has workers look where this process does, too
    (tmp_path / "none" / "sitecustomize.py").write_text(
        "import sys; sys.modules['mlgo_gym'] = None"
    )
    added = [nodes.add(PYTHONPATH=str(tmp_path / name)) for name in ("other", "none")]
    try:
        status, found = reported(nodes)
        monkeypatch.setattr(_ray_worker, "FREE_BYTES", 1 << 60)
        full = reported(nodes)
    finally:
        for each in added:
            nodes.kill(each)
    assert status == 1
    bad = {each["state"]: each["found"] for each in found if each["state"] != "ok"}
    assert bad["different"].startswith("llvmlite: expected ")
    assert bad["different"].endswith(", as here, found 0.1.1")
    assert bad["missing"].startswith("mlgo_gym: No module named 'mlgo_gym.lab")
    assert full[0] == 1
    assert "expected at least 1099511627776 MiB free, found " in str([e["found"] for e in full[1]])


@pytest.mark.e2e
def test_a_node_without_space(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before anybody has worked."""
    monkeypatch.setattr(_ray_worker, "FREE_BYTES", 1 << 60)
    with (
        RayCluster(nodes.address) as cluster,
        pytest.raises(EnvironmentSetupError) as error,
    ):
        list(each(range(50), work.Mark(tmp_path), work.Desk, jobs=cluster))
    assert re.fullmatch(
        r"ray: node \S+: temporary folder '\S+': expected at least 1099511627776 MiB free, "
        r"found \d+; TMPDIR names another",
        str(error.value),
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.stress
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("made", [scores, labels])
def test_kills_at_random_moments(nodes: Nodes, made: Callable[[Jobs], Any]) -> None:
    """Twenty of each, from the start of what is made to its end."""
    moments = np.random.default_rng(0)
    expected = made(1)
    with three(nodes), RayCluster(nodes.address) as cluster:
        start = time.perf_counter()
        assert made(cluster) == expected
        seconds = time.perf_counter() - start
    kills: list[bool] = []
    while sum(kills) < 20:
        with three(nodes), RayCluster(nodes.address) as cluster:
            node = nodes.others[len(kills) % 2]
            timer = threading.Timer(moments.uniform(0, seconds), nodes.kill, [node])
            timer.start()
            assert made(cluster) == expected
            kills.append(node not in nodes.others)
            timer.join()


COUNTED = """
import ray, sys
from mlgo_gym.llvm import each
from mlgo_gym.lab.cluster import RayCluster
from tests.lab.cluster import work

with RayCluster(sys.argv[1]) as cluster:
    list(each(range(7), work.picky, work.Desk, jobs=cluster))
    print(ray.get_runtime_context().get_worker_id(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.e2e
def test_metrics_of_nodes(nodes: Nodes) -> None:
    """Where Ray exports metrics, nodes tell whoever asks them what a process has had done."""
    importlib.import_module("opentelemetry")
    with subprocess.Popen(
        [sys.executable, "-c", COUNTED, nodes.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        caller = process.stdout.readline().strip()
        names = {"busy_s_total", "workers_total", "items_total", "failures_total"}
        while (found := exported(caller)).keys() != names or found["failures_total"] < 2:
            time.sleep(0.1)
        process.stdin.close()
    assert found.pop("busy_s_total") > 0
    assert 1 <= found.pop("workers_total") <= len(nodes.others) + 1
    assert found == {"items_total": 7, "failures_total": 2}


def exported(caller: str) -> dict[str, float]:
    """What all nodes of this machine have done for a process, from their own pages.

    A node that has just begun, or was killed a moment ago, has none.
    """
    there = [each for each in importlib.import_module("ray").nodes() if each["Alive"]]
    where = [(each["NodeManagerAddress"], each["MetricsExportPort"]) for each in there]
    lines = []
    for host, port in where:
        with (
            suppress(OSError, HTTPException),
            urllib.request.urlopen(f"http://{host}:{port}/metrics") as page,
        ):
            lines += page.read().decode().splitlines()
    lines = [each for each in lines if caller in each and f'node="{socket.gethostname()}"' in each]
    found = [re.fullmatch(r"ray_mlgo_gym_(\w+)\{.*} (\S+)", line) for line in lines]
    return {each[1]: float(each[2]) for each in found if each}


def example(name: str, home: Path, *arguments: str | Path) -> str:
    """What an example prints; what RLlib writes goes to a home of its own."""
    path = ROOT / "examples" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, path, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"HOME": str(home)},
    )
    return done.stdout


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_env_runners_of_rllib(nodes: Nodes, tmp_path: Path) -> None:
    """Each node has one; LLVM would have taken every action."""
    with three(nodes):
        there = len(nodes.others) + 1
        said = example("eviction_rllib_ppo", tmp_path, nodes.address)
    found = re.fullmatch(r"(\d+) actions on (\d+) nodes, 0 illegal: (\[.*])\n", said)
    assert found, said
    counts = json.loads(found[3])
    assert int(found[2]) == len(counts) == there >= 3
    assert int(found[1]) == sum(counts)
    assert min(counts) >= 64


@pytest.mark.e2e
@pytest.mark.timeout(1200)
def test_datasets_in_rllib(nodes: Nodes, tmp_path: Path) -> None:
    """Of two answers that of the better episode is learned, where each was given as often."""
    corpora = {"sample": Corpus.load(SAMPLE_CORPUS).only(NAMES)}
    folders = [tmp_path / name for name in ("default", "random")]
    for folder in folders:
        policy = PROBLEM.policy(folder.name)
        with DatasetWriter(folder, header_of(PROBLEM)) as writer:
            list(record(writer, corpora, PROBLEM, folder.name, policy, jobs=2))
    recorded = Dataset.open(*folders).read(["action", "inlining_default"])
    as_llvm = np.mean(recorded["action"] == recorded["inlining_default"])
    with three(nodes):
        said = example("inlining_rllib_marwil", tmp_path, nodes.address, *folders)
    found = re.fullmatch(r"(\d+) decisions; LLVM's own answer to (.+)% of them\n", said)
    assert found, said
    assert int(found[1]) == len(recorded["action"]) > 1000
    assert float(found[2]) / 100 > as_llvm + 0.05 > 0.75


@pytest.mark.e2e
def test_nobody_has_room(nodes: Nodes) -> None:
    """Others keep every CPU, also of nodes that Ray does not know to be gone."""
    ray = importlib.import_module("ray")
    kind = ray.remote(num_cpus=1)(work.Desk)
    holders = [kind.remote() for _ in range(20)]
    ready = [each.__ray_ready__.remote() for each in holders]
    ray.wait(ready, num_returns=1 + len(nodes.others))
    try:
        with (
            RayCluster(nodes.address, wait_s=2) as cluster,
            pytest.raises(EnvironmentSetupError) as error,
        ):
            values([1], work.double, cluster)
    finally:
        for holder in holders:
            ray.kill(holder)
    assert str(error.value) == (
        "ray: expected a node with a free CPU within 2 s, found none; wait_s lifts the limit"
    )


@pytest.mark.parametrize(
    "address", ["somewhere", "ray://head:10001", "host:", ":1", "host:port", "a/b:1", ""]
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(OptionsError) as error:
        RayCluster(address)
    assert str(error.value) == f"ray: expected local, auto or HOST:PORT, found {address!r}"


def test_an_address_that_nobody_answers() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(EnvironmentSetupError) as error:
            RayCluster(address)
    assert str(error.value).startswith(f"ray: expected a cluster's head at {address}, found none: ")


@pytest.mark.parametrize("setting", [{"workers": 0}, {"wait_s": -1.0}])
def test_numbers_that_are_not_above_0(setting: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="expected a number above 0, found"):
        RayCluster("local", **setting)


def test_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EnvironmentSetupError) as error:
        RayCluster("local")
    assert str(error.value) == "clusters: need Ray; run: pip install 'mlgo-gym[ray]'"


OWN = """
import subprocess, sys, os
from mlgo_gym.lab.cluster import RayCluster
cluster = RayCluster("local")
import ray
address = ray.get_runtime_context().gcs_address
theirs = {name: text for name, text in os.environ.items() if not name.startswith("RAY_AUTH")}
code = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False)"
done = subprocess.run([sys.executable, "-c", code, address], env=theirs, capture_output=True)
print(len(cluster.nodes()), done.returncode, b"InvalidAuthToken" in done.stderr)
"""


@pytest.mark.e2e
def test_nobody_else_joins_a_local_cluster() -> None:
    """Ray listens on all interfaces: who has no token is refused."""
    done = subprocess.run([sys.executable, "-c", OWN], capture_output=True, text=True, check=True)
    assert done.stdout == "1 1 True\n"
