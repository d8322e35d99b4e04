"""Named distances against SciPy, PCA and LDA against scikit-learn, NCA against its definition."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NeighborhoodComponentsAnalysis

import groundmetric as gm
from groundmetric.baselines import NCA, Cosine, Euclidean, LinearDiscriminant, Manhattan, PCAEuclidean

from .examples import LEARNED, cohort, labelled_points, quick

D, y = cohort()
KINDS = [(Euclidean, "euclidean"), (Manhattan, "cityblock"), (Cosine, "cosine")]


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_they_are_the_named_distances(kind, name):
    method = kind().fit(D)
    assert_allclose(method.distances(D), gm.pairwise_distances(D, metric=name), atol=1e-12)
    assert_allclose(method.point_distances(D.points[:9], D.points), cdist(D.points[:9], D.points, name), atol=1e-12)


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_standardised_they_are_those_of_standardised_points(kind, name):
    z = (D.points - D.points.mean(axis=0)) / D.points.std(axis=0)
    standard = gm.Distributions(z, np.repeat(D.names, D.sizes))
    method = kind(standardise=True).fit(D)
    assert_allclose(method.distances(D), gm.pairwise_distances(standard, metric=name), atol=1e-12)
    assert_allclose(method.point_distances(D), cdist(z, z, name), atol=1e-12)


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_standardised_they_do_not_depend_on_units(kind, name):
    units = np.array([1.0, 1e6, 1e-3, 7.0])
    scaled = gm.Distributions(D.points * units, np.repeat(D.names, D.sizes))
    distances = [kind(standardise=True).fit(X).distances(X) for X in (D, scaled)]
    assert_allclose(*distances)


def test_standardising_weighs_points_by_their_mass():
    masses = np.random.default_rng(0).integers(1, 4, len(D.points))
    owner = np.repeat(np.arange(len(D)), D.sizes)
    totals = np.bincount(owner, masses)
    weighted = gm.Distributions(D.points, owner, weights=masses)
    scale = Euclidean(standardise=True).fit(weighted).metric_.scale
    shares = masses / totals[owner] * D.sizes[owner]
    mean = np.average(D.points, axis=0, weights=shares)
    assert_allclose(scale**2, np.average((D.points - mean) ** 2, axis=0, weights=shares))


POINT_LABELS = np.repeat(y, D.sizes)


def test_with_all_components_pca_is_the_standardised_euclidean_metric():
    pca, standard = PCAEuclidean().fit(D), Euclidean(standardise=True).fit(D)
    assert pca.components_.shape == (4, 4)
    assert_allclose(pca.distances(D), standard.distances(D), rtol=1e-9)
    assert_allclose(pca.point_distances(D.points), standard.point_distances(D.points), atol=1e-7)


def test_pca_keeps_the_widest_directions():
    distances = [PCAEuclidean(k, standardise=False).fit(D).point_distances(D.points).sum() for k in (1, 2, 3, 4)]
    assert np.all(np.diff(distances) > 0.0)
    spread = np.linalg.eigvalsh(np.cov(D.points.T, bias=True))[::-1]
    assert_allclose(PCAEuclidean(2, standardise=False).fit(D).metric_.project(D).var(axis=0), spread[:2])


def test_without_shrinkage_the_discriminant_is_that_of_scikit_learn():
    ours = LinearDiscriminant(shrinkage=0.0).fit(D, y)
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(D.points, POINT_LABELS)
    assert ours.components_.shape == (2, 4)
    for row, column in zip(ours.components_, theirs.scalings_.T, strict=False):
        assert_allclose(np.abs(row @ column), np.linalg.norm(row) * np.linalg.norm(column), rtol=1e-9)


def test_within_classes_the_discriminant_has_unit_spread():
    z = LinearDiscriminant(shrinkage=0.0).fit(D, y).metric_.project(D)
    within = np.mean([np.cov(z[c == POINT_LABELS].T, bias=True) for c in range(3)], axis=0)
    assert_allclose(within, np.eye(2), atol=1e-9)


def test_the_discriminant_does_not_depend_on_units():
    scaled = gm.Distributions(D.points * [1e6, 1.0, 1e-3, 5.0], np.repeat(D.names, D.sizes))
    assert_allclose(LinearDiscriminant().fit(scaled, y).distances(scaled), LinearDiscriminant().fit(D, y).distances(D))


def test_fully_shrunk_it_joins_the_class_means():
    z = (D.points - D.points.mean(axis=0)) / D.points.std(axis=0)
    means = np.stack([z[c == POINT_LABELS].mean(axis=0) for c in range(3)])
    rows = LinearDiscriminant(shrinkage=1.0).fit(D, y).components_ * D.points.std(axis=0)
    plane = np.linalg.svd(means - means.mean(axis=0))[2][:2]
    assert_allclose(rows @ plane.T @ plane, rows, atol=1e-9)


def test_weights_count_like_repeated_points():
    masses = np.random.default_rng(0).integers(1, 3, len(D.points))
    masses[::8] += 20 - np.add.reduceat(masses, D.bounds[:-1])  # every distribution has the same total
    owner = np.repeat(D.names, D.sizes)
    weighted = gm.Distributions(D.points, owner, weights=masses)
    repeated = gm.Distributions(np.repeat(D.points, masses, axis=0), np.repeat(owner, masses))
    for method in (LinearDiscriminant(), PCAEuclidean(2)):
        metrics = [method.fit(X, y).metric_.matrix() for X in (weighted, repeated)]
        assert_allclose(*metrics, rtol=1e-6, atol=1e-9)


def test_the_class_decides_and_the_distribution_does_not():
    assert LinearDiscriminant().fit(D, y).metric_.importance().argmax() == 0


def test_many_features_are_reduced_first():
    wide, labels = cohort(n_features=30)
    method = LinearDiscriminant(max_features=6).fit(wide, labels)
    assert method.components_.shape == (2, 30)


X, codes = labelled_points()


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
