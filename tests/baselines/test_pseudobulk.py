"""Pseudobulk: statistics with known values, and a classifier that is plain logistic regression."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import groundmetric as gm
from groundmetric.baselines import PseudobulkLogistic, PseudobulkNeighbors
from groundmetric.baselines.summaries import pseudobulk

from .examples import cohort

D, y = cohort(18)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_statistics_are_weighted(kind):
    masses = np.random.default_rng(0).uniform(size=len(D.points))
    weighted = gm.Distributions(kind(D.points), np.repeat(D.names, D.sizes), weights=masses)
    for d, row in enumerate(pseudobulk(weighted, "mean_sd")):
        rows = slice(D.bounds[d], D.bounds[d + 1])
        mean = np.average(D.points[rows], axis=0, weights=masses[rows])
        variance = np.average((D.points[rows] - mean) ** 2, axis=0, weights=masses[rows])
        assert_allclose(row, np.r_[mean, np.sqrt(variance)])
    assert_array_equal(pseudobulk(weighted, "mean"), pseudobulk(weighted, "mean_sd")[:, :4])


@pytest.mark.parametrize("statistics", ["mean", "mean_sd"])
def test_distances_are_euclidean_between_statistics_standardised_by_the_training_part(statistics):
    method = PseudobulkNeighbors(statistics=statistics).fit(D[:12])
    scaler = StandardScaler().fit(pseudobulk(D[:12], statistics))
    z = scaler.transform(pseudobulk(D, statistics))
    assert_allclose(method.distances(D[12:], D[:12]), cdist(z[12:], z[:12]))
    points = StandardScaler().fit(D[:12].points).transform(D.points)
    assert_allclose(method.point_distances(D.points), cdist(points, points), atol=1e-7)


def test_a_constant_statistic_is_not_blown_up():
    single, _ = cohort(6, 1)
    embedding = PseudobulkNeighbors(statistics="mean_sd").fit(single).embed(single)
    assert_array_equal(embedding[:, 4:], 0.0)
    third = gm.Distributions(np.full((9, 1), 0.1), np.repeat([0, 1, 2], [2, 3, 4]))
    assert_allclose(PseudobulkNeighbors().fit(third).distances(third), 0.0, atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_features", [4, 40])
def test_it_is_the_logistic_regression_of_scikit_learn(n_classes, n_features):
    cohort_, labels = cohort(18, n_features=n_features, n_classes=n_classes)
    ours = PseudobulkLogistic(C=2.0).fit(cohort_[:12], labels[:12])
    scaler = StandardScaler().fit(pseudobulk(cohort_[:12], "mean"))
    z = scaler.transform(pseudobulk(cohort_, "mean")) / np.sqrt(n_features)
    theirs = LogisticRegression(C=2.0, tol=1e-8, max_iter=10_000).fit(z[:12], labels[:12])
    assert_allclose(ours.predict_proba(cohort_), theirs.predict_proba(z), atol=1e-3)
    assert_array_equal(ours.predict(cohort_), theirs.predict(z))


def test_probabilities_go_with_the_classes():
    names = np.array(["well", "ill", "cured"])[y]
    method = PseudobulkLogistic(statistics="mean_sd").fit(D[:12], names[:12])
    shares = method.predict_proba(D)
    assert method.classes_.tolist() == ["cured", "ill", "well"]
    assert_allclose(shares.sum(axis=1), 1.0)
    assert_array_equal(method.classes_[shares.argmax(axis=1)], method.predict(D))
    assert method.score(D[:12], names[:12]) == 1.0


def test_it_finds_classes_that_means_tell_apart():
    two, labels = cohort(18, n_classes=2)
    assert PseudobulkLogistic().fit(two[:12], labels[:12]).score(two[12:], labels[12:]) == 1.0


def test_distances_are_between_log_odds():
    method = PseudobulkLogistic().fit(D, y)
    odds = np.log(method.predict_proba(D))
    ours = method.decision_function(D)
    assert_allclose(ours - ours.mean(axis=1, keepdims=True), odds - odds.mean(axis=1, keepdims=True), atol=1e-9)
    assert_allclose(method.distances(D), cdist(ours, ours), atol=1e-9)


@pytest.mark.parametrize("statistics", ["mean", "mean_sd"])
def test_between_points_it_is_the_distance_between_distributions_with_these_means(statistics):
    method = PseudobulkLogistic(statistics=statistics).fit(D, y)
    points = D.points[:6]
    alone = gm.Distributions(points, range(6))
    assert_allclose(method.point_distances(points), method.distances(alone), atol=1e-9)


def test_the_strength_is_chosen_where_there_are_enough_distributions():
    assert PseudobulkLogistic().fit(D[:6], y[:6]).C_ == 10.0
    assert PseudobulkLogistic(C=3).fit(D, y).C_ == 3.0
    random = np.random.default_rng(0)
    noise = gm.Distributions(random.normal(size=(40, 30)), range(40))
    assert PseudobulkLogistic().fit(noise, random.integers(2, size=40)).C_ < 10.0 <= PseudobulkLogistic().fit(D, y).C_


def test_class_weights_are_those_of_scikit_learn():
    labels = np.r_[np.zeros(15, int), np.ones(3, int)]
    shares = [
        PseudobulkLogistic(C=1.0, class_weight=weight).fit(D, labels).predict_proba(D)[:, 1].mean()
        for weight in (None, "balanced", {1: 1000.0})
    ]
    assert shares[0] < shares[1] < shares[2]
