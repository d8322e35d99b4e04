"""Clusters by distances: known answers, scikit-learn's, and points of one mode only."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score, mutual_info_score, silhouette_score

from groundmetric.evaluation import cluster_distributions, cluster_points, cluster_scores

from .methods import euclidean, knowing, tiny_cohort

D, y = tiny_cohort()
LINE = np.abs(np.subtract.outer([0.0, 1.0, 10.0, 11.0, 30.0], [0.0, 1.0, 10.0, 11.0, 30.0]))


def test_clusters_that_are_the_classes():
    found = cluster_scores(LINE, ["a", "a", "b", "b", "c"])
    entropy = -(0.4 * np.log(0.4) * 2 + 0.2 * np.log(0.2))
    assert_allclose(found["mutual_information"], entropy)
    assert_allclose(
        [found["adjusted_rand"], found["variation_of_information"], found["n_clusters"]], [1.0, 0.0, 3.0], atol=1e-12
    )


def test_variation_of_information_by_hand():
    found = cluster_scores(LINE, ["a", "b", "a", "b", "a"], n_clusters=2)  # clusters: the last one, and the rest
    assert found["n_clusters"] == 2
    joint = [0.4, 0.4, 0.2]  # (rest, a), (rest, b), (last, a)
    shared = sum(p * np.log(p / (q * r)) for p, q, r in zip(joint, [0.8, 0.8, 0.2], [0.6, 0.4, 0.6], strict=True))
    entropies = -sum(p * np.log(p) for p in (0.8, 0.2, 0.6, 0.4))
    assert_allclose(found["mutual_information"], shared)
    assert_allclose(found["variation_of_information"], entropies - 2 * shared)


@pytest.mark.parametrize("options", [{"n_clusters": 4}, {"threshold": 0.4}, {"threshold": "median"}, {}])
def test_scores_are_those_of_scikit_learn(options):
    random = np.random.default_rng(0)
    points, labels = random.random((30, 2)), random.integers(0, 3, 30)
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    threshold = options.get("threshold")
    if threshold == "median":
        threshold = np.median(distances[np.triu_indices(30, 1)])
    clusters = options.get("n_clusters", 3 if threshold is None else None)
    model = AgglomerativeClustering(clusters, metric="precomputed", linkage="average", distance_threshold=threshold)
    expected = model.fit_predict(distances)
    found = cluster_scores(distances, labels, **options)
    assert found["n_clusters"] == expected.max() + 1
    assert_allclose(found["adjusted_rand"], adjusted_rand_score(labels, expected))
    assert_allclose(found["mutual_information"], mutual_info_score(labels, expected))
    assert_allclose(found["silhouette"], silhouette_score(distances, labels, metric="precomputed"))


def test_the_right_metric_clusters_distributions_and_euclid_does_not():
    right, wrong = (cluster_distributions(make().fit(D, y), D, y) for make in (knowing, euclidean))
    assert right["adjusted_rand"] > 0.9 > 0.3 > wrong["adjusted_rand"]
    assert right["silhouette"] > 0.4 > 0.1 > wrong["silhouette"]


def test_points_of_the_centre_mode_only():
    method = knowing().fit(D, y)
    centre = cluster_points(method, D, y, only={"mode": "centre"}, n_clusters=3)
    everything = cluster_points(method, D, y, n_clusters=3)
    assert centre["adjusted_rand"] > 0.4 > 0.1 > everything["adjusted_rand"]
    chosen = D.annotations["mode"] == "centre"
    distances = method.point_distances(D.points[chosen])
    assert centre == cluster_scores(distances, np.repeat(y, D.sizes)[chosen], n_clusters=3)
    assert cluster_points(method, D, y) == cluster_scores(
        method.point_distances(D.points), np.repeat(y, D.sizes), threshold="median"
    )


def test_several_values_may_be_wanted():
    method = knowing().fit(D, y)
    both = cluster_points(method, D, y, only={"mode": ["low", "high"]}, n_clusters=2)
    assert both["adjusted_rand"] < 0.05  # the two shared modes are two clusters, and say nothing of the class


def test_of_many_points_some_are_drawn_the_same_ones_every_time():
    asked = []

    class Watching:
        def point_distances(self, x, y=None):
            asked.append(x)
            return knowing().fit(D, None).point_distances(x)

    first, second = (cluster_points(Watching(), D, y, max_points=30, random_state=1) for _ in range(2))
    assert [x.shape[0] for x in asked] == [30, 30]
    assert first == second


@pytest.mark.parametrize("labels", [["a"], ["a", "a"], []])
def test_where_there_is_nothing_to_find_nothing_is_claimed(labels):
    assert np.isnan(list(cluster_scores(np.zeros((len(labels), len(labels))), labels).values())).all()


def test_as_many_classes_as_items_have_no_silhouette():
    found = cluster_scores([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    assert found["adjusted_rand"] == 1.0
    assert np.isnan(found["silhouette"])


def test_identical_items_are_one_cluster():
    found = cluster_scores(np.zeros((4, 4)), ["a", "a", "b", "b"], threshold="median")
    assert found["n_clusters"] == 1
    assert found["mutual_information"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cluster_scores([[0.0, 1.0]], ["a"]), r"shape \(1, 2\): expected a square matrix"),
        (lambda: cluster_scores([[0.0, np.nan], [np.nan, 0.0]], ["a", "b"]), "NaN or infinity"),
        (lambda: cluster_scores(LINE, list("aabbb"), n_clusters=2, threshold=1.0), "both n_clusters"),
        (lambda: cluster_points(knowing().fit(D, y), D, y, only={"type": "T"}), "no annotation 'type': there are"),
        (lambda: cluster_points(knowing().fit(D, y), D, y, only={"mode": "?"}), r"no point has {'mode': '\?'}"),
        (lambda: cluster_points(knowing().fit(D, y), D, y, max_points=1), "max_points is 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_clustered_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
