"""The penalty on what strata explain: a share, its gradient, and what it does not punish."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from groundmetric.learning.penalties import StrataVariance
from groundmetric.supervision import ClassTarget, OrderedTarget, Supervision

RANDOM = np.random.default_rng(0)
N, FEATURES = 20, 5
LABELS, STRATA = np.arange(N) % 2, RANDOM.permutation(np.arange(N) % 3)
MEANS = RANDOM.normal(size=(N, FEATURES))
CLASSES = (ClassTarget(LABELS),)
SEVERAL = (ClassTarget(LABELS), OrderedTarget.of(np.where(LABELS, np.nan, np.arange(N, dtype=float))))


def penalty(means=MEANS, targets=CLASSES, strata=STRATA):
    return StrataVariance(means, Supervision(targets, np.ones(len(targets)), strata))


@pytest.mark.parametrize("targets", [(ClassTarget(LABELS),), (OrderedTarget.of(np.arange(N, dtype=float)),), SEVERAL])
@pytest.mark.parametrize("k", [1, 3])
def test_the_gradient_is_that_of_finite_differences(targets, k):
    W, share, step = RANDOM.normal(size=(k, FEATURES)), penalty(targets=targets), 1e-6
    expected = np.zeros_like(W)
    for place in np.ndindex(W.shape):
        nudge = np.zeros_like(W)
        nudge[place] = step
        expected[place] = (share.value(W + nudge) - share.value(W - nudge)) / (2 * step)
    assert_allclose(share.gradient(W), expected, rtol=1e-5, atol=1e-8)


def test_it_is_a_share_that_scaling_does_not_change():
    W, share = RANDOM.normal(size=(2, FEATURES)), penalty()
    assert 0.0 < share.value(W) < 1.0
    assert_allclose(share.value(1000.0 * W), share.value(W))
    assert_allclose(np.sum(share.gradient(W) * W), 0.0, atol=1e-12)


def test_directions_in_which_only_strata_differ_or_only_labels_do():
    means = np.column_stack([LABELS, STRATA == 0]).astype(float)
    strata = np.repeat([0, 1], N // 2)  # balanced against the labels
    means[:, 1] = strata
    share = penalty(means, strata=strata)
    assert_allclose(share.value(np.array([[1.0, 0.0]])), 0.0, atol=1e-12)
    assert_allclose(share.value(np.array([[0.0, 1.0]])), 1.0)


def test_what_strata_and_labels_share_is_not_held_against_the_labels():
    share = penalty(strata=LABELS)
    assert_allclose(share.value(RANDOM.normal(size=(2, FEATURES))), 0.0, atol=1e-12)


def test_no_metric_has_no_share():
    share, nothing = penalty(), np.zeros((2, FEATURES))
    assert share.value(nothing) == 0.0
    assert np.all(share.gradient(nothing) == 0.0)
