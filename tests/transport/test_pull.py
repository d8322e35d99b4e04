"""The gradient of transport values with respect to the points."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import groundmetric as gm

from .cohorts import ALL_WEIGHTS, cohort, everything, one_by_one, transport, walk

SIZES = [3, 6, 1, 4]


def solved_pull(pairs, selected, coefficient):
    pairs.solve(selected)
    return pairs.pull(selected, coefficient)


def finite_differences(function, points, step=1e-5):
    slopes = np.empty_like(points)
    for index in np.ndindex(points.shape):
        ahead, back = points.copy(), points.copy()
        ahead[index] += step
        back[index] -= step
        slopes[index] = (function(ahead) - function(back)) / (2 * step)
    return slopes


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("weights", ALL_WEIGHTS)
def test_pull_is_the_slope_of_the_values(k, weights):
    rng = np.random.default_rng(k)
    D = cohort(rng, SIZES, k, weights)
    pairs = transport(D)
    coefficient = rng.normal(size=pairs.first.size)
    slopes = finite_differences(lambda points: coefficient @ one_by_one(D, points), D.points)
    pull = solved_pull(pairs, everything(pairs), coefficient)
    assert_allclose(pull, slopes, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_pull_is_the_slope_after_warm_solves_too(k):
    rng = np.random.default_rng(k)
    D = cohort(rng, SIZES, k, "both")
    pairs, selected = transport(D), np.array([4, 0, 5])
    coefficient = rng.normal(size=selected.size)
    for points in walk(rng, D, 4):
        pairs.move_all(points)
        pull = solved_pull(pairs, selected, coefficient)
    slopes = finite_differences(lambda moved: coefficient @ one_by_one(D, moved)[selected], points)
    assert_allclose(pull, slopes, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("k", [1, 3])
def test_pull_of_two_single_points_is_the_unit_vector_between_them(k):
    x, y = np.full(k, 2.0), np.zeros(k)
    pairs = transport(gm.Distributions([x, y], samples=[0, 1]))
    unit = np.full(k, 1.0 / np.sqrt(k))
    assert_allclose(solved_pull(pairs, np.array([0]), np.array([3.0])), [3 * unit, -3 * unit], rtol=1e-14)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("weights", ALL_WEIGHTS)
def test_coinciding_points_pull_nothing(k, weights):
    once = cohort(np.random.default_rng(0), [6], k, weights)
    order = [3, 0, 5, 1, 4, 2]
    points, masses = np.vstack([once.points, once.points[order]]), np.append(once.weights, once.weights[order])
    pairs = transport(gm.Distributions(points, np.repeat([0, 1], 6), weights=masses))
    pull = solved_pull(pairs, np.array([0]), np.array([1.0]))
    # Weights in another order are scaled to sum 1 with other rounding: a last bit may travel.
    assert_allclose(pull, 0.0, atol=0.0 if weights == "equal" else 1e-15)


@pytest.mark.parametrize("k", [1, 2])
def test_points_that_stay_in_place_pull_nothing_where_others_move(k):
    points = np.zeros((4, k))
    points[3] = 1.0
    pairs = transport(gm.Distributions(points, samples=[0, 0, 1, 1]))
    pull = solved_pull(pairs, np.array([0]), np.array([1.0]))
    assert np.isfinite(pull).all()
    assert_array_equal(pull[2], 0.0)
    assert_allclose(pull[3], 0.5 / np.sqrt(k))
    assert_allclose(pull.sum(axis=0), 0.0, atol=1e-15)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_pulls_of_a_pair_balance(k):
    pairs = transport(cohort(np.random.default_rng(0), [8, 11], k, "random"))
    pull = solved_pull(pairs, np.array([0]), np.array([1.0]))
    assert_allclose(pull.sum(axis=0), 0.0, atol=1e-14)
    assert np.abs(pull).sum() > 0.1


@pytest.mark.parametrize("k", [1, 2])
def test_pull_is_linear_in_the_coefficients(k):
    D = cohort(np.random.default_rng(0), SIZES, k, "both")
    pairs = transport(D)
    selected = everything(pairs)
    pull = solved_pull(pairs, selected, np.arange(6.0))
    sum_of_pulls = sum(pairs.pull(selected[p : p + 1], np.array([float(p)])) for p in selected)
    assert_allclose(pull, sum_of_pulls, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_pull_does_not_depend_on_memory(k):
    rng = np.random.default_rng(k)
    D = cohort(rng, [7, 9, 12, 5, 8], k, "both")
    without_memory, little_memory, large_memory = (transport(D, memory=memory) for memory in (0.0, 20 * 50, 2e9))
    for points in walk(rng, D, 4):
        selected = rng.permutation(10)[:6]
        coefficient = rng.normal(size=6)
        for pairs in (without_memory, little_memory, large_memory):
            pairs.move_all(points)
        pull = solved_pull(large_memory, selected, coefficient)
        assert_allclose(solved_pull(without_memory, selected, coefficient), pull, rtol=1e-12, atol=1e-14)
        assert_allclose(solved_pull(little_memory, selected, coefficient), pull, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("k", [1, 2])
def test_threads_give_the_serial_pull_bit_for_bit(k):
    rng = np.random.default_rng(0)
    D = cohort(rng, rng.integers(250, 400, 9), k, "both")  # more than one batch of work
    coefficient = rng.normal(size=36)
    serial, threaded = (solved_pull(transport(D, n_jobs=n), np.arange(36), coefficient) for n in (1, 3))
    assert_array_equal(threaded, serial)


@pytest.mark.parametrize("k", [1, 2])
def test_scaling_all_points_does_not_change_the_pull(k):
    D = cohort(np.random.default_rng(0), SIZES, k, "both")
    pairs, coefficient = transport(D), np.arange(6.0)
    pull = solved_pull(pairs, everything(pairs), coefficient)
    pairs.move_all(0.01 * D.points)
    assert_allclose(solved_pull(pairs, everything(pairs), coefficient), pull, rtol=1e-12, atol=1e-14)
