"""The best of each function: what was measured of it alone comes out of the module, too."""

from __future__ import annotations

import pytest

from mlgo_gym.corpus._corpus import Corpus, Module
from mlgo_gym.llvm._compiler import Compiler, options_of
from mlgo_gym.llvm._task import ASSEMBLE
from mlgo_gym.problems._inlining_for_size import InliningForSize, always, never
from mlgo_gym.problems._policy import PolicyLike
from mlgo_gym.problems._regalloc_eviction import (
    RegallocEviction,
    lowest_density,
    lowest_reads_and_writes,
)
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.rollout._allocation import AllocationResult
from mlgo_gym.rollout._deployment import deploy
from mlgo_gym.rollout._measures import AllocationCost, KeptObjectUnit, Result, TextSize
from mlgo_gym.rollout._rollout import BASELINE, Tries, best_of, joins, rollout

EVICTION = RegallocEviction()
POLICIES: dict[str, PolicyLike] = {
    "random": RegallocEviction.policy("random", 1),
    "density": lowest_density,
}


def tried(
    compiler: Compiler, module: Module, level: str | None, policies: dict[str, PolicyLike]
) -> Tries:
    unit = AllocationCost().unit(compiler, module, options_of(module, level), EVICTION)
    tries = Tries(unit, EVICTION, BASELINE, by_function=True)
    for name, policy in policies.items():
        tries.attempt(name, policy)
    return tries


def scores(result: object) -> dict[str, float]:
    assert isinstance(result, AllocationResult)
    return {name: score.value for name, score in result.scores.items()}


@pytest.mark.e2e
@pytest.mark.parametrize("level", ["Oz", "Os", "O2", "O3"])
def test_each_function_is_as_good_as_its_best(
    compiler: Compiler, sample: Corpus, level: str
) -> None:
    mixed = 0
    for name in ("lru_cache.cpp", "expr_vm.c", "regex_match.c", "codec_text.c"):
        tries = tried(compiler, sample[name], level, POLICIES)
        best, made = tries.best(AllocationCost())
        known = {each: scores(result) for each, result in tries.results.items()}
        for function, score in scores(made).items():
            assert score == min(each[function] for each in known.values())
            assert score == known[best[function]][function]
        mixed += sum(scores(made).values()) < min(sum(each.values()) for each in known.values())
    assert mixed


def test_llvm_s_own_is_kept_of_equal_ones(compiler: Compiler, sample: Corpus) -> None:
    tries = tried(compiler, sample["regex_match.c"], None, {"density": lowest_density})
    own, other = tries.results.values()
    best = best_of(AllocationCost(), tries.results, by_function=True)
    equal = [name for name, score in scores(own).items() if score == scores(other)[name]]
    assert equal
    assert {best[name] for name in equal} == {BASELINE}
    assert tries.answering({"": BASELINE}) is None
    assert tries.answering({"": "density"}) is lowest_density


def test_of_the_whole_it_is_a_result_that_there_is(compiler: Compiler, sample: Corpus) -> None:
    module = sample["frame_stream.c"]
    unit = TextSize().unit(compiler, module, options_of(module), InliningForSize())
    tries = Tries(unit, InliningForSize(), BASELINE, by_function=False)
    tries.attempt("always", always)
    tries.attempt("never", never)
    best, made = tries.best(TextSize())
    assert made is tries.results[best[""]]
    assert made.score == min(each.score for each in tries.results.values())


class Deceived(AllocationCost):
    """Takes the worst of each function for its best."""

    def rewards(self, result: Result, baseline: Result) -> dict[str, float]:
        return {name: -value for name, value in super().rewards(result, baseline).items()}


def test_the_whole_is_kept_where_functions_do_not_add_up(
    compiler: Compiler, sample: Corpus
) -> None:
    tries = tried(compiler, sample["graph.cpp"], None, {"use": lowest_reads_and_writes})
    best, made = tries.best(Deceived())
    assert made is tries.results[best[""]]
    assert made.score == min(each.score for each in tries.results.values())


@pytest.mark.e2e
def test_an_object_of_the_best_of_each_function(compiler: Compiler, sample: Corpus) -> None:
    """Its code is LLVM's own where that is better, and else the policy's; decisions likewise."""
    module = sample["graph.cpp"]
    policies = {"use": lowest_reads_and_writes}
    options = options_of(module)
    (report,) = rollout(
        sample.only([module.name]),
        policies,
        EVICTION,
        measure=TextSize(),
        keep_decisions=True,
        keep_smaller=True,
    )
    judge = AllocationCost().unit(compiler, module, options, EVICTION)
    judged = Tries(judge, EVICTION, BASELINE, by_function=joins(EVICTION))
    judged.attempt("use", lowest_reads_and_writes)
    best, _ = judged.best(AllocationCost())
    tries = Tries(
        KeptObjectUnit(compiler, module, options, EVICTION), EVICTION, BASELINE, by_function=True
    )
    tries.attempt("use", lowest_reads_and_writes)
    used, smallest = report.attempts
    assert smallest.result
    assert smallest.result.digest == tries.made(best).digest
    assert len({each.digest for each in (*tries.results.values(), smallest.result)}) == 3
    assert smallest.decisions == tuple(
        each for each in used.decisions if best[each.context] == "use"
    )
    assert smallest.result.decisions == len(smallest.decisions) > 0
    texts = {
        name: compiler.produce(
            module, options, ASSEMBLE, {EVICTION: answering} if answering else {}
        )
        for name, answering in {
            BASELINE: None,
            "use": lowest_reads_and_writes,
            "best": tries.answering(best),
        }.items()
    }
    bodies = {name: functions(each.data.decode()) for name, each in texts.items()}
    for name in bodies[BASELINE]:
        assert bodies["best"][name] == bodies[best[name]][name]


def functions(assembly: str) -> dict[str, list[str]]:
    """The instructions of each function, without labels, which are numbered over the module."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in assembly.splitlines():
        if line.startswith("\t.type\t") and line.endswith("@function"):
            name = line.split()[1].partition(",")[0]
        elif line.startswith("\t.size\t"):
            name = ""
        elif name and line.startswith("\t") and not line.startswith("\t."):
            found.setdefault(name, []).append(line.partition(".L")[0])
    return found


def test_priority_has_no_function_that_is_left(compiler: Compiler, sample: Corpus) -> None:
    """Its own heuristic is not to be had function by function, so the whole is kept."""
    problem = RegallocPriority()
    module = sample["expr_vm.c"]
    unit = AllocationCost().unit(compiler, module, options_of(module), problem)
    tries = Tries(unit, problem, BASELINE, by_function=joins(problem))
    tries.attempt("random", RegallocPriority.policy("random", 1))
    best, made = tries.best(AllocationCost())
    assert made.score == min(each.score for each in tries.results.values())
    assert made is tries.results[best[""]]


def test_without_a_model_there_is_llvm_s_own(compiler: Compiler, sample: Corpus) -> None:
    module = sample["frame_stream.c"]
    made = deploy(compiler, module, options_of(module), InliningForSize(), keep_smaller=True)
    assert made.report.baseline
    (smallest,) = made.report.attempts
    assert smallest.result is made.report.baseline
