"""What all baselines have in common: one interface, training data only, any kind of points."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import groundmetric as gm
from groundmetric import baselines

from .examples import ALL, BASELINES, LEARNED, SUPERVISED, WITH_METRIC, cohort, quick

D, y = cohort()


@pytest.mark.parametrize("name", ALL)
def test_distances_among_distributions_and_points(name):
    method = quick(name)
    assert method.fit(D, y) is method
    for distances, size in ((method.distances(D), len(D)), (method.point_distances(D.points), len(D.points))):
        assert distances.shape == (size, size)
        assert np.all(distances >= 0.0)
        assert_allclose(distances, distances.T, atol=1e-12)
        assert_allclose(np.diag(distances), 0.0, atol=1e-7)
    assert method.n_features_in_ == 4


@pytest.mark.parametrize("name", ALL)
def test_unseen_distributions_are_compared_one_by_one_with_what_training_left(name):
    train, test = [0, 1, 2, 3, 4, 5], [6, 7, 8]
    method = quick(name).fit(D[train], y[train])
    between = method.distances(D[test], D[train])
    alone = [method.distances(D[[d]], D[train])[0] for d in test]
    assert_allclose(between, alone)
    assert_allclose(method.distances(D[train], D[test]).T, between, atol=1e-12)
    assert_allclose(method.point_distances(D.points[:5], D.points), method.point_distances(D.points)[:5], atol=1e-7)


@pytest.mark.parametrize("name", ALL)
def test_points_may_be_sparse(name):
    sparse_D = gm.Distributions(sparse.csr_matrix(D.points), np.repeat(D.names, D.sizes))
    dense, same = quick(name).fit(D, y), quick(name).fit(sparse_D, y)
    assert_allclose(same.distances(sparse_D), dense.distances(D), rtol=1e-6, atol=1e-6)
    close = same.point_distances(sparse_D.points[:9]), dense.point_distances(D.points[:9])
    assert_allclose(*close, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_points_may_be_float32(name):
    single = gm.Distributions(D.points.astype(np.float32), np.repeat(D.names, D.sizes))
    double = gm.Distributions(single.points.astype(np.float64), np.repeat(D.names, D.sizes))
    assert single.points.dtype == np.float32
    distances = [quick(name).fit(X, y).distances(X) for X in (single, double)]
    assert_allclose(*distances, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_the_same_seed_gives_the_same_bits_and_threads_change_nothing(name):
    first, second = (quick(name).fit(D, y) for _ in range(2))
    assert_array_equal(first.distances(D), second.distances(D, n_jobs=2))


@pytest.mark.parametrize("name", ALL)
def test_init_only_assigns_and_fit_leaves_the_parameters_alone(name):
    method = quick(name)
    params = method.get_params()
    assert clone(method).get_params() == params
    method.fit(D, y)
    assert method.get_params() == params


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("ask", ["distances", "point_distances"])
def test_before_fit_it_says_that_it_is_not_fitted(name, ask):
    with pytest.raises(NotFittedError):
        getattr(quick(name), ask)(D if ask == "distances" else D.points)


@pytest.mark.parametrize("name", ALL)
def test_one_point_per_distribution(name):
    single, labels = cohort(12, 1)
    method = quick(name).fit(single, labels)
    assert np.isfinite(method.distances(single)).all()


@pytest.mark.parametrize("name", ALL)
def test_a_class_of_one_distribution_with_one_point(name):
    rare = gm.Distributions(np.vstack([D.points, [[9.0, 9.0, 9.0, 9.0]]]), [*np.repeat(D.names, D.sizes), "rare"])
    method = quick(name).fit(rare, [*y, 3])
    assert np.isfinite(method.distances(rare)).all()
    assert np.isfinite(method.point_distances(rare.points[-3:])).all()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_constant_features_add_nothing(name, kind):
    points = np.insert(D.points, [1, 3], 0.1, axis=1)
    constant = gm.Distributions(kind(points), np.repeat(D.names, D.sizes))
    distances = quick(name).fit(constant, y).distances(constant)
    assert np.isfinite(distances).all()
    if name not in ("cosine", "itml", "composition"):  # angles and the random draws of pairs do change
        assert_allclose(distances, quick(name).fit(D, y).distances(D), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_a_single_feature(name):
    narrow, labels = cohort(n_features=1)
    assert np.isfinite(quick(name).fit(narrow, labels).distances(narrow)).all()


@pytest.mark.parametrize("name", ALL)
def test_all_points_may_coincide(name):
    same = gm.Distributions(np.ones((8, 3)), np.repeat(range(4), 2))
    assert_allclose(quick(name).fit(same, [0, 0, 1, 1]).distances(same), 0.0, atol=1e-7)


@pytest.mark.parametrize("name", ALL)
def test_points_of_no_mass_do_not_matter(name):
    masses = np.r_[np.ones(len(D.points)), np.zeros(3)]
    points = np.vstack([D.points, np.full((3, 4), 1e6)])
    more = gm.Distributions(points, [*np.repeat(D.names, D.sizes), 0, 1, 2], weights=masses)
    with_them, without = quick(name).fit(more, y), quick(name).fit(D, y)
    assert_allclose(with_them.distances(more), without.distances(D), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SUPERVISED)
def test_labels_are_needed_for_learning(name):
    with pytest.raises(ValueError, match="one class"):
        quick(name).fit(D, np.zeros(len(D)))
    with pytest.raises(ValueError, match="y is None"):
        quick(name).fit(D, None)


@pytest.mark.parametrize("name", sorted(set(ALL) - set(SUPERVISED)))
def test_labels_are_not_used_where_nothing_is_learned_from_them(name):
    assert_array_equal(quick(name).fit(D).distances(D), quick(name).fit(D, y[::-1]).distances(D))


@pytest.mark.parametrize("name", ALL)
def test_labels_of_the_wrong_length_are_refused(name):
    with pytest.raises(ValueError, match=r"y has shape \(8,\), but a label is needed for each of 9"):
        quick(name).fit(D, y[:-1])


@pytest.mark.parametrize("name", [*LEARNED, "lda"])
def test_classes_of_single_points_are_refused(name):
    single, _ = cohort(3, 1)
    with pytest.raises(ValueError, match="each of the 3 classes has a single point"):
        quick(name).fit(single, ["a", "b", "c"])


@pytest.mark.parametrize("name", ALL)
def test_other_features_than_those_of_training_are_refused(name):
    named, _ = cohort(features=["a", "b", "c", "d"])
    method = quick(name).fit(named, y)
    wider = gm.Distributions(np.zeros((2, 5)), [0, 1])
    with pytest.raises(ValueError, match="5 features"):
        method.distances(wider)
    turned, _ = cohort(features=["a", "c", "b", "d"])
    with pytest.raises(ValueError, match="'c'"):
        method.distances(turned)
    with pytest.raises(ValueError, match="5 features"):
        method.point_distances(wider.points)


@pytest.mark.parametrize("name", WITH_METRIC)
def test_the_metric_serves_a_classifier_by_nearest_distributions(name):
    classifier = gm.TransportKNeighborsClassifier(1, metric=quick(name))
    assert classifier.fit(D[:6], y[:6]).predict(D[6:]).shape == (3,)


def test_strings_may_be_labels():
    names = np.array(["well", "ill", "cured"])[y]
    learned = [quick("lda").fit(D, labels).distances(D) for labels in (names, names.tolist(), y)]
    assert_allclose(learned[0], learned[1])
    assert_allclose(learned[0], learned[2], rtol=1e-6)
    assert quick("lda").fit(D, names).classes_.tolist() == ["cured", "ill", "well"]


def test_all_public_classes_are_tested():
    assert {kind.__name__ for kind in BASELINES.values()} == set(baselines.__all__)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("nca", {"max_iter": 0}),
        ("nca", {"n_components": 5}),
        ("lda", {"shrinkage": 2.0}),
        ("lda", {"max_features": 0}),
        ("pca", {"n_components": 0}),
        ("pseudobulk", {"statistics": "median"}),
        ("logistic", {"C": -1.0}),
        ("composition", {"n_clusters": 0}),
        ("composition", {"cost": "taxi"}),
    ],
)
def test_impossible_parameters_are_named(name, params):
    with pytest.raises(
        ValueError, match=next(iter(params.values())) if "taxi" in params.values() else next(iter(params))
    ):
        quick(name, **params).fit(D, y)
