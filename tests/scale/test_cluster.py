"""A Ray cluster of several nodes on this machine: the same results, whoever goes meanwhile."""

from __future__ import annotations

import importlib
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlgo_gym.cli._main import main
from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus, Module
from mlgo_gym.corpus._packages import ModuleKey, Packages
from mlgo_gym.datasets._record import header_of, record
from mlgo_gym.datasets._writer import DatasetWriter
from mlgo_gym.errors import EnvironmentSetupError, OptionsError, PolicyError, UsageError
from mlgo_gym.evaluation._evaluate import evaluate
from mlgo_gym.evaluation._scores import ModuleScores
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._schedule import Jobs, each, workers
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.rollout._rollout import ModuleReport, rollout
from mlgo_gym.scale import _executor
from mlgo_gym.scale._cluster import RayCluster
from mlgo_gym.search._corpus_search import search_corpus
from mlgo_gym.search._goal import SearchSetting
from mlgo_gym.training._labels import LabelSetting, label_modules
from mlgo_gym.workloads._program import Programs
from tests.scale import work
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
PROBLEM = InliningForSize()
COMPILER = "mlgo_gym.llvm.process._child"
NAMES = ("bignum.c", "digest.c", "hash_map.c", "json_write.c", "lru_cache.cpp", "scene.cpp")


@pytest.fixture(autouse=True)
def own_temporary_folder() -> None:
    """What a cluster leaves is looked for when it has ended: it starts processes when it likes."""


class Nodes:
    """A cluster: a head, and nodes of one CPU each that come and go."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster  # noqa: PLC0415 (slow to import)

        self._arguments: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 << 20}
        head = {"include_dashboard": False, **self._arguments}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address

    def add(self, **variables: str) -> Any:
        path = os.pathsep.join(filter(None, [variables.get("PYTHONPATH"), str(ROOT)]))
        return self._cluster.add_node(env_vars={**variables, "PYTHONPATH": path}, **self._arguments)

    def kill(self, node: Any) -> None:
        self._cluster.remove_node(node, allow_graceful=False)

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
        patch.setenv("PYTHONPATH", str(ROOT))
        made = Nodes()
        with RayCluster(made.address):
            yield made
        made.close()
    wait_for(lambda: not children() - before)
    shutil.rmtree(folder)


def children() -> set[int]:
    found = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                found.add(child.pid)
    return found


@contextmanager
def three(nodes: Nodes) -> Iterator[None]:
    """The cluster has three nodes at least."""
    while len(nodes.others) < 2:
        nodes.add()
    yield


def scores(jobs: Jobs, track: Callable[..., Any] = lambda found, _: found) -> str:
    """An evaluation of a model and two policies, all of it."""
    policies: dict[str, PolicyLike] = {"never": lambda _: 0, "random": PROBLEM.policy("random", 3)}
    corpus = {"sample": Corpus.load(SAMPLE_CORPUS).only(NAMES)}
    found = evaluate("inlining-for-size", corpus, policies=policies, jobs=jobs, track=track)
    return f"{found}\n{found.scores!r}"


def reports(jobs: Jobs) -> list[ModuleReport]:
    corpus = {"sample": Corpus.load(SAMPLE_CORPUS).only(NAMES)}
    policies = {"always": PROBLEM.policy("always")}
    return list(rollout(corpus, policies, PROBLEM, jobs=jobs, keep_decisions=True))


def dataset(jobs: Jobs, folder: Path) -> dict[str, bytes]:
    """What a dataset's files hold, of one worker's order."""
    corpora = {"sample": Corpus.load(SAMPLE_CORPUS).only(NAMES[:3])}
    with DatasetWriter(folder, header_of(PROBLEM)) as writer:
        list(record(writer, corpora, PROBLEM, "never", PROBLEM.policy("never"), jobs=jobs))
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*.*")}


def values(items: Iterable[int], done: Callable[..., Any], jobs: Jobs) -> list[Any]:
    return [found.value for found in each(items, done, work.Desk, jobs=jobs, in_order=True)]


@pytest.mark.e2e
def test_equal_results_wherever(nodes: Nodes) -> None:
    """One worker here, two here, one node, three nodes."""
    plain = scores(1), reports(1)
    assert (scores(2), reports(2)) == plain
    assert nodes.others == []
    with RayCluster(nodes.address) as cluster:
        assert (scores(cluster), reports(cluster)) == plain
        with three(nodes):
            assert (scores(cluster), reports(cluster)) == plain


@pytest.mark.e2e
def test_an_equal_dataset(nodes: Nodes, tmp_path: Path) -> None:
    with RayCluster(nodes.address, workers=1) as cluster:
        assert dataset(cluster, tmp_path / "b") == dataset(1, tmp_path / "a")


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
                if len(seen) == 4:
                    break
    assert len(seen) == 4


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
def test_what_goes_wrong_with_items(nodes: Nodes) -> None:
    with RayCluster(nodes.address) as cluster:
        found = list(each(range(4), work.picky, work.Desk, jobs=cluster, in_order=True))
        assert [str(done.error) for done in found] == [
            "None", "module 'one': expected another", "module 'two': gone", "None"
        ]  # fmt: skip
        assert [found[0].value, found[3].value] == [0, 6]
        with pytest.raises(PolicyError, match="ValueError: 0"):
            values([0], work.refuse, cluster)
        assert values(range(50), work.double, cluster) == [2 * item for item in range(50)]
        assert values([], work.double, cluster) == []


@pytest.mark.e2e
def test_an_item_that_takes_its_workers_along(nodes: Nodes) -> None:
    with RayCluster(nodes.address) as cluster:
        found = list(each(range(6), work.deadly, work.Desk, jobs=cluster, in_order=True))
    errors = {done.item: str(done.error) for done in found if done.error}
    assert errors == {
        3: "module '3': expected a worker that does it, found 4 that were lost over it"
    }
    assert [done.value for done in found if not done.error] == [0, 2, 4, 8, 10]


@pytest.mark.e2e
def test_closing_early_ends_what_is_under_way(nodes: Nodes) -> None:
    with RayCluster(nodes.address) as cluster:
        with closing(each(range(4), work.sleep, work.Desk, jobs=cluster)) as found:
            assert next(found).item == 0
        wait_for(lambda: not actors())


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
        found = each(corpus.names, compiled, Compiler, read=corpus.__getitem__, jobs=cluster)
        with closing(found):
            next(found)
            assert actors()
        wait_for(lambda: not [each for each in children() - before if COMPILER in command(each)])


def compiled(compiler: Compiler, module: Module) -> int:
    return compiler.compile_module(module).text_size_bytes


@pytest.mark.e2e
def test_modules_that_only_the_head_can_read(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They travel, however large they are; one that cannot be read is an error of its own."""
    monkeypatch.setattr(_executor, "SMALL_BYTES", 3000)
    monkeypatch.setattr(_executor, "STORED_BYTES", 10_000)
    sample = Corpus.load(SAMPLE_CORPUS)
    shutil.copytree(sample.folder, tmp_path / "corpus")
    corpus = Corpus.load(tmp_path / "corpus").only(NAMES)
    (corpus.folder / "digest.c.bc").unlink()
    read = lambda name: (ModuleKey("", name), corpus[name])  # noqa: E731
    with RayCluster(nodes.address) as cluster:
        found = list(each(corpus, named, work.Desk, read=read, jobs=cluster, in_order=True))
    assert [done.item for done in found if done.error] == ["digest.c"]
    for done in found:
        if not done.error:
            assert done.value == (done.item, sample[done.item])


