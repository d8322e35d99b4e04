"""Composition: shares of clusters or types, transported at the cost between their medians."""

import numpy as np
import ot
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA

import groundmetric as gm
from groundmetric.baselines import Composition
from groundmetric.baselines.summaries import _weighted_median

TYPES = np.array(["b", "t", "t", "b", "nk", "nk", "t", "t", "b", "nk"])
OWNER = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
POINTS = np.random.default_rng(0).normal(size=(10, 3)) + 3.0 * np.eye(3)[np.searchsorted(["b", "nk", "t"], TYPES)]
D = gm.Distributions(POINTS, OWNER, annotations={"cell_type": TYPES})


def typed(**options):
    return Composition(**{"annotation": "cell_type", "random_state": 0, **options})


def test_shares_of_types_with_a_pseudo_count():
    method = typed(pseudo_count=0.5).fit(D)
    counts = np.array([[1, 0, 2], [1, 2, 0], [1, 1, 2]])
    assert method.types_.tolist() == ["b", "nk", "t"]
    expected = (counts + 0.5 * np.array([0.3, 0.3, 0.4])) / (counts.sum(axis=1, keepdims=True) + 0.5)
    assert_allclose(method.proportions(D), expected)


@pytest.mark.parametrize("cost", ["cosine", "euclidean"])
def test_distances_are_transport_between_shares_at_the_cost_between_medians(cost):
    method = typed(cost=cost).fit(D)
    z = PCA().fit_transform((POINTS - POINTS.mean(axis=0)) / POINTS.std(axis=0))
    medians = np.stack([np.median(z[name == TYPES], axis=0) for name in method.types_])
    costs = cdist(medians, medians, cost)
    shares = method.proportions(D)
    assert_allclose(method.costs_, costs, atol=1e-12)
    expected = [[ot.emd2(a, b, costs) for b in shares] for a in shares]
    assert_allclose(method.distances(D), expected, atol=1e-9)
    assert_allclose(method.distances(D[:1], D[1:]), np.array(expected)[:1, 1:], atol=1e-9)


def test_a_type_that_training_did_not_know_counts_for_the_nearest():
    method = typed(pseudo_count=0.0).fit(D)
    place = POINTS[TYPES == "nk"].mean(axis=0)
    new = gm.Distributions(place[None], ["x"], annotations={"cell_type": ["unheard of"]})
    assert_array_equal(method.proportions(new), [[0.0, 1.0, 0.0]])


def test_an_annotation_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(ValueError, match=r"annotation is 'kind', but the distributions have \['cell_type'\]"):
        typed(annotation="kind").fit(D)
    holes = gm.Distributions(POINTS, OWNER, annotations={"cell_type": np.where(TYPES == "b", None, TYPES)})
    with pytest.raises(ValueError, match="is missing for some points"):
        typed().fit(holes)


def blobs(seed=0):
    """Distributions that mix four far blobs in known shares."""
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.ones(4), 6)
    counts = np.array([random.multinomial(50, share) for share in shares])
    blob = np.concatenate([np.repeat(np.arange(4), row) for row in counts])
    points = 20.0 * np.eye(4)[blob] + random.normal(size=(300, 4))
    return gm.Distributions(points, np.repeat(range(6), 50), annotations={"blob": blob}), counts


def test_clusters_find_far_blobs_and_then_agree_with_the_annotation():
    D, counts = blobs()
    found = Composition(4, random_state=0).fit(D)
    known = Composition(annotation="blob").fit(D)
    assert_allclose(known.proportions(D), (counts + 0.2 * counts.sum(axis=0) / 300) / 50.2)
    assert_allclose(np.sort(found.proportions(D), axis=1), np.sort(known.proportions(D), axis=1))
    assert_allclose(found.distances(D), known.distances(D), atol=1e-9)


def test_between_points_it_is_the_cost_between_their_clusters():
    D, _ = blobs()
    blob = D.annotations["blob"]
    for method in (Composition(4, random_state=0).fit(D), Composition(annotation="blob").fit(D)):
        distances = method.point_distances(D.points[:60], D.points)
        same = blob[:60, None] == blob
        assert np.all(distances[same] == 0.0)
        assert np.all(distances[~same] > 0.1)


def test_weights_count():
    D, _ = blobs()
    masses = np.random.default_rng(0).integers(1, 4, 300)
    owner = np.repeat(range(6), 50)
    weighted = gm.Distributions(D.points, owner, weights=masses, annotations=D.annotations)
    shares = Composition(annotation="blob", pseudo_count=0.0).fit(weighted).proportions(weighted)
    for d in range(6):
        expected = np.bincount(D.annotations["blob"][owner == d], masses[owner == d], minlength=4)
        assert_allclose(shares[d], expected / expected.sum())


def test_more_clusters_than_distinct_points():
    few = gm.Distributions([[0.0], [0.0], [1.0]], [0, 1, 2])
    method = Composition(20, cost="euclidean", random_state=0).fit(few)
    assert method.types_.size == 2
    distances = method.distances(few)
    assert distances[0, 1] == pytest.approx(0.0, abs=1e-12)
    assert distances[0, 2] > 0.5


def test_sparse_points_of_many_features():
    random = np.random.default_rng(0)
    points = sparse.random(200, 500, 0.05, format="csr", random_state=random)
    D = gm.Distributions(points, np.repeat(range(8), 25))
    method = Composition(5, max_points=100, random_state=0).fit(D)
    assert method.medians_.shape == (5, 30)
    assert_allclose(method.proportions(D).sum(axis=1), 1.0)


def test_a_weighted_median_has_half_of_the_mass_on_either_side():
    values = np.array([[3.0], [1.0], [2.0], [10.0]])
    assert _weighted_median(values, np.ones(4)) == [2.5]
    assert _weighted_median(values, np.array([1.0, 1.0, 1.0, 4.0])) == [10.0]
    assert _weighted_median(values, np.array([1.0, 1.0, 5.0, 1.0])) == [2.0]
    assert _weighted_median(values[:1], np.ones(1)) == [3.0]
