"""Work on contexts, here or on nodes, without TensorFlow: answers, tries and scores.

What is drawn depends on the seed, the generation, the context and the number of the try, not on
who has it; so trials are the same wherever they are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from mlgo_gym.base import WorkloadError
from mlgo_gym.llvm import Compiler
from mlgo_gym.problems import Action
from mlgo_gym.rollout import Decision, RecordingPolicy, without_frames
from mlgo_gym.stream import Observation
from mlgo_gym.training._contexts import TrainingContext, Workshop
from mlgo_gym.training._network_code import FORBIDDEN, NetworkCode


@dataclass(frozen=True, slots=True)
class Tried:
    """A decision that was drawn, and the logarithm of its probability then."""

    payload: bytes
    action: int
    log_probability: float


@dataclass(frozen=True, slots=True)
class Trial:
    """A context's `cost` with the likeliest actions, and of tries, with what these drew.

    Tries with which a program went wrong are not among them; `errors` say what it did.
    """

    cost: float
    costs: tuple[float, ...]
    tried: tuple[tuple[Tried, ...], ...]
    errors: tuple[WorkloadError, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialSetting:
    """How contexts are tried in a generation; docs/guides/training.md explains each setting."""

    seed: int
    generation: int
    tries: int
    drawn: float
    temperature: float
    tolerated: float


@dataclass(frozen=True, slots=True)
class Trials:
    """Compiles contexts with the likeliest actions and, where there is a choice, with others."""

    workshop: Workshop
    network: NetworkCode
    setting: TrialSetting

    def __call__(self, compiler: Compiler, numbered: tuple[int, TrainingContext]) -> Trial:
        setting, (index, context) = self.setting, numbered

        def cost(answers: _Answers) -> float:
            score = self.workshop.score(compiler, context, answers)
            return context.cost(score, setting.tolerated)

        likeliest = _Answers(self.network)
        least = cost(likeliest)
        costs, tried, errors = [], [], []
        for number in range(setting.tries if likeliest.open else 0):
            share = min(1.0, setting.drawn / likeliest.open)
            generator = np.random.default_rng([setting.seed, setting.generation, index, number])
            answers = _Answers(self.network, share, setting.temperature, generator)
            try:
                costs.append(cost(answers))
            except WorkloadError as error:
                errors.append(without_frames(error))
                continue
            tried.append(tuple(answers.tried))
        return Trial(least, tuple(costs), tuple(tried), tuple(errors))


@dataclass(frozen=True, slots=True)
class Scores:
    """Compiles contexts with the likeliest actions of a network."""

    workshop: Workshop
    network: NetworkCode

    def __call__(self, compiler: Compiler, context: TrainingContext) -> float:
        return self.workshop.score(compiler, context, self.network.answer)


@dataclass(frozen=True, slots=True)
class Asked:
    """The payloads of the first so many decisions of contexts under the problem's own rule."""

    workshop: Workshop
    most: int

    def __call__(self, compiler: Compiler, numbered: tuple[int, TrainingContext]) -> list[bytes]:
        problem = self.workshop.problem
        decisions: list[Decision] = []
        watched = RecordingPolicy(problem.policy(problem.rule), problem, decisions)
        self.workshop.score(compiler, numbered[1], watched)
        return [each.payload for each in islice(decisions, self.most)]


@dataclass(slots=True)
class _Answers:
    """Answers with the likeliest action or, for a share of those with a choice, a drawn one."""

    network: NetworkCode
    share: float = 0.0
    temperature: float = 1.0
    generator: np.random.Generator | None = None
    open: int = 0
    tried: list[Tried] = field(default_factory=list)

    def __call__(self, observation: Observation) -> Action:
        logits = self.network.logits(observation.payload)
        best = int(logits.argmax())
        if np.count_nonzero(logits > FORBIDDEN) < 2:
            return best
        self.open += 1
        if self.generator is None or self.generator.random() >= self.share:
            return best
        powers = np.exp((logits.astype(np.float64) - logits[best]) / self.temperature)
        ends = np.cumsum(powers)
        action = int(np.searchsorted(ends, self.generator.random() * ends[-1], side="right"))
        logarithm = float(np.log(powers[action] / ends[-1]))
        self.tried.append(Tried(observation.payload, action, logarithm))
        return action
