"""Networks in numpy answer as in TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._observations import columns
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import ASKING_POSITION, RegallocEviction
from mlgo_gym.training._networks import (
    FORBIDDEN,
    EvictionNetwork,
    InliningNetwork,
    PolicyNetwork,
    network_features,
)
from mlgo_gym.training._normalization import Normalization
from mlgo_gym.training._plain import plain_network

Recorded = np.ndarray[Any, Any]


def statistics(recorded: Recorded, problem: Problem) -> Normalization:
    return Normalization.fit(columns(recorded, problem), network_features(problem))


def disturbed(network: PolicyNetwork, seed: int) -> PolicyNetwork:
    """With a head that says something."""
    generator = np.random.default_rng(seed)
    network.set_weights(
        [each + 0.3 * generator.standard_normal(each.shape) for each in network.get_weights()]
    )
    return network


@pytest.mark.parametrize("hidden", [(), (8,), (32, 16)])
def test_eviction(eviction: Recorded, hidden: tuple[int, ...]) -> None:
    problem = RegallocEviction()
    network = disturbed(EvictionNetwork(statistics(eviction, problem), hidden), 1)
    expected = network(columns(eviction, problem)).numpy()
    plain = plain_network(network)
    found = np.array([plain.logits(row.tobytes()) for row in eviction])
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))
    np.testing.assert_array_equal(found > FORBIDDEN, expected > FORBIDDEN)


def test_eviction_where_something_must_go(eviction: Recorded) -> None:
    """And with a live range that may not be spilled, whose density is NaN."""
    problem = RegallocEviction()
    rows = eviction[eviction["mask"].sum(axis=1) > 2][:20].copy()
    rows["mask"][:10, ASKING_POSITION] = 0
    rows["use_def_density"][5:, ASKING_POSITION] = np.nan
    network = disturbed(EvictionNetwork(statistics(eviction, problem), (8,)), 2)
    expected = network(columns(rows, problem)).numpy()
    found = np.array([plain_network(network).logits(row.tobytes()) for row in rows])
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("band", [None, (-25, 60)])
def test_inlining(inlining: Recorded, band: tuple[int, int] | None) -> None:
    problem = InliningForSize()
    network = disturbed(InliningNetwork(statistics(inlining, problem), (16,), band=band), 3)
    expected = network(columns(inlining, problem)).numpy()
    found = np.array([plain_network(network).logits(row.tobytes()) for row in inlining])
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_other_weights(eviction: Recorded) -> None:
    problem = RegallocEviction()
    first, second = (
        disturbed(EvictionNetwork(statistics(eviction, problem), (8,)), seed) for seed in (4, 5)
    )
    payload = eviction[0].tobytes()
    found = plain_network(first, second.get_weights()).logits(payload)
    np.testing.assert_array_equal(found, plain_network(second).logits(payload))
    assert (found != plain_network(first).logits(payload)).any()
