"""Networks as machine code answer as in TensorFlow."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlgo_gym.errors import ModelError
from mlgo_gym.problems._inlining_for_size import InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import ASKING_POSITION, RegallocEviction
from mlgo_gym.training._export import CompiledNetwork
from mlgo_gym.training._networks import (
    EvictionNetwork,
    InliningNetwork,
    Normalization,
    PolicyNetwork,
    network_features,
)
from mlgo_gym.training._trials import FORBIDDEN, NetworkCode
from tests.conftest import one_in

Recorded = np.ndarray[Any, Any]

EVICTION, INLINING = RegallocEviction(), InliningForSize()


def statistics(recorded: Recorded, problem: Problem) -> Normalization:
    return Normalization.fit(problem.layout.columns(recorded), network_features(problem))


def both(network: PolicyNetwork, problem: Problem, rows: Recorded) -> tuple[Recorded, Recorded]:
    """The logits in TensorFlow and in machine code, of a network whose head says something."""
    generator = np.random.default_rng(1)
    network.set_weights(
        [each + 0.3 * generator.standard_normal(each.shape) for each in network.get_weights()]
    )
    with CompiledNetwork(network, problem) as compiled:
        found = np.array([compiled.logits(row.tobytes()) for row in rows])
    return network(problem.layout.columns(rows)).numpy(), found


@pytest.mark.e2e
@pytest.mark.parametrize("shape", one_in(2, [((32, 16), 0.0), ((), 0.5)]))
def test_eviction(eviction: Recorded, shape: tuple[tuple[int, ...], float]) -> None:
    hidden, margin = shape
    network = EvictionNetwork(statistics(eviction, EVICTION), hidden, margin=margin)
    expected, found = both(network, EVICTION, eviction)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))
    np.testing.assert_array_equal(found > FORBIDDEN, expected > FORBIDDEN)


@pytest.mark.e2e
def test_eviction_where_something_must_go(eviction: Recorded) -> None:
    """And with a live range that may not be spilled, whose density is NaN."""
    rows = eviction[eviction["mask"].sum(axis=1) > 2][:20].copy()
    rows["mask"][:10, ASKING_POSITION] = 0
    rows["use_def_density"][5:, ASKING_POSITION] = np.nan
    expected, found = both(EvictionNetwork(statistics(eviction, EVICTION), (8,)), EVICTION, rows)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert np.isfinite(found).all()


@pytest.mark.e2e
@pytest.mark.parametrize("band", [None, (-25, 60)])
def test_inlining(inlining: Recorded, band: tuple[int, int] | None) -> None:
    network = InliningNetwork(statistics(inlining, INLINING), (16,), band=band)
    expected, found = both(network, INLINING, inlining)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.e2e
def test_threads_share_the_weights_and_nothing_else(inlining: Recorded) -> None:
    """A network that learns on is not what was compiled, until its weights are taken."""
    network = InliningNetwork(statistics(inlining, INLINING), (16,))
    payloads = [row.tobytes() for row in inlining] * 20
    with CompiledNetwork(network, INLINING) as compiled, ThreadPoolExecutor(4) as threads:
        before = [compiled.logits(each).tolist() for each in payloads]
        network.set_weights([each + 1 for each in network.get_weights()])
        assert [each.tolist() for each in threads.map(compiled.logits, payloads)] == before
        compiled.take_weights(network)
        after = [compiled.logits(each).tolist() for each in payloads]
        assert [each.tolist() for each in threads.map(compiled.logits, payloads)] == after
        assert after != before


def test_a_copy_answers_as_it_did_when_it_was_made(inlining: Recorded) -> None:
    """By the same code; on a CPU that lacks some of its instructions there is none."""
    network = InliningNetwork(statistics(inlining, INLINING), (16,))
    generator = np.random.default_rng(1)
    network.set_weights([generator.standard_normal(each.shape) for each in network.get_weights()])
    payloads = [row.tobytes() for row in inlining]
    with CompiledNetwork(network, INLINING) as compiled:
        before = [compiled.logits(each).tolist() for each in payloads]
        copied = deepcopy(compiled)
        network.set_weights([each + 1 for each in network.get_weights()])
        compiled.take_weights(network)
        assert [compiled.logits(each).tolist() for each in payloads] != before
        model = compiled._model
    with copied:
        assert [copied.logits(each).tolist() for each in payloads] == before
    code = replace(model.object, cpu="znver9", features="+sse2,+avx9")
    with pytest.raises(ModelError) as error:
        deepcopy(NetworkCode(replace(model, object=code), INLINING.layout.specs, {}))
    assert str(error.value).endswith(": made for znver9: this CPU lacks avx9")
