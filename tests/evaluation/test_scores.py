"""Votes and scores: scikit-learn's where it has them, known answers, absent classes."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    f1_score,
    log_loss,
    roc_auc_score,
)
from sklearn.neighbors import KNeighborsClassifier

from groundmetric import GroundMetric, TransportKNeighborsClassifier
from groundmetric.estimators.neighbors import class_shares
from groundmetric.evaluation import vote
from groundmetric.evaluation.scores import (
    confusion_of,
    encode,
    k_nearest,
    nearest_distributions,
    score_codes,
    score_confusion,
    vote_points,
)

from .methods import euclidean, knowing, tiny_cohort

D, y = tiny_cohort()


@pytest.mark.parametrize("weights", ["distance", "uniform"])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_votes_are_those_of_scikit_learn(weights, k):
    random = np.random.default_rng(0)
    labels, distances = random.choice(["a", "b", "c"], 40), random.random((25, 40))
    labelled = KNeighborsClassifier(k, metric="precomputed", weights=weights).fit(np.zeros((40, 40)), labels)
    assert_allclose(
        vote(distances, labels, ["a", "b", "c"], n_neighbors=k, weights=weights), labelled.predict_proba(distances)
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
    nearest, positions = k_nearest(distances, k)
    expected = np.argsort(distances, axis=1, kind="stable")[:, :k]
    assert_array_equal(positions, expected)
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
    nearest, positions = nearest_distributions(method, D[::2], D[1::2], 3)
    classifier = TransportKNeighborsClassifier(3, metric=method.metric_).fit(D[::2], y[::2])
    assert_allclose(class_shares(nearest, y[::2][positions], 3, "distance"), classifier.predict_proba(D[1::2]))


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
    complete = vote_points(method, train, codes[::2], test, 3, 100, "distance")
    assert_allclose(
        complete, vote(method.point_distances(test, train), codes[::2], [0, 1, 2], n_neighbors=100), atol=1e-12
    )
    monkeypatch.setitem(vote_points.__globals__, "_BLOCK", 500)
    assert_allclose(vote_points(method, train, codes[::2], test, 3, 100, "distance"), complete, atol=1e-12)


def test_blocks_bound_what_is_held_at_a_time(monkeypatch):
    monkeypatch.setitem(vote_points.__globals__, "_BLOCK", 200)
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


@given(st.integers(2, 4), st.integers(0, 10_000))
def test_scores_are_those_of_scikit_learn(n_classes, seed):
    random = np.random.default_rng(seed)
    classes = ["a", "b", "c", "d"][:n_classes]
    y = random.permutation(classes * 2 + list(random.choice(classes, 20)))
    chances = random.integers(1, 4, (y.size, n_classes)) / 1.0  # many ties
    chances /= chances.sum(axis=1, keepdims=True)
    guess = np.array(classes)[chances.argmax(axis=1)]
    auc = {"y_score": chances[:, 1]} if n_classes == 2 else {"y_score": chances, "multi_class": "ovr"}
    expected = {
        "accuracy": accuracy_score(y, guess),
        "balanced_accuracy": balanced_accuracy_score(y, guess),
        "macro_f1": f1_score(y, guess, average="macro"),
        "roc_auc": roc_auc_score(y, **auc),
        "log_probability": -log_loss(y, chances),
    }
    result = score_codes(encode(y, classes), chances)
    assert result.keys() == expected.keys()
    assert_allclose([result[name] for name in expected], list(expected.values()))


def test_by_hand():
    chances = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.7, 0.3]])
    result = score_codes(np.array([0, 1, 1, 0]), chances)
    assert result == {
        "accuracy": 0.75,
        "balanced_accuracy": 0.75,
        "macro_f1": pytest.approx((4 / 5 + 2 / 3) / 2),
        "roc_auc": 1.0,
        "log_probability": pytest.approx(np.log([0.9, 0.4, 0.8, 0.7]).mean()),
    }


def test_a_test_part_without_a_class_is_scored_on_the_others():
    chances = np.array([[0.8, 0.1, 0.1], [0.2, 0.3, 0.5], [0.3, 0.6, 0.1]])
    result = score_codes(np.array([0, 1, 1]), chances)
    assert result["balanced_accuracy"] == 0.75
    assert result["macro_f1"] == pytest.approx((1.0 + 2 / 3 + 0.0) / 3)  # "c" is predicted once, wrongly
    assert result["roc_auc"] == 1.0  # of "a" and of "b"; "c" has no area


def test_a_single_test_distribution_has_no_area_but_can_be_right():
    result = score_codes(np.array([1]), np.array([[0.2, 0.8]]))
    assert (result["accuracy"], result["balanced_accuracy"], result["macro_f1"]) == (1.0, 1.0, 1.0)
    assert np.isnan(result["roc_auc"])


def test_all_alike_probabilities_have_an_area_of_one_half():
    assert score_codes(np.array([0, 1, 1]), np.full((3, 2), 0.5))["roc_auc"] == 0.5


@given(st.integers(0, 10_000))
def test_a_weight_is_how_often_an_item_counts(seed):
    random = np.random.default_rng(seed)
    y, chances = random.integers(0, 3, 15), random.dirichlet(np.ones(3), 15)
    for times in random.integers(0, 3, (4, 15)):
        repeated = score_codes(np.repeat(y, times), np.repeat(chances, times, axis=0))
        assert score_codes(y, chances, times) == pytest.approx(repeated, nan_ok=True)


def test_counts_of_points_score_like_the_points_themselves():
    random = np.random.default_rng(0)
    y = np.array([0, 1, 2, 1])
    counts = random.integers(0, 9, (4, 3))
    truth = np.repeat(y, counts.sum(axis=1))
    guess = np.concatenate([np.repeat(np.arange(3), row) for row in counts])
    result = score_confusion(confusion_of(y, counts, np.ones(4)))
    assert_allclose(result["accuracy"], accuracy_score(truth, guess))
    assert_allclose(result["balanced_accuracy"], balanced_accuracy_score(truth, guess))
    assert_allclose(result["macro_f1"], f1_score(truth, guess, average="macro"))


def test_labels_that_are_not_among_the_classes_are_refused():
    with pytest.raises(ValueError, match=r"label 'z' is not one of the classes \['a', 'b'\]"):
        encode(["z"], ["a", "b"])


def test_votes_match_labels_to_columns_by_name():
    names, x = [f"s{i}" for i in range(8)], np.r_[0:4, 50:54] / 10
    y, order = pd.Series(list("aaaabbbb"), index=names), [4, 0, 5, 1, 6, 2, 7, 3]
    d = pd.DataFrame(np.abs(x[:, None] - x), index=names, columns=names)
    for query in (d, d.loc[["s6", "s0"]]):
        expected = vote(query.to_numpy(), y.to_numpy(), ["a", "b"], n_neighbors=3)
        for labels in (y, y.iloc[order], y.iloc[order].to_dict(), y.to_numpy()):
            assert_array_equal(vote(query, labels, ["a", "b"], n_neighbors=3), expected)
        shuffled = query[[names[i] for i in order]]
        for labels in (y, y.iloc[order], y.to_dict()):
            assert_array_equal(vote(shuffled, labels, ["a", "b"], n_neighbors=3), expected)
    with pytest.raises(ValueError, match="names other than the 8 columns of distances"):
        vote(d, y.rename({"s0": "t0"}), ["a", "b"])
    with pytest.raises(ValueError, match="mapping by name"):
        vote(d.to_numpy(), y.to_dict(), ["a", "b"])
    assert_array_equal(
        vote(d.to_numpy(), y.iloc[order], ["a", "b"]), vote(d.to_numpy(), y.to_numpy()[order], ["a", "b"])
    )
