"""Prediction sets and intervals: coverage, too few patients, unfamiliar distributions, files."""

import numpy as np
import pytest

import groundmetric as gm
from groundmetric._internal.validation import ParameterError
from groundmetric.ensemble.fit import Calibration

SMALL = {"n_members": 4, "kinds": ("anova",)}


def cohort(random, y, effect, n_features=10, n_points=8):
    means = random.normal(size=(len(y), n_features))
    means[:, :3] += effect * np.asarray(y)[:, None]
    points = np.repeat(means, n_points, axis=0) + random.normal(size=(len(y) * n_points, n_features))
    return gm.Distributions(points, np.repeat([f"s{i:03d}" for i in range(len(y))], n_points))


def test_p_values_of_exchangeable_scores_are_uniform():
    random = np.random.default_rng(0)
    p_values = []
    for _ in range(400):
        scores = random.random(20)
        p_values.append(Calibration.of(scores[:19], np.zeros(19, int), None, None).p_values(scores[19:], 0, 0.9, None))
    for level in (0.1, 0.25, 0.5):
        assert np.mean(np.array(p_values) <= level + 1e-12) == pytest.approx(level, abs=0.06)


def test_patients_count_once():
    scores, codes = np.array([0.9, 0.9, 0.9, 0.1]), np.zeros(4, int)
    calibration = Calibration.of(scores, codes, ["a", "a", "a", "b"], None)
    assert calibration.p_values(np.array([0.5]), 0, 0.5, None)[0] == pytest.approx(2 / 3)


def test_strata_calibrate_their_own_distributions():
    scores = np.r_[np.full(10, 0.1), np.full(10, 0.8)]
    strata = ["x"] * 10 + ["y"] * 10
    calibration = Calibration.of(scores, np.zeros(20, int), None, strata)
    p_values = calibration.p_values(np.full(3, 0.5), 0, 0.9, ["x", "y", "new"])
    assert p_values == pytest.approx([1 / 11, 1.0, 11 / 21])


def test_sets_cover_the_true_class_of_unbalanced_classes():
    covered = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        y, new = np.repeat([0, 1], [10, 20]), np.tile([0, 1], 20)
        D = cohort(random, np.r_[y, new], 0.8)
        model = gm.TransportClassifier(gm.GroundMetricEnsemble(**SMALL), random_state=seed).fit(D[:30], y)
        result = model.predict_set(D[30:], coverage=0.8)
        covered.append([result.contains[new == c, c].mean() for c in (0, 1)])
    # 6 x 20 new patients of each class, which share their training sets: the limit allows for 2.5 standard errors.
    assert np.all(np.mean(covered, axis=0) >= 0.8 - 0.1)


def test_too_few_patients_give_all_classes_and_say_so():
    D = cohort(np.random.default_rng(0), [0] * 5 + [1] * 12, 3.0)
    model = gm.TransportClassifier(gm.GroundMetricEnsemble(**SMALL), random_state=0).fit(D, [0] * 5 + [1] * 12)
    result = model.predict_set(D[:2], coverage=0.9)
    assert result.contains.all()
    assert set(result.labels) == {"cannot say"}
    assert "0 (5)" in result.reasons[0]
    assert not model.predict_set(D[:2], coverage=0.8).reasons[0]


def test_unfamiliar_distributions_give_all_classes():
    y = [0] * 10 + [1] * 10
    D = cohort(np.random.default_rng(0), y, 3.0)
    model = gm.TransportClassifier(gm.GroundMetricEnsemble(**SMALL), random_state=0).fit(D, y)
    distant = D[:1].with_points(D[:1].points + 100.0)
    result = model.predict_set(distant)
    assert result.contains.all()
    assert "unlike" in result.reasons[0]


def test_file_keeps_the_calibration(tmp_path):
    y = [0] * 10 + [1] * 10
    D = cohort(np.random.default_rng(0), y, 2.0)
    model = gm.TransportClassifier(gm.GroundMetricEnsemble(**SMALL), random_state=0).fit(D, y, strata=["x", "y"] * 10)
    model.save(tmp_path / "model")
    loaded = gm.TransportClassifier.load(tmp_path / "model")
    for strata in (None, ["x"] * 20):
        expected, restored = (m.predict_set(D, strata=strata) for m in (model, loaded))
        assert np.array_equal(expected.p_values, restored.p_values)
        assert expected.sets == restored.sets


def test_intervals_of_numbers():
    coverages = []
    for seed in range(6):
        y = np.random.default_rng(seed).normal(size=60)
        D = cohort(np.random.default_rng([seed, 1]), y, 1.0)
        model = gm.TransportRegressor(gm.GroundMetricEnsemble(**SMALL), random_state=seed).fit(D[:20], y[:20])
        result = model.predict_interval(D[20:], coverage=0.8)
        coverages.append(np.mean((result.low <= y[20:]) & (y[20:] <= result.high)))
    assert np.mean(coverages) >= 0.8 - 0.1
    short = model.predict_interval(D[20:22], coverage=0.99)
    assert np.all(np.isinf(short.high))
    assert "too few" in short.reasons[0]


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1.0, float("nan")])
def test_coverage_is_a_probability(coverage):
    calibration = Calibration.of(np.ones(3), np.zeros(3, int), None, None)
    with pytest.raises(ParameterError) as error:
        calibration.intervals(np.zeros(1), np.zeros(1, bool), ["a"], coverage)
    assert error.value.parameter == "coverage"
