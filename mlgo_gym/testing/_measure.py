"""The contract of measures: scores, rewards, equality, and what results must hold."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mlgo_gym.corpus import Module
from mlgo_gym.llvm import CompilationResult, Compiler, options_of
from mlgo_gym.problems import Problem
from mlgo_gym.rollout import Measure, Result
from mlgo_gym.testing._contract import ContractError, described, expect

_BASELINE = "LLVM's own"


def check_measure(
    measure: Measure, module: Module, problem: Problem, *, opt_level: str | None = None
) -> None:
    """Check that a measure keeps the contract of `mlgo_gym.rollout.Measure`.

    The module is compiled as LLVM's own heuristic has it, and under the problem's default policy
    and those that it is compared with. The measure stays open.

    Scores are finite, not below 0, and equal where results are. Less is better: rewards have the
    reverse order, and the baseline's is 0. All results have scores, parts and rewards of the same
    names. Equal measures have one hash. A share that is closed takes nothing from the others.
    `Measure.context` is JSON. Results hold their objects if, and only if, the measure says so.

    Args:
        measure: what is checked.
        module: one that the measure can score.
        problem: one whose compilations it compares.
        opt_level: clang's level to compile at; ``None`` takes the module's own.

    Raises:
        ContractError: a clause is broken.
        ModuleError: LLVM refuses the module, or the measure cannot score it.

    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
    >>> from mlgo_gym.rollout import TextSize
    >>> check_measure(TextSize(), Corpus.load(SAMPLE_CORPUS)["frame_stream.c"], InliningForSize())
    """
    check = _Check(measure)
    check.names()
    check.context()
    check.equality()
    with Compiler() as compiler:
        unit = measure.unit(compiler, module, options_of(module, opt_level), problem)
        results: dict[str, Result] = {_BASELINE: unit.baseline()}
        check.scores(results)
        check.sharing()
        for name in dict.fromkeys([problem.default_policy, *problem.compared]):
            results[name] = unit.attempt(problem.policy(name))
            check.score_after_sharing(name, results[name])
        again = unit.attempt(problem.policy(name))
    check.objects(results)
    check.scores(results)
    check.parts_and_rewards(results)
    check.order(results)
    check.equal_results(results | {f"{name}, again": again})


@dataclass(frozen=True, slots=True)
class _Check:
    measure: Measure

    def names(self) -> None:
        """The names of a score in records and on pages are text."""
        for name in ("key", "title", "meaning"):
            text = getattr(self.measure, name, None)
            if not isinstance(text, str) or not text:
                raise ContractError(f"{name}: expected some text, found {text!r}")

    def context(self) -> None:
        """The context is JSON, and the same whenever it is asked for."""
        context = self.measure.context()
        try:
            read = json.loads(json.dumps(context, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ContractError(f"context: expected JSON, found {described(error)}") from error
        expect("context, as JSON", context, read)
        expect("context, a second time", context, self.measure.context())

    def equality(self) -> None:
        """A measure equals its copy, which has the same hash, and nothing else."""
        twin = copy.copy(self.measure)
        expect("equality with a copy", True, self.measure == twin)
        expect("hash of a copy", hash(self.measure), hash(twin))
        expect("equality with what is no measure", False, self.measure == object())

    def sharing(self) -> None:
        """A share is closed by itself."""
        shared = self.measure.share()
        expect("equality with a share", True, self.measure == shared)
        shared.close()

    def score_after_sharing(self, name: str, result: Result) -> None:
        """A measure that one user has closed is there for the others."""
        try:
            self.measure.score(result)
        except Exception as error:
            raise ContractError(
                f"score of {name} after a share was closed: expected a number, "
                f"found {described(error)}"
            ) from error

    def objects(self, results: Mapping[str, Result]) -> None:
        """Results are those of objects, and hold them, where the measure says so.

        What was scored is known, and scored again without its object.
        """
        for name, result in results.items():
            is_object = isinstance(result, CompilationResult)
            expect(f"an object's result for {name}", self.measure.makes_objects, is_object)
            if isinstance(result, CompilationResult):
                holds = result.object_bytes is not None
                expect(f"object in the result of {name}", self.measure.keeps_objects, holds)
                bare = self.measure.score(replace(result, object_bytes=None))
                expect(f"score of {name} without its object", self.measure.score(result), bare)

    def scores(self, results: Mapping[str, Result]) -> None:
        """Scores are finite and not below 0, and one of them has the measure's key."""
        for name, result in results.items():
            scores = self.measure.scores(result)
            _check_mapping(f"scores of {name}", scores)
            for key, score in scores.items():
                _check_number(f"score {key!r} of {name}", score)
            key, expected = self.measure.key, self.measure.score(result)
            expect(f"score {key!r} of {name}", expected, scores.get(key))

    def parts_and_rewards(self, results: Mapping[str, Result]) -> None:
        """All results have the same names; rewards have those of the parts, and the whole's."""
        measure, baseline = self.measure, results[_BASELINE]
        rewards = measure.rewards(baseline, baseline)
        _check_mapping(f"rewards of {_BASELINE}", rewards)
        _check_mapping(f"parts of {_BASELINE}", measure.parts(baseline))
        names = rewards.keys()
        keys = measure.scores(baseline).keys()
        expect("a reward of the whole, named ''", True, "" in names)
        for name, result in results.items():
            rewards, parts = measure.rewards(result, baseline), measure.parts(result)
            expect(f"names of the rewards of {name}", set(names), set(rewards))
            expect(f"names of the scores of {name}", set(keys), set(measure.scores(result)))
            expect(f"parts of {name} without a reward", set(), parts.keys() - names)
            if not measure.by_function:
                expect(f"parts of {name}", {"": measure.score(result)}, parts)
            for part, score in parts.items():
                _check_number(f"part {part!r} of {name}", score)

    def order(self, results: Mapping[str, Result]) -> None:
        """A lower score is a higher reward, and the baseline's reward is 0."""
        baseline = results[_BASELINE]
        for part, reward in self.measure.rewards(baseline, baseline).items():
            expect(f"reward {part!r} of the baseline", 0, reward)
        scores = {name: self.measure.score(result) for name, result in results.items()}
        rewards = {n: self.measure.rewards(each, baseline)[""] for n, each in results.items()}
        for one in results:
            for other in results:
                expect(
                    f"reward of {one} above that of {other}",
                    scores[one] < scores[other],
                    rewards[one] > rewards[other],
                )

    def equal_results(self, results: Mapping[str, Result]) -> None:
        """Results with one digest have the same scores."""
        known: dict[str, tuple[str, dict[str, float]]] = {}
        for name, result in results.items():
            scores = self.measure.scores(result)
            first, expected = known.setdefault(result.digest, (name, scores))
            expect(f"scores of {name}, which came out as {first}", expected, scores)


def _check_mapping(clause: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise ContractError(f"{clause}: expected a mapping of names to numbers, found {value!r}")


def _check_number(clause: str, value: object) -> None:
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ContractError(f"{clause}: expected a finite number, 0 or more, found {value!r}")
