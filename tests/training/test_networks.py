"""Networks: what they start as, what they do with odd numbers, and how they are described."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mlgo_gym.errors import OptionsError
from mlgo_gym.problems._inlining_for_size import DEFAULT_ADVICE, InliningForSize
from mlgo_gym.problems._problem import Problem
from mlgo_gym.problems._regalloc_eviction import RegallocEviction
from mlgo_gym.problems._regalloc_priority import RegallocPriority
from mlgo_gym.training._fitting import FitConfig, Rows, fit_actions
from mlgo_gym.training._networks import (
    EvictionNetwork,
    InliningNetwork,
    Normalization,
    network_features,
    network_for,
    network_from_config,
    with_margin,
)
from tests.training.conftest import Recorded

INLINING, EVICTION = InliningForSize(), RegallocEviction()


def normalization(recorded: Recorded, problem: Problem) -> Normalization:
    return Normalization.fit(problem.layout.columns(recorded), network_features(problem))


def test_normalised_values() -> None:
    """Five deviations at most of the logarithm with its sign, and the bulk from -1 to 1."""
    column = np.append(np.arange(-100.0, 101.0), [np.inf, -np.inf, np.nan])
    both = Normalization.fit({"wide": column, "one": np.full(9, 7.0)}, ("wide", "one"))
    logarithms = np.sign(column[:201]) * np.log(1 + np.abs(column[:201]))
    assert both.mean == pytest.approx((0.0, np.log(8)))
    assert both.scale == pytest.approx((logarithms.std(), 1e-3))
    assert (both.low, both.high) == ((-99.0, 7.0), (99.0, 7.0))
    for wide, deviations, linear in [
        (0, 0, 0),
        (50, np.log(51) / both.scale[0], 50 / 99),
        (-100, -np.log(101) / both.scale[0], -1),
        (1e9, 5, 1),
        (-np.inf, -5, -1),
        (np.nan, np.log(100) / both.scale[0], 1),
    ]:
        found = both(np.array([wide, 8.0], np.float32)).numpy()
        np.testing.assert_allclose(found, [deviations, 5, linear, -1], rtol=1e-4, atol=1e-5)
    huge = Normalization(("a",), (0.0,), (10.0,), (0.0,), (1.0,))
    limit = np.log1p(1e9) / 10
    found = [huge(np.array([each], np.float32)).numpy()[0] for each in (1e9, 1e12, np.inf, -1e30)]
    np.testing.assert_allclose(found, [limit, limit, limit, -limit], rtol=1e-5)


def test_a_new_inliner_answers_as_llvm(inlining: Recorded) -> None:
    network = InliningNetwork(normalization(inlining, INLINING))
    logits = network(INLINING.layout.columns(inlining)).numpy()
    assert logits.shape == (len(inlining), 2)
    assert np.array_equal(logits.argmax(-1), inlining[DEFAULT_ADVICE])
    assert 0 < logits.argmax(-1).mean() < 1


def test_the_rule_and_its_band(inlining: Recorded) -> None:
    """The logit of a new network is 4 up to a cost of -75.5 and falls to -4 at 84.5."""
    statistics = normalization(inlining, INLINING)
    costs = np.array([-900, -76, -30, -25, -24, 4, 5, 59, 60, 61, 85, 900])
    rule = np.clip((4.5 - costs) / 20, -4, 4)
    asked = INLINING.layout.columns(inlining[np.zeros(len(costs), int)])
    asked["cost_estimate"] = costs[:, None].astype(np.int64).reshape(asked["cost_estimate"].shape)
    for band, expected in [
        (None, rule),
        ((-25, 60), np.select([costs < -25, costs >= 60], [20.0, -20.0], rule)),
    ]:
        network = InliningNetwork(statistics, (16,), band=band)
        found = network(asked).numpy()
        np.testing.assert_allclose(found, np.transpose([-0.5 * expected, 0.5 * expected]))


@pytest.mark.parametrize(("threshold", "described"), [(5, {}), (225, {"threshold": 225})])
def test_the_rule_has_a_threshold(
    threshold: int, described: dict[str, int], inlining: Recorded
) -> None:
    """And so has a network that is made again."""
    network = InliningNetwork(normalization(inlining, INLINING), threshold=threshold)
    assert {k: v for k, v in network.config().items() if k == "threshold"} == described
    costs = inlining["cost_estimate"].reshape(-1)
    for each in (network, network_from_config(network.config())):
        answers = each(INLINING.layout.columns(inlining)).numpy().argmax(-1)
        assert np.array_equal(answers, costs < threshold)
    assert 0 < (costs < threshold).mean() < 1


def test_eviction_chooses_what_is_legal(eviction: Recorded) -> None:
    network = EvictionNetwork(normalization(eviction, EVICTION), seed=3)
    random = np.random.default_rng(0)
    network.set_weights([random.normal(0, 1, each.shape) for each in network.get_weights()])
    logits = network(EVICTION.layout.columns(eviction)).numpy()
    assert np.isfinite(logits).all()
    chosen = logits.argmax(-1)
    assert eviction["mask"][np.arange(len(chosen)), chosen].all()
    assert len(set(chosen)) > 1


def test_what_a_margin_keeps(eviction: Recorded) -> None:
    """The rule's choices, but where the network's own is better by more than the margin."""
    fitted = normalization(eviction, EVICTION)
    network = EvictionNetwork(fitted, (8,), seed=3)
    asked = EVICTION.layout.columns(eviction)
    rule = network(asked).numpy().argmax(-1)
    random = np.random.default_rng(0)
    network.set_weights([random.normal(0, 1, each.shape) for each in network.get_weights()])
    logits = network(asked).numpy()
    rows = np.arange(len(logits))
    gains = logits.max(-1) - logits[rows, rule]
    assert (gains > 0).any()
    margin = float(np.median(gains[gains > 0]))
    careful = with_margin(network, margin)
    found = careful(asked).numpy()
    expected = np.where(gains > margin, logits.argmax(-1), rule)
    sure = np.abs(gains - margin) > 1e-4
    assert np.array_equal(found.argmax(-1)[sure], expected[sure])
    assert 0 < (expected != rule).sum() < (gains > 0).sum()
    again = network_from_config(careful.config())
    again.set_weights(network.get_weights())
    assert np.array_equal(again(asked).numpy(), found)
    assert with_margin(network, 0.0) is network


@pytest.mark.parametrize("margin", [-1.0, float("nan"), float("inf"), 1e9])
def test_margins_that_are_none(margin: float, eviction: Recorded) -> None:
    with pytest.raises(OptionsError) as error:
        EvictionNetwork(normalization(eviction, EVICTION), margin=margin)
    assert str(error.value) == (f"margin: expected a number from 0 to below 1e9, found {margin!r}")


def test_the_inliner_has_no_margin(inlining: Recorded) -> None:
    with pytest.raises(OptionsError) as error:
        with_margin(InliningNetwork(normalization(inlining, INLINING), (2,)), 1.0)
    assert str(error.value) == "margin: expected 0 for InliningForSize, found 1.0"


def test_infinities_and_nan_become_bounds(eviction: Recorded) -> None:
    fitted = normalization(eviction, EVICTION)
    index = fitted.names.index("use_def_density")
    rows = np.zeros((4, len(fitted.names)), np.float32)
    rows[:, index] = [np.nan, np.inf, -np.inf, fitted.high[index]]
    values = fitted(rows).numpy()
    assert np.isfinite(values).all()
    linear = values[:, len(fitted.names) + index]
    assert linear.tolist() == pytest.approx([1, 1, -1, 1], abs=1e-5)


def test_a_network_is_made_again_from_its_configuration(inlining: Recorded) -> None:
    network = InliningNetwork(normalization(inlining, INLINING), (8, 4), seed=2)
    again = network_from_config(network.config())
    for one, other in zip(network.get_weights(), again.get_weights(), strict=True):
        assert np.array_equal(one, other)
    other = InliningNetwork(normalization(inlining, INLINING), (8, 4), seed=3)
    assert not np.array_equal(network.get_weights()[0], other.get_weights()[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": [1] * 65}, "hidden: expected at most 64 layers, found 65"),
        ({"threshold": 10**60}, r"threshold: expected costs from -\d+ to below \d+, found 1000"),
        ({"band": [-(10**60), 5]}, r"band: expected costs from -\d+ to below \d+, found -1000"),
    ],
)
def test_configurations_of_strangers(
    changes: dict[str, Any], message: str, inlining: Recorded
) -> None:
    network = InliningNetwork(normalization(inlining, INLINING), (2,))
    with pytest.raises(OptionsError, match=f"^network: {message}"):
        network_from_config(network.config() | changes)


@pytest.mark.parametrize(("hidden", "most"), [((50,), 1000), ((), 10), ((2, 2), 4)])
def test_inputs_count_among_the_weights(
    hidden: tuple[int, ...], most: int, inlining: Recorded
) -> None:
    """Of what a file claims, no more is made than it has."""
    network = InliningNetwork(normalization(inlining, InliningForSize()), hidden)
    whole = sum(each.size for each in network.get_weights())
    assert network_from_config(network.config(), whole).hidden == hidden
    inputs = len(network.normalization.names)
    with pytest.raises(OptionsError) as error:
        network_from_config(network.config(), most)
    assert str(error.value) == (
        f"network: hidden: expected widths for at most {most:,} weights, found {hidden} "
        f"behind {inputs} numbers"
    )


def test_bad_descriptions_are_refused(inlining: Recorded) -> None:
    fitted = normalization(inlining, INLINING)
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"mean": None},
            "expected its statistics: TypeError(\"'NoneType' object is not iterable\")",
        ),
        (
            {"low": ["x"]},
            "expected its statistics: ValueError(\"could not convert string to float: 'x'\")",
        ),
        ({"scale": [1, 2]}, "scale: expected 1 numbers, found 2"),
        ({"mean": [math.nan]}, "expected finite statistics, found others"),
        ({"high": [math.inf]}, "expected finite statistics, found others"),
    ],
)
def test_statistics_that_are_none(changes: dict[str, object], message: str) -> None:
    value = Normalization(("a",), (0.0,), (1.0,), (0.0,), (2.0,)).to_json()
    assert Normalization.from_json(value).to_json() == value
    with pytest.raises(OptionsError) as error:
        Normalization.from_json(value | changes)
    assert str(error.value) == f"normalisation: {message}"
    del value["names"]
    with pytest.raises(OptionsError) as error:
        Normalization.from_json(value)
    assert str(error.value) == "normalisation: expected its statistics: KeyError('names')"


def test_rows_of_no_weight(inlining: Recorded) -> None:
    network = InliningNetwork(normalization(inlining, INLINING), (2,))
    for rows in (inlining[:3], inlining[:0]):
        count = len(rows)
        nothing = Rows(INLINING.layout.columns(rows), np.zeros(count), np.zeros(count))
        with pytest.raises(OptionsError) as error:
            next(fit_actions(network, nothing, FitConfig(epochs=1), 0))
        assert str(error.value) == f"fit: expected rows that count, found {count} of no weight"
