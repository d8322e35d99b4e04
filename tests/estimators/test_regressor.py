"""TransportKNeighborsRegressor: known answers, scikit-learn manners, and a learned metric that helps."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsRegressor

from groundmetric import Distributions, GroundMetricLearner, TransportKNeighborsRegressor

RANDOM = np.random.default_rng(0)
X, VALUES = RANDOM.normal(size=(40, 3)), RANDOM.normal(size=40)


def noisy(n=30, seed=0):
    """Distributions whose value moves one of ten features, which all vary more."""
    random = np.random.default_rng(seed)
    values = random.uniform(0, 10, n)
    points = random.normal(size=(n, 6, 10)) + 3.0 * random.normal(size=(n, 1, 10))
    points[:, :, 0] = values[:, None] + 0.3 * random.normal(size=(n, 6))
    return Distributions(points.reshape(-1, 10), np.repeat(np.arange(n), 6)), values


@pytest.mark.parametrize("weights", ["distance", "uniform"])
@pytest.mark.parametrize("y", [VALUES, np.column_stack([VALUES, -VALUES])])
def test_on_single_points_it_is_scikit_learns(weights, y):
    ours = TransportKNeighborsRegressor(4, weights=weights).fit(X[:30], y[:30])
    theirs = KNeighborsRegressor(4, weights=weights).fit(X[:30], y[:30])
    assert_allclose(ours.predict(X[30:]), theirs.predict(X[30:]))
    assert_allclose(ours.predict(X[:30]), theirs.predict(X[:30]))
    assert_allclose(ours.score(X[30:], y[30:]), theirs.score(X[30:], y[30:]))


def test_predictions_lie_within_the_neighbours_values():
    D, values = noisy()
    fitted = TransportKNeighborsRegressor(3).fit(D[:20], values[:20])
    positions = fitted.kneighbors(D[20:])[1]
    result = fitted.predict(D[20:])
    assert np.all(result >= values[positions].min(axis=1) - 1e-9)
    assert np.all(result <= values[positions].max(axis=1) + 1e-9)


def test_a_metric_learned_from_values_predicts_them_better():
    D, values = noisy()
    learner = GroundMetricLearner(target="ordered", max_epochs=10, random_state=0)
    euclid, learned = (
        cross_val_score(TransportKNeighborsRegressor(3, metric=metric), D, values, cv=3).mean()
        for metric in ("euclidean", learner)
    )
    assert learned > 0.6
    assert learned > euclid + 0.2


def test_a_learner_for_classes_says_what_to_do():
    D, values = noisy()
    with pytest.raises(ValueError, match="target='ordered'"):
        TransportKNeighborsRegressor(3, metric=GroundMetricLearner()).fit(D, values)


def test_a_clone_and_a_search_over_its_parameters():
    D, values = noisy(18)
    original = TransportKNeighborsRegressor(2, weights="uniform")
    assert clone(original).get_params() == original.get_params()
    search = GridSearchCV(original, {"n_neighbors": [1, 3]}, cv=3).fit(D, values)
    assert search.best_params_["n_neighbors"] in (1, 3)


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({}, VALUES[:5], "y has 5 labels, but X has 40 rows"),
        ({}, np.r_[np.nan, VALUES[1:]], "y contains a missing or infinite value"),
        ({}, ["high"] * 40, "y must be numbers"),
        ({"n_neighbors": 41}, VALUES, "n_neighbors is 41, but there are only 40"),
        ({"weights": "rank"}, VALUES, "weights is 'rank'"),
    ],
)
def test_bad_input_is_named(options, y, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        TransportKNeighborsRegressor(**options).fit(X, y)
