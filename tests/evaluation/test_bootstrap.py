"""The bootstrap: closed forms, coverage, and that packages matter."""

from __future__ import annotations

import numpy as np

from mlgo_gym.evaluation._summary import draw, interval


def test_every_sample_has_as_many_modules_as_its_packages() -> None:
    packages = [0, 0, 0, 1, 2, 2]
    weights = draw(packages, seed=1, resamples=500)
    sizes = np.array([3, 1, 2])
    by_package = np.array(
        [weights[:, np.array(packages) == number].sum(axis=1) for number in range(3)]
    ).T
    drawn = by_package / sizes
    assert (drawn == drawn.round()).all()
    assert (drawn.sum(axis=1) == 3).all()
    assert (drawn == 3).any()  # a package can be the whole sample


def test_the_same_seed_gives_the_same_draws() -> None:
    packages = [0, 0, 1, 1, 1]
    assert (draw(packages, 7) == draw(packages, 7)).all()
    assert (draw(packages, 7) != draw(packages, 8)).any()


def test_the_mean_of_many_samples_is_even() -> None:
    weights = draw([0, 0, 0, 0, 1, 1], seed=3, resamples=20_000)
    assert np.allclose(weights.mean(axis=0), 1, atol=0.05)


def test_one_package_is_the_plain_bootstrap() -> None:
    """The interval of a mean is then that of the normal approximation, at 95 % and no other."""
    values = np.random.default_rng(0).normal(5, 2, 400)
    ends = interval(draw([0] * 400, 1, 4000), values, np.ones(400))
    assert ends is not None
    error = values.std() / 20
    widths = (np.array(ends) - values.mean()) / error
    assert np.allclose(widths, [-1.96, 1.96], rtol=0, atol=0.12)  # at 90 % they are 1.64


def test_packages_that_differ_widen_the_interval() -> None:
    values = np.repeat([1.0, 2.0, 3.0, 4.0], 25)
    together = interval(draw([0] * 100, 0), values, np.ones(100))
    apart = interval(draw(np.repeat(range(4), 25).tolist(), 0), values, np.ones(100))
    assert together is not None
    assert apart is not None
    assert apart[1] - apart[0] > 3 * (together[1] - together[0])


def test_it_covers_what_is_true() -> None:
    """Of intervals from 40 packages of a known population, about 95 % hold its mean."""
    random = np.random.default_rng(5)
    held = 0
    for trial in range(200):
        means = random.normal(0, 1, 40)
        values = np.repeat(means, 5) + random.normal(0, 1, 200)
        weights = draw(np.repeat(range(40), 5).tolist(), trial, 300)
        ends = interval(weights, values, np.ones(200))
        assert ends is not None
        held += ends[0] <= 0 <= ends[1]
    assert 184 <= held <= 196  # of intervals of 90 %, 180 do


def test_nothing_to_compare() -> None:
    assert draw([], 0).shape == (2000, 0)
    assert interval(draw([], 0), np.array([]), np.array([])) is None
    assert interval(draw([0], 0), np.zeros(1), np.zeros(1)) is None
