"""Influence of single patients: planted outliers, groups, order of the input."""

import numpy as np

import groundmetric as gm

ENSEMBLE = gm.GroundMetricEnsemble(4, kinds=["univariate", "anova"], random_state=0)


def cohort(random, y, effect, n_features=30, n_points=15):
    means = random.normal(size=(len(y), n_features))
    means[:, :4] += effect * np.asarray(y)[:, None]
    points = np.repeat(means, n_points, axis=0) + random.normal(size=(len(y) * n_points, n_features))
    return gm.Distributions(points, np.repeat([f"s{i:02d}" for i in range(len(y))], n_points))


def test_mislabelled_patient_is_first():
    y = np.repeat([0, 1], 8)
    D = cohort(np.random.default_rng(0), y, 3.0)
    wrong = y.copy()
    wrong[2] = 1
    result = gm.interpret.influence(ENSEMBLE, D, wrong)
    assert result.table()["patient"].iloc[0] == "s02"
    assert result.scores[2] == result.scores.max()
    assert result.scores[2] > result.score + 0.05


def test_outlier_patient_is_first():
    y = np.repeat([0, 1], 8)
    D = cohort(np.random.default_rng(1), y, 0.0)
    points = D.points.copy()
    points[D.bounds[5] : D.bounds[6], :10] += 8.0
    result = gm.interpret.influence(ENSEMBLE, D.with_points(points), y)
    assert result.table()["patient"].iloc[0] == "s05"


def test_conclusion_changes_where_the_p_value_crosses_the_level():
    y = np.repeat([0, 1], 8)
    D = cohort(np.random.default_rng(2), y, 1.0)
    result = gm.interpret.influence(ENSEMBLE, D, y)
    changed = (result.p_values <= 0.05) != (result.p <= 0.05)
    assert np.array_equal(result.changes, changed)
    assert 0 < changed.sum() < 16


def test_groups_are_left_out_as_a_whole_and_order_does_not_matter():
    y, patients = np.repeat([0, 1], 10), np.array([f"p{i // 2}" for i in range(20)])
    D = cohort(np.random.default_rng(3), y, 1.0)
    result = gm.interpret.influence(ENSEMBLE, D, y, groups=patients)
    assert result.names == sorted(set(patients))
    order = np.random.default_rng(0).permutation(20)
    shuffled = gm.interpret.influence(ENSEMBLE, D[order], y[order], groups=patients[order])
    assert shuffled.names == result.names
    np.testing.assert_allclose(shuffled.scores, result.scores, atol=1e-9)
    np.testing.assert_allclose(shuffled.map_share, result.map_share, atol=1e-9)
    np.testing.assert_allclose(result.map_share.sum(), 1.0)


def test_in_large_cohorts_the_most_unusual_patients_are_left_out():
    y = np.repeat([0, 1], 9)
    D = cohort(np.random.default_rng(0), y, 3.0)
    wrong, points = y.copy(), D.points.copy()
    wrong[2] = 1
    points[D.bounds[12] : D.bounds[13], :10] += 8.0
    result = gm.interpret.influence(ENSEMBLE, D.with_points(points), wrong, max_patients=6)
    assert len(result.names) == 6
    assert result.n_patients == 18
    assert {"s02", "s12"} <= set(result.names)
    assert result.map_share.sum() < 1.0
