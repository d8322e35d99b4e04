"""Summaries with known values: moments, types, centred log-ratios, and PILOT's distance."""

import numpy as np
import ot
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from sklearn.preprocessing import StandardScaler

import groundmetric as gm
from groundmetric._internal.validation import ParameterError
from groundmetric.baselines import Composition, Summary

TYPES = np.array(["b", "t", "t", "b", "nk", "nk", "t", "t", "b"])
OWNER = np.repeat([0, 1, 2], 3)
POINTS = np.random.default_rng(0).normal(size=(9, 3)) + 3.0 * np.eye(3)[np.searchsorted(["b", "nk", "t"], TYPES)]
D = gm.Distributions(POINTS, OWNER, annotations={"cell_type": TYPES})
COUNTS = np.array([[1, 0, 2], [1, 2, 0], [1, 0, 2]])


def test_means_are_weighted():
    masses = np.random.default_rng(0).uniform(size=9)
    weighted = gm.Distributions(POINTS, OWNER, weights=masses)
    expected = [np.average(POINTS[d == OWNER], axis=0, weights=masses[d == OWNER]) for d in range(3)]
    assert_allclose(Summary().fit_transform(weighted), expected)


def test_moments_are_those_of_points_standardised_by_the_training_set():
    z = StandardScaler().fit_transform(POINTS).reshape(3, 3, 3)
    assert_allclose(Summary("moments").fit_transform(D), np.hstack([z.mean(axis=1), z.std(axis=1)]))


def test_moments_use_equal_numbers_of_points():
    random = np.random.default_rng(0)
    sizes = np.tile([30, 90], 40)
    unequal = gm.Distributions(random.exponential(size=(sizes.sum(), 1)) ** 2, np.repeat(range(80), sizes))
    deviations = Summary("moments").fit_transform(unequal)[:, 1]
    pooled = np.sqrt(np.var(deviations) * 2 / 40)
    assert abs(deviations[::2].mean() - deviations[1::2].mean()) < 3 * pooled


def test_distances_are_euclidean_between_standardised_vectors():
    method = Summary().fit(D[:2])
    z = StandardScaler().fit(D[:2].means()).transform(D.means())
    assert_allclose(method.distances(D[2:], D[:2]), cdist(z[2:], z[:2]))


def test_types_without_points_have_the_mean_of_the_training_set():
    means = Summary("type_means", annotation="cell_type").fit_transform(D).reshape(3, 3, 3)
    assert_allclose(means[0, 2], POINTS[1:3].mean(axis=0))
    assert_allclose(means[0, 1], POINTS[4:6].mean(axis=0))  # only distribution 1 has "nk"


def test_compositions_are_centred_log_ratios():
    logs = np.log(COUNTS + 0.5)
    expected = logs - logs.mean(axis=1, keepdims=True)
    assert_allclose(Summary("composition", annotation="cell_type").fit_transform(D), expected)


def test_types_that_training_does_not_have_do_not_count():
    new = gm.Distributions(POINTS[:3], ["x"] * 3, annotations={"cell_type": ["b", "new", "new"]})
    expected = (np.array([[1.0, 0.0, 0.0]]) + 0.2 * np.array([3, 2, 4]) / 9) / 1.2
    assert_allclose(Composition(annotation="cell_type").fit(D).proportions(new), expected)


def test_proportions_have_a_pseudo_count():
    method = Composition(annotation="cell_type").fit(D)
    assert method.types_.tolist() == ["b", "nk", "t"]
    assert_allclose(method.proportions(D), (COUNTS + 0.2 * np.array([3, 2, 4]) / 9) / 3.2)


def test_distances_are_transport_between_proportions_at_the_cosine_distance_between_medians():
    method = Composition(annotation="cell_type").fit(D)
    z = StandardScaler().fit_transform(POINTS)
    medians = [np.median(z[name == TYPES], axis=0) for name in method.types_]
    assert_allclose(method.costs_, cdist(medians, medians, "cosine"), atol=1e-12)
    shares = method.proportions(D)
    expected = np.array([[ot.emd2(a, b, method.costs_) for b in shares] for a in shares])
    assert_allclose(method.distances(D), expected, atol=1e-9)
    assert_allclose(method.distances(D[:1], D[1:]), expected[:1, 1:], atol=1e-9)


def test_a_missing_annotation_is_refused():
    holes = gm.Distributions(POINTS, OWNER, annotations={"cell_type": np.where(TYPES == "b", None, TYPES)})
    with pytest.raises(ParameterError) as raised:
        Composition(annotation="cell_type").fit(holes)
    assert raised.value.parameter == "annotation"


def blobs(seed=0):
    """Distributions that mix four distant clusters in random proportions."""
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.ones(4), 6)
    counts = np.array([random.multinomial(50, share) for share in shares])
    blob = np.concatenate([np.repeat(np.arange(4), row) for row in counts])
    points = 20.0 * np.eye(4)[blob] + random.normal(size=(300, 4))
    return gm.Distributions(points, np.repeat(range(6), 50), annotations={"blob": blob}), counts


def test_clusters_are_distant_blobs():
    D, counts = blobs()
    clustered, annotated = Composition(4).fit(D), Composition(annotation="blob").fit(D)
    assert_allclose(annotated.proportions(D), (counts + 0.2 * counts.sum(axis=0) / 300) / 50.2)
    assert_allclose(np.sort(clustered.proportions(D), axis=1), np.sort(annotated.proportions(D), axis=1))
    assert_allclose(clustered.distances(D), annotated.distances(D), atol=1e-9)


def test_more_clusters_than_distinct_points():
    small = gm.Distributions([[0.0], [0.0], [1.0]], [0, 1, 2])
    method = Composition(20).fit(small)
    assert method.types_.size == 2
    distances = method.distances(small)
    assert distances[0, 1] == pytest.approx(0.0, abs=1e-12)
    assert distances[0, 2] > 0.5


def test_mean_embeddings_of_one_distribution_are_equal_and_of_different_ones_are_not():
    random = np.random.default_rng(0)
    points = np.concatenate([random.normal(size=(2000, 1)), random.choice([-1.0, 1.0], 1000)[:, None]])
    x = Summary("embedding").fit_transform(gm.Distributions(points, np.repeat(range(3), 1000)))
    close, distant = np.linalg.norm(x[0] - x[1]), np.linalg.norm(x[0] - x[2])  # equal means and variances
    assert distant > 3 * close
