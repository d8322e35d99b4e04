"""Rough costs: never wrong by more than they say, so that no arc that gains is passed over."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from groundmetric.metrics.base import Cost
from groundmetric.transport._kernels.compiled import pointer
from groundmetric.transport._kernels.pairs import Pairs, Points, fill_rough, is_plain, room_for
from groundmetric.transport._kernels.scan import (
    MATRIX,
    PIECE,
    ROUNDING,
    Prices,
    best_of_near,
    fill_rough_matrix,
    fill_rough_steps,
    gaining_arc,
    set_levels,
)
from groundmetric.transport.dense import typical_entry

FORMULA = {Cost.EUCLIDEAN: "euclidean", Cost.MANHATTAN: "cityblock", Cost.SQUARED: "sqeuclidean"}


@numba.njit
def fill_steps(x, y, squared, room, rough):
    n, m, k = x.shape[0], y.shape[0], x.shape[1]
    return fill_rough_steps(pointer(x), pointer(y), n, m, k, squared, rough.shape[1], pointer(room), pointer(rough))


@numba.njit
def fill_matrix(exact, scale, rough):
    return fill_rough_matrix(pointer(exact), scale, *exact.shape, rough.shape[1], pointer(rough))


@numba.njit
def best_arcs(exact, rough, levels, scale, error, potential):
    """Of every source: `best_of_near`, and `gaining_arc`."""
    n, m, costs = exact.shape[0], exact.shape[1], pointer(exact)
    level, width = pointer(levels), rough.shape[1]
    prices = Prices(pointer(rough), level, level, scale, error, MATRIX, costs, costs, costs, n, m, 0, width)
    highest = set_levels(prices, pointer(potential))
    near, gains, sinks = np.zeros(n, np.int64), np.zeros(n), np.zeros(n, np.int64)
    for i in range(n):
        near[i] = best_of_near(prices, i, pointer(potential), highest)
        gains[i], sinks[i] = gaining_arc(prices, i, pointer(potential), highest)
    return near, gains, sinks


def points(seed, k, size=1.0, offset=0.0):
    rng = np.random.default_rng(seed)
    return size * (offset + rng.normal(size=(13, k))), size * (offset + rng.normal(size=(37, k)))


def whole(m):
    return -(-m // PIECE) * PIECE


def rough_steps(x, y, cost):
    """Rough costs, times their scale, in rows of whole pieces; and the scale."""
    n, m, k = len(x), len(y), x.shape[1]
    width = whole(m)
    room = room_for(n * m, n + m + 1, k).costs
    if is_plain(k, cost):
        rough = np.empty((n, width), np.float32)
        return rough, fill_steps(x, y, cost is Cost.SQUARED, room, rough)
    none, one = np.empty(0, np.int64), np.array([1])
    z, bounds = np.vstack([y, x]), np.array([0, m, m + n])  # the second distribution first: it is read where it stands
    all_points = Points(z, bounds, none, none, np.empty(0), np.empty(0, bool), int(cost))
    scale = fill_rough(0, Pairs(one, np.array([0]), one, one), all_points, room)
    before = 2 * width + whole(n)
    return room[before : before + n * width].reshape(n, width), scale


def rough_matrix(exact):
    """Rough costs, times their scale; the scale; and their error."""
    n, m = exact.shape
    rough, scale = np.empty((n, whole(m)), np.float32), 1.0 / typical_entry(exact)
    return rough, scale, fill_matrix(exact, scale, rough)


@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 5, 33, 103]),
    st.sampled_from([1e-150, 1e-6, 1.0, 1e9]),
    st.sampled_from([0.0, 1e6]),
    st.sampled_from(list(Cost)),
)
def test_rough_steps_are_as_wrong_as_they_say_at_most(seed, k, size, offset, cost):
    x, y = points(seed, k, size, offset)
    rough, scale = rough_steps(x, y, cost)
    if cost is Cost.SQUARED and size < 1e-100:  # squares are too small for any float
        return
    assert np.isinf(rough[:, 37:]).all()
    wrong = np.abs(rough[:, :37].astype(float) / scale - cdist(x, y, FORMULA[cost])) * scale
    assert wrong.max() <= ROUNDING * (6.0 + k)  # as `solve_pairs` has it


@given(st.integers(0, 10**6), st.floats(-250, 250), st.floats(0, 20))
def test_rough_matrices_are_rounded_only(seed, middle, spread):
    rng = np.random.default_rng(seed)
    exact = 10.0 ** (middle + spread * rng.uniform(-1, 1, (20, 30)))
    rough, scale, _ = rough_matrix(exact)
    assert np.allclose(rough[:, :30].astype(float) / scale, exact, rtol=2.0**-23, atol=0.0)


@pytest.mark.parametrize("exact", [np.zeros((3, 4)), np.full((3, 4), 1e-310), np.diag([1e300, 1.0, 1e-300])])
def test_rough_costs_are_finite(exact):
    assert np.isfinite(rough_matrix(exact)[0][:, : exact.shape[1]]).all()


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-7, 1e-3, 1e3]), st.sampled_from([0.0, 1e3, 1e12, 1e60]))
def test_the_best_arc_is_found_whatever_rounding_does(seed, apart, lift):
    """Costs of few values, or nearly so: reduced costs are 0, or closer to it than float32 can tell."""
    rng = np.random.default_rng(seed)
    exact = rng.integers(0, 3, (8, 50)) + apart * rng.random((8, 50))
    v = rng.integers(0, 3, 50) + lift
    u = (exact - v).min(axis=1) + apart * rng.random(8)  # some arcs gain, by little
    rough, scale, error = rough_matrix(exact)
    potential = np.concatenate([-u, v, [0.0]])
    near, _, _ = best_arcs(exact, rough, np.zeros(64, np.float32), scale, error, potential)
    for i, j in enumerate(near):
        assert exact[i, j] - v[j] == (exact[i] - v).min()


@given(st.integers(0, 10**6), st.sampled_from([1e-9, 1e-3, 1.0]))
def test_what_is_said_to_gain_gains(seed, move):
    x, y = points(seed, 3)
    exact, (rough, scale) = cdist(x, y), rough_steps(x, y, Cost.EUCLIDEAN)
    rng = np.random.default_rng(seed)
    v = rng.normal(size=37)
    u = (exact - v).min(axis=1) + move * rng.normal(size=13)
    potential = np.concatenate([-u, v, [0.0]])
    _, gains, sinks = best_arcs(exact, rough, np.zeros(64, np.float32), scale, 9.0 * ROUNDING, potential)
    for i, (gain, j) in enumerate(zip(gains, sinks, strict=True)):
        assert gain == 0.0 or exact[i, j] - u[i] - v[j] < 0.0
        if move == 1.0 and (exact[i] - u[i] - v).min() < -0.1:
            assert gain < 0.0
