"""Training logs of rollouts, in LLVM's format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from typing import BinaryIO

import numpy as np

from mlgo_gym.base import TensorSpec, TrainingLogError
from mlgo_gym.problems import Layout, Problem, layout_differences
from mlgo_gym.rollout._rollout import Decision, ModuleReport
from mlgo_gym.stream import Header, TrainingLogWriter


def log_context(module: str, function: str) -> str:
    """The name of a context in a log of several modules, all of which are different.

    >>> log_context("a.c", "main"), log_context("a.c", ""), log_context("", "main")
    ('a.c:main', 'a.c', 'main')
    """
    return ":".join(filter(None, (module, function)))


class RolloutLog(AbstractContextManager["RolloutLog"]):
    """A training log of rollouts: one context for whatever is scored by itself.

    That is a function, as ``MODULE:FUNCTION``, where LLVM names contexts, and otherwise a module;
    LLVM's own logs, each of one module, have the function's bare name. An observation holds the
    problem's features, then what LLVM sends besides, then the action under the advice's name, which
    is the order of LLVM's own training logs. The score is ``reward``, ``float (1,)``: 0, and after
    a context's last decision the share of the baseline's score that was saved, of the whole module
    where functions have none of their own (of objects).

    A training log has no room for sites: a second file takes them, as a line of JSON for each
    observation, by its context and its number in that (``null`` where it has none).

    The header is that of the first decisions, which say what LLVM sends besides; others that come
    with other tensors are a `TrainingLogError`. Leaving the ``with`` block writes the problem's
    where there were none.

    >>> import io
    >>> from mlgo_gym import SAMPLE_CORPUS, Corpus, InliningForSize
    >>> from mlgo_gym.rollout import rollout
    >>> corpus = Corpus.load(SAMPLE_CORPUS).only(["digest.c"])
    >>> policies, log = {"never": lambda _: 0}, RolloutLog(io.BytesIO(), InliningForSize())
    >>> (report,) = rollout(corpus, policies, InliningForSize(), keep_decisions=True)
    >>> log.write(report) == report.attempts[0].result.decisions
    True
    """

    def __init__(
        self, file: BinaryIO, problem: Problem, sites_file: BinaryIO | None = None
    ) -> None:
        self._file = file
        self._sites_file = sites_file
        self._problem = problem
        self._writer: TrainingLogWriter | None = None

    def write(self, report: ModuleReport) -> int:
        """Write the decisions of a report's one policy, if it has a result; returns how many."""
        if not report.attempts:
            return 0
        (attempt,) = report.attempts
        rewards = report.rewards(attempt)
        if not rewards:
            return 0
        layout, recorded = attempt.recorded(self._problem)
        for context, group in groupby(recorded, lambda decision: decision.context):
            decisions = tuple(group)
            reward = rewards.get(context, rewards[""])
            writer = self._started(layout, str(report.key))
            writer.start_context(log_context(str(report.key), context))
            for left, decision in enumerate(decisions, 1 - len(decisions)):
                writer.log_observation(decision.payload + decision.advice)
                writer.log_outcome(np.float32(0.0 if left else reward))
            self._tell_sites(log_context(str(report.key), context), decisions)
        return len(recorded)

    def _tell_sites(self, context: str, decisions: Sequence[Decision]) -> None:
        if self._sites_file is None:
            return
        for index, decision in enumerate(decisions):
            site = decision.site.record() if decision.site else None
            line = {"context": context, "observation": index, "site": site}
            self._sites_file.write(json.dumps(line).encode() + b"\n")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._writer is None:
            self._started(self._problem.layout, "")

    def _started(self, layout: Layout, module: str) -> TrainingLogWriter:
        features = *layout.specs, layout.advice
        if self._writer is None:
            score = TensorSpec("reward", "float", (1,))
            self._writer = TrainingLogWriter(self._file, Header(features, score))
        elif features != (expected := self._writer.header.features):
            found = layout_differences(expected, features)
            raise TrainingLogError(f"training log: module {module!r}: {found}")
        return self._writer
