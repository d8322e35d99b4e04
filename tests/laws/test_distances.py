"""Laws of distances between distributions."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import groundmetric as gm

from .strategies import cohorts

ROUNDING = {"rtol": 1e-12, "atol": 1e-14}


def with_points(D, points):
    return gm.Distributions(points, np.repeat(D.names, D.sizes), weights=D.weights)


@given(cohorts())
def test_triangle_inequality(D):
    d = gm.pairwise_distances(D)
    assert (d[:, :, None] <= d[:, None, :] + d.T[None] + 1e-12).all()


@given(cohorts())
def test_symmetry(D):
    d = gm.pairwise_distances(D)
    assert_array_equal(d, d.T)
    assert_allclose(gm.pairwise_distances(D, D[[2, 1, 0]]), gm.pairwise_distances(D[[2, 1, 0]], D).T, **ROUNDING)


@given(cohorts())
def test_a_distribution_is_at_no_distance_from_itself(D):
    assert_allclose(np.diag(gm.pairwise_distances(D, D)), 0.0, atol=1e-14)


@given(cohorts())
def test_comparing_within_and_across_agree(D):
    assert_allclose(gm.pairwise_distances(D), gm.pairwise_distances(D, D), **ROUNDING)


@given(cohorts(n_distributions=1), st.randoms(use_true_random=False))
def test_the_order_of_points_does_not_matter(D, random):
    order = random.sample(range(D.weights.size), D.weights.size)
    shuffled = gm.Distributions(D.points[order], [0] * len(order), weights=D.weights[order])
    assert_allclose(gm.pairwise_distances(D, shuffled), 0.0, atol=1e-14)


@given(cohorts())
def test_distance_is_at_least_that_between_means(D):
    means = D.means()
    assert (gm.pairwise_distances(D) >= np.linalg.norm(means[:, None] - means, axis=2) - 1e-12).all()


@given(cohorts(), st.integers(-1000, 1000))
def test_common_shift_changes_nothing(D, step):
    shifted = with_points(D, D.points + step)
    assert_allclose(gm.pairwise_distances(shifted), gm.pairwise_distances(D), rtol=1e-12, atol=1e-12)


@given(cohorts(n_distributions=1), st.integers(-8, 8))
def test_a_shifted_copy_is_as_far_as_the_shift(D, step):
    distance = gm.pairwise_distances(D, with_points(D, D.points + step))
    assert_allclose(distance, abs(step) * np.sqrt(D.shape[1]), rtol=1e-12, atol=1e-13)


@given(cohorts(), st.floats(0, 100))
def test_scaling_the_metric_scales_the_distances(D, factor):
    metric = gm.GroundMetric(factor * np.eye(D.shape[1]))
    assert_allclose(gm.pairwise_distances(D, metric=metric), factor * gm.pairwise_distances(D), rtol=1e-12, atol=1e-12)


@given(cohorts(n_distributions=6), st.integers(1, 5))
def test_nearest_neighbours_are_those_of_all_distances(D, n_neighbors):
    distances = gm.pairwise_distances(D)
    np.fill_diagonal(distances, np.inf)
    indices = np.argsort(distances, axis=1, kind="stable")[:, :n_neighbors]
    result = gm.kneighbors(D, n_neighbors=n_neighbors)
    assert_array_equal(result[0], np.take_along_axis(distances, indices, axis=1))
    assert_array_equal(result[0], np.take_along_axis(distances, result[1], axis=1))
    # Numbers below the smallest normal one have few digits, as squares of small coordinates may be: distances that
    # differ may look equal.
    smallest = np.min(np.abs(D.points[D.points != 0.0]), initial=1.0)
    if min(np.min(distances[distances > 0], initial=1.0), smallest**2) >= np.finfo(float).tiny:
        assert_array_equal(result[1], indices)
