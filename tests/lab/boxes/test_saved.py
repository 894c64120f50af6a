"""Boxes in a folder: all that it takes to repeat calls, as a corpus."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from corpus_tools.errors import OutputError
from mlgo_gym import SAMPLE_CORPUS, Corpus
from mlgo_gym.errors import MlgoGymError, WorkloadError
from mlgo_gym.lab.boxes import BoxedProgram
from tests.cli.command import run
from tests.lab.boxes.conftest import MakeBoxed
from tests.lab.boxes.test_box import CALLS_FOO, NESTED

WANTED = [("foo", 2), ("foo", 5), ("bar", 3)]


@pytest.fixture
def folder(boxed: MakeBoxed, tmp_path: Path) -> Path:
    made = tmp_path / "boxes"
    boxed(NESTED, CALLS_FOO).save(made, WANTED)
    return made


def test_boxes_come_back(folder: Path, tmp_path: Path) -> None:
    moved = shutil.move(folder, tmp_path / "elsewhere")
    with BoxedProgram.load(moved) as program:
        assert program.functions == ("foo", "bar")
        boxes = program.recorded()
        assert [(each.function, each.call) for each in boxes] == WANTED
        for box in boxes:
            image = program.image(box.function, program.compiled(box.function))
            assert box.trial(image).difference == ""


def test_a_folder_is_replaced_and_holds_its_own_files_alone(
    boxed: MakeBoxed, tmp_path: Path
) -> None:
    program, made = boxed(NESTED, CALLS_FOO), tmp_path / "boxes"
    program.save(made, WANTED)
    first = sorted(each.name for each in made.rglob("*"))
    program.save(made, WANTED)
    assert sorted(each.name for each in made.rglob("*")) == first
    (made / "workloads" / "mine").write_text("")
    with pytest.raises(OutputError, match="expected only a corpus, found workloads/mine in it"):
        program.save(made, WANTED)


def test_a_function_whose_name_begins_with_a_dot_has_no_hidden_file(
    boxed: MakeBoxed, tmp_path: Path
) -> None:
    dotted = 'int foo(int) __asm__(".dotted");'
    boxed(f"{dotted} {NESTED}", f"{dotted} {CALLS_FOO}").save(tmp_path / "boxes", [(".dotted", 2)])
    assert Corpus.load(tmp_path / "boxes").names == ("%2Edotted",)
    with BoxedProgram.load(tmp_path / "boxes") as program:
        (box,) = program.recorded()
        image = program.image(box.function, program.compiled(box.function))
        assert box.trial(image).difference == ""


def changed(name: str, value: Any, folder: Path) -> None:
    path = folder / "workloads" / "boxes.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))


def cut(name: str, folder: Path) -> None:
    path = folder / "workloads" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def removed(name: str, folder: Path) -> None:
    (folder / name).unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (partial(removed, "workloads/boxes.json"), "writes, found no boxes.json"),
        (partial(removed, "workloads/program"), "writes, found no program"),
        (partial(removed, "workloads/workload.toml"), "found another or a damaged one"),
        (partial(removed, "foo.bc"), "module 'foo': expected bitcode at .*foo.bc, found none"),
        (partial(cut, "boxes.json"), "found another or a damaged one"),
        (partial(cut, "program"), "expected the program of SHA-256 .*; record it again"),
        (partial(changed, "version", 2), "expected version 1, found 2"),
        (partial(changed, "llvm", "21.1.0"), "expected LLVM .* found that it was recorded with"),
        (partial(changed, "boxes", []), "expected a module and a definition of each function"),
        (partial(changed, "boxes", [{"function": 1}]), "found another or a damaged one"),
        (partial(changed, "headers", 3), "found another or a damaged one"),
    ],
)
def test_a_folder_that_is_none(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(folder)
    with pytest.raises(MlgoGymError, match=message):
        BoxedProgram.load(folder)


def test_a_call_that_no_counter_holds(folder: Path) -> None:
    path = folder / "workloads" / "boxes.json"
    about = json.loads(path.read_text())
    about["boxes"][0]["call"] = 10**90
    path.write_text(json.dumps(about))
    with (
        BoxedProgram.load(folder) as program,
        pytest.raises(WorkloadError, match=r"expected call 1,000,000,000,.*, found 9"),
    ):
        program.recorded()


def test_another_call_than_was_recorded(folder: Path) -> None:
    path = folder / "workloads" / "boxes.json"
    about = json.loads(path.read_text())
    about["boxes"][0]["call"] = 3
    path.write_text(json.dumps(about))
    with (
        BoxedProgram.load(folder) as program,
        pytest.raises(WorkloadError, match="function 'foo', call 3: expected effects"),
    ):
        program.recorded()


ASKED = """
static volatile int sink;
int put(int x) { sink = x; return x * 3 ^ sink; }
int foo(int x) { return put(x) * 2 + put(x + 1); }
"""


def test_an_environment_whose_reward_is_a_call(boxed: MakeBoxed, tmp_path: Path) -> None:
    """Inlining both calls of `put` saves instructions: the reward says so."""
    boxed(ASKED, CALLS_FOO).save(tmp_path / "boxes", [("foo", 2)])
    corpus = Corpus.load(tmp_path / "boxes")
    env = gymnasium.make("mlgo_gym/InliningForSize-v0", corpus=corpus, reward="box")
    with env:
        totals = []
        for action in (0, 1):
            env.reset(seed=1)
            total, is_over = 0.0, False
            while not is_over:
                _, reward, is_over, *_ = env.step(action)
                total += float(reward)
            totals.append(total)
    assert totals[1] > totals[0]


def test_a_reward_of_another_corpus() -> None:
    with pytest.raises(
        WorkloadError, match="what 'mlgo-gym box record' writes, found no boxes.json"
    ):
        gymnasium.make("mlgo_gym/InliningForSize-v0", corpus=SAMPLE_CORPUS, reward="box")


@pytest.mark.smoke
@pytest.mark.e2e
def test_the_commands(tmp_path: Path) -> None:
    called = run("box", "calls", "--workload", "json", "--json", cwd=tmp_path)
    assert json.loads(called.stdout)["json_parse"] == 80
    of = ("--workload", "json", "--function", "parse_number")
    calls = ("--call", "1", "--call", "1000", "--call", "median", "--call", "64000")
    done = run("box", "record", *of, *calls, "--output", "boxes", "--json", cwd=tmp_path)
    boxes = json.loads(done.stdout)["boxes"]
    assert {each["function"] for each in boxes} == {"parse_number.of0"}
    assert [each["call"] for each in boxes] == [1, 1000, 32000, 64000]
    searched = ("--corpus", "boxes", "--reward", "box", "--budget", "2s", "--output", "found")
    run("search", *searched, cwd=tmp_path)
    tried = ("box", "try", "boxes", "--policy", "always", "--traces", "found", "--json")
    rows = json.loads(run(*tried, cwd=tmp_path).stdout)
    assert [row["candidate"] for row in rows[:3]] == ["default", "always", "trace"]
    assert all(row["difference"] == "" and row["nanoseconds"] is not None for row in rows)
    shutil.copytree(Path(__file__).parents[2] / "models" / "never", tmp_path / "default")
    modelled = ("box", "try", "boxes", "--model", "./default", "--policy", "never", "--json")
    answered = json.loads(run(*modelled, cwd=tmp_path).stdout)
    own, model, never = answered[:3]
    assert (own["candidate"], never["candidate"]) == ("default", "never")
    assert model["text_bytes"] == never["text_bytes"] != own["text_bytes"]
    plain, _, found = (
        sum(row["instructions"] for row in rows if row["candidate"] == name)
        for name in ("default", "always", "trace")
    )
    assert found <= plain


def test_a_call_that_is_none(tmp_path: Path) -> None:
    of = ("--workload", "json", "--function", "parse_number", "--output", "boxes")
    done = run("box", "record", *of, "--call", "0", cwd=tmp_path)
    assert "expected a number from 1 or median, found '0'" in done.stderr
    done = run("box", "record", *of, "--call", "64001", cwd=tmp_path)
    assert "function 'parse_number.of0': expected call 64,001, found 64,000" in done.stderr
    done = run("box", "record", *of[:2], *of[4:], "--call", "100000000", cwd=tmp_path)
    assert "expected a call that can be boxed, found none: workload 'json': " in done.stderr
    assert "expected call 100,000,000, found " in done.stderr
    assert not (tmp_path / "boxes").exists()


def test_names_are_those_of_the_source(corpus_json: BoxedProgram) -> None:
    assert corpus_json.symbol("parse_number") == "parse_number.of0"
    assert corpus_json.symbol("json_free") == "json_free"
    with pytest.raises(WorkloadError, match=r"expected one of put_char.of0, put_char.of1"):
        corpus_json.symbol("put_char")
    with pytest.raises(WorkloadError, match="found none of this name"):
        corpus_json.symbol("nobody")


@pytest.fixture
def corpus_json() -> Any:
    with BoxedProgram.of(Corpus.load(SAMPLE_CORPUS), "json") as program:
        yield program
