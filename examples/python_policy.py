"""A policy as a plain function, over a whole corpus, beside LLVM's own heuristic."""

from __future__ import annotations

from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
from mlgo_gym.rollout import rollout
from mlgo_gym.stream import Observation


def cheap(observation: Observation) -> int:
    """Inline what costs less than 30; LLVM's own rule at -Oz is near 5."""
    return int(observation["cost_estimate"][0] < 30)


for report in rollout(Corpus.load(SAMPLE_CORPUS), {"cheap": cheap}, InliningForSize(), jobs=2):
    (attempt,) = report.attempts
    if report.baseline and attempt.result:
        before, after = report.baseline.score, attempt.result.score
        print(
            f"{report.module:20} {before:6,.0f} -> {after:6,.0f} bytes ({after / before - 1:+.1%})"
        )
