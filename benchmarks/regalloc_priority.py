"""How much of LLVM's score the order of allocation can win, beside what eviction can.

Some modules of each corpus are allocated with LLVM left alone, and then with priorities by fixed
rules, by rules that are drawn at random, and by a local search, which changes one answer of the
best allocation so far at a time, in all functions of a module at once. The same search is done for
eviction, from the policy that ships. Changes are geometric means over modules against LLVM's own
heuristic, negative is better; what is best of several is so for each function, LLVM's own among it.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from mlgo_gym import Compiler, RegallocEviction, RegallocPriority
from mlgo_gym.corpus import Module, Packages
from mlgo_gym.corpus._packages import ModuleKey
from mlgo_gym.llvm import options_of
from mlgo_gym.llvm._schedule import each
from mlgo_gym.model import shipped_models
from mlgo_gym.problems import Policy, Problem
from mlgo_gym.problems._regalloc_priority import by_size
from mlgo_gym.rollout._allocation import Allocator
from mlgo_gym.runners._models import native_policy
from mlgo_gym.stream import Observation

MODEL = "regalloc-eviction"
WORSE = 1.01
SPLIT = 2
HALF = 2.0**23
"""What is not split comes before what is; both fit a float32's 24 bits."""
SHORT = 4 * 2 * 14
"""What LLVM takes in the instructions' order if it is in one block: two for each register."""

Answer = Callable[[Observation], float]
Made = Callable[[], Answer]
Scores = dict[str, float]


def key(of_size: float, of_weight: float, of_split: float = 0.0) -> Made:
    """Priorities by a linear score of the logarithms of size and weight."""

    def answer(observation: Observation) -> float:
        size, weight = float(observation["li_size"][0]), float(observation["weight"][0])
        value = of_size * math.log1p(size) + of_weight * math.log(min(max(weight, 1e-9), 1e9))
        stage = int(observation["stage"][0])
        value += of_split * (stage > SPLIT)
        return leveled(HALF / 2 + value * 2**16, stage)

    return lambda: answer


def leveled(value: float, stage: int) -> float:
    return min(max(round(value), 0.0), HALF - 1) + (0.0 if stage == SPLIT else HALF)


def split_last() -> Answer:
    """LLVM's own rule, as far as the features tell."""
    return lambda seen: leveled(float(seen["li_size"][0]), int(seen["stage"][0]))


def in_order(short: float = math.inf) -> Answer:
    """Long ranges first, by size, and then, as LLVM's rule has it, short ones as they come.

    No model can answer so: that needs what was asked before.
    """
    asked: dict[str, int] = defaultdict(int)

    def answer(seen: Observation) -> float:
        asked[seen.context] += 1
        size, stage = float(seen["li_size"][0]), int(seen["stage"][0])
        if stage == SPLIT:
            return leveled(size, stage)
        if size > short:
            return leveled(HALF / 2 + size, stage)
        return leveled(HALF / 2 - asked[seen.context], stage)

    return answer


FIXED: dict[str, Made] = {
    "by size": lambda: by_size,
    "by size, what was split last": split_last,
    "short ones first": key(-1, 0),
    "heavy ones first": key(0, 1),
    "light ones first": key(0, -1),
    "much used ones first": key(1, 1),
    "much used ones first, size less": key(1, 2),
    "much used ones first, size more": key(1, 0.7),
    "by size, a little by weight": key(1, 0.25),
    "by size, a little against weight": key(1, -0.25),
    "as they come": in_order,
    "long ones first, then as they come": partial(in_order, SHORT),
}


def drawn(number: int) -> Made:
    """A rule near size alone, or for every second number anywhere."""
    random = np.random.default_rng([1, number])
    if number % 2:
        return key(*random.normal(0, 1, 3))
    return key(*(np.array([1.0, 0.0, 0.0]) + random.normal(0, 0.2, 3)))


class Search:
    """What answers otherwise than a policy, in each function of a module, and what came of it."""

    def __init__(self, problem: Problem, policy: Made) -> None:
        self.problem, self.policy = problem, policy
        self.scores: Scores = {}
        self._best: dict[str, dict[int, float]] = {}
        self._answers: dict[str, list[float]] = {}
        self._random = np.random.default_rng(0)

    def attempt(self) -> Attempt:
        """The best so far, with one answer of each function changed."""
        places = {
            name: int(self._random.integers(len(answers)))
            for name, answers in self._answers.items()
        }
        return Attempt(self.policy(), self._best, places, self._other)

    def take(self, attempt: Attempt, scores: Mapping[str, float]) -> None:
        """Keep of each function what came out no worse."""
        for name, answers in attempt.answers.items():
            score = scores.get(name, math.inf)
            if name not in self.scores or score <= self.scores[name]:
                self.scores[name], self._answers[name] = score, answers
                self._best[name] = attempt.changed.get(name, {})

    def _other(self, seen: Observation, before: float) -> float:
        """Another register, or the priority of another range of the function."""
        mask = self.problem.action_mask(seen)
        if mask is None:
            return float(self._random.choice(self._answers[seen.context]))
        others = [int(each) for each in mask.nonzero()[0] if each != before]
        return int(self._random.choice(others)) if others else before


