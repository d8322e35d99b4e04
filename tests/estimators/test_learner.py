"""GroundMetricLearner: a scikit-learn estimator on points, a ground metric learner on distributions."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from groundmetric import Distributions, GroundMetricLearner, TransportKNeighborsClassifier
from groundmetric._internal.validation import ParameterError
from groundmetric.datasets import make_modes, synth_2d, synth_200d

D, y = make_modes(6, 1.0, points_per_mode=5, offsets=(1.5, 10.5, 19.5), random_state=0)
ROWS = np.repeat(np.array(D.names), D.sizes)
ROW_LABELS = np.repeat(y, D.sizes)
# On hundreds of rows; sparse points are tested below on small cohorts.
SLOW = {"check_estimator_sparse_array", "check_estimator_sparse_matrix"}


def learner(**options):
    return GroundMetricLearner(**{"max_epochs": 4, "random_state": 0, **options})


@pytest.mark.filterwarnings("ignore:a penalty of strength", "ignore:.*max_epochs")  # a part of the labels is noise
@parametrize_with_checks([GroundMetricLearner(max_epochs=5)])
def test_scikit_learns_own_checks(estimator, check):
    if getattr(check, "func", check).__name__ not in SLOW:
        check(estimator)


def test_on_plain_points_it_finds_the_features_among_noise():
    X, labels = load_iris(return_X_y=True)
    random = np.random.default_rng(0)
    padded = np.hstack([X, random.normal(scale=X.std(axis=0).max() * 3, size=(len(X), 20))])
    nearest = KNeighborsClassifier(3)
    raw = cross_val_score(nearest, padded, labels, cv=3).mean()
    learned = cross_val_score(make_pipeline(GroundMetricLearner(random_state=0), nearest), padded, labels, cv=3).mean()
    assert learned > raw + 0.1
    assert learned > 0.85


def test_points_with_groups_equal_distributions():
    shuffle = np.random.default_rng(0).permutation(len(ROWS))
    X, samples, labels = D.points[shuffle], ROWS[shuffle], ROW_LABELS[shuffle]
    grouped = Distributions(X, samples)
    first = learner().fit(X, labels, samples=samples)
    second = learner().fit(grouped, [y[D.names.index(name)] for name in grouped.names])
    assert_array_equal(first.components_, second.components_)
    assert_array_equal(first.classes_, second.classes_)


def test_without_groups_every_row_is_a_distribution():
    X, labels = load_iris(return_X_y=True)
    first = learner().fit(X, labels)
    assert_array_equal(first.components_, learner().fit(X, labels, samples=np.arange(150)).components_)


@pytest.mark.parametrize(("n_features", "n_components", "rank"), [(7, None, 5), (3, None, 3), (7, 1, 1), (7, 7, 7)])
def test_the_number_of_components(n_features, n_components, rank):
    part = Distributions(D.points[:, :n_features], ROWS)
    learned = learner(n_components=n_components).fit(part, y)
    assert learned.components_.shape == (rank, n_features)
    assert learned.transform(part).shape == (len(ROWS), rank)
    assert learned.get_feature_names_out().tolist() == [f"groundmetriclearner{c}" for c in range(rank)]


def test_more_components_than_features_are_refused():
    with pytest.raises(ParameterError) as caught:
        learner(n_components=8).fit(D, y)
    assert (caught.value.parameter, caught.value.value) == ("n_components", 8)


def test_transform_is_the_metrics_projection_of_points_and_of_distributions():
    learned = learner().fit(D, y)
    assert_allclose(learned.transform(D), D.points @ learned.components_.T)
    unnamed = learner().fit(D.points, ROW_LABELS, samples=ROWS)
    assert_array_equal(unnamed.transform(D.points), unnamed.metric_.project(D.points))
    assert_array_equal(unnamed.transform(D.points), unnamed.fit_transform(D.points, ROW_LABELS, samples=ROWS))


def test_a_fitted_learner_knows_its_classes_and_features():
    learned = learner().fit(D, np.array(["u", "v", "w"])[y])
    assert learned.classes_.tolist() == ["u", "v", "w"]
    assert learned.n_features_in_ == 7
    assert learned.feature_names_in_.tolist() == learned.metric_.features == D.features
    assert_allclose(learned.metric_.variances, D.points.var(axis=0))


def test_a_data_frame_brings_its_names():
    frame = pd.DataFrame(D.points, columns=list("abcdefg"))
    learned = learner().fit(frame, pd.Series(ROW_LABELS), samples=pd.Series(ROWS))
    assert learned.metric_.features == list("abcdefg")
    assert learned.set_output(transform="pandas").transform(frame).shape == (len(ROWS), 5)
    with pytest.raises(ValueError, match="feature names should match"):
        learned.transform(frame[list("gfedcba")])


@pytest.mark.parametrize("n_features", [7, 4])
def test_a_second_fit_forgets_the_names_of_the_first(n_features):
    learned = learner().fit(D, y).fit(Distributions(D.points[:, :n_features], ROWS), y)
    assert learned.metric_.features is None
    assert not hasattr(learned, "feature_names_in_")


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


@pytest.mark.parametrize(
    "wrap",
    [read_only, np.asfortranarray, lambda X: np.repeat(X, 2, axis=1)[:, ::2], lambda X: X[::-1][::-1]],
    ids=["read-only", "fortran", "strided", "reversed"],
)
def test_the_layout_of_the_array_does_not_matter(wrap):
    first, second = (learner().fit(X, ROW_LABELS, samples=ROWS) for X in (D.points, wrap(D.points)))
    assert_allclose(second.components_, first.components_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool, np.float32])
def test_the_type_of_the_numbers_does_not_matter(dtype):
    X = (D.points - D.points.min()).astype(dtype)
    first, second = (learner().fit(points, ROW_LABELS, samples=ROWS) for points in (X, X.astype(np.float64)))
    assert_allclose(first.components_, second.components_, rtol=1e-5, atol=1e-7)
    assert_array_equal(X, (D.points - D.points.min()).astype(dtype))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("neighbors", ["random", "nearest"])
def test_sparse_points_teach_what_dense_ones_teach(form, neighbors):
    X = np.where(np.abs(D.points) > 5.0, D.points, 0.0)
    dense = learner(neighbors=neighbors).fit(X, ROW_LABELS, samples=ROWS)
    thin = learner(neighbors=neighbors).fit(sparse.csr_matrix(X).asformat(form), ROW_LABELS, samples=ROWS)
    assert_allclose(thin.components_, dense.components_, rtol=1e-6, atol=1e-9)
    assert_allclose(thin.transform(sparse.csr_matrix(X)), dense.transform(X), rtol=1e-6, atol=1e-6)


def test_points_without_mass_teach_nothing():
    weights = np.tile([1.0, 0.0, 3.0], len(ROWS) // 3)
    stored = weights > 0
    with_idle = learner().fit(Distributions(D.points, ROWS, weights=weights), y)
    without = learner().fit(Distributions(D.points[stored], ROWS[stored], weights=weights[stored]), y)
    assert_array_equal(with_idle.components_, without.components_)


@pytest.mark.parametrize("wrap", [np.asarray, sparse.csr_matrix])
def test_a_constant_feature_counts_for_nothing(wrap):
    random, groups = np.random.default_rng(0), np.repeat(np.arange(20), 1500)
    points = np.c_[random.normal(size=(30_000, 2)), np.full(30_000, 0.1)]
    learned = learner(n_components=1, init="random", max_epochs=1).fit(Distributions(wrap(points), groups), [0, 1] * 10)
    assert learned.metric_.importance()[2] == 0.0
    assert np.abs(learned.components_).max() < 10.0


def test_a_clone_has_the_parameters_and_learns_the_same():
    original = learner(strength=0.3, penalty="l1")
    assert clone(original).get_params() == original.get_params()
    assert_array_equal(clone(original).fit(D, y).components_, original.fit(D, y).components_)


def test_fitting_leaves_parameters_and_data_alone():
    init, points = np.random.default_rng(0).normal(size=(2, 7)), D.points.copy()
    learned = learner(n_components=2, init=init)
    before = init.copy()
    learned.fit(D, y)
    assert learned.init is init
    assert_array_equal(init, before)
    assert_array_equal(D.points, points)


@pytest.mark.parametrize("make", [synth_2d, synth_200d])
def test_with_defaults_it_solves_the_papers_synthetic_data(make):
    X, labels = make(random_state=0)
    order = np.random.RandomState(0).permutation(30)
    train, test = order[:15], order[15:]
    learned = GroundMetricLearner(random_state=0).fit(X[train], labels[train])
    classifier = TransportKNeighborsClassifier(metric=learned.metric_).fit(X[train], labels[train])
    assert classifier.score(X[test], labels[test]) >= 0.97
    assert learned.metric_.importance()[0] > 0.9


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_a_feature_whose_variance_is_out_of_range_is_named(form):
    points = np.random.default_rng(0).normal(size=(16, 3)) * [1.0, 1e200, 1.0]
    wild = Distributions(form(points), np.repeat(np.arange(4), 4), features=["low", "high", "mid"])
    with pytest.raises(ValueError, match="variance of feature 'high' is out of the range"):
        learner().fit(wild, [0, 0, 1, 1])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_a_feature_too_small_to_be_squared_is_refused_and_a_small_one_is_not(kind):
    """Of the size 10⁻¹⁷⁰ it would be taken for a constant; of 10⁻¹⁶⁰ it counts as it does in other units."""
    plain = learner().fit(D, y).metric_.importance()
    owners = np.repeat(D.names, D.sizes)
    small = learner().fit(Distributions(kind(D.points * 1e-160), owners), y).metric_.importance()
    assert_allclose(small, plain, atol=0.01)
    scale = np.ones(D.shape[1])
    scale[1] = 1e-170
    with pytest.raises(ValueError, match="variance of feature 1 is out of the range of numbers: multiply"):
        learner().fit(Distributions(kind(D.points * scale), owners), y)
