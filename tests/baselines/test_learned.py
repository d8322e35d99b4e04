"""What the metrics learned on points share: where they start, reduction, thinning, and the paper's odd map."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.neighbors import NeighborhoodComponentsAnalysis

import groundmetric as gm
from groundmetric.baselines import NCA
from groundmetric.baselines.nca import paper_map, pivoted_cholesky, starting_map

from .examples import LEARNED, cohort, labelled_points, quick

D, y = cohort()
X, codes = labelled_points()
RANDOM = np.random.RandomState(0)


def test_the_start_is_the_identity_a_discriminant_or_the_principal_axes():
    assert_array_equal(starting_map(X, codes, None, RANDOM), np.eye(4))
    axes = starting_map(X, codes, 3, RANDOM)
    assert_allclose(axes @ axes.T, np.eye(3), atol=1e-12)
    spread = (X @ axes.T).var(axis=0)
    assert_allclose(spread, np.linalg.eigvalsh(np.cov(X.T, bias=True))[:0:-1])
    discriminant = starting_map(X, codes, 2, RANDOM)
    within = sum(np.cov(X[codes == c].T, bias=True) for c in range(3)) / 3
    assert_allclose(discriminant @ within @ discriminant.T, np.eye(2), atol=1e-9)


def test_nca_is_that_of_scikit_learn():
    points = gm.Distributions(X, range(60))
    theirs = NeighborhoodComponentsAnalysis(max_iter=15, tol=1e-7, init="identity").fit(X, codes)
    assert_allclose(NCA(max_iter=15).fit(points, codes).components_, theirs.components_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", LEARNED)
def test_more_features_than_allowed_are_reduced_without_loss_where_points_span_few_dimensions(name):
    """Four features, seen through forty: an isometry changes no distance between training points."""
    isometry = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 4)))[0].T
    wide = gm.Distributions(D.points @ isometry, np.repeat(D.names, D.sizes))
    reduced = quick(name, max_features=10).fit(wide, y)
    assert reduced.components_.shape == (4, 40)
    turned = gm.Distributions(_principal_coordinates(D.points), np.repeat(D.names, D.sizes))
    same = quick(name).fit(turned, y)
    assert_allclose(reduced.distances(wide), same.distances(turned), rtol=1e-3, atol=1e-4)


def _principal_coordinates(points):
    centred = points - points.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2]
    axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
    return centred @ axes.T


@pytest.mark.parametrize("name", LEARNED)
def test_reduction_to_fewer_components_than_the_points_span(name):
    wide, labels = cohort(n_features=30)
    method = quick(name, max_features=5).fit(wide, labels)
    assert method.components_.shape[1] == 30
    assert np.linalg.matrix_rank(method.components_) <= 5


@pytest.mark.parametrize("name", LEARNED)
def test_thinned_points_are_those_of_the_seed(name):
    few, same, other = (quick(name, max_points=30, random_state=seed).fit(D, y).components_ for seed in (0, 0, 1))
    assert_array_equal(few, same)
    assert not np.allclose(few, other)


@pytest.mark.parametrize("name", LEARNED)
def test_standardised_features_have_no_unit(name):
    scaled = gm.Distributions(D.points * [1e3, 1.0, 1e-2, 5.0], np.repeat(D.names, D.sizes))
    distances = [quick(name, standardise=True).fit(X, y).distances(X) for X in (D, scaled)]
    assert_allclose(*distances, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", LEARNED)
def test_distances_are_those_under_the_metric(name):
    method = quick(name).fit(D[:5], y[:5])
    assert_allclose(method.distances(D), gm.pairwise_distances(D, metric=method.metric_), atol=1e-12)
    assert_allclose(method.distances(D[5:], D), gm.pairwise_distances(D[5:], D, method.metric_), atol=1e-12)


def test_the_paper_applied_the_matrix_itself_to_few_features():
    W = np.random.default_rng(0).normal(size=(3, 5))
    assert_allclose(paper_map(W), W.T @ W)


def test_the_paper_applied_five_rows_of_a_factor_to_many_features():
    W = np.random.default_rng(0).normal(size=(8, 101))
    F, M = paper_map(W), W.T @ W
    assert F.shape == (5, 101)
    left = M - F.T @ F
    assert np.linalg.eigvalsh(left).min() > -1e-9
    assert np.sum(np.abs(left).max(axis=0) < 1e-9) == 5  # the features that were chosen are reproduced
    assert np.abs(left[np.diag(M).argmax()]).max() < 1e-9


def test_a_pivoted_factor_of_enough_rows_is_exact():
    W = np.random.default_rng(0).normal(size=(3, 20))
    F = pivoted_cholesky(W, 10)
    assert F.shape == (3, 20)
    assert_allclose(F.T @ F, W.T @ W, atol=1e-9)
    assert_array_equal(pivoted_cholesky(np.zeros((2, 4)), 3), np.zeros((1, 4)))


@pytest.mark.parametrize("name", ["nca"])
def test_as_in_paper_is_the_odd_map_of_the_same_metric(name):
    usual, odd = (quick(name, as_in_paper=paper).fit(D, y) for paper in (False, True))
    assert_allclose(odd.components_, usual.metric_.matrix(), rtol=1e-6, atol=1e-12)
