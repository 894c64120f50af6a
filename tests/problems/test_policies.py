"""Policies with a name, and their reproducibility."""

from __future__ import annotations

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import OptionsError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._policy import as_policy
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.stream._training_log import Header, Observation


def test_answers(small: Corpus) -> None:
    header = Header(InliningForSize().layout.specs)
    inline = Observation(header, "", 0, bytes(8 * 38) + (1).to_bytes(8, "little"))
    leave = Observation(header, "", 0, bytes(8 * 39))
    answers = {}
    for name in ("default", "always", "never"):
        with InliningForSize.policy(name).begin(small["frame_stream.c"]) as answer:
            answers[name] = (answer(inline), answer(leave))
    assert answers == {"default": (1, 0), "always": (1, 1), "never": (0, 0)}


def test_random_depends_on_seed_and_module_only(small: Corpus) -> None:
    observation = Observation(Header(InliningForSize().layout.specs), "", 0, bytes(8 * 39))

    def answers(seed: int, name: str) -> list[float]:
        with InliningForSize.policy("random", seed).begin(small[name]) as answer:
            return [answer(observation) for _ in range(64)]

    assert answers(1, "frame_stream.c") == answers(1, "frame_stream.c")
    assert answers(1, "frame_stream.c") != answers(2, "frame_stream.c")
    assert answers(1, "frame_stream.c") != answers(1, "hash_map.c")
    assert set(answers(1, "frame_stream.c")) == {0, 1}


def test_a_function_is_a_policy(small: Corpus) -> None:
    observation = Observation(Header(InliningForSize().layout.specs), "", 0, bytes(8 * 39))
    with as_policy(lambda _: 1) as policy, policy.begin(small["frame_stream.c"]) as answer:
        assert answer(observation) == 1
    assert as_policy(policy) is policy


@pytest.mark.parametrize(
    ("problem", "known"),
    [
        (InliningForSize, "default, always, never, random"),
        (RegallocEviction, "random, first, keep, lowest-density, lowest-use"),
        (RegallocPriority, "random, by-size"),
    ],
)
def test_unknown(problem: type[Problem], known: str) -> None:
    with pytest.raises(OptionsError) as caught:
        problem.policy("sometimes")
    assert str(caught.value) == f"policy: expected one of {known}, found 'sometimes'"
