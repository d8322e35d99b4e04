"""TransportKNeighborsClassifier: votes of the nearest distributions, inside scikit-learn's searches."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline

from groundmetric import (
    Distributions,
    GroundMetric,
    GroundMetricLearner,
    TransportKNeighborsClassifier,
    kneighbors,
    pairwise_distances,
)
from groundmetric.datasets import make_modes

D, y = make_modes(1, 1000.0, points_per_mode=6, offsets=(1.5, 7.5, 13.5, 19.5, 25.5), random_state=0)
SIGNAL = GroundMetric([[1.0, 0.0]])


def classifier(**options):
    return TransportKNeighborsClassifier(**{"n_neighbors": 3, "metric": SIGNAL, **options})


def quick_learner(**options):
    return GroundMetricLearner(**{"max_epochs": 6, "random_state": 0, **options})


def on_a_line(*positions):
    """One Dirac distribution per place."""
    return Distributions(np.array(positions, dtype=float)[:, None], range(len(positions)))


def test_cross_validation_slices_distributions():
    supervision, euclidean = (
        cross_val_score(classifier(metric=metric), D, y, cv=5) for metric in (SIGNAL, "euclidean")
    )
    assert supervision.shape == (5,)
    assert supervision.mean() > 0.9 > 0.5 > euclidean.mean()


def test_cross_validated_predictions_go_with_their_distributions():
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    by_hand = np.empty_like(y)
    for train, test in folds.split(np.zeros(len(D)), y):
        by_hand[test] = classifier().fit(D[train], y[train]).predict(D[test])
    assert_array_equal(cross_val_predict(classifier(), D, y, cv=folds), by_hand)


def test_a_grid_search_tries_numbers_of_neighbours_and_metrics():
    grid = {"n_neighbors": [1, 3], "metric": ["euclidean", SIGNAL], "weights": ["uniform", "distance"]}
    search = GridSearchCV(classifier(), grid, cv=3).fit(D, y)
    assert isinstance(search.best_params_["metric"], GroundMetric)
    assert_array_equal(search.best_estimator_.metric_.components, SIGNAL.components)
    assert search.best_score_ > 0.9
    assert search.predict(D[[0, -1]]).tolist() == [0, 2]


def test_a_grid_search_reaches_into_a_learner_that_is_the_metric():
    search = GridSearchCV(classifier(metric=quick_learner()), {"metric__strength": [0.01, 0.1]}, cv=3)
    search.fit(D, y)
    assert set(search.best_params_) == {"metric__strength"}
    assert search.best_score_ > 0.8
    assert search.best_estimator_.metric_.importance()[0] > 0.5


def test_a_learner_as_metric_is_fitted_to_the_training_data_and_left_alone_itself():
    learner = quick_learner()
    fitted = classifier(metric=learner).fit(D, y)
    assert not hasattr(learner, "components_")
    assert_array_equal(fitted.metric_.components, quick_learner().fit(D, y).components_)


def test_it_works_as_the_last_step_of_a_pipeline():
    pipeline = Pipeline([("nearest", classifier())])
    assert cross_val_score(pipeline, D, y, cv=3).mean() > 0.9
    assert pipeline.set_params(nearest__n_neighbors=1).fit(D, y).score(D, y) == 1.0


def test_a_clone_has_the_same_parameters():
    original = classifier(metric=quick_learner(strength=0.3), weights="uniform")
    assert clone(original).get_params()["metric__strength"] == 0.3
    assert clone(original).weights == "uniform"


def test_the_default_is_five_neighbours_by_distance_in_the_euclidean_metric():
    default = TransportKNeighborsClassifier().get_params()
    assert (default["n_neighbors"], default["metric"], default["weights"]) == (5, "euclidean", "distance")


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_probabilities_sum_to_one_and_the_largest_is_predicted(weights):
    fitted = classifier(weights=weights, n_neighbors=5).fit(D[::2], y[::2])
    shares = fitted.predict_proba(D)
    assert shares.shape == (15, 3)
    assert_allclose(shares.sum(axis=1), 1.0)
    assert np.all(shares >= 0.0)
    assert_array_equal(fitted.predict(D), fitted.classes_[shares.argmax(axis=1)])


def test_votes_are_equal_or_one_over_the_distance():
    train, labels, query = on_a_line(1.0, -2.0, 4.0, 50.0), ["a", "b", "b", "a"], on_a_line(0.0)
    uniform = classifier(metric="euclidean", weights="uniform").fit(train, labels)
    distance = classifier(metric="euclidean", weights="distance").fit(train, labels)
    assert_allclose(uniform.predict_proba(query), [[1 / 3, 2 / 3]])
    assert_allclose(distance.predict_proba(query), [[1 / 1.75, 0.75 / 1.75]])
    assert (uniform.predict(query)[0], distance.predict(query)[0]) == ("b", "a")


def test_balanced_votes_count_less_where_their_class_is_common():
    train, labels, query = on_a_line(1.0, -2.0, 4.0, 50.0, 60.0), ["a", "b", "b", "b", "b"], on_a_line(0.0)
    plain, balanced = (
        classifier(metric="euclidean", weights="uniform", class_weight=kind).fit(train, labels)
        for kind in (None, "balanced")
    )
    assert_allclose(plain.predict_proba(query), [[1 / 3, 2 / 3]])
    assert_allclose(balanced.predict_proba(query), [[1 / 1.5, 0.5 / 1.5]])


def test_training_distributions_are_their_own_nearest_and_keep_their_label():
    mislabelled = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2])
    fitted = classifier(n_neighbors=5, weights="distance").fit(D, mislabelled)
    assert_array_equal(fitted.predict(D), mislabelled)
    assert_allclose(fitted.predict_proba(D).max(axis=1), 1.0, atol=1e-9)


def test_several_neighbours_at_distance_zero_share_the_vote():
    fitted = classifier(metric="euclidean").fit(on_a_line(0.0, 0.0, 0.0, 1.0), ["a", "b", "a", "b"])
    assert_allclose(fitted.predict_proba(on_a_line(0.0)), [[2 / 3, 1 / 3]])


@pytest.mark.parametrize("scale", [1e-150, 1e-9, 1e9, 1e150])
def test_votes_do_not_depend_on_the_scale(scale):
    fitted = classifier(metric="euclidean").fit(on_a_line(scale, -2 * scale, 4 * scale), ["a", "b", "b"])
    assert_allclose(fitted.predict_proba(on_a_line(0.0)), [[1 / 1.75, 0.75 / 1.75]])


def test_labels_may_be_strings_of_any_container():
    names = np.array(["größe", "b", "c"])[y]
    for labels in (names, names.tolist(), names.astype(object), pd.Series(names), pd.Categorical(names)):
        fitted = classifier().fit(D, labels)
        assert fitted.classes_.tolist() == ["b", "c", "größe"]
        assert_array_equal(fitted.predict(D), names)


def test_points_without_groups_are_classified_like_scikit_learn_does():
    random = np.random.default_rng(0)
    X, labels, query = random.normal(size=(40, 3)), random.integers(3, size=40), random.normal(size=(20, 3))
    ours = classifier(metric="euclidean").fit(X, labels)
    theirs = KNeighborsClassifier(3, weights="distance").fit(X, labels)
    assert_allclose(ours.predict_proba(query), theirs.predict_proba(query))


def test_its_neighbours_are_those_of_kneighbors():
    fitted = classifier().fit(D, y)
    for ours, theirs in zip(fitted.kneighbors(D[:4], 2), kneighbors(D[:4], D, 2, SIGNAL), strict=True):
        assert_array_equal(ours, theirs)
    distances, positions = fitted.kneighbors()
    assert np.all(positions != np.arange(15)[:, None])
    assert_array_equal(distances, np.sort(distances, axis=1))
    among = pairwise_distances(D, metric=SIGNAL)
    assert_allclose(distances, np.take_along_axis(among, positions, axis=1))


def test_threads_change_nothing():
    first, two = (classifier(n_jobs=jobs).fit(D[::2], y[::2]).predict_proba(D[1::2]) for jobs in (1, 2))
    assert_array_equal(first, two)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "kneighbors", "score"])
def test_before_fit_it_says_that_it_is_not_fitted(method):
    with pytest.raises(NotFittedError):
        getattr(classifier(), method)(D, *([y] if method == "score" else []))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neighbors": 16}, "n_neighbors is 16, but there are only 15 distributions"),
        ({"n_neighbors": 0}, "n_neighbors is 0"),
        ({"n_neighbors": 2.5}, r"n_neighbors is 2\.5"),
        ({"weights": "heavy"}, "weights is 'heavy'"),
        ({"class_weight": "fair"}, "class_weight is 'fair'"),
    ],
)
def test_impossible_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        classifier(**options).fit(D, y)


def test_labels_of_the_wrong_length_are_refused():
    with pytest.raises(ValueError, match=r"y has shape \(14,\), but a label is needed for each of 15"):
        classifier().fit(D, y[:-1])


def test_other_features_than_those_it_was_fitted_to_are_refused():
    fitted = classifier(metric="euclidean", n_points=None).fit(D, y)
    with pytest.raises(ValueError, match="3 features"):
        fitted.predict(Distributions(np.zeros((2, 3)), [0, 1]))
    with pytest.raises(ValueError, match="different feature names or orders"):
        fitted.predict(Distributions(np.zeros((2, 2)), [0, 1], features=["noise 1", "signal"]))


def test_the_names_of_a_data_frame_are_remembered():
    frame = pd.DataFrame(np.eye(2), columns=["a", "b"])
    fitted = classifier(metric="euclidean", n_neighbors=1).fit(frame, [0, 1])
    with pytest.raises(ValueError, match=r"name|order"):
        fitted.predict(frame[["b", "a"]])


@pytest.mark.parametrize("query", [D, Distributions(D.points, np.repeat(D.names, D.sizes))], ids=["named", "unnamed"])
def test_a_metric_for_other_features_is_refused(query):
    second = GroundMetric([[1.0, 0.0]], features=["signal", "something else"])
    with pytest.raises(ValueError, match="'noise 1', the metric has 'something else'"):
        classifier(metric=second).fit(D, y).predict(query)
