"""Which modules of a tune are searched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlgo_gym.cc._traces import ANSWERS, Build, beats, open_build
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import ModuleKey
from mlgo_gym.errors import InputError
from mlgo_gym.lab.tuning._searched import (
    LEAST_S,
    TuneSearch,
    modules_that_matter,
    reward_of_build,
)
from mlgo_gym.lab.tuning._tuned import BUILT, TUNED, TuneChoice, Tuned
from mlgo_gym.lab.tuning.commands._show_tuned import built
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.rollout._linked_text import Code
from mlgo_gym.rollout._rollout import Failure
from mlgo_gym.search import ModuleSearch
from tests.cc.conftest import MODELS, Driver
from tests.cc.test_traces import FIRST, LAST, SOURCE, database
from tests.lab.tuning.test_tuned import module

SIZES = (500, 10, 300, 100, 90)
KEYS = tuple(ModuleKey("", f"{number}.o") for number in range(len(SIZES)))


def tuned(chosen: str = "LLVM") -> Tuned:
    scores = [
        module(number, {"LLVM": size, "start": size, TUNED: 1000 - size})
        for number, size in enumerate(SIZES)
    ]
    targets = {"lib": (KEYS[2], KEYS[1]), "app": (KEYS[0], KEYS[2], KEYS[4])}
    return Tuned(scores, "start", frozenset(), targets, {}, choice=TuneChoice(chosen, ""))


def test_the_largest_of_what_is_linked_where_it_is_first() -> None:
    found = modules_that_matter(tuned(), 9)
    assert found == {"app": (KEYS[0], KEYS[4]), "lib": (KEYS[2],)}  # 0.o, 2.o and 4.o are 99 %
    assert modules_that_matter(tuned(), 1) == {"app": (KEYS[0],)}


def test_by_the_code_of_what_was_chosen() -> None:
    assert modules_that_matter(tuned(TUNED), 1) == {"lib": (KEYS[1],)}


@pytest.mark.e2e
def test_what_a_build_would_not_repeat_is_not_searched(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next largest is searched in its place; one line says so of all of them."""
    for key, value in driver.environment.items():
        monkeypatch.setenv(key, value)
    lines = {f"{number}.c": f"clang -Oz -c {number}.c -o {number}.o" for number in range(5)}
    for name in ("0.c", "2.c"):
        lines[name] += " -march=native"
    for name in lines:
        (tmp_path / name).write_text("int f(int x) { return x + 1; }\n")
    said: list[str] = []
    search = TuneSearch(
        InliningForSize(), None, budget_s=60.0, jobs=2, timeout_s=60.0, warn=said.append
    )
    with open_build(database(tmp_path, lines), 2, 60.0) as build:
        parts, left = search._parts(build, tuned(), LEAST_S / 2)
    assert parts == {"app": (KEYS[4],)}
    assert list(left) == ["0.o", "2.o"]
    assert said == [
        "search: left out: 0.o: clang would not repeat its answers: expected options and headers "
        "that tell all that decides the code, found '-march=native'; and 1 more"
    ]


@pytest.mark.parametrize(
    ("seconds", "jobs", "searched"),
    [
        (2 * LEAST_S, 1, 2),
        (2 * LEAST_S, 2, 3),
        (LEAST_S, 4, 1),  # the second largest is another target's, and would come after it
        (3 * LEAST_S, 1, 3),
        (0.0, 4, 1),
    ],
)
def test_as_many_as_there_is_time_for(seconds: float, jobs: int, searched: int) -> None:
    """Targets are searched one after the other; a line says how many modules are not searched."""
    said: list[str] = []
    search = TuneSearch(InliningForSize(), None, 60.0, jobs, timeout_s=60.0, warn=said.append)
    parts = search._in_time(tuned(), seconds, ())
    assert sum(map(len, parts.values())) == searched
    count = search._count_unsearched(tuned(), parts, ())
    assert count == 3 - searched
    expected = (
        f"search: {count} of 3 modules that matter are not searched for want of time, of which "
        "each takes 5 s at least: give more --budget and --search"
    )
    assert said == [expected] * bool(count)
    assert (f"; {count} not searched for want" in built(replace(tuned(), unsearched=count))) == (
        count > 0
    )


