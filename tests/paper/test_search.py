"""Grid search of the paper's parameters inside training distributions."""

import numpy as np

import groundmetric as gm
from paper.search import GridSearch


def test_ties_go_to_the_setting_of_the_learner_and_the_metric_is_learned_from_all():
    D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    learner = gm.GroundMetricLearner(max_epochs=10, random_state=0)
    search = GridSearch(learner, [0.1, 1.0], [1.0, 0.1], n_neighbors=3, random_state=0).fit(D, y)
    assert search.best_params_ == {"margin": 1.0, "strength": 0.1}
    np.testing.assert_array_equal(search.metric_.components, learner.fit(D, y).components_)


def test_strengths_that_outweigh_the_labels_are_not_chosen():
    D, y = gm.datasets.make_modes(points_per_mode=10, random_state=0)
    learner = gm.GroundMetricLearner(strength=1000.0, max_epochs=10, random_state=0)
    search = GridSearch(learner, [1.0], [1000.0, 0.1], n_neighbors=3, random_state=0).fit(D, y)
    assert search.best_params_["strength"] == 0.1
    assert search.distances(D).shape == (len(D), len(D))
