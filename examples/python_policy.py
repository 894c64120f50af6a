"""A policy as a plain function, over a whole corpus, beside LLVM's own heuristic."""

from __future__ import annotations

from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
from mlgo_gym.llvm.compilation import Policy
from mlgo_gym.rollout import rollout
from mlgo_gym.training_log import Observation


def cheap_or_last(observation: Observation) -> int:
    """Inline what is cheap, and what would leave nothing behind."""
    cost = int(observation["cost_estimate"][0])
    is_only_use = bool(observation["last_call_to_static_bonus"][0])
    return int(cost < 5 or (is_only_use and cost < 50))


def make(_module: object) -> Policy:
    return cheap_or_last


for report in rollout(Corpus.load(SAMPLE_CORPUS), {"mine": make}, InliningForSize(), jobs=2):
    reward = report.reward(report.attempts[0])
    print(f"{report.module:20}" + (f"{reward:+.4f}" if reward is not None else " failed"))
