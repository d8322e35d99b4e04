"""Targets: regressions against scikit-learn, class weights, scores by hand, and subsets without other labels."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression, Ridge

from groundmetric.ensemble import Classes, Numbers, Survival
from groundmetric.ensemble.geometry import centre_within
from groundmetric.ensemble.stacking import fit_logistic
from groundmetric.learning.survival import SurvivalTimes

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 4))
WITH_INTERCEPT = np.column_stack([X, np.ones(40)])
VALUES = X @ [1.0, -0.5, 0.2, 0.0] + 0.3 * RANDOM.normal(size=40)


def codes_of(n_classes):
    return np.searchsorted(np.quantile(VALUES, np.arange(1, n_classes) / n_classes), VALUES)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("strength", [0.1, 3.0, 100.0])
def test_logistic_regression_equals_that_of_scikit_learn(n_classes, strength):
    """Compare differently weighted problems, fitted at once, with one fit each."""
    codes = codes_of(n_classes)
    weights = np.array([Classes(codes, n_classes).weights(), RANDOM.uniform(0.2, 3.0, size=40)])
    fitted = fit_logistic(WITH_INTERCEPT, codes, weights, np.full(2, strength), n_classes)
    # The reference has the small ridge on the intercept as well: that of a column of ones, 1e-3, is the ridge
    # 1 / strength on a column of sqrt(1000 / strength).
    constant = np.sqrt(1000.0 / strength)
    scaled = np.column_stack([X, np.full(40, constant)])
    # Of two classes, scikit-learn penalises the difference, which is twice the coefficient of either class.
    inverse_penalty = 2.0 * strength if n_classes == 2 else strength
    reference = LogisticRegression(
        C=inverse_penalty, fit_intercept=False, solver="newton-cholesky", tol=1e-10, max_iter=1000
    )
    for coefficients, sample_weight in zip(fitted, weights, strict=True):
        reference.fit(scaled, codes, sample_weight=sample_weight)
        probabilities = Classes(codes, n_classes).predict(coefficients[None], WITH_INTERCEPT)[0]
        assert_allclose(probabilities, reference.predict_proba(scaled), atol=1e-4)
        expected = reference.coef_ * [1.0, 1.0, 1.0, 1.0, constant]
        expected = np.vstack([-expected, expected]) / 2.0 if n_classes == 2 else expected
        assert_allclose(coefficients, expected, atol=1e-4 * max(1.0, np.abs(expected).max()))


def test_a_problem_fitted_alone_or_among_others_is_the_same():
    codes, weights = codes_of(3), RANDOM.uniform(0.2, 3.0, size=(5, 40))
    strengths = np.array([0.03, 1.0, 30.0, 300.0, 3000.0])
    batch = fit_logistic(WITH_INTERCEPT, codes, weights, strengths, 3)
    for k in range(5):
        alone = fit_logistic(WITH_INTERCEPT, codes, weights[[k]], strengths[[k]], 3)
        assert_allclose(batch[k], alone[0], rtol=1e-9, atol=1e-12)


def test_logistic_coefficients_of_the_classes_sum_to_zero():
    fitted = fit_logistic(WITH_INTERCEPT, codes_of(4), np.ones((1, 40)), np.array([10.0]), 4)
    assert_allclose(fitted.sum(axis=1), 0.0, atol=1e-12)


def test_separable_classes_have_finite_coefficients():
    codes = (X[:, 0] > 0).astype(int)
    fitted = fit_logistic(100.0 * WITH_INTERCEPT, codes, np.ones((1, 40)), np.array([3000.0]), 2)
    assert np.isfinite(fitted).all()


@pytest.mark.parametrize("strength", [0.1, 2.5, 1000.0])
def test_ridge_regression_equals_that_of_scikit_learn(strength):
    in_fold = np.arange(40) % 3 > 0
    fitted = Numbers(VALUES).fit(WITH_INTERCEPT, np.array([in_fold]), np.array([strength]))
    reference = Ridge(alpha=1.0 / strength).fit(X[in_fold], VALUES[in_fold])
    assert_allclose(fitted[0], [*reference.coef_, reference.intercept_], atol=1e-9)


def test_slopes_within_strata_equal_those_of_centred_data():
    strata = np.arange(40) % 2
    shifted = VALUES + 100.0 * strata
    fitted = Numbers(shifted, strata).fit(WITH_INTERCEPT, np.ones((1, 40), dtype=bool), np.array([2.0]))
    centred = centre_within(X, strata)
    reference = Ridge(alpha=0.5, fit_intercept=False).fit(centred, centre_within(shifted, strata))
    assert_allclose(fitted[0, :-1], reference.coef_, atol=1e-9)
    assert_allclose(Numbers(shifted).predict(fitted, WITH_INTERCEPT).mean(), shifted.mean())


def test_class_weights_are_balanced():
    codes = np.array([0] * 6 + [1] * 2 + [2])
    weights = Classes(codes, 3).weights()
    assert_allclose(np.bincount(codes, weights), 3.0)
    in_fold = np.arange(9) > 3
    weights = Classes(codes, 3).weights(in_fold)
    assert_array_equal(weights[~in_fold], 0.0)
    assert_allclose(np.bincount(codes, weights), 5.0 / 3.0)


def test_class_weights_are_balanced_within_strata():
    codes, strata = np.repeat([0, 1], 8), np.repeat([0, 1, 0, 1], [6, 2, 2, 6])
    weights = Classes(codes, 2, strata).weights()
    assert_allclose(np.bincount(2 * strata + codes, weights), 4.0)


def test_a_class_that_a_stratum_lacks_is_balanced_by_the_others():
    codes, strata = np.array([0, 0, 1, 1, 1, 0]), np.array([0, 0, 0, 1, 1, 1])
    assert_allclose(np.bincount(codes, Classes(codes, 2, strata).weights()), 3.0)


def test_score_of_classes_by_hand():
    predicted = np.array([[0.8, 0.2], [0.5, 0.5], [0.4, 0.6]])
    expected = np.mean([np.mean(np.log([0.8, 0.5])), np.log(0.6)])
    assert_allclose(Classes(np.array([0, 0, 1]), 2).score(predicted), expected)
    assert_allclose(Classes(np.array([0, 0, 1]), 2).score(np.full((3, 2), 0.5)), np.log(0.5))


def test_a_wrong_certain_prediction_has_a_bounded_score():
    assert_allclose(Classes(np.array([0, 1]), 2).score(np.array([[1.0, 0.0], [1.0, 0.0]])), 0.5 * np.log(1e-3))


def test_score_of_numbers_by_hand():
    target = Numbers(np.array([0.0, 2.0]))
    assert_allclose(target.score(np.array([0.5, 1.5])), -np.log(0.5))
    assert_allclose(target.score(np.array([1.0, 1.0])), 0.0, atol=1e-9)


def test_chance_uses_the_other_folds():
    assert_array_equal(Numbers(np.array([1.0, 3.0, 10.0])).chance(np.array([0, 0, 1])), [10.0, 10.0, 2.0])
    assert_array_equal(Classes(np.array([0, 1, 2]), 3).chance(np.arange(3)), np.full((3, 3), 1.0 / 3.0))


@pytest.mark.parametrize("factor", [1e300, 1e-300, -1e300, 1e-320])
def test_numbers_of_any_size_are_decoded_exactly(factor):
    labels = VALUES * factor
    target = Numbers.of(labels)
    assert 1.0 <= np.abs(target.values).max() < 2.0
    assert_array_equal(target.decode(target.values), labels)
    assert_array_equal(target.encode(labels), target.values)


def test_a_subset_knows_no_other_label():
    """Compare subsets of targets that differ outside: every bit is the same, whatever the size of the others."""
    rows = np.arange(0, 40, 2)
    changed = VALUES.copy()
    changed[1::2] = 1e6
    first, second = Numbers.of(VALUES).subset(rows), Numbers.of(changed).subset(rows)
    assert_array_equal(first.values, second.values)
    assert first.unit == second.unit
    times = SurvivalTimes(np.exp(VALUES), np.arange(40) % 3 > 0)
    moved = SurvivalTimes(np.where(np.arange(40) % 2, 7.0, times.time), times.event | (np.arange(40) % 2 > 0))
    assert_array_equal(Survival.of_times(times).subset(rows).values, Survival.of_times(moved).subset(rows).values)


def test_without_labels_keeps_units():
    assert_allclose(Numbers.of(VALUES * 1e300).without_labels().decode(np.ones(1)), Numbers.of(VALUES * 1e300).unit)
    times = Survival.of_times(SurvivalTimes(np.exp(VALUES), np.ones(40, dtype=bool)))
    for target in (Classes(codes_of(3), 3), Numbers.of(VALUES), times):
        assert len(target.without_labels()) == 0
        assert type(target.without_labels()) is type(target)


def test_training_needs_two_groups_of_each_class():
    target, everyone = Classes(np.array([0, 0, 1, 1]), 2), np.ones(4, dtype=bool)
    assert target.can_train(everyone, np.arange(4))
    assert not target.can_train(everyone, np.array([0, 0, 1, 2]))
    assert not target.can_train(np.array([True, True, True, False]), np.arange(4))


def test_whether_members_can_be_trained_does_not_depend_on_the_strata_of_labels():
    codes, everyone = np.array([0, 0, 1, 1]), np.ones(4, dtype=bool)
    assert Classes(codes, 2, codes).can_train(everyone, np.arange(4))
    assert not Classes(codes, 2).can_train(np.array([True, False, True, True]), np.arange(4))
    values = np.arange(4.0)
    assert Numbers(values, np.arange(4)).can_train(everyone, np.arange(4))
    assert not Numbers(np.zeros(4)).can_train(everyone, np.arange(4))
