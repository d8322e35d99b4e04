"""Principal components and the linear discriminant as ground metrics."""

import numpy as np
from numpy.testing import assert_allclose
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import groundmetric as gm
from groundmetric.baselines import Euclidean, LinearDiscriminant, PCAEuclidean

from .examples import cohort

D, y = cohort()
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
