"""Networks: what they start as, what they do with odd numbers, and how they are described."""

from __future__ import annotations

import numpy as np
import pytest

from mlgo_gym.errors import OptionsError
from mlgo_gym.problems._inlining_for_size import DEFAULT_ADVICE, InliningForSize
from mlgo_gym.problems._observations import columns
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.training._networks import (
    EvictionNetwork,
    InliningNetwork,
    network_features,
    network_for,
    network_from_config,
)
from mlgo_gym.training._normalization import Normalization
from tests.training.conftest import Recorded


def normalization(recorded: Recorded, problem: type) -> Normalization:
    return Normalization.fit(columns(recorded, problem), network_features(problem))


def test_a_new_inliner_answers_as_llvm(inlining: Recorded) -> None:
    network = InliningNetwork(normalization(inlining, InliningForSize))
    logits = network(columns(inlining, InliningForSize)).numpy()
    assert logits.shape == (len(inlining), 2)
    assert np.array_equal(logits.argmax(-1), inlining[DEFAULT_ADVICE])
    assert 0 < logits.argmax(-1).mean() < 1


def test_eviction_chooses_what_is_legal(eviction: Recorded) -> None:
    network = EvictionNetwork(normalization(eviction, RegallocEviction), seed=3)
    random = np.random.default_rng(0)
    network.set_weights([random.normal(0, 1, each.shape) for each in network.get_weights()])
    logits = network(columns(eviction, RegallocEviction)).numpy()
    assert np.isfinite(logits).all()
    chosen = logits.argmax(-1)
    assert eviction["mask"][np.arange(len(chosen)), chosen].all()
    assert len(set(chosen)) > 1


def test_infinities_and_nan_become_bounds(eviction: Recorded) -> None:
    fitted = normalization(eviction, RegallocEviction)
    index = fitted.names.index("use_def_density")
    rows = np.zeros((4, len(fitted.names)), np.float32)
    rows[:, index] = [np.nan, np.inf, -np.inf, fitted.high[index]]
    values = fitted(rows).numpy()
    assert np.isfinite(values).all()
    linear = values[:, len(fitted.names) + index]
    assert linear.tolist() == pytest.approx([1, 1, -1, 1], abs=1e-5)


def test_a_network_is_made_again_from_its_configuration(inlining: Recorded) -> None:
    network = InliningNetwork(normalization(inlining, InliningForSize), (8, 4), seed=2)
    again = network_from_config(network.config())
    for one, other in zip(network.get_weights(), again.get_weights(), strict=True):
        assert np.array_equal(one, other)
    other = InliningNetwork(normalization(inlining, InliningForSize), (8, 4), seed=3)
    assert not np.array_equal(network.get_weights()[0], other.get_weights()[0])


def test_bad_descriptions_are_refused(inlining: Recorded) -> None:
    fitted = normalization(inlining, InliningForSize)
    with pytest.raises(OptionsError) as error:
        network_for(RegallocPriority(), fitted, (4,))
    assert str(error.value) == (
        "network: expected one of InliningForSize, RegallocEviction, found 'RegallocPriority'"
    )
    with pytest.raises(OptionsError) as error:
        network_from_config({"problem": "InliningForSize"})
    assert str(error.value) == (
        "network: expected problem, normalization, hidden and seed: KeyError('hidden')"
    )
    with pytest.raises(OptionsError) as error:
        Normalization(("a", "b"), (0.0,), (1.0, 1.0), (0.0, 0.0), (1.0, 1.0))
    assert str(error.value) == "normalisation: mean: expected 2 numbers, found 1"
    with pytest.raises(OptionsError) as error:
        Normalization.fit({"a": np.array([np.nan, np.inf])}, ("a",))
    assert str(error.value) == "normalisation: expected finite values of 'a', found none"
