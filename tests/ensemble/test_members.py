"""Members: known weights, no label of a left-out fold, and features chosen as stated."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from groundmetric import pairwise_distances
from groundmetric.ensemble import KINDS, Classes, Geometry, Numbers
from groundmetric.ensemble.members import DIAGONAL, _anova_weights, separation, strongest_features, train_members
from groundmetric.estimators.learner import refine_weights

from ..estimators.cohorts import PLANTED, cohort

D, y = cohort(16, points=8)
GEOMETRY = Geometry(D, 0, 100)
FOLDS = np.arange(16) // 2
LEFT_OUT = (0, 1, 2)
REFINE = partial(refine_weights, max_epochs=3)


def trained(target, geometry=GEOMETRY, left_out=LEFT_OUT):
    return train_members(geometry, target, FOLDS, KINDS, [left_out], REFINE)


@pytest.mark.parametrize("target", [Classes(y, 2), Numbers(y + 0.01 * np.arange(16.0))], ids=["classes", "numbers"])
def test_every_kind_finds_the_planted_feature(target):
    for member in trained(target):
        if member.kind in DIAGONAL:
            assert member.columns[np.argmax(member.weights)] == PLANTED
        assert np.argmax(member.metric(GEOMETRY).importance()) == PLANTED


def test_members_keep_what_they_were_trained_on():
    members = trained(Classes(y, 2))
    assert [member.kind for member in members] == list(KINDS)
    for member in members:
        assert member.left_out == LEFT_OUT
        assert_array_equal(member.trained_on, ~np.isin(FOLDS, LEFT_OUT))
        if member.kind in DIAGONAL:
            assert np.all(member.weights > 0)
            assert np.all(np.diff(member.columns) > 0)
        assert_allclose(member.squares(GEOMETRY.scaling).sum(), 1.0)


def test_left_out_labels_change_no_bit():
    out = np.isin(FOLDS, LEFT_OUT)
    values = np.random.default_rng(0).normal(size=16)
    changes = [
        (Classes(y, 2), Classes(np.where(out, 1 - y, y), 2)),
        (Numbers.of(values), Numbers.of(np.where(out, 1e9, values))),
    ]
    for first, second in changes:
        for a, b in zip(trained(first), trained(second), strict=True):
            assert_array_equal(a.columns, b.columns)
            assert_array_equal(a.weights, b.weights)


@pytest.mark.parametrize("n_features", [6, 60], ids=["features", "principal components"])
def test_projected_points_have_the_distances_of_the_metric(n_features):
    cells, codes = cohort(16, points=8, n_features=n_features)
    geometry = Geometry(cells, 0, 100)
    assert (geometry.scaling.axes is None) == (n_features == 6)
    for member in trained(Classes(codes, 2), geometry):
        projected = pairwise_distances(member.project(geometry.description, np.arange(16)))
        assert_allclose(projected, pairwise_distances(cells, metric=member.metric(geometry)), rtol=1e-9, atol=1e-12)


def test_the_metric_of_a_member_has_its_weights_in_units_of_the_input():
    member = trained(Classes(y, 2))[0]
    points = (D.points - GEOMETRY.scaling.centre) / GEOMETRY.scaling.scale
    weighted = np.zeros_like(points)
    weighted[:, member.columns] = points[:, member.columns] * member.weights
    assert_allclose(pairwise_distances(D, metric=member.metric(GEOMETRY)), pairwise_distances(D.with_points(weighted)))


def test_separation_is_a_moderated_t_statistic_by_hand():
    marginals, codes = GEOMETRY.marginals, y[:6]
    target = Classes(codes, 2)
    gains = np.empty((6, 10))
    for i in range(6):
        distances = {int(p): v for p, v in zip(marginals.partners[i], marginals.values[i], strict=True) if p < 6}
        like = [v for p, v in distances.items() if codes[p] == codes[i]]
        unlike = [v for p, v in distances.items() if codes[p] != codes[i]]
        gains[i] = np.mean(unlike, axis=0) - np.mean(like, axis=0)
    error = gains.std(axis=0, ddof=1) / np.sqrt(6)
    expected = gains.mean(axis=0) / (error + np.median(error))
    assert_allclose(separation(marginals, target, np.arange(6), 16), expected, rtol=1e-4)


def test_separation_has_no_sign_of_the_labels():
    rows = np.arange(16)
    first = separation(GEOMETRY.marginals, Classes(y, 2), rows, 16)
    assert_allclose(separation(GEOMETRY.marginals, Classes(1 - y, 2), rows, 16), first)
    values = np.random.default_rng(0).normal(size=16)
    first = separation(GEOMETRY.marginals, Numbers(values), rows, 16)
    assert_allclose(separation(GEOMETRY.marginals, Numbers(3.0 - 2.0 * values), rows, 16), first, rtol=1e-5)


def test_variance_ratios_are_moderated():
    """Of 1,000 features in six distributions, some hardly vary within the classes by chance."""
    y, n_selected = np.repeat([0, 1], 3), 0
    for seed in range(20):
        quantiles = np.random.default_rng(seed).normal(size=(6, 1, 1000))
        quantiles[y == 1, :, :10] += 4.0
        n_selected += np.sum(np.argsort(-_anova_weights(quantiles, Classes(y, 2)))[:10] < 10)
    assert n_selected / 20 > 6.5  # of 10; 4.5 if moderated by a twentieth of the median


def test_strongest_features_are_at_least_three_and_at_most_fifty():
    statistics = np.random.default_rng(0).normal(size=500)
    weights = strongest_features(statistics)
    selected = np.flatnonzero(weights)
    assert_array_equal(np.sort(selected), np.sort(np.argsort(-statistics)[:50]))
    assert_array_equal(weights[selected], statistics[selected])
    assert_array_equal(strongest_features(np.array([5.0, -1.0, -2.0, -3.0])), [1.0, 1.0, 1.0, 0.0])
    assert_array_equal(strongest_features(np.array([-1.0, -2.0])), [1.0, 1.0])


def test_constant_features_get_no_weight_beside_informative_ones():
    points = D.points.copy()
    points[:, [0, 5]] = 4.0, 0.0
    geometry = Geometry(D.with_points(points), 0, 100)
    for member in trained(Classes(y, 2), geometry):
        assert_array_equal(member.metric(geometry).importance()[[0, 5]], 0.0)


def test_a_constant_shift_of_a_stratum_changes_no_weight():
    strata = np.arange(16) // 2 % 2
    shifted = D.with_points(D.points + 8.0 * np.repeat(strata, 8)[:, None])
    target = Classes(y, 2, strata)
    first = trained(target, Geometry(D, 0, 100, strata))
    second = trained(target, Geometry(shifted, 0, 100, strata))
    for a, b in zip(first[:2], second[:2], strict=True):
        assert a.columns[np.argmax(a.weights)] == b.columns[np.argmax(b.weights)] == PLANTED
