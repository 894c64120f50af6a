"""Searches by what programs take: what is found is real, and scores are of one reward."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlgo_gym.corpus._corpus import SAMPLE_CORPUS, Corpus
from mlgo_gym.corpus._packages import PackagesLike
from mlgo_gym.errors import OptionsError, WorkloadError
from mlgo_gym.llvm._compiler import Compiler
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.rollout import measure_named, rollout
from mlgo_gym.rollout._replay import replay
from mlgo_gym.rollout._trace import Trace, trace_path
from mlgo_gym.search._corpus_search import ModuleSearch, search_corpus
from mlgo_gym.search._goal import Choice, SearchSetting
from mlgo_gym.search._oracle import Oracle
from tests.lab.programs.conftest import ADDRESS, DESCRIPTION, MakeCorpus
from tests.search.test_oracle import BASES, PROBLEM, steps

LOOP = """
static volatile int sink;
static int mix(int x, int y) {
  x = x * 3 + (y ^ x) * 7 + (x << (y & 7));
  sink = x, y += sink * 5 + (y >> 3), sink = y, x -= sink * 11, sink = x + y;
  return x + y * sink + (x ^ 9);
}
int twice(int x) {
  for (int i = 0; i < 1000; i++) { sink = mix(i, 3); sink = mix(x, i); sink = mix(3, sink); }
  return 2 * x;
}
"""


def searched(
    corpora: PackagesLike,
    folder: Path,
    reward: str | None,
    budget_s: float = 60,
    *,
    most_text: float | None = None,
    **how: Any,
) -> dict[str, ModuleSearch]:
    setting = SearchSetting(budget_s, clock=steps(), most_text=most_text)
    searches = search_corpus(corpora, folder, PROBLEM, setting, reward=reward, **how)
    return {each.module: each for each in searches}


def record_of(folder: Path, name: str = "twice.c") -> dict[str, Any]:
    found = json.loads((folder / f"{name}.search.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.e2e
def test_found_is_compared_with_llvm_without_an_advisor(corpus: MakeCorpus, tmp_path: Path) -> None:
    """The growth limit keeps the advisor from inlining what LLVM inlines."""
    small = """static volatile int sink;
    static int mixed(int x) { return x * 3 - (x ^ 5); }
    int twice(int x) { sink = mixed(x); sink = mixed(x + 1); return 2 * x; }"""
    made = corpus(DESCRIPTION, {"twice.c": small})
    problem = InliningForSize(size_increase_threshold=0.01)
    setting = SearchSetting(1, most_text=1.0)
    (found,) = search_corpus(made, tmp_path, problem, setting, reward="instructions")
    measure = measure_named("instructions", made)
    with Compiler() as compiler:
        plain = compiler.compile_module(made["twice.c"], keep_object=True)
        assert found.default_score == measure.score(plain)
    assert found.default_size_bytes == plain.text_size_bytes
    assert found.score > found.default_score
    measure.close()


@pytest.mark.e2e
def test_fewer_instructions_and_the_text_with_them(corpus: MakeCorpus, tmp_path: Path) -> None:
    made = corpus(DESCRIPTION, {"twice.c": LOOP})
    folder = tmp_path / "found"
    found = searched(made, folder, "instructions")["twice.c"]
    assert found.error is None
    assert found.reward == "instructions"
    assert found.score < found.default_score
    assert found.size_bytes > found.default_size_bytes  # it was not searched for
    trace = Trace.load(trace_path(folder, "twice.c"))
    choice = Choice.from_json(record_of(folder)["choice"])
    measure = measure_named("instructions", made)
    with Compiler() as compiler:
        module = made["twice.c"]
        assert replay(compiler, trace, module).text_size_bytes == found.size_bytes
        policy = choice.policy(BASES)
        again = compiler.compile_module(module, problem=PROBLEM, policy=policy, keep_object=True)
        plain = compiler.compile_module(module, keep_object=True)
    assert again.object_sha256 == trace.object_sha256
    assert (measure.score(again), measure.score(plain)) == (found.score, found.default_score)
    measure.close()


@pytest.mark.e2e
def test_no_more_text_than_may_be(corpus: MakeCorpus, tmp_path: Path) -> None:
    made = corpus(DESCRIPTION, {"twice.c": LOOP})
    found = searched(made, tmp_path, "instructions", most_text=1.0)["twice.c"]
    assert (found.size_bytes <= found.default_size_bytes, found.wrong) == (True, 0)
    more = searched(made, tmp_path, "instructions", most_text=2.5)["twice.c"]
    assert record_of(tmp_path)["most_text"] == 2.5  # begun anew
    assert more.score < found.score
    assert more.size_bytes <= 2.5 * more.default_size_bytes


@pytest.mark.e2e
def test_a_mix(corpus: MakeCorpus, tmp_path: Path) -> None:
    made = corpus(DESCRIPTION, {"twice.c": LOOP})
    found = searched(made, tmp_path, "cost:0.5, text:1")["twice.c"]
    assert found.reward == record_of(tmp_path)["reward"] == "text:1.0,cost:0.5"
    cost = measure_named("cost", made)
    with Compiler() as compiler:
        plain = compiler.compile_module(made["twice.c"], keep_object=True)
    assert found.default_score == pytest.approx(
        (plain.text_size_bytes**1.0 * cost.score(plain) ** 0.5) ** (1 / 1.5)
    )
    assert found.score <= found.default_score
    cost.close()


@pytest.mark.e2e
def test_modules_that_are_not_reached(corpus: MakeCorpus, tmp_path: Path) -> None:
    unreached = LOOP.replace("twice", "thrice").replace("mix", "other")
    modules = {"twice.c": LOOP, "thrice.c": unreached, "apart.c": unreached}
    made = corpus(f'exclude = ["apart.c"]\n{DESCRIPTION}', modules)
    found = searched(made, tmp_path / "found", "instructions", 3, jobs=2)
    assert {name: each.error for name, each in found.items()} == {
        "twice.c": None,
        "thrice.c": "module 'thrice.c': expected a workload that reaches it, found none of twice",
        "apart.c": "module 'apart.c': expected it in a workload's program, found it in none of "
        "twice",
    }
    assert [path.name for path in (tmp_path / "found").glob("*.json")] == ["twice.c.search.json"]


@pytest.mark.e2e
def test_packages_without_workloads(corpus: MakeCorpus, tmp_path: Path) -> None:
    made = corpus(DESCRIPTION, {"twice.c": LOOP})
    other = Corpus(tmp_path / "other", ("x.c",))
    other.folder.mkdir()
    for suffix in ("bc", "cmd"):
        source = Corpus.load(SAMPLE_CORPUS).folder / f"frame_stream.c.{suffix}"
        (other.folder / f"x.c.{suffix}").write_bytes(source.read_bytes())
    packages = {"own": made, "other": other}
    found = searched(packages, tmp_path / "found", "instructions", 3)
    assert found["own/twice.c"].error is None
    problem = f"workloads: expected a description in {other.folder / 'workloads'}, found none"
    assert found["other/x.c"].error == f"module 'x.c': {problem}"
    with pytest.raises(WorkloadError) as caught:
        searched(other, tmp_path / "found", "instructions")
    assert str(caught.value) == problem


@pytest.mark.e2e
def test_a_program_that_goes_wrong_is_never_kept(corpus: MakeCorpus, tmp_path: Path) -> None:
    made = corpus(DESCRIPTION, {"twice.c": ADDRESS})
    found = searched(made, tmp_path / "found", "instructions")["twice.c"]
    assert found.wrong > 0
    assert record_of(tmp_path / "found")["wrong"] == found.wrong
    assert found.score == found.default_score  # the one call is inlined, or the program is wrong
    measure = measure_named("instructions", made)
    setting = SearchSetting(60, clock=steps())
    with Compiler() as compiler:
        oracle = Oracle(compiler, made["twice.c"], setting, PROBLEM, measure=measure)
        assert [each.score for each in oracle.improvements()] == [found.default_score]
    measure.close()
    assert oracle.wrong > 0


def test_a_program_that_is_wrong_from_the_beginning(corpus: MakeCorpus, tmp_path: Path) -> None:
    made = corpus(DESCRIPTION, {"twice.c": LOOP.replace("2 * x", "3 * x")})
    found = searched(made, tmp_path / "found", "instructions")["twice.c"]
    message = "module 'twice.c': workload 'twice': expected standard output of SHA-256 "
    assert str(found.error).startswith(message)
    assert not (tmp_path / "found").exists()


@pytest.mark.e2e
def test_what_another_search_left(corpus: MakeCorpus, tmp_path: Path) -> None:
    made = corpus(DESCRIPTION, {"twice.c": LOOP})
    text = searched(made, tmp_path, None)["twice.c"]
    assert (text.reward, text.score) == (None, text.size_bytes)
    assert searched(made, tmp_path, "text")["twice.c"] == text  # by another name
    fast = searched(made, tmp_path, "instructions")["twice.c"]
    assert fast.default_score > fast.score > 10 * text.score
    assert searched(made, tmp_path, "instructions:3")["twice.c"] == fast  # nothing is left to do
    longer = searched(made, tmp_path, "instructions", 100)["twice.c"]
    assert longer.compilations > fast.compilations
    assert (longer.spent_s, longer.score) > (fast.spent_s, 0)
    main = made.folder / "workloads" / "main.c"
    main.write_text(main.read_text().replace("twice(21)", "twice(20) + 2 * 1"))
    other = searched(made, tmp_path, "instructions")["twice.c"]
    assert other.spent_s < longer.spent_s  # of other programs, so begun anew


@pytest.mark.parametrize("value", [0.99, 0, -1, float("inf"), float("nan")])
def test_limits_of_text_that_are_none(value: float) -> None:
    with pytest.raises(OptionsError) as caught:
        SearchSetting(1, most_text=value)
    expected = f"most_text: expected a finite number of at least 1, found {value!r}"
    assert str(caught.value) == expected


@pytest.mark.parametrize("reward", [None, "text", "text:2"])
def test_a_limit_of_text_by_itself(sample: Corpus, tmp_path: Path, reward: str | None) -> None:
    with pytest.raises(OptionsError) as caught:
        searched(sample, tmp_path, reward, most_text=1.0)
    assert str(caught.value) == f"most_text: expected a reward other than text, found {reward!r}"


def test_a_reward_that_is_none(sample: Corpus, tmp_path: Path) -> None:
    with pytest.raises(OptionsError) as caught:
        searched(sample, tmp_path, "speed")
    assert str(caught.value) == (
        "reward: expected measures out of text, linked, linked_text_gc, linked_text_icf, "
        "box, box-time, cost, estimate, instructions, each "
        "once, several with a weight above 0 as in 'text:0.5,instructions:0.5', found 'speed'"
    )


def test_a_measure_itself_is_of_one_package(sample: Corpus, tmp_path: Path) -> None:
    corpus = sample.only(["digest.c", "scene.cpp"])
    measure = measure_named("linked_text_icf", corpus, exports=("main",))
    (found,) = search_corpus(
        corpus.only(["digest.c"]), tmp_path, PROBLEM, SearchSetting(0.5), reward=measure
    )
    assert found.reward == "linked_text_icf_bytes"
    assert found.default_score == 0  # nothing of it is kept, as no program has it
    packages = {"a": corpus, "b": corpus}
    with pytest.raises(OptionsError) as caught:
        list(search_corpus(packages, tmp_path, PROBLEM, SearchSetting(0.5), reward=measure))
    assert str(caught.value) == (
        "reward: expected the name of a measure, of which each of 2 packages has its own, found "
        "the measure 'linked_text_icf_bytes'"
    )


def test_what_is_linked_is_searched_with_sections(sample: Corpus, tmp_path: Path) -> None:
    """As the measure has it where a module is rolled out."""
    corpus = sample.only(["digest.c", "scene.cpp"])
    found = searched(corpus, tmp_path, "linked_text_icf", 3)
    measure = measure_named("linked_text_icf", corpus)
    for report in rollout(corpus, {}, PROBLEM, measure=measure):
        assert report.baseline
        assert found[report.module].default_score == measure.score(report.baseline)
        settings = Trace.load(trace_path(tmp_path, report.module)).settings
        assert settings["function_sections"] is settings["data_sections"] is True
