"""Penalties: exact zeros by proximal maps and steps, penalties that outweigh the labels, and that on strata.

Steps come to rest where loss plus penalty is least. A penalty that outweighs the labels leaves nothing, which is said
rather than shown as a metric. The penalty on what strata explain is a share, and does not punish the labels.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

import groundmetric as gm
from groundmetric.learning import Lasso
from groundmetric.learning.labels import ClassTarget, OrderedTarget, Supervision
from groundmetric.learning.objective import Adam, StrataVariance, has_vanished, resolve_penalty

W = np.random.default_rng(0).normal(size=(3, 5))
PENALTIES = [Lasso(), resolve_penalty("group")]
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
    assert_allclose(resolve_penalty("group").proximal(V, 1.0), V * [[0.8, 0.0]])
    assert_array_equal(resolve_penalty("group").proximal(np.zeros((2, 2)), 1.0), 0.0)
    assert_array_equal(Lasso().proximal(V, np.array([[9.0, 0.1], [0.0, 1.0]])), [[0.0, -0.4], [-4.0, 0.0]])


@each_penalty
def test_steps_rest_where_loss_plus_penalty_is_least(penalty):
    """The loss has very different slopes in its entries; a penalty in Adam's scale would end elsewhere."""
    slopes = np.array([1.0, 3.0, 10.0, 0.3, 30.0]) ** 2  # one for each feature: the optimum has a closed form
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
    return gm.Distributions(points, groups), labels


@pytest.mark.parametrize(
    "options",
    [{"penalty": "l1"}, {"penalty": "group"}, {"penalty": "l1", "form": "diagonal"}],
    ids=["l1", "group", "diagonal"],
)
def test_noise_features_get_exactly_no_weight(options):
    D, labels = informative_among_noise()
    learned = gm.GroundMetricLearner(strength=0.8, max_epochs=20, random_state=0, **options).fit(D, labels)
    used = np.flatnonzero(learned.metric_.importance())
    assert 0 in used or 1 in used
    assert set(used) <= {0, 1}
    assert_array_equal(learned.components_[:, 2:], 0.0)


def test_without_a_proximal_map_weights_are_small_but_not_zero():
    D, labels = informative_among_noise()
    learned = gm.GroundMetricLearner(strength=0.5, max_epochs=10, random_state=0).fit(D, labels)
    assert np.all(learned.components_ != 0.0)


MODES = gm.datasets.make_modes(points_per_mode=8, offsets=3.0 * np.arange(4), random_state=0)


@pytest.mark.parametrize("margin", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("penalty", ["l2", "l2_squared", "nuclear", "group"])
def test_learning_stops_and_says_so(margin, penalty):
    learner = gm.GroundMetricLearner(strength=1e4, margin=margin, penalty=penalty, max_epochs=200, random_state=0)
    with pytest.warns(ConvergenceWarning, match="lower `strength`"):
        learner.fit(*MODES)
    assert learner.n_iter_ < 200
    assert learner.converged_


@pytest.mark.parametrize("margin", [0.1, 1.0, 100.0, 1000.0])
def test_a_metric_that_has_learned_something_has_not_vanished(margin):
    learner = gm.GroundMetricLearner(strength=0.01, margin=margin, max_epochs=10, random_state=0).fit(*MODES)
    assert not has_vanished(learner.history_, margin, 0.01)


def test_without_a_penalty_nothing_vanishes():
    history = {"loss": [1.0], "active": [1.0], "penalty": [0.0]}
    assert not has_vanished(history, 1.0, 0.0)
    assert not has_vanished({"loss": [], "active": [], "penalty": []}, 1.0, 1.0)


RANDOM = np.random.default_rng(0)
N, FEATURES = 20, 5
LABELS, STRATA = np.arange(N) % 2, RANDOM.permutation(np.arange(N) % 3)
MEANS = RANDOM.normal(size=(N, FEATURES))
CLASSES = (ClassTarget(LABELS),)
SEVERAL = (ClassTarget(LABELS), OrderedTarget.of(np.where(LABELS, np.nan, np.arange(N, dtype=float))))


def nuisance(means=MEANS, targets=CLASSES, strata=STRATA):
    return StrataVariance(means, Supervision(targets, np.ones(len(targets)), strata))


@pytest.mark.parametrize("targets", [(ClassTarget(LABELS),), (OrderedTarget.of(np.arange(N, dtype=float)),), SEVERAL])
@pytest.mark.parametrize("k", [1, 3])
def test_the_gradient_is_that_of_finite_differences(targets, k):
    W, share, step = RANDOM.normal(size=(k, FEATURES)), nuisance(targets=targets), 1e-6
    expected = np.zeros_like(W)
    for position in np.ndindex(W.shape):
        nudge = np.zeros_like(W)
        nudge[position] = step
        expected[position] = (share.value(W + nudge) - share.value(W - nudge)) / (2 * step)
    assert_allclose(share.gradient(W), expected, rtol=1e-5, atol=1e-8)


def test_it_is_a_share_that_scaling_does_not_change():
    W, share = RANDOM.normal(size=(2, FEATURES)), nuisance()
    assert 0.0 < share.value(W) < 1.0
    assert_allclose(share.value(1000.0 * W), share.value(W))
    assert_allclose(np.sum(share.gradient(W) * W), 0.0, atol=1e-12)


def test_directions_in_which_only_strata_differ_or_only_labels_do():
    means = np.column_stack([LABELS, STRATA == 0]).astype(float)
    strata = np.repeat([0, 1], N // 2)  # balanced against the labels
    means[:, 1] = strata
    share = nuisance(means, strata=strata)
    assert_allclose(share.value(np.array([[1.0, 0.0]])), 0.0, atol=1e-12)
    assert_allclose(share.value(np.array([[0.0, 1.0]])), 1.0)


def test_what_strata_and_labels_share_is_not_held_against_the_labels():
    share = nuisance(strata=LABELS)
    assert_allclose(share.value(RANDOM.normal(size=(2, FEATURES))), 0.0, atol=1e-12)


def test_no_metric_has_no_share():
    share, nothing = nuisance(), np.zeros((2, FEATURES))
    assert share.value(nothing) == 0.0
    assert np.all(share.gradient(nothing) == 0.0)