def test_compiling_takes_no_more_than_half_of_the_time() -> None:
    search = TuneSearch(InliningForSize(), None, budget_s=60.0, jobs=2, timeout_s=60.0)
    # LLVM's own twice, the first model and the tuned one
    for spent_s, left_s in ((4.0, 52.0), (40.0, 30.0)):
        assert search._seconds(replace(tuned(), spent_s={"evaluating": spent_s})) == left_s


@pytest.mark.parametrize(
    ("found", "model", "keeps_smaller", "expected"),
    [
        ((9.0, 90), None, True, True),
        ((10.0, 100), None, True, False),
        ((9.0, 90), (8.0, 95), True, False),
        ((9.0, 90), (9.0, 90), True, False),  # the model's own answers
        ((9.0, 90), (9.0, 91), True, True),
        ((9.0, 90), (8.0, 101), True, True),  # the build keeps LLVM's own
        ((9.0, 90), (8.0, 101), False, False),
        ((10.0, 100), (11.0, 99), True, True),  # LLVM's own answers in place of the model's
    ],
)
def test_answers_beat_what_the_build_has_without_them(
    found: tuple[float, int], model: tuple[float, int] | None, keeps_smaller: bool, expected: bool
) -> None:
    score, size = found
    search = ModuleSearch("f.o", 100, size, default_score=10.0, score=score)
    assert beats(search, model, keeps_smaller=keeps_smaller) == expected


@pytest.mark.e2e
def test_answers_of_the_model_itself_are_not_kept(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in driver.environment.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr("mlgo_gym.lab.tuning._searched.LEAST_S", 0.5)
    (tmp_path / "f.c").write_text(SOURCE)
    scores = replace(module(0, {"LLVM": 100, "start": 90}), module="f.o")
    targets = {"all": (ModuleKey("", "f.o"),)}
    found = Tuned([scores], "start", frozenset(), targets, {"evaluating": 0.0})
    found = replace(found, choice=TuneChoice("start", ""))
    with open_build(database(tmp_path, {"f.c": "clang -O2 -c f.c -o f.o"}), 1, 60.0) as build:
        search = TuneSearch(InliningForSize(), MODELS / "never", 0.5, jobs=1, timeout_s=60.0)
        searched, answers = search.run(build, found, tmp_path / "traces")
    assert (searched.searched, answers) == ({}, {})
    assert (tmp_path / "traces" / ANSWERS).read_text() == FIRST + LAST


def test_no_module_that_is_complete(small: Corpus, tmp_path: Path) -> None:
    scores = [replace(each, errors=(Failure(InputError("refused")),)) for each in tuned().scores]
    found = replace(tuned(), scores=scores, spent_s={"evaluating": 1.0})
    search = TuneSearch(InliningForSize(), None, budget_s=60.0, jobs=1, timeout_s=60.0)
    searched, answers = search.run(Build(small, {}, (), ("", "")), found, tmp_path)
    assert (searched.searched, answers) == ({}, {})


def test_what_counts_is_what_a_linker_can_leave(small: Corpus) -> None:
    assert reward_of_build(small) == "linked"
    command = ("-cc1", "-triple", "x86_64-unknown-linux-gnu", "-Oz", "-ffunction-sections")
    assert reward_of_build(Corpus(small.folder, tuple(small), command)) == "linked_text_icf"


def test_what_was_searched_is_what_is_built() -> None:
    found = replace(tuned("start"), searched={KEYS[0]: Code(400, {})})
    sizes = found.target_bytes()
    assert sizes["app"] == {"LLVM": 890, "start": 890, TUNED: 2110, BUILT: 790}
    assert sizes["lib"][BUILT] == sizes["lib"]["LLVM"]
    assert found.to_json()["searched"] == 1