def named(_: work.Desk, read: tuple[ModuleKey, Module]) -> tuple[str, Module]:
    return read[0].name, read[1]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("package", "what"), [("llvmlite", "llvmlite"), ("mlgo_gym", "mlgo_gym"), ("ray", "Ray")]
)
def test_a_node_with_another_version(nodes: Nodes, tmp_path: Path, package: str, what: str) -> None:
    """It is refused before anybody has worked."""
    about = tmp_path / f"{package}-0.1.1.dist-info"
    about.mkdir()
    name = package.replace("_", "-")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.1\n")
    node = nodes.add(PYTHONPATH=str(tmp_path))
    marks = tmp_path / "marks"
    marks.mkdir()
    try:
        with (
            RayCluster(nodes.address) as cluster,
            pytest.raises(EnvironmentSetupError) as error,
        ):
            list(each(range(50), Mark(marks), work.Desk, jobs=cluster))
    finally:
        nodes.kill(node)
    assert f": {what}: expected " in str(error.value)
    assert "found 0.1.1" in str(error.value)
    assert list(marks.iterdir()) == []


class Mark:
    """Leaves a file for each item."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, _: work.Desk, item: int) -> None:
        (self._folder / str(item)).touch()


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
    packages = Packages.of({"sample": corpus.only(("digest.c", "scene.cpp"))})

    def labels(jobs: Jobs) -> dict[ModuleKey, Any]:
        setting = LabelSetting(jobs=jobs, joint=True)
        found = label_modules(packages, PROBLEM.policy("never"), "never", {}, setting)
        return {done.item: done.value.episode for done in found}

    def objects(jobs: Jobs) -> list[str]:
        with Programs(corpus, jobs=jobs) as programs:
            return [each.object_sha256 for each in programs.plain().values()]

    with RayCluster(nodes.address) as cluster:
        here, there = labels(1), labels(cluster)
        assert sorted(objects(cluster)) == sorted(objects(2))
    assert list(here) == sorted(there)
    for key, episode in here.items():
        for name, column in episode.labels.items():
            assert there[key].labels[name].tobytes() == column.tobytes()


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
        (
            ["train", "group"],
            "train group: expected no --ray: what it asks cannot be sent",
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
@pytest.mark.parametrize("command", ["rollout", "evaluate"])
def test_a_command(nodes: Nodes, capfd: pytest.CaptureFixture[str], command: str) -> None:
    """Its output is the same, and nothing of Ray's is in it."""
    arguments = [command, "--policy", "never", "--json"]
    assert main(arguments) == 0
    expected = capfd.readouterr()
    assert main([*arguments, "--ray", nodes.address, "--ray-workers", "2"]) == 0
    assert capfd.readouterr() == expected


@pytest.mark.e2e
def test_nobody_has_room(nodes: Nodes) -> None:
    """Others keep every CPU, also of nodes that Ray does not know to be gone."""
    ray = importlib.import_module("ray")
    kind = ray.remote(num_cpus=1)(work.Desk)
    holders = [kind.remote() for _ in range(20)]
    wait_for(lambda: not ray.available_resources().get("CPU", 0))
    with (
        RayCluster(nodes.address, wait_s=2) as cluster,
        pytest.raises(EnvironmentSetupError) as error,
    ):
        values([1], work.double, cluster)
    for holder in holders:
        ray.kill(holder)
    assert str(error.value) == "ray: expected a node with a free CPU within 2 s, found none"


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
