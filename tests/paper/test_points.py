"""Methods on labelled points: named distances, PCA, LDA and NCA, and the working space that they learn in."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NeighborhoodComponentsAnalysis

import groundmetric as gm
from paper import points as space
from paper.points import (
    NCA,
    Cosine,
    LinearDiscriminant,
    Manhattan,
    PCAEuclidean,
    draw,
    owners,
    point_weights,
    principal_axes,
    working_space,
)

from .examples import cohort, labelled_points

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


COHORT, LABELS = cohort()


def nca(**params):
    return NCA(**{"max_iter": 10, "random_state": 0, **params})


KINDS = [(Manhattan, "cityblock"), (Cosine, "cosine")]


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_they_are_the_named_distances(kind, name):
    method = kind().fit(COHORT)
    assert_allclose(method.distances(COHORT), gm.pairwise_distances(COHORT, metric=name), atol=1e-12)
    assert_allclose(
        method.point_distances(COHORT.points[:9], COHORT.points),
        cdist(COHORT.points[:9], COHORT.points, name),
        atol=1e-12,
    )


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_standardised_they_are_those_of_standardised_points(kind, name):
    z = (COHORT.points - COHORT.points.mean(axis=0)) / COHORT.points.std(axis=0)
    standard = gm.Distributions(z, np.repeat(COHORT.names, COHORT.sizes))
    method = kind(standardise=True).fit(COHORT)
    assert_allclose(method.distances(COHORT), gm.pairwise_distances(standard, metric=name), atol=1e-12)
    assert_allclose(method.point_distances(COHORT), cdist(z, z, name), atol=1e-12)


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_standardised_they_do_not_depend_on_units(kind, name):
    units = np.array([1.0, 1e6, 1e-3, 7.0])
    scaled = gm.Distributions(COHORT.points * units, np.repeat(COHORT.names, COHORT.sizes))
    distances = [kind(standardise=True).fit(X).distances(X) for X in (COHORT, scaled)]
    assert_allclose(*distances)


POINT_LABELS = np.repeat(LABELS, COHORT.sizes)


def test_with_all_components_pca_is_the_standardised_euclidean_metric():
    pca, standard = PCAEuclidean().fit(COHORT), gm.baselines.Euclidean(standardise=True).fit(COHORT)
    assert pca.components_.shape == (4, 4)
    assert_allclose(pca.distances(COHORT), standard.distances(COHORT), rtol=1e-9)
    assert_allclose(pca.point_distances(COHORT.points), standard.point_distances(COHORT.points), atol=1e-7)


def test_pca_keeps_the_widest_directions():
    distances = [
        PCAEuclidean(k, standardise=False).fit(COHORT).point_distances(COHORT.points).sum() for k in (1, 2, 3, 4)
    ]
    assert np.all(np.diff(distances) > 0.0)
    spread = np.linalg.eigvalsh(np.cov(COHORT.points.T, bias=True))[::-1]
    assert_allclose(PCAEuclidean(2, standardise=False).fit(COHORT).metric_.project(COHORT).var(axis=0), spread[:2])


def test_without_shrinkage_the_discriminant_is_that_of_scikit_learn():
    ours = LinearDiscriminant(shrinkage=0.0).fit(COHORT, LABELS)
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(COHORT.points, POINT_LABELS)
    assert ours.components_.shape == (2, 4)
    for row, column in zip(ours.components_, theirs.scalings_.T, strict=False):
        assert_allclose(np.abs(row @ column), np.linalg.norm(row) * np.linalg.norm(column), rtol=1e-9)


def test_within_classes_the_discriminant_has_unit_spread():
    z = LinearDiscriminant(shrinkage=0.0).fit(COHORT, LABELS).metric_.project(COHORT)
    within = np.mean([np.cov(z[c == POINT_LABELS].T, bias=True) for c in range(3)], axis=0)
    assert_allclose(within, np.eye(2), atol=1e-9)


def test_the_discriminant_does_not_depend_on_units():
    scaled = gm.Distributions(COHORT.points * [1e6, 1.0, 1e-3, 5.0], np.repeat(COHORT.names, COHORT.sizes))
    assert_allclose(
        LinearDiscriminant().fit(scaled, LABELS).distances(scaled),
        LinearDiscriminant().fit(COHORT, LABELS).distances(COHORT),
    )


def test_fully_shrunk_it_joins_the_class_means():
    z = (COHORT.points - COHORT.points.mean(axis=0)) / COHORT.points.std(axis=0)
    means = np.stack([z[c == POINT_LABELS].mean(axis=0) for c in range(3)])
    rows = LinearDiscriminant(shrinkage=1.0).fit(COHORT, LABELS).components_ * COHORT.points.std(axis=0)
    plane = np.linalg.svd(means - means.mean(axis=0))[2][:2]
    assert_allclose(rows @ plane.T @ plane, rows, atol=1e-9)


def test_weights_count_like_repeated_points():
    masses = np.random.default_rng(0).integers(1, 3, len(COHORT.points))
    masses[::8] += 20 - np.add.reduceat(masses, COHORT.bounds[:-1])  # every distribution has the same total
    owner = np.repeat(COHORT.names, COHORT.sizes)
    weighted = gm.Distributions(COHORT.points, owner, weights=masses)
    repeated = gm.Distributions(np.repeat(COHORT.points, masses, axis=0), np.repeat(owner, masses))
    for method in (LinearDiscriminant(), PCAEuclidean(2)):
        metrics = [method.fit(X, LABELS).metric_.matrix() for X in (weighted, repeated)]
        assert_allclose(*metrics, rtol=1e-6, atol=1e-9)


def test_the_class_decides_and_the_distribution_does_not():
    assert LinearDiscriminant().fit(COHORT, LABELS).metric_.importance().argmax() == 0


def test_many_features_are_reduced_first():
    wide, labels = cohort(n_features=30)
    method = LinearDiscriminant(max_features=6).fit(wide, labels)
    assert method.components_.shape == (2, 30)


LABELLED, codes = labelled_points()


def test_nca_is_that_of_scikit_learn():
    points = gm.Distributions(LABELLED, range(60))
    theirs = NeighborhoodComponentsAnalysis(max_iter=15, tol=1e-7, init="identity").fit(LABELLED, codes)
    assert_allclose(NCA(max_iter=15).fit(points, codes).components_, theirs.components_, rtol=1e-6, atol=1e-9)


def test_more_features_than_allowed_are_reduced_without_loss_where_points_span_few_dimensions():
    """Four features, seen through forty: an isometry changes no distance between training points."""
    isometry = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 4)))[0].T
    wide = gm.Distributions(COHORT.points @ isometry, np.repeat(COHORT.names, COHORT.sizes))
    reduced = nca(max_features=10).fit(wide, LABELS)
    assert reduced.components_.shape == (4, 40)
    turned = gm.Distributions(_principal_coordinates(COHORT.points), np.repeat(COHORT.names, COHORT.sizes))
    same = nca().fit(turned, LABELS)
    assert_allclose(reduced.distances(wide), same.distances(turned), rtol=1e-3, atol=1e-4)


def _principal_coordinates(points):
    centred = points - points.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2]
    axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
    return centred @ axes.T


def test_reduction_to_fewer_components_than_the_points_span():
    wide, labels = cohort(n_features=30)
    method = nca(max_features=5).fit(wide, labels)
    assert method.components_.shape[1] == 30
    assert np.linalg.matrix_rank(method.components_) <= 5


def test_thinned_points_are_those_of_the_seed():
    first, same, second = (nca(max_points=30, random_state=seed).fit(COHORT, LABELS).components_ for seed in (0, 0, 1))
    assert_array_equal(first, same)
    assert not np.allclose(first, second)


def test_standardised_features_have_no_unit():
    scaled = gm.Distributions(COHORT.points * [1e3, 1.0, 1e-2, 5.0], np.repeat(COHORT.names, COHORT.sizes))
    distances = [nca(standardise=True).fit(X, LABELS).distances(X) for X in (COHORT, scaled)]
    assert_allclose(*distances, rtol=1e-3, atol=1e-6)


def test_distances_are_those_under_the_metric():
    method = nca().fit(COHORT[:5], LABELS[:5])
    assert_allclose(method.distances(COHORT), gm.pairwise_distances(COHORT, metric=method.metric_), atol=1e-12)
    assert_allclose(
        method.distances(COHORT[5:], COHORT), gm.pairwise_distances(COHORT[5:], COHORT, method.metric_), atol=1e-12
    )


@pytest.mark.parametrize("kind", [NCA, LinearDiscriminant])
def test_labels_of_at_least_two_classes_are_needed(kind):
    for labels in (np.zeros(len(COHORT)), None):
        with pytest.raises(ValueError, match=r"one class|y is None"):
            kind().fit(COHORT, labels)
    single, _ = cohort(3, 1)
    with pytest.raises(ValueError, match="single point"):
        kind().fit(single, ["a", "b", "c"])


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        (NCA, {"max_iter": 0}),
        (NCA, {"n_components": 5}),
        (LinearDiscriminant, {"shrinkage": 2.0}),
        (LinearDiscriminant, {"max_features": 0}),
        (PCAEuclidean, {"n_components": 0}),
    ],
)
def test_impossible_parameters_are_named(kind, params):
    with pytest.raises(ValueError, match=next(iter(params))):
        kind(**params).fit(COHORT, LABELS)
