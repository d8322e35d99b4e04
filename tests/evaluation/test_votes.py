"""Votes from distances: scikit-learn's k-NN, exact hits, ties, and blocks of points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.neighbors import KNeighborsClassifier

import groundmetric.evaluation.votes as module
from groundmetric import GroundMetric, TransportKNeighborsClassifier
from groundmetric.estimators._base import class_shares
from groundmetric.evaluation import vote
from groundmetric.evaluation.votes import k_nearest, nearest_distributions, vote_points

from .methods import euclidean, knowing, tiny_cohort

D, y = tiny_cohort()


@pytest.mark.parametrize("weights", ["distance", "uniform"])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_votes_are_those_of_scikit_learn(weights, k):
    random = np.random.default_rng(0)
    labels, distances = random.choice(["a", "b", "c"], 40), random.random((25, 40))
    known = KNeighborsClassifier(k, metric="precomputed", weights=weights).fit(np.zeros((40, 40)), labels)
    assert_allclose(
        vote(distances, labels, ["a", "b", "c"], n_neighbors=k, weights=weights), known.predict_proba(distances)
    )


def test_votes_by_hand():
    distances = [[2.0, 1.0, 4.0, 9.0], [0.0, 3.0, 0.0, 1.0]]
    labels = ["a", "b", "b", "a"]
    assert_allclose(vote(distances, labels, ["a", "b"], n_neighbors=3), [[0.5 / 1.75, 1.25 / 1.75], [0.5, 0.5]])
    assert_allclose(
        vote(distances, labels, ["a", "b"], n_neighbors=3, weights="uniform"), [[1 / 3, 2 / 3], [2 / 3, 1 / 3]]
    )


def test_a_class_that_nobody_has_gets_no_votes():
    assert_array_equal(vote([[1.0, 2.0]], ["b", "b"], ["a", "b"]), [[0.0, 1.0]])


def test_all_vote_where_there_are_fewer_than_k():
    assert_allclose(vote([[1.0, 2.0]], ["a", "b"], ["a", "b"], n_neighbors=100), [[2 / 3, 1 / 3]])


@given(st.integers(1, 12), st.integers(0, 1000))
def test_of_equally_distant_ones_those_that_come_first_are_taken(k, seed):
    distances = np.random.default_rng(seed).integers(0, 4, (6, 12)).astype(float)
    nearest, places = k_nearest(distances, k)
    expected = np.argsort(distances, axis=1, kind="stable")[:, :k]
    assert_array_equal(places, expected)
    assert_array_equal(nearest, np.take_along_axis(distances, expected, axis=1))


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-150, 1e150, 1e300])
def test_votes_do_not_depend_on_the_scale_not_even_a_tiny_one(scale):
    assert_allclose(class_shares(np.array([[1.0, 2.0]]) * scale, np.array([[0, 1]]), 2, "distance"), [[2 / 3, 1 / 3]])


@given(st.integers(0, 1000))
def test_balanced_votes_are_plain_ones_where_classes_are_equally_common(seed):
    random = np.random.default_rng(seed)
    nearest, codes = np.sort(random.uniform(size=(4, 3)), axis=1), random.integers(0, 2, (4, 3))
    plain = class_shares(nearest, codes, 2, "distance")
    assert_allclose(class_shares(nearest, codes, 2, "distance", among=np.array([0, 1] * 5)), plain)
    rare = class_shares(nearest, codes, 2, "distance", among=np.array([0] * 9 + [1]))
    assert np.all(rare[:, 1] >= plain[:, 1])


def test_the_pruned_search_votes_like_the_classifier():
    method = knowing().fit(D[::2], y[::2])
    nearest, places = nearest_distributions(method, D[::2], D[1::2], 3)
    classifier = TransportKNeighborsClassifier(3, metric=method.metric_).fit(D[::2], y[::2])
    assert_allclose(class_shares(nearest, y[::2][places], 3, "distance"), classifier.predict_proba(D[1::2]))


def test_distances_of_the_methods_own_are_used_where_it_has_them():
    method = knowing().fit(D, y)

    class Reversed(type(method)):
        def distances(self, A, B=None, *, n_jobs=None):
            return 1.0 / (1.0 + super().distances(A, B))

    odd = Reversed().fit(D, y)
    assert_array_equal(nearest_distributions(odd, D, D[:4], 1)[1].ravel(), method.distances(D[:4], D).argmax(axis=1))


@pytest.mark.parametrize("make", [euclidean, knowing])
@pytest.mark.parametrize("as_points", [np.asarray, sparse.csr_matrix])
def test_points_are_voted_on_in_blocks(monkeypatch, make, as_points):
    codes = np.repeat(y, D.sizes)
    method = make().fit(D, y)
    train, test = as_points(D.points[::2]), as_points(D.points[1::2])
    whole = vote_points(method, train, codes[::2], test, 3, 100, "distance")
    assert_allclose(
        whole, vote(method.point_distances(test, train), codes[::2], [0, 1, 2], n_neighbors=100), atol=1e-12
    )
    monkeypatch.setattr(module, "_BLOCK", 500)
    assert_allclose(vote_points(method, train, codes[::2], test, 3, 100, "distance"), whole, atol=1e-12)


def test_blocks_bound_what_is_held_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 200)
    asked = []

    class Watching:
        def point_distances(self, x, y=None):
            asked.append((x.shape[0], y.shape[0]))
            return GroundMetric.euclidean(2).distances(x, y)

    vote_points(Watching(), D.points[:50], np.zeros(50, int), D.points[:10], 1, 5, "uniform")
    assert asked == [(4, 50), (4, 50), (2, 50)]


@pytest.mark.parametrize(
    ("distances", "options", "message"),
    [
        ([[1.0, np.nan]], {}, "distances contain nan"),
        ([[1.0, np.inf]], {}, "distances contain inf"),
        ([[1.0, -0.1]], {}, "distances contain -0.1: they cannot be negative"),
        ([[1.0]], {}, r"shape \(1, 1\): expected a column for each of 2"),
        ([[1.0, 2.0]], {"n_neighbors": 0}, "n_neighbors is 0: expected a whole number of at least 1"),
        ([[1.0, 2.0]], {"weights": "cubic"}, "weights is 'cubic': expected 'distance' or 'uniform'"),
    ],
)
def test_distances_that_cannot_be_voted_with_are_refused(distances, options, message):
    with pytest.raises(ValueError, match=message):
        vote(distances, ["a", "b"], ["a", "b"], **options)


def test_rounding_below_zero_counts_as_zero():
    assert_allclose(vote([[-1e-16, 1.0]], ["a", "b"], ["a", "b"]), [[1.0, 0.0]])
