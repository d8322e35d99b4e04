"""Penalties with exact zeros: proximal maps, and steps whose resting points are those of loss plus penalty."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from groundmetric import Distributions, GroundMetricLearner
from groundmetric.learning.objective import Adam
from groundmetric.penalties import GroupLasso, Lasso

W = np.random.default_rng(0).normal(size=(3, 5))
PENALTIES = [Lasso(), GroupLasso()]
each_penalty = pytest.mark.parametrize("penalty", PENALTIES, ids=lambda penalty: type(penalty).__name__)


@each_penalty
@pytest.mark.parametrize("step", [0.1, 0.7, 3.0])
def test_the_proximal_map_minimises_what_it_says(penalty, step):
    best = penalty.proximal(W, step)

    def aim(V):
        return step * penalty.value(V) + 0.5 * np.sum((V - W) ** 2)

    random = np.random.default_rng(1)
    assert all(
        aim(best) <= aim(best + size * random.normal(size=W.shape)) for size in (1e-4, 0.01, 1.0) for _ in range(50)
    )
    assert aim(best) <= min(aim(W), aim(0.0 * W))


def test_proximal_maps_have_their_known_values():
    V = np.array([[3.0, -0.5], [-4.0, 0.0]])
    assert_array_equal(Lasso().proximal(V, 1.0), [[2.0, 0.0], [-3.0, 0.0]])
    assert_allclose(GroupLasso().proximal(V, 1.0), V * [[0.8, 0.0]])
    assert_array_equal(GroupLasso().proximal(np.zeros((2, 2)), 1.0), 0.0)
    assert_array_equal(Lasso().proximal(V, np.array([[9.0, 0.1], [0.0, 1.0]])), [[0.0, -0.4], [-4.0, 0.0]])


@each_penalty
def test_steps_rest_where_loss_plus_penalty_is_least(penalty):
    """The loss has very different slopes in its entries; a penalty in Adam's scale would end elsewhere."""
    slopes = np.array([1.0, 3.0, 10.0, 0.3, 30.0]) ** 2  # one for each feature, so that the optimum is known
    target, weight = np.array([[1.0, -0.5, 0.2, 0.1, 1e-3], [2.0, 0.3, -0.1, 0.0, -1e-3]]), 0.8
    expected = penalty.proximal(target, weight / slopes)
    adam, V = Adam(0.03), np.ones_like(target)
    for step in range(4000):
        adam.learning_rate = 0.03 * (1 - step / 4000)
        V = adam.proximal_step(V, slopes * (V - target), penalty, weight)
    assert_allclose(V, expected, atol=2e-3)
    assert_array_equal(V == 0.0, expected == 0.0)
    assert 0 < np.sum(V == 0.0) < V.size


def informative_among_noise(n_noise=20):
    random, labels = np.random.default_rng(0), np.arange(18) % 3
    groups = np.repeat(np.arange(18), 20)
    points = random.normal(size=(groups.size, 2 + n_noise)) + 0.3 * random.normal(size=(18, 2 + n_noise))[groups]
    points[:, :2] += 1.5 * labels[groups][:, None] * [1.0, -1.0]
    return Distributions(points, groups), labels


@pytest.mark.parametrize(
    "options",
    [{"penalty": "l1"}, {"penalty": "group"}, {"penalty": "l1", "form": "diagonal"}],
    ids=["l1", "group", "diagonal"],
)
def test_noise_features_get_exactly_no_weight(options):
    D, labels = informative_among_noise()
    learned = GroundMetricLearner(strength=0.8, max_epochs=20, random_state=0, **options).fit(D, labels)
    used = np.flatnonzero(learned.metric_.importance())
    assert 0 in used or 1 in used
    assert set(used) <= {0, 1}
    assert_array_equal(learned.components_[:, 2:], 0.0)


def test_without_a_proximal_map_weights_are_small_but_not_zero():
    D, labels = informative_among_noise()
    learned = GroundMetricLearner(strength=0.5, max_epochs=10, random_state=0).fit(D, labels)
    assert np.all(learned.components_ != 0.0)