@dataclass
class Attempt:
    """Answers of one allocation: a policy's, but for those that are changed, by number."""

    policy: Answer
    best: Mapping[str, Mapping[int, float]]
    places: Mapping[str, int]
    other: Callable[[Observation, float], float]
    changed: dict[str, dict[int, float]] = field(default_factory=dict)
    answers: dict[str, list[float]] = field(default_factory=dict)

    def __call__(self, seen: Observation) -> float:
        """Answer, and note it."""
        name = seen.context
        answers = self.answers.setdefault(name, [])
        changed = self.changed.setdefault(name, dict(self.best.get(name, {})))
        usual, number = self.policy(seen), len(answers)
        if number == self.places.get(name):
            changed[number] = self.other(seen, changed.get(number, usual))
        value = changed.get(number, usual)
        if "mask" in seen and not seen["mask"][0][int(value)]:
            value = usual  # what was changed before led elsewhere
        answers.append(value)
        return value


class Way:
    """A module whose registers are allocated again and again, as one advisor is answered."""

    def __init__(self, compiler: Compiler, module: Module, problem: Problem) -> None:
        self.allocator = Allocator(compiler, problem)
        optimized = self.allocator.optimize(module, options_of(module))
        result, self.known = self.allocator.baseline(optimized)
        self.baseline = {name: score.value for name, score in result.scores.items()}

    def scores(self, answer: Answer) -> Scores:
        """What each function comes to."""
        result = self.allocator.allocate(self.known, answer)
        return {name: score.value for name, score in result.scores.items()}

    def searched(self, policy: Made, tries: int) -> Scores:
        """The least of each function that a search finds from a policy, or LLVM itself."""
        search = Search(self.allocator.problem, policy)
        for _ in range(tries + 1):
            attempt = search.attempt()
            search.take(attempt, self.scores(attempt))
        return least([self.baseline, search.scores])


def least(found: Sequence[Mapping[str, float]]) -> Scores:
    """The least score of each function of the first."""
    return {name: min(scores.get(name, math.inf) for scores in found) for name in found[0]}


def totals(
    compiler: Compiler, module: Module, rule_count: int, tries: int, shipped: Policy
) -> dict[str, float]:
    """A module's score by each way, LLVM's own as ""."""
    way = Way(compiler, module, RegallocPriority())
    fixed = {name: way.scores(made()) for name, made in FIXED.items()}
    rules = {f"rule {number}": way.scores(drawn(number)()) for number in range(rule_count)}
    found = {"": way.baseline, **fixed, **rules}
    found["the best fixed rule"] = least([way.baseline, *fixed.values()])
    found["the best drawn rule"] = least([way.baseline, *rules.values()])
    start = min(FIXED, key=lambda name: sum(fixed[name].values()))
    found["the best that a search finds"] = way.searched(FIXED[start], tries)
    eviction = Way(compiler, module, RegallocEviction())
    with shipped.begin(module) as answer:
        found["eviction: the policy that ships"] = eviction.scores(answer)
        best = eviction.searched(lambda: answer, tries)
    found["eviction: the best that a search finds"] = best
    return {name: sum(scores.values()) for name, scores in found.items()}


def run(packages: Packages, rules: int, tries: int, jobs: int) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        shipped = native_policy(shipped_models()[MODEL], RegallocEviction(), stack)

        def work(compiler: Compiler, read: tuple[ModuleKey, Module]) -> dict[str, float]:
            return totals(compiler, read[1], rules, tries, shipped)

        read = packages.keyed
        for done in each(packages, work, Compiler, read=read, jobs=jobs):
            if done.error:
                print(f"{done.item}: {done.error}", flush=True)
            elif done.value[""]:
                yield {"package": done.item.package, "module": done.item.name} | {
                    "scores": done.value
                }


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Each way's change over all modules, each package counting the same, and those worse."""
    names = [name for name in rows[0]["scores"] if name]
    rules = [name for name in names if name.startswith("rule ")]
    logs = {name: [math.log(row["scores"][name] / row["scores"][""]) for row in rows]
            for name in names}  # fmt: skip
    best = min(rules, key=lambda name: sum(logs[name]))
    packages = [row["package"] for row in rows]
    print(f"{len(rows)} modules of {len(set(packages))} packages; the best of the drawn: {best}")
    for name in names:
        if name in rules and name != best:
            continue
        means = [mean([x for x, p in zip(logs[name], packages, strict=True) if p == package])
                 for package in dict.fromkeys(packages)]  # fmt: skip
        worse = sum(each > math.log(WORSE) for each in logs[name])
        print(f"{name:40} {math.expm1(mean(logs[name])):+7.2%}, packages "
              f"{math.expm1(mean(means)):+7.2%}, {worse} worse by 1 %, "
              f"at most {math.expm1(max(logs[name])):+.1%}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.regalloc_priority",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpora", nargs="+", type=Path)
    parser.add_argument("--rules", type=int, default=20, help="drawn at random")
    parser.add_argument("--tries", type=int, default=20, help="of each search")
    parser.add_argument("--modules", type=int, default=6, help="of each corpus, at most")
    parser.add_argument("--most-bytes", type=int, default=150_000, help="of a module's bitcode")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("regalloc_priority.jsonl"))
    options = parser.parse_args()
    packages = Packages.load(options.corpora)
    packages = packages.only(
        [key for key in packages if packages.size_bytes(key) <= options.most_bytes]
    ).some_modules(options.modules, seed=0)
    rows = []
    with options.output.open("w") as file:
        for row in run(packages, options.rules, options.tries, options.jobs):
            file.write(json.dumps(row) + "\n")
            file.flush()
            rows.append(row)
    show(rows)


if __name__ == "__main__":
    main()
