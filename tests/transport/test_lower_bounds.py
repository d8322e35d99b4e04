"""Lower bounds of values that need no solve then: never above the exact ones, and close where they should be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundmetric._internal.parallel import Threads
from groundmetric.metrics.base import Cost
from groundmetric.transport.neighbors import Finder
from groundmetric.transport.problem import Masses

from ..laws.strategies import cohorts
from .cohorts import ALL_WEIGHTS, all_pairs, cohort, everything, transport


def bounds_and_values(D, cost=Cost.EUCLIDEAN, n_jobs=1):
    pairs = transport(D, cost=cost)
    lower = Finder(Masses.of(D), D.points, Threads(n_jobs), cost=cost)
    return lower.by_lines(*all_pairs(D)), lower.by_potentials(*all_pairs(D)), pairs.solve(everything(pairs))


@pytest.mark.parametrize("cost", list(Cost))
@pytest.mark.parametrize("k", [1, 2, 14, 40])
@pytest.mark.parametrize("weights", ALL_WEIGHTS)
def test_bounds_are_never_above_the_values(cost, k, weights):
    rng = np.random.default_rng(k)
    for spread in (0.0, 1.0, 10.0):
        D = cohort(rng, rng.integers(1, 25, 12), k, weights, spread)
        by_lines, by_potentials, exact = bounds_and_values(D, cost)
        assert (by_lines <= exact).all()
        assert (by_potentials <= exact).all()


@given(cohorts(n_distributions=4), st.sampled_from(list(Cost)))
def test_bounds_hold_for_any_distributions(D, cost):
    by_lines, by_potentials, exact = bounds_and_values(D.with_mass(), cost)
    assert (by_lines <= exact).all()
    assert (by_potentials <= exact).all()


@pytest.mark.parametrize("spread", [1.0, 1e-6, 1e-9])
def test_rounding_lifts_no_bound_above_its_value(spread):
    """Shifted copies of one shape, where bounds are tight, far from the origin."""
    rng = np.random.default_rng(0)
    shape = rng.normal(size=(7, 2))
    points = np.vstack([shape + spread * rng.normal(size=2) + 1e6 for _ in range(10)])
    D = cohort(rng, [7] * 10, 2)
    pairs = transport(D)
    pairs.move_all(points)
    lower = Finder(Masses.of(D), points, Threads(1))
    exact = pairs.solve(everything(pairs))
    assert (lower.by_lines(*all_pairs(D)) <= exact).all()
    assert (lower.by_potentials(*all_pairs(D)) <= exact).all()


def test_single_points_are_bounded_by_their_distance():
    by_lines, by_potentials, exact = bounds_and_values(cohort(np.random.default_rng(0), [1] * 8, 5))
    np.testing.assert_allclose(by_potentials, exact, rtol=1e-5)  # rough costs in float32
    np.testing.assert_allclose(by_lines, exact, rtol=1e-11)


def test_potentials_are_close_where_lines_are_not():
    """Many dimensions and few points: every point is far from every other."""
    by_lines, by_potentials, exact = bounds_and_values(cohort(np.random.default_rng(0), [20] * 8, 14, spread=0.2))
    assert np.median(by_lines / exact) < 0.5
    assert np.median(by_potentials / exact) > 0.9


def test_threads_give_the_same_bounds():
    D = cohort(np.random.default_rng(0), [300, 500, 20, 400], 3)
    np.testing.assert_array_equal(bounds_and_values(D)[1], bounds_and_values(D, n_jobs=2)[1])
