"""Policies with a name, and their reproducibility."""

from __future__ import annotations

import pytest

from mlgo_gym.corpus._corpus import Corpus
from mlgo_gym.errors import OptionsError
from mlgo_gym.policies._policies import POLICIES, make_policy
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.stream._events import Header, Observation


def test_answers(small: Corpus) -> None:
    header = Header(InliningForSize.sent())
    inline = Observation(header, "", 0, bytes(8 * 38) + (1).to_bytes(8, "little"))
    leave = Observation(header, "", 0, bytes(8 * 39))
    module = small["digest.c"]
    answers = {
        name: (make_policy(name)(module)(inline), make_policy(name)(module)(leave))
        for name in ("default", "always", "never")
    }
    assert answers == {"default": (1, 0), "always": (1, 1), "never": (0, 0)}


def test_random_depends_on_seed_and_module_only(small: Corpus) -> None:
    observation = Observation(Header(InliningForSize.sent()), "", 0, bytes(8 * 39))

    def answers(seed: int, name: str) -> list[float]:
        policy = make_policy("random", seed)(small[name])
        return [policy(observation) for _ in range(64)]

    assert answers(1, "digest.c") == answers(1, "digest.c")
    assert answers(1, "digest.c") != answers(2, "digest.c")
    assert answers(1, "digest.c") != answers(1, "hash_map.c")
    assert set(answers(1, "digest.c")) == {0, 1}


def test_unknown() -> None:
    with pytest.raises(OptionsError) as caught:
        make_policy("sometimes")
    assert str(caught.value) == f"policy: expected one of {', '.join(POLICIES)}, found 'sometimes'"
