"""Bounds of values that were not solved for."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from .cohorts import ALL_WEIGHTS, cohort, everything, placed, transport, walk

SIZES = [1, 9, 4, 12, 7, 1, 6]


@pytest.fixture(params=[(k, weights) for k in (1, 2, 5) for weights in ALL_WEIGHTS], ids=lambda p: f"{p[1]}-{p[0]}d")
def D(request):
    k, weights = request.param
    return cohort(np.random.default_rng(k), SIZES, k, weights)


@pytest.mark.parametrize("seed", range(20))
def test_bounds_hold_after_any_moves(D, seed):
    rng = np.random.default_rng(seed)
    pairs = transport(D)
    for points in walk(rng, D, 6):
        solved = np.flatnonzero(rng.random(pairs.first.size) < 0.5)
        pairs.solve(solved)
        pairs.move_all(points)
        exact = placed(D, points).solve(everything(pairs))
        assert (pairs.lower(everything(pairs)) <= exact * (1 + 1e-12) + 1e-14).all()
        assert (pairs.upper(everything(pairs)) >= exact * (1 - 1e-12) - 1e-14).all()


@pytest.mark.parametrize("k", [2, 5])
def test_bounds_are_tight_where_nothing_has_moved(k):
    pairs = transport(cohort(np.random.default_rng(0), SIZES, k, "both"))
    values = pairs.solve(everything(pairs))
    assert_allclose(pairs.upper(everything(pairs)), values, rtol=1e-12)
    assert_allclose(pairs.lower(everything(pairs)), values, rtol=1e-12)


@pytest.mark.parametrize("k", [2, 5])
def test_bounds_stay_close_after_a_small_move(k):
    D = cohort(np.random.default_rng(0), SIZES, k, "both")
    pairs = transport(D)
    values = pairs.solve(everything(pairs)).copy()
    pairs.move_all(D.points + 1e-3 * np.random.default_rng(1).normal(size=D.points.shape))
    assert_allclose(pairs.upper(everything(pairs)), values, atol=0.02)
    assert_allclose(pairs.lower(everything(pairs)), values, atol=0.02)


def test_before_a_solve_means_bound_from_below_and_nothing_from_above(D):
    pairs = transport(D)
    means = D.means()
    between = np.linalg.norm(means[pairs.first] - means[pairs.second], axis=1)
    assert_allclose(pairs.lower(everything(pairs)), between, rtol=1e-12)
    assert np.isinf(pairs.upper(everything(pairs))).all()


def test_bounds_hold_without_memory(D):
    pairs, rng = transport(D, memory=0.0), np.random.default_rng(3)
    for points in walk(rng, D, 6):
        pairs.solve(rng.permutation(everything(pairs))[:8])
        pairs.move_all(points)
        exact = placed(D, points).solve(everything(pairs))
        assert (pairs.lower(everything(pairs)) <= exact * (1 + 1e-12)).all()
        assert (pairs.upper(everything(pairs)) >= exact * (1 - 1e-12)).all()
