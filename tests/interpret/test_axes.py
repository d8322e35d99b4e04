"""Axes: the same metric, in an order and with signs that do not depend on how it was written down."""

import numpy as np
import pytest
from scipy.stats import ortho_group

import groundmetric as gm
from groundmetric.interpret import canonical_axes
from groundmetric.interpret.axes import ellipse_axes


def test_rotation_changes_no_distance_and_makes_axes_uncorrelated(case):
    axes = canonical_axes(case.learner, case.D, case.y)
    expected = gm.pairwise_distances(case.D[:4], metric=case.learner.metric_)
    np.testing.assert_allclose(gm.pairwise_distances(case.D[:4], metric=axes.metric), expected, rtol=1e-9)
    z = axes.metric.project(case.D)
    weights = case.D.weights / len(case.D)
    centred = z - weights @ z
    covariance = (centred * weights[:, None]).T @ centred
    spread = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(covariance / np.outer(spread, spread), np.eye(len(spread)), atol=1e-8)
    np.testing.assert_allclose(axes.variance, spread**2 / np.sum(spread**2))


def test_costs_of_axes_sum_to_the_mean_distances_and_of_kinds_to_those_within_kinds(case):
    axes = canonical_axes(case.learner, case.D, case.y)
    distances = gm.pairwise_distances(case.D, metric=case.learner.metric_)
    second = case.y[:, None] != case.y
    np.testing.assert_allclose(axes.between.sum(), distances[second].mean(), rtol=1e-9)
    original = ~second & ~np.eye(len(case.D), dtype=bool)
    np.testing.assert_allclose(axes.within.sum(), distances[original].mean(), rtol=1e-9)
    by_kind = canonical_axes(case.learner, case.D, case.y, annotation="cell_type")  # within kinds, nothing is nearer
    assert axes.between.sum() < by_kind.between.sum() < 1.5 * axes.between.sum()
    assert np.all(np.diff(axes.share) <= 0)
    np.testing.assert_allclose(axes.share.sum(), 1.0)


@pytest.mark.parametrize("seed", [0, 1])
def test_axes_do_not_depend_on_how_the_components_are_turned(modes, seed):
    D, y, metric = modes
    turned = gm.GroundMetric(ortho_group.rvs(2, random_state=seed) @ metric.components, metric.features)
    first, second = canonical_axes(metric, D, y), canonical_axes(turned, D, y)
    np.testing.assert_allclose(first.loadings, second.loadings, atol=1e-8)
    np.testing.assert_allclose(first.positions, second.positions, atol=1e-8)
    assert np.all(first.loadings[np.arange(2), np.abs(first.loadings).argmax(axis=1)] > 0)


def test_the_first_axis_is_the_signal_and_acts_in_the_mode_that_differs(modes):
    D, y, metric = modes
    axes = canonical_axes(metric, D, y, annotation="mode")
    assert axes.table()["leading features"][0].startswith("+signal")
    assert axes.values[int(axes.activity[:, 0].argmax())] == "centre"
    assert np.all(np.diff(axes.positions[:, 0]) > 0)  # class means rise along the signal
    table = axes.table()
    assert table["most active"][0] == "centre"
    assert table["between"][0] == pytest.approx(axes.share[0])


def test_what_cannot_be_read(modes):
    D, y, metric = modes
    with pytest.raises(TypeError, match="metric is str"):
        canonical_axes("euclidean", D, y)
    with pytest.raises(ValueError, match="no annotation 'type': it has \\['mode'\\]"):
        canonical_axes(metric, D, y, annotation="type")
    with pytest.raises(ValueError, match="no class has two distributions"):
        canonical_axes(metric, D[[0, 3]], [0, 1])
    with pytest.raises(TypeError):
        canonical_axes(metric.blend(gm.GroundMetric.euclidean(3)), D, y)
    kinds = np.full(D.points.shape[0], "a", dtype=object)
    kinds[:2] = None
    with pytest.raises(ValueError, match="missing for 2 points"):
        canonical_axes(metric, D, y, annotation=kinds)


def test_axes_of_ellipses_by_hand():
    assert ellipse_axes(np.diag([1.0, 4.0])) == (1.0, 0.5, 90.0)
