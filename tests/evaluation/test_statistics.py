"""Intervals and paired comparisons: formulas, simulations with a known answer, constant scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from groundmetric.ensemble.members import importance_interval
from groundmetric.evaluation.scores import (
    containing,
    corrected_t,
    holm,
    paired_t,
    r2_difference,
    r2_estimate,
    resample,
    wilson_ends,
)

SCORES = np.array([0.7, 0.8, 0.75, 0.9, 0.65])


def test_the_corrected_interval_is_nadeau_and_bengios():
    result = corrected_t(SCORES, 0.25)
    reach = stats.t.ppf(0.975, 4) * np.sqrt((1 / 5 + 0.25) * SCORES.var(ddof=1))
    assert_allclose([result.value, result.sd], [SCORES.mean(), SCORES.std(ddof=1)])
    assert_allclose([result.low, result.high], [SCORES.mean() - reach, SCORES.mean() + reach])


def test_without_overlap_it_is_students():
    result = corrected_t(SCORES, 0.0)
    expected = stats.t.interval(0.95, 4, loc=SCORES.mean(), scale=stats.sem(SCORES))
    assert_allclose([result.low, result.high], expected)


def test_the_paired_test_is_students_but_for_the_wider_error():
    second = np.array([0.6, 0.75, 0.7, 0.7, 0.7])
    assert_allclose(paired_t(SCORES, second, 0.0).p, stats.ttest_rel(SCORES, second).pvalue)
    difference = SCORES - second
    t = difference.mean() / np.sqrt((1 / 5 + 0.25) * difference.var(ddof=1))
    result = paired_t(SCORES, second, 0.25)
    assert_allclose(result.p, 2 * stats.t.sf(t, 4))
    assert_allclose(
        [result.value, result.low],
        [difference.mean(), difference.mean() - stats.t.ppf(0.975, 4) * difference.mean() / t],
    )
    turned = paired_t(second, SCORES, 0.25)
    assert_allclose(
        [turned.value, turned.low, turned.high, turned.p], [-result.value, -result.high, -result.low, result.p]
    )


def test_scores_that_are_not_defined_are_left_out():
    with_gaps = np.insert(SCORES, [1, 3], np.nan)
    assert corrected_t(with_gaps, 0.25) == corrected_t(SCORES, 0.25)
    assert paired_t(with_gaps, np.zeros(7), 0.25) == paired_t(SCORES, np.zeros(5), 0.25)


def test_what_has_no_spread_has_an_interval_of_no_width():
    result = corrected_t([0.9] * 10, 0.25)
    assert (result.value, result.sd, result.low, result.high) == (pytest.approx(0.9), 0.0, result.value, result.value)
    assert paired_t([0.9] * 10, [0.9] * 10, 0.25).p == 1.0
    assert paired_t([0.9] * 10, [0.7] * 10, 0.25).p == 0.0


@pytest.mark.parametrize("scores", [[], [np.nan], [0.5]])
def test_less_than_two_splits_tell_nothing_of_the_spread(scores):
    result = corrected_t(scores, 0.25)
    assert np.isnan([result.sd, result.low, result.high]).all()
    assert np.isnan(paired_t(scores, scores, 0.25).p)


def test_distributions_of_one_group_are_drawn_together():
    units, codes = np.repeat(np.arange(5), 4), np.tile([0, 1], 10)
    draws = resample(units, codes, n_draws=50)
    assert draws.shape == (50, 20)
    assert_array_equal(draws, np.repeat(draws[:, ::4], 4, axis=1))
    assert_array_equal(draws[:, ::4].sum(axis=1), 5)


def test_units_of_one_class_are_drawn_within_their_class():
    codes = np.repeat([0, 1], [3, 9])
    draws = resample(np.arange(12), codes, n_draws=50)
    assert_array_equal(draws[:, codes == 0].sum(axis=1), 3)
    assert_array_equal(draws[:, codes == 1].sum(axis=1), 9)


def test_a_single_unit_cannot_be_drawn_again():
    assert resample(np.zeros(2, int), np.array([0, 1])).shape == (0, 2)


def test_holm_against_the_definition():
    assert_allclose(holm([0.01, 0.02, 0.03, 0.5]), [0.04, 0.06, 0.06, 0.5])
    assert_allclose(holm([0.5, np.nan, 0.01]), [0.5, np.nan, 0.02])
    assert_array_equal(holm([0.9, 0.8]), [1.0, 1.0])
    assert holm([]).size == 0


@pytest.mark.parametrize(("right", "n"), [(12, 12), (0, 12), (8, 10), (1, 2), (499, 1000)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_wilson_is_that_of_scipy(right, n, confidence):
    ends = wilson_ends(right / n, n, stats.norm.ppf(0.5 + confidence / 2))
    expected = stats.binomtest(right, n).proportion_ci(confidence, method="wilson")
    assert_allclose(ends, expected, atol=1e-12)
    assert ends[0] <= right / n <= ends[1]


def test_r2_of_known_predictions():
    y = np.arange(8.0)
    assert r2_estimate(y, y[::-1], np.arange(8)).value == -3.0
    difference = r2_difference(y, y + 0.1, y[::-1], np.arange(8))
    assert difference.value == pytest.approx(4.0, abs=0.02)
    assert difference.p == pytest.approx(2.0**-7, rel=0.5)  # that of the sign test, or larger


def test_intervals_of_draws_are_widened_to_their_values():
    draws = np.random.default_rng(0).uniform(size=(50, 3))
    low, high = containing(np.array([-1.0, 0.5, 2.0]), draws)
    assert (low[0], high[2]) == (-1.0, 2.0)
    assert_allclose([low[1], high[1]], np.quantile(draws[:, 1], [0.025, 0.975]))
    assert np.isnan(containing(np.zeros(3), draws[:0])).all()


@given(
    hnp.arrays(float, 5, elements=st.floats(0, 1)), hnp.arrays(float, (7, 5), elements=st.floats(0, 1)),
    st.floats(0.01, 0.99),
)  # fmt: skip
def test_intervals_contain_their_importance_and_are_shares(importance, refits, confidence):
    low, high = importance_interval(importance, refits, confidence)
    assert np.all((low >= 0) & (low <= importance) & (importance <= high) & (high <= 1))
    percentiles = np.quantile(refits, [0.5 - confidence / 2, 0.5 + confidence / 2], axis=0, method="inverted_cdf")
    assert np.all(low <= percentiles[1] + 1e-12)
    assert np.all(high >= percentiles[0] - 1e-12)


def test_an_interval_is_as_wide_on_either_side_as_refits_vary_even_where_all_are_below():
    """Refits scatter weight over more features: those of a strong one may all be below its importance."""
    refits = np.array([[0.04], [0.09], [0.16]])
    low, high = importance_interval(np.array([0.36]), refits, 0.9999)
    np.testing.assert_allclose([low, high], [[0.04], [0.49]], atol=1e-3)  # weights 0.2 and 0.6 + (0.4 - 0.3)
