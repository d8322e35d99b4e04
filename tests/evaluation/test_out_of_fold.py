"""Out-of-fold distances: a method never measures a distribution it was fitted on."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import groundmetric as gm
from groundmetric.evaluation import folds, leave_one_out, out_of_fold_distances, shuffled

LABEL, BATCH = np.repeat(["ill", "well"], 10), np.tile(["a", "b"], 10)


class Memory(BaseEstimator):
    """Memorises the labels of its training set."""

    def fit(self, D, y):
        self.known_ = dict(zip(D.names, y, strict=True))
        return self

    def distances(self, A, B=None):
        codes = [[self.known_.get(name, name) for name in D.names] for D in (A, A if B is None else B)]
        return np.array([[float(a != b) for b in codes[1]] for a in codes[0]])


def test_a_metric_that_learns_by_heart_is_found_out_out_of_fold():
    D = gm.Distributions(np.zeros((20, 1)), [f"s{at}" for at in range(20)])
    in_bag = Memory().fit(D, LABEL).distances(D)
    held_out = out_of_fold_distances(Memory(), D, LABEL)
    same = LABEL[:, None] == LABEL
    assert in_bag[same].max() < in_bag[~same].min()
    assert held_out[same & ~np.eye(20, dtype=bool)].max() >= held_out[~same].min()


def test_out_of_fold_rows_are_those_of_the_metric_that_was_fitted_without_them():
    D, y = gm.datasets.make_modes(points_per_mode=4, random_state=0)
    learner = gm.GroundMetricLearner(max_epochs=2, random_state=0)
    cv = folds(y, n_splits=3, random_state=0)
    result = out_of_fold_distances(learner, D, y, cv=cv)
    train, test = cv[0]
    expected = learner.fit(D[train], y[train]).distances(D[test], D)
    np.testing.assert_allclose(result[test], expected / expected[:, train].mean(), atol=1e-9)
    assert (np.diag(result) == 0).all()


def test_out_of_fold_needs_every_distribution_tested_once():
    D, y = gm.datasets.make_modes(points_per_mode=4, random_state=0)
    euclid = gm.baselines.Euclidean()
    assert out_of_fold_distances(euclid, D, y, cv=leave_one_out(y)).shape == (30, 30)
    with pytest.raises(ValueError, match="times: each must be tested once"):
        out_of_fold_distances(euclid, D, y, cv=shuffled(y, n_splits=2, random_state=0))
    with pytest.raises(ValueError, match="2 times"):
        out_of_fold_distances(euclid, D, y, cv=folds(y, n_repeats=2, random_state=0))
    with pytest.raises(ValueError, match="expected an estimator with fit and distances"):
        out_of_fold_distances("euclidean", D, y)
