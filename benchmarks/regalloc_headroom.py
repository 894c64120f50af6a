"""How much of LLVM's score eviction can win: what spill code costs, and what a search finds.

For some modules of each package: what the score would be with no spill code at all, under the
policy that ships, and with the best allocation that a local search finds for each of the functions
that most of the spill code is in. The search changes one answer of the best allocation so far,
drawn from the policy's probabilities, and lets the policy answer what comes after it. All numbers
are geometric means over modules, against LLVM's own heuristic.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from mlgo_gym import Compiler, Corpus, RegallocEviction
from mlgo_gym.corpus import Packages
from mlgo_gym.model import shipped_models
from mlgo_gym.stream import Observation
from mlgo_gym.training._data import TrainingContext, Workshop
from mlgo_gym.training._export import CompiledNetwork
from mlgo_gym.training._start import load_start
from mlgo_gym.training._trials import FORBIDDEN

RECIPES = ("lupa", "cmarkgfm", "pycares", "yara-python", "box2d-py", "libsass")
MODEL = "regalloc-eviction"
MODULES = 12
COVERED = 0.95
"""The part of the spill code whose functions are searched."""
TEMPERATURE = 1.7


class Answers:
    """Answers as given, then one otherwise than before, then as the network would."""

    def __init__(
        self,
        network: CompiledNetwork,
        first: Sequence[int] = (),
        avoided: int | None = None,
        seed: Sequence[int] = (),
    ) -> None:
        self.network, self.first, self.avoided = network, first, avoided
        self.generator = np.random.default_rng(seed)
        self.actions: list[int] = []
        self.open: list[int] = []

    def __call__(self, observation: Observation) -> int:
        """Answer, and note it."""
        logits = self.network.logits(observation.payload)
        legal = np.flatnonzero(logits > FORBIDDEN)
        number = len(self.actions)
        if len(legal) > 1:
            self.open.append(number)
        if number < len(self.first) and self.first[number] in legal:
            action = self.first[number]
        elif number == len(self.first) and self.avoided is not None and len(legal) > 1:
            others = legal[legal != self.avoided]
            powers = np.exp((logits[others] - logits[others].max()) / TEMPERATURE)
            action = int(self.generator.choice(others, p=powers / powers.sum()))
        else:
            action = int(logits.argmax())
        self.actions.append(action)
        return action


def run(corpora: Mapping[str, Corpus], tries: int) -> None:
    problem = RegallocEviction()
    network = CompiledNetwork(load_start(str(shipped_models()[MODEL]), problem), problem)
    packages = Packages.of(corpora).some_modules(MODULES, seed=0)
    with Workshop(problem, jobs=os.cpu_count() or 1, timeout_s=60.0, warn=print) as workshop:
        contexts = list(chain.from_iterable(workshop.contexts(packages)))

        def searched(compiler: Compiler, index: int) -> tuple[float, float]:
            """The score under the policy, and the best that was found."""
            context = contexts[index]
            best = Answers(network)
            under_policy = least = workshop.score(compiler, context, best)
            for number in range(tries if index in chosen else 0):
                if not best.open:
                    break
                place = best.open[np.random.default_rng([index, number]).integers(len(best.open))]
                answers = Answers(
                    network, best.actions[:place], best.actions[place], [index, number]
                )
                score = workshop.score(compiler, context, answers)
                if score <= least:
                    best, least = answers, score
            return under_policy, min(least, context.baseline)

        chosen = most_of_the_spill_code(contexts)
        found = [done.value for done in workshop.each(range(len(contexts)), searched)]
    under_policy, best = zip(*found, strict=True)
    modules = {context.module for context in contexts}
    print(f"{len(modules)} modules, {len(contexts)} functions that ask, {len(chosen)} searched")
    changes = {
        "no spill code at all": [-each.potential for each in contexts],
        "the policy that ships": changes_of(contexts, under_policy),
        f"the best of {tries + 1} allocations": changes_of(contexts, best),
    }
    for name, parts in changes.items():
        sums: dict[str, float] = defaultdict(float)
        for context, part in zip(contexts, parts, strict=True):
            sums[context.module] += part
        logs = [math.log(max(1 + each, 1e-3)) for each in sums.values()]
        print(f"{name}: {math.expm1(sum(logs) / len(logs)):+.2%}", flush=True)


def changes_of(contexts: Sequence[TrainingContext], scores: Sequence[float]) -> list[float]:
    """What each function changes of its module's score."""
    return [
        context.share * (score / context.baseline - 1)
        for context, score in zip(contexts, scores, strict=True)
    ]


def most_of_the_spill_code(contexts: Sequence[TrainingContext]) -> set[int]:
    order = sorted(range(len(contexts)), key=lambda index: -contexts[index].potential)
    parts = np.cumsum([contexts[index].potential for index in order])
    return set(order[: int(np.searchsorted(parts, COVERED * parts[-1])) + 1])
