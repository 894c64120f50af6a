"""Sending who answers to a worker: the host's part of `llvm.worker._answers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import uuid4

from mlgo_gym.corpus import Module
from mlgo_gym.llvm._exchange import Exchange
from mlgo_gym.llvm._request import LoadRequest
from mlgo_gym.llvm._worker_process import Worker
from mlgo_gym.problems import Problem, SentPolicy


def load(
    worker: Worker,
    module: Module,
    policy: SentPolicy,
    timeout_s: float,
    plain_options: tuple[str, ...],
) -> str:
    """Have a worker hold who answers a module; why it cannot, in words, or nothing."""
    if policy.key in worker.loaded:
        return ""
    request = LoadRequest(policy.key, policy.about, policy.is_for_once, plain_options)
    return Exchange(worker, module, timeout_s).load(request, policy.data)


def flipped(policy: SentPolicy, flips: Mapping[tuple[str, int], int]) -> SentPolicy:
    """A policy that answers like `policy`, except for the given (caller, question number) pairs.

    It is for a compilation whose worker tells names (`Task.names`).
    """
    about = {
        "kind": "flipped",
        "of": policy.key,
        "flips": [[caller, number, action] for (caller, number), action in flips.items()],
    }
    return SentPolicy(f"flipped-{uuid4().hex}", about, b"", is_for_once=True, keep=True, of=policy)


def recorded(problem: Problem, advice: Sequence[bytes]) -> dict[Problem, SentPolicy]:
    """A policy that gives these answers and leaves later questions to the host; or none."""
    checks = problem.for_worker()
    if checks is None or not advice:
        return {}
    about = {"kind": "recorded", "advice_bytes": len(advice[0])} | checks
    key = f"recorded-{uuid4().hex}"
    return {problem: SentPolicy(key, about, b"".join(advice), is_for_once=True)}
