"""Which modules of a tune are searched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mlgo_gym.cc._traces import Build
from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.corpus._packages import ModuleKey
from mlgo_gym.errors import InputError
from mlgo_gym.lab.tuning._searched import TuneSearch, modules_that_matter, reward_of_build
from mlgo_gym.lab.tuning._tuned import BUILT, TUNED, TuneChoice, Tuned
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.rollout._linked_text import Code
from mlgo_gym.rollout._rollout import Failure
from tests.evaluation.test_tuned import module

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
