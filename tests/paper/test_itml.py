"""ITML: the optimality conditions of its projections, and pairs that are what they should be."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import groundmetric as gm
from paper.itml import ITML, draw_pairs, factor, percentile_bounds, project_in_turn

from .examples import labelled_points

X, codes = labelled_points()
PAIRS = draw_pairs(codes, np.ones(60), 40, 0)
STEPS = [X[first] - X[second] for first, second in PAIRS]


def squared_lengths(M, steps):
    return np.einsum("nf,fg,ng->n", steps, M, steps)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 3.0])
def test_the_result_is_optimal(gamma):
    """Stationary, with multipliers that are not negative and that are 0 where a constraint is slack."""
    M, multipliers, limits, _ = project_in_turn(*STEPS, (1.0, 4.0), gamma, 20_000, 1e-9)
    v = np.vstack(STEPS)
    sign = np.repeat([1.0, -1.0], 40)
    assert_allclose(np.linalg.inv(M), np.eye(4) + (v.T * (sign * multipliers)) @ v, rtol=1e-6, atol=1e-8)
    assert np.all(multipliers >= 0.0)
    squared = squared_lengths(M, v)
    held = multipliers > 1e-9
    assert_allclose(squared[held], limits[held], rtol=1e-5)
    assert np.all(sign * (squared - limits) <= 1e-5 * limits)
    # The slackened limits are where the price of slack balances the multiplier.
    bounds = np.repeat([1.0, 4.0], 40)
    assert_allclose(1.0 / limits, 1.0 / bounds - sign * multipliers / gamma, rtol=1e-6)


def test_with_dear_slack_the_bounds_are_kept():
    similar, dissimilar = np.array([[3.0, 0.0, 0.0]]), np.array([[0.0, 0.1, 0.0]])
    M = project_in_turn(similar, dissimilar, (1.0, 4.0), 1e9, 1000, 1e-9).matrix
    assert_allclose(squared_lengths(M, similar), 1.0, rtol=1e-6)
    assert_allclose(squared_lengths(M, dissimilar), 4.0, rtol=1e-6)
    assert_allclose(M, np.diag([1.0 / 9.0, 400.0, 1.0]), rtol=1e-6, atol=1e-9)


def test_where_the_constraints_hold_already_the_prior_stays():
    bounds = squared_lengths(np.eye(4), STEPS[0]).max() + 1e-9, squared_lengths(np.eye(4), STEPS[1]).min() - 1e-9
    outcome = project_in_turn(*STEPS, bounds, 1.0, 100, 1e-3)
    assert_array_equal(outcome.matrix, np.eye(4))
    assert outcome.n_iter == 1


def test_the_matrix_stays_positive_definite_even_where_bounds_contradict_each_other():
    outcome = project_in_turn(STEPS[0], STEPS[0], (1e-6, 1e6), 1.0, 200, 0.0)
    assert np.linalg.eigvalsh(outcome.matrix).min() > 0.0
    assert_array_equal(outcome.matrix, outcome.matrix.T)


def test_pairs_of_points_that_coincide_are_no_constraint():
    zero = np.zeros((3, 4))
    M = project_in_turn(np.vstack([STEPS[0], zero]), np.vstack([STEPS[1], zero]), (1.0, 4.0), 1.0, 50, 0.0).matrix
    assert_allclose(M, project_in_turn(*STEPS, (1.0, 4.0), 1.0, 50, 0.0).matrix)


def test_pairs_are_of_one_class_or_of_two_without_repetition():
    for (first, second), same in zip(PAIRS, (True, False), strict=True):
        assert first.size == 40
        assert np.all((codes[first] == codes[second]) == same)
        assert np.all(first != second)
        assert len({*zip(first.tolist(), second.tolist(), strict=True)}) == 40


def test_pairs_that_do_not_exist_are_not_drawn():
    pairs = draw_pairs(np.array([0, 0, 1]), np.ones(3), 50, 0)
    assert sorted(map(tuple, pairs.similar.T.tolist())) == [(0, 1), (1, 0)]
    assert sorted(map(tuple, pairs.dissimilar.T.tolist())) == [(0, 2), (1, 2), (2, 0), (2, 1)]


def test_heavy_points_are_drawn_more_often():
    weights = np.r_[np.full(30, 1e-9), np.ones(30)]
    indices = np.hstack(draw_pairs(codes, weights, 100, 0))
    assert indices.min() >= 30


def test_bounds_are_percentiles_of_distances():
    low, high = percentile_bounds(X, PAIRS, squared=False)
    assert_allclose(percentile_bounds(X, PAIRS, squared=True), [low**2, high**2], rtol=0.05)
    assert 0.0 < low < high


def test_with_squared_bounds_the_unit_does_not_matter():
    original, scaled = (gm.Distributions(scale * X, range(60)) for scale in (1.0, 1e3))
    learned = [ITML(bounds="squared", max_iter=50, random_state=0).fit(D, codes) for D in (original, scaled)]
    assert_allclose(learned[0].components_, learned[1].components_, rtol=1e-6, atol=1e-9)


def test_given_bounds_are_used():
    learned = ITML(bounds=(1.0, 4.0), max_iter=5, random_state=0).fit(gm.Distributions(X, range(60)), codes)
    assert learned.bounds_ == (1.0, 4.0)
    assert learned.n_iter_ == 5


def test_what_is_learned_tells_the_classes_apart():
    D = gm.Distributions(X, range(60))
    assert ITML(bounds="squared", max_iter=30, random_state=0).fit(D, codes).metric_.importance().argmax() == 0


def test_the_factor_gives_the_matrix_back():
    M = project_in_turn(*STEPS, (1.0, 4.0), 1.0, 50, 0.0).matrix
    for matrix in (M, np.diag([1.0, 0.0])):
        rows = factor(matrix)
        assert_allclose(rows.T @ rows, matrix, atol=1e-12)
