"""A penalty that outweighs the labels leaves nothing, and that is said rather than shown as a metric."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import groundmetric as gm
from groundmetric.learning.penalties import has_vanished

D, y = gm.datasets.make_modes(points_per_mode=8, offsets=3.0 * np.arange(4), random_state=0)


@pytest.mark.parametrize("margin", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("penalty", ["l2", "l2_squared", "nuclear", "group"])
def test_learning_stops_and_says_so(margin, penalty):
    learner = gm.GroundMetricLearner(strength=1e4, margin=margin, penalty=penalty, max_epochs=200, random_state=0)
    with pytest.warns(ConvergenceWarning, match="lower `strength`"):
        learner.fit(D, y)
    assert learner.n_iter_ < 200
    assert learner.converged_


@pytest.mark.parametrize("margin", [0.1, 1.0, 100.0, 1000.0])
def test_a_metric_that_has_learned_something_has_not_vanished(margin):
    learner = gm.GroundMetricLearner(strength=0.01, margin=margin, max_epochs=10, random_state=0).fit(D, y)
    assert not has_vanished(learner.history_, margin, 0.01)


def test_without_a_penalty_nothing_vanishes():
    history = {"loss": [1.0], "active": [1.0], "penalty": [0.0]}
    assert not has_vanished(history, 1.0, 0.0)
    assert not has_vanished({"loss": [], "active": [], "penalty": []}, 1.0, 1.0)
