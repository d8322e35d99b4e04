"""What the metrics learned on points share: where they start, reduction, thinning."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.neighbors import NeighborhoodComponentsAnalysis

import groundmetric as gm
from groundmetric.baselines import NCA
from groundmetric.baselines._base import starting_map

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
