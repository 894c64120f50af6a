"""Timelines: lanes, what is in them, and their limit, read back by Perfetto's own classes."""

from __future__ import annotations

import io
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import EnvironmentSetupError, ModuleError
from mlgo_gym.lab.insight._timeline import Timeline, drawing
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.llvm._schedule import each
from mlgo_gym.llvm._task import Task
from mlgo_gym.llvm._watching import Ended, watching
from mlgo_gym.problems._inlining_for_size import InliningForSize, default
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.runners._models import model_policies
from mlgo_gym.runners._policy import WorkerPolicy
from tests.cli.command import check_refused, run

trace = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
PROBLEM = InliningForSize()
Slice = tuple[str, int, int, dict[str, Any], int]
"""Name, first moment, last, what is noted, and how many slices it is in."""


def lanes(data: bytes) -> dict[str, list[Slice]]:
    """The slices of each lane, in the order of their ends, as the viewer nests them."""
    packets = trace.Trace.FromString(data).packet
    described = [each.track_descriptor for each in packets if each.HasField("track_descriptor")]
    root, *others = described
    assert root.process.process_name == "mlgo-gym"
    assert {each.parent_uuid for each in others} <= {root.uuid}
    names = {each.uuid: each.name for each in others}
    opened: dict[str, list[tuple[str, int, dict[str, Any]]]] = defaultdict(list)
    found: dict[str, list[Slice]] = defaultdict(list)
    events = [each for each in packets if each.HasField("track_event")]
    for packet in sorted(events, key=lambda each: each.timestamp):
        event, lane = packet.track_event, names[packet.track_event.track_uuid]
        if event.type == event.TYPE_SLICE_BEGIN:
            notes = {
                each.name: getattr(each, each.WhichOneof("value"))
                for each in event.debug_annotations
            }
            opened[lane].append((event.name, packet.timestamp, notes))
        else:
            assert event.type == event.TYPE_SLICE_END
            name, start, notes = opened[lane].pop()
            found[lane].append((name, start, packet.timestamp, notes, len(opened[lane])))
    assert not any(opened.values())
    return found


def drawn(work: Callable[[], object]) -> dict[str, list[Slice]]:
    file = io.BytesIO()
    with drawing(file):
        work()
    return lanes(file.getvalue())


def test_two_workers_overlap_in_two_lanes(sample: Corpus) -> None:
    both = Barrier(2)

    def met(observation: Any) -> int:
        if observation.index == 0:
            both.wait(60)
        return default(observation)

    def compiled(compiler: Compiler, name: str) -> int:
        return compiler.compile_module(sample[name], problem=PROBLEM, policy=met).decisions

    counts: dict[str, int] = {}

    def work() -> None:
        with closing(each(["digest.c", "lz_pack.c"], compiled, Compiler, jobs=2)) as done:
            counts.update({one.item: one.value for one in done})

    found = drawn(work)
    assert len(found) == 2
    (*ones, one), (*others, other) = found.values()
    assert {one[0], other[0]} == set(counts) == {"digest.c", "lz_pack.c"}
    assert max(one[1], other[1]) < min(one[2], other[2])
    for decisions, (name, start, end, notes, level) in ((ones, one), (others, other)):
        assert (notes, level) == ({"decisions": counts[name]}, 0)
        assert [each[0] for each in decisions] == [f"decision {n}" for n in range(counts[name])]
        assert {each[4] for each in decisions} == {1}
        assert start <= decisions[0][1]
        assert decisions[-1][2] == end
        assert all(each[1] <= each[2] for each in decisions)
        assert {each[3]["answer"] for each in decisions} == {0, 1}


MODEL = Path(__file__).parents[1] / "models" / "never"


def never(observation: Any) -> int:
    return 0 * len(observation)


@pytest.mark.e2e
def test_what_is_answered_in_the_worker(compiler: Compiler, sample: Corpus) -> None:
    """Moments of the worker's, in between those of the compilation."""
    with model_policies([str(MODEL)], "release", PROBLEM) as models:
        answering: list[PolicyLike] = [*models.values(), WorkerPolicy(never)]
        for policy in answering:
            ended: list[Ended] = []
            with watching(ended.append):
                compiler.compile_module(sample["digest.c"], problem=PROBLEM, policy=policy)
            (one,) = ended
            moments = [t for each in one.answers for t in (each.asked_ns, each.answered_ns)]
            assert [one.start_ns, *moments, one.end_ns] == sorted(
                [one.start_ns, *moments, one.end_ns]
            )
            assert len(one.answers) == one.decisions > 20
            assert {each.action for each in one.answers} == {0}


