"""Rough costs: never wrong by more than they say, so that no arc that gains is passed over."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from groundmetric.metrics.base import Cost
from groundmetric.transport._kernels.scan import best_of_near, gaining_arc, matrix_prices, set_levels, step_prices

FORMULA = {Cost.EUCLIDEAN: "euclidean", Cost.MANHATTAN: "cityblock", Cost.SQUARED: "sqeuclidean"}


def points(seed, k, size=1.0, offset=0.0):
    rng = np.random.default_rng(seed)
    return size * (offset + rng.normal(size=(13, k))), size * (offset + rng.normal(size=(37, k)))


def prices_between(x, y, cost):
    return step_prices(x, y, int(cost), np.empty((len(x), len(y)), np.float32))


def rough_costs(prices):
    return prices.rough.costs.astype(float) / prices.rough.scale


@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 5, 33, 40]),
    st.sampled_from([1e-150, 1e-6, 1.0, 1e9]),
    st.sampled_from([0.0, 1e6]),
    st.sampled_from(list(Cost)),
)
def test_rough_steps_are_as_wrong_as_they_say_at_most(seed, k, size, offset, cost):
    x, y = points(seed, k, size, offset)
    prices = prices_between(x, y, cost)
    if cost is Cost.SQUARED and size < 1e-100:  # squares are too small for any float
        return
    wrong = np.abs(rough_costs(prices) - cdist(x, y, FORMULA[cost])) * prices.rough.scale
    assert wrong.max() <= prices.rough.error


@given(st.integers(0, 10**6), st.floats(-250, 250), st.floats(0, 20))
def test_rough_matrices_are_rounded_only(seed, middle, spread):
    rng = np.random.default_rng(seed)
    exact = 10.0 ** (middle + spread * rng.uniform(-1, 1, (20, 30)))
    assert np.allclose(rough_costs(matrix_prices(exact)), exact, rtol=2.0**-23, atol=0.0)


@pytest.mark.parametrize("exact", [np.zeros((3, 4)), np.full((3, 4), 1e-310), np.diag([1e300, 1.0, 1e-300])])
def test_rough_costs_are_finite(exact):
    assert np.isfinite(matrix_prices(exact).rough.costs).all()


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-7, 1e-3, 1e3]), st.sampled_from([0.0, 1e3, 1e12, 1e60]))
def test_the_best_arc_is_found_whatever_rounding_does(seed, apart, lift):
    """Costs of few values, or nearly so: reduced costs are 0, or closer to it than float32 can tell."""
    rng = np.random.default_rng(seed)
    exact = rng.integers(0, 3, (8, 50)) + apart * rng.random((8, 50))
    v = rng.integers(0, 3, 50) + lift
    u = (exact - v).min(axis=1) + apart * rng.random(8)  # some arcs gain, by little
    prices, potential = matrix_prices(exact), np.concatenate([-u, v, [0.0]])
    highest = set_levels(prices.rough, potential)
    for i in range(8):
        j = best_of_near(prices, i, potential, highest)
        assert exact[i, j] - v[j] == (exact[i] - v).min()


@given(st.integers(0, 10**6), st.sampled_from([1e-9, 1e-3, 1.0]))
def test_what_is_said_to_gain_gains(seed, move):
    x, y = points(seed, 3)
    exact, prices = cdist(x, y), prices_between(x, y, Cost.EUCLIDEAN)
    rng = np.random.default_rng(seed)
    v = rng.normal(size=37)
    u = (exact - v).min(axis=1) + move * rng.normal(size=13)
    potential = np.concatenate([-u, v, [0.0]])
    highest = set_levels(prices.rough, potential)
    for i in range(13):
        gain, j = gaining_arc(prices.rough, i, potential, highest)
        assert gain == 0.0 or exact[i, j] - u[i] - v[j] < 0.0
        if move == 1.0 and (exact[i] - u[i] - v).min() < -0.1:
            assert gain < 0.0
