"""Rough costs: their error is within its bound, and pricing finds every arc with negative reduced cost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from groundmetric.metrics.base import Cost
from groundmetric.transport import _core

FORMULA = {Cost.EUCLIDEAN: "euclidean", Cost.MANHATTAN: "cityblock", Cost.SQUARED: "sqeuclidean"}
KINDS = [_core.RoughCosts32, _core.RoughCosts16]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=["float32", "int16"])


def points(seed, k, size=1.0, offset=0.0):
    rng = np.random.default_rng(seed)
    return size * (offset + rng.normal(size=(13, k))), size * (offset + rng.normal(size=(37, k)))


def from_matrix(kind, exact):
    return kind(exact, (exact.min(), exact.max()))


def costs_of(rough, n, m):
    """Rough costs of n sources and m sinks; rows are padded to whole blocks of 64."""
    costs = np.empty((n, -(-m // 64) * 64), np.int16 if isinstance(rough, _core.RoughCosts16) else np.float32)
    rough.fill(costs)
    return costs


def allowed_error(rough):
    """The bound in scaled units: a rough cost in int16 is also rounded to an integer."""
    return rough.error + (0.5 if isinstance(rough, _core.RoughCosts16) else 0.0)


@each_kind
@given(
    seed=st.integers(0, 10**6),
    k=st.sampled_from([1, 2, 5, 33, 103]),
    size=st.sampled_from([1e-150, 1e-6, 1.0, 1e9]),
    offset=st.sampled_from([0.0, 1e6]),
    cost=st.sampled_from(list(Cost)),
)
def test_errors_of_rough_steps_are_within_their_bound(kind, seed, k, size, offset, cost):
    x, y = points(seed, k, size, offset)
    if cost is Cost.SQUARED and size < 1e-100:  # squares are too small for any float
        return
    rough = kind(x, y, int(cost))
    costs = costs_of(rough, 13, 37)
    padding = np.inf if kind is _core.RoughCosts32 else 32767
    assert (costs[:, 37:] == padding).all()
    wrong = np.abs(costs[:, :37].astype(float) - cdist(x, y, FORMULA[cost]) * rough.scale)
    assert wrong.max() <= allowed_error(rough)


@given(st.integers(0, 10**6), st.floats(-250, 250), st.floats(0, 20))
def test_rough_matrices_in_float32_are_rounded_only(seed, middle, spread):
    rng = np.random.default_rng(seed)
    exact = 10.0 ** (middle + spread * rng.uniform(-1, 1, (20, 30)))
    rough = from_matrix(_core.RoughCosts32, exact)
    assert np.allclose(costs_of(rough, 20, 30)[:, :30].astype(float) / rough.scale, exact, rtol=2.0**-23, atol=0.0)


@given(st.integers(0, 10**6), st.floats(-100, 100), st.floats(-10, 10))
def test_rough_matrices_in_int16_are_rounded_to_steps(seed, size, level):
    rng = np.random.default_rng(seed)
    exact = 10.0**size * (level + rng.random((20, 30)))
    rough = from_matrix(_core.RoughCosts16, exact)
    wrong = np.abs(costs_of(rough, 20, 30)[:, :30] - (exact - exact.min()) * rough.scale)
    assert wrong.max() <= allowed_error(rough)


@pytest.mark.parametrize("exact", [np.zeros((3, 4)), np.full((3, 4), 1e-310), np.diag([1e300, 1.0, 1e-300])])
def test_rough_costs_are_finite(exact):
    assert np.isfinite(costs_of(from_matrix(_core.RoughCosts32, exact), 3, exact.shape[1])[:, : exact.shape[1]]).all()


@each_kind
@given(
    seed=st.integers(0, 10**6),
    apart=st.sampled_from([0.0, 1e-7, 1e-3, 1e3]),
    lift=st.sampled_from([0.0, 1e3, 1e12, 1e60]),
)
def test_the_best_arc_is_among_those_that_are_priced(kind, seed, apart, lift):
    """Costs with few distinct values, or nearly so: reduced costs are 0, or closer to 0 than rough costs resolve."""
    rng = np.random.default_rng(seed)
    exact = rng.integers(0, 3, (8, 50)) + apart * rng.random((8, 50))
    v = rng.integers(0, 3, 50) + lift
    u = (exact - v).min(axis=1) + apart * rng.random(8)  # some reduced costs are barely negative
    rough = from_matrix(kind, exact)
    rough.set_levels(v)
    for i in range(8):
        negative = np.flatnonzero(exact[i] - v < u[i])
        assert set(negative) <= set(rough.near(i, -u[i]))


@each_kind
@given(seed=st.integers(0, 10**6), move=st.sampled_from([1e-9, 1e-3, 1.0]))
def test_arcs_that_are_reported_have_negative_reduced_costs(kind, seed, move):
    x, y = points(seed, 3)
    exact, rough = cdist(x, y), kind(x, y, int(Cost.EUCLIDEAN))
    rng = np.random.default_rng(seed)
    v = rng.normal(size=37)
    u = (exact - v).min(axis=1) + move * rng.normal(size=13)
    rough.set_levels(v)
    for i in range(13):
        gain, j = rough.best(i, -u[i])
        assert gain == 0.0 or exact[i, j] - u[i] - v[j] < 0.0
        if move == 1.0 and (exact[i] - u[i] - v).min() < -0.1:
            assert gain < 0.0


@each_kind
def test_potentials_beyond_the_range_of_rough_costs_hide_no_arc(kind):
    exact = np.random.default_rng(0).random((5, 70))
    v = np.zeros(70)
    v[69] = 1e200
    rough = from_matrix(kind, exact)
    rough.set_levels(v)
    assert 69 in rough.near(0, 0.0)