def test_sites_are_named(compiler: Compiler, sample: Corpus) -> None:
    def work() -> None:
        compiler.compile_module(
            sample["digest.c"], problem=PROBLEM, policy=default, task=Task(sites=True)
        )

    work()  # a process's first sites come after a probe, which would be drawn
    (slices,) = drawn(work).values()
    name, _, _, notes, _ = slices[0]
    assert (name, notes["site"]) == ("is_prime in next_prime", "next_prime#0")


def test_what_is_given_up_and_what_fails(compiler: Compiler, sample: Corpus) -> None:
    ended: list[Ended] = []
    broken = type(sample["digest.c"])("broken", b"no bitcode")
    with watching(ended.append):
        with compiler.start(sample["digest.c"], PROBLEM) as compilation:
            compilation.next_observation()
            compilation.answer(1)
        with pytest.raises(ModuleError):
            compiler.compile_module(broken)
    compiler.compile_module(sample["digest.c"])  # nobody is told of it
    assert [(each.module, each.is_whole, len(each.answers)) for each in ended] == [
        ("digest.c", False, 1), ("broken", False, 0),
    ]  # fmt: skip


def test_branches_have_lanes(compiler: Compiler, sample: Corpus) -> None:
    def work() -> None:
        with compiler.start(sample["digest.c"], PROBLEM) as compilation:
            compilation.next_observation()
            with compilation.fork() as branch:
                for each in (branch, compilation):
                    while (observation := each.next_observation()) is not None:
                        each.answer(default(observation))

    found = drawn(work)
    assert [slices[-1][0] for slices in found.values()] == ["digest.c", "digest.c"]


def test_more_than_viewers_take(
    compiler: Compiler, sample: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilations are drawn all the same, and the number of what is not is known."""
    monkeypatch.setattr("mlgo_gym.lab.insight._timeline.MOST_DECISIONS", 60)
    file = io.BytesIO()
    timeline = Timeline(file)
    decisions = []
    with watching(timeline.add):
        for name in ("digest.c", "json_read.c"):
            made = compiler.compile_module(sample[name], problem=PROBLEM, policy=default)
            decisions.append(made.decisions)
    assert decisions[0] <= 60 < sum(decisions)
    assert timeline.left_out == decisions[1]
    (slices,) = lanes(file.getvalue()).values()
    assert [each[0] for each in slices if each[4] == 0] == ["digest.c", "json_read.c"]
    assert len(slices) == 2 + decisions[0]
    assert slices[-1][3]["left out"] == f"{decisions[1]} decisions"


def test_names_that_are_not_text() -> None:
    file = io.BytesIO()
    Timeline(file).add(Ended(os.fsdecode(b"a\xff.c"), 7, 1, 2, 0, (), is_whole=True))
    assert [each[0] for each in lanes(file.getvalue())["worker 7"]] == ["a\\udcff.c"]


@pytest.mark.parametrize(
    "command",
    [
        ("explain", "--policy", "never", "--module", "digest.c"),
        ("rollout", "--policy", "never", "--corpus", "few"),
        ("evaluate", "--policy", "never", "--corpus", "few"),
        pytest.param(
            ("search", "--corpus", "few", "--budget", "0.5s", "--output", "traces"),
            marks=pytest.mark.e2e,
        ),
    ],
    ids=lambda command: command[0],
)
def test_commands(command: tuple[str, ...], small_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "few").symlink_to(small_folder)
    done = run(*command, "--timeline", "it.pftrace", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = lanes((tmp_path / "it.pftrace").read_bytes())
    assert any(each[3].get("answer") in {0, 1} for slices in found.values() for each in slices)


def test_too_many_decisions_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlgo_gym.lab.insight._timeline.MOST_DECISIONS", 50)
    line = ("explain", "--policy", "never", "--module", "digest.c", "--timeline", "it.pftrace")
    done = run(*line, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith("mlgo-gym: it.pftrace: expected at most 50 decisions, found ")


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("perfetto.protos.perfetto.trace", "perfetto.trace_builder.proto_builder"):
        monkeypatch.setitem(sys.modules, name, None)
    message = "timelines: need perfetto; run: pip install 'mlgo-gym[timeline]'"
    with pytest.raises(EnvironmentSetupError) as raised:
        Timeline(io.BytesIO())
    assert str(raised.value) == message
    check_refused(message, "rollout", "--policy", "never", "--timeline", "it.pftrace", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
