"""Which modules of a tune are searched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlgo_gym.cc._traces import Build, open_build
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import ModuleKey
from mlgo_gym.errors import InputError
from mlgo_gym.lab.tuning._searched import TuneSearch, modules_that_matter, reward_of_build
from mlgo_gym.lab.tuning._tuned import BUILT, TUNED, TuneChoice, Tuned
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.rollout._linked_text import Code
from mlgo_gym.rollout._rollout import Failure
from tests.cc.conftest import Driver
from tests.cc.test_traces import database
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
        parts, left = search._parts(build, tuned(), most=1)
    assert parts == {"app": (KEYS[4],)}
    assert list(left) == ["0.o", "2.o"]
    assert said == [
        "search: left out: 0.o: clang would not repeat its answers: expected options and headers "
        "that tell all that decides the code, found '-march=native'; and 1 more"
    ]


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
