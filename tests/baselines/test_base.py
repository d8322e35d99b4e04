"""Thinning, moments, and principal axes of weighted points."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.decomposition import PCA

import groundmetric as gm
from groundmetric.baselines import points as space
from groundmetric.baselines.points import draw, owners, point_weights, principal_axes, working_space

X = np.random.default_rng(0).normal(size=(60, 5)) @ np.diag([5.0, 3.0, 2.0, 1.0, 0.5])
OWNER = np.repeat([0, 1, 2], [40, 18, 2])
D = gm.Distributions(X, OWNER)


def random():
    return np.random.RandomState(0)


def test_every_distribution_gives_the_same_share_and_at_least_one_point():
    rows = draw(D, 20, random())
    assert np.bincount(owners(D, rows)).tolist() == [13, 6, 1]
    assert np.all(np.diff(rows) > 0)
    assert_array_equal(owners(D, np.arange(60)), OWNER)


@pytest.mark.parametrize("most", [None, 60, 1000])
def test_few_points_are_all_taken(most):
    assert_array_equal(draw(D, most, random()), np.arange(60))


def test_weights_of_points_do_not_depend_on_the_size_of_their_distribution():
    weighted = gm.Distributions(X, OWNER, weights=np.random.default_rng(1).uniform(size=60))
    assert_allclose(np.bincount(OWNER, point_weights(weighted)), [40, 18, 2])


def axes_of(points, n_axes, weights=None):
    weights = np.ones(points.shape[0]) if weights is None else weights
    dense = points.toarray() if sparse.issparse(points) else points
    centre = np.average(dense, axis=0, weights=weights)
    return principal_axes(points, weights, centre, np.ones(points.shape[1]), n_axes, random())


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("way", ["covariance", "iteration"])
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_axes_are_those_of_scikit_learn(kind, way, shape, monkeypatch):
    points = X if shape == "tall" else np.random.default_rng(0).normal(size=(12, 30))
    if way == "iteration":
        monkeypatch.setattr(space, "_SMALL", 0)
        monkeypatch.setattr(space, "_DENSE_ENTRIES", 0)
    ours, theirs = axes_of(kind(points), 2), PCA(2).fit(points).components_
    assert_allclose(ours @ ours.T, np.eye(2), atol=1e-9)
    assert_allclose(np.abs(np.sum(ours * theirs, axis=1)), 1.0, rtol=1e-9)


def test_a_point_of_weight_two_is_two_points():
    weights = np.random.default_rng(0).integers(1, 4, 60).astype(float)
    assert_allclose(axes_of(X, 3, weights), axes_of(np.repeat(X, weights.astype(int), axis=0), 3), atol=1e-9)


def test_there_are_no_more_axes_than_dimensions():
    assert axes_of(X, 99).shape == (5, 5)
    assert axes_of(X[:3], 99).shape == (2, 5)
    assert axes_of(np.ones((4, 5)), 99).shape == (1, 5)


def test_a_working_space_maps_there_and_back():
    centre, scale = X.mean(axis=0), X.std(axis=0)
    for limit, size in ((5, 5), (2, 2)):
        working = working_space(X, np.ones(60), centre, scale, limit, random())
        z = working.coordinates(X)
        assert z.shape == (60, size)
        assert_allclose(z.mean(axis=0), 0.0, atol=1e-12)
        rows = np.random.default_rng(0).normal(size=(3, size))
        assert_allclose((X - centre) @ working.components(rows).T, z @ rows.T, atol=1e-9)
        assert_allclose(working.coordinates(sparse.csr_matrix(X)), z, atol=1e-9)


def test_axes_of_many_points_come_from_some_of_them(monkeypatch):
    monkeypatch.setattr(space, "_POINTS_FOR_AXES", 4)
    working = working_space(X, np.ones(60), X.mean(axis=0), np.ones(5), 4, random())
    assert np.linalg.matrix_rank(working.axes) <= 4
