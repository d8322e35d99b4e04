"""Intervals and paired comparisons: the formula, simulations with a known answer, and what has no spread."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from groundmetric.evaluation import bootstrap, corrected_t, holm, paired_bootstrap, paired_t, resample, wilson
from groundmetric.evaluation.statistics import Difference, containing, n_units, sure_as

SCORES = np.array([0.7, 0.8, 0.75, 0.9, 0.65])


def test_the_corrected_interval_is_nadeau_and_bengios():
    found = corrected_t(SCORES, 0.25)
    reach = stats.t.ppf(0.975, 4) * np.sqrt((1 / 5 + 0.25) * SCORES.var(ddof=1))
    assert_allclose([found.value, found.sd], [SCORES.mean(), SCORES.std(ddof=1)])
    assert_allclose([found.low, found.high], [SCORES.mean() - reach, SCORES.mean() + reach])


def test_without_overlap_it_is_students():
    found = corrected_t(SCORES, 0.0, confidence=0.9)
    expected = stats.t.interval(0.9, 4, loc=SCORES.mean(), scale=stats.sem(SCORES))
    assert_allclose([found.low, found.high], expected)


def test_the_paired_test_is_students_but_for_the_wider_error():
    other = np.array([0.6, 0.75, 0.7, 0.7, 0.7])
    assert_allclose(paired_t(SCORES, other, 0.0).p, stats.ttest_rel(SCORES, other).pvalue)
    difference = SCORES - other
    t = difference.mean() / np.sqrt((1 / 5 + 0.25) * difference.var(ddof=1))
    found = paired_t(SCORES, other, 0.25)
    assert_allclose(found.p, 2 * stats.t.sf(t, 4))
    assert_allclose(
        [found.value, found.low], [difference.mean(), difference.mean() - stats.t.ppf(0.975, 4) * difference.mean() / t]
    )
    turned = paired_t(other, SCORES, 0.25)
    assert_allclose([turned.value, turned.low, turned.high, turned.p], [-found.value, -found.high, -found.low, found.p])


def test_scores_that_are_not_defined_are_left_out():
    with_gaps = np.insert(SCORES, [1, 3], np.nan)
    assert corrected_t(with_gaps, 0.25) == corrected_t(SCORES, 0.25)
    assert paired_t(with_gaps, np.zeros(7), 0.25) == paired_t(SCORES, np.zeros(5), 0.25)


def test_what_has_no_spread_has_an_interval_of_no_width():
    found = corrected_t([0.9] * 10, 0.25)
    assert (found.value, found.sd, found.low, found.high) == (pytest.approx(0.9), 0.0, found.value, found.value)
    assert paired_t([0.9] * 10, [0.9] * 10, 0.25).p == 1.0
    assert paired_t([0.9] * 10, [0.7] * 10, 0.25).p == 0.0


@pytest.mark.parametrize("scores", [[], [np.nan], [0.5]])
def test_less_than_two_splits_tell_nothing_of_the_spread(scores):
    found = corrected_t(scores, 0.25)
    assert np.isnan([found.sd, found.low, found.high]).all()
    assert np.isnan(paired_t(scores, scores, 0.25).p)


def accuracy(right):
    """How many are right, as a function of how often each counts."""
    return lambda weights: (weights * right).sum(axis=-1) / weights.sum(axis=-1)


def test_the_bootstrap_interval_is_near_the_binomial_one():
    right = np.arange(100) < 80
    draws = resample(np.arange(100), np.zeros(100, int), n_draws=4000)
    found = bootstrap(accuracy(right), draws)
    assert found.value == 0.8
    assert_allclose([found.low, found.high], 0.8 + np.array([-1, 1]) * 1.96 * np.sqrt(0.8 * 0.2 / 100), atol=0.012)


def test_distributions_of_one_group_are_drawn_together():
    units, codes = np.repeat(np.arange(5), 4), np.tile([0, 1], 10)
    draws = resample(units, codes, n_draws=50)
    assert draws.shape == (50, 20)
    assert_array_equal(draws, np.repeat(draws[:, ::4], 4, axis=1))
    assert_array_equal(draws[:, ::4].sum(axis=1), 5)
    right = units < 3  # whole groups are right or wrong: the interval is that of 5 units, not of 20
    wide, narrow = (bootstrap(accuracy(right), resample(u, codes)) for u in (units, np.arange(20)))
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_units_of_one_class_are_drawn_within_their_class():
    codes = np.repeat([0, 1], [3, 9])
    draws = resample(np.arange(12), codes, n_draws=50)
    assert_array_equal(draws[:, codes == 0].sum(axis=1), 3)
    assert_array_equal(draws[:, codes == 1].sum(axis=1), 9)


def test_a_single_unit_cannot_be_drawn_anew():
    found = bootstrap(accuracy(np.array([True, False])), resample(np.zeros(2, int), np.array([0, 1])))
    assert found.value == 0.5
    assert np.isnan([found.low, found.high]).all()
    both = paired_bootstrap(*[accuracy(np.ones(2))] * 2, resample(np.zeros(2, int), np.array([0, 1])))
    assert np.isnan(both.p)


def test_the_paired_bootstrap_sees_what_both_have_in_common():
    random = np.random.default_rng(0)
    hard = random.random(200) < 0.5
    one, other = ~hard | (random.random(200) < 0.3), ~hard
    draws = resample(np.arange(200), np.zeros(200, int))
    found = paired_bootstrap(accuracy(one), accuracy(other), draws)
    assert found.value == pytest.approx(one.mean() - other.mean())
    assert 0.0 < found.low < found.value < found.high
    assert found.p < 0.01
    unpaired = [bootstrap(accuracy(right), draws) for right in (one, other)]
    assert found.high - found.low < min(one.high - one.low for one in unpaired)
    assert paired_bootstrap(accuracy(one), accuracy(one), draws).p == 1.0


def test_bootstrap_p_values_are_not_too_small_where_methods_are_equal():
    random = np.random.default_rng(1)
    p = []
    for _ in range(200):
        one, other = random.random((2, 40)) < 0.7
        p.append(paired_bootstrap(accuracy(one), accuracy(other), resample(np.arange(40), np.zeros(40, int), 200)).p)
    assert np.mean(np.array(p) < 0.05) < 0.1


def test_holm_against_the_definition():
    assert_allclose(holm([0.01, 0.02, 0.03, 0.5]), [0.04, 0.06, 0.06, 0.5])
    assert_allclose(holm([0.5, np.nan, 0.01]), [0.5, np.nan, 0.02])
    assert_array_equal(holm([0.9, 0.8]), [1.0, 1.0])
    assert holm([]).size == 0


@pytest.mark.parametrize(("right", "n"), [(12, 12), (0, 12), (8, 10), (1, 2), (499, 1000)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_wilson_is_that_of_scipy(right, n, confidence):
    found = wilson(right / n, n, confidence=confidence)
    expected = stats.binomtest(right, n).proportion_ci(confidence, method="wilson")
    assert_allclose([found.low, found.high], expected, atol=1e-12)
    assert found.low <= found.value <= found.high
    assert np.isnan(wilson(0.5, 0).low)


def test_units_that_count_the_same_are_counted_and_one_that_counts_for_all_is_one():
    units = np.repeat(np.arange(4), 3)
    assert n_units(units, np.ones(12)) == pytest.approx(4.0)
    assert n_units(np.arange(12), np.ones(12)) == pytest.approx(12.0)
    assert n_units(units, (units == 2).astype(float)) == 1.0
    assert n_units(units, np.zeros(12)) == 0.0
    # Two and eighteen of a class, classes counting the same: little more is known than from the two.
    assert n_units(np.arange(20), np.repeat([1 / 2, 1 / 18], [2, 18])) == pytest.approx(4 / (1 / 2 + 1 / 18))


def test_a_difference_is_no_surer_than_its_units_allow():
    wide = Difference(0.2, 0.1, 0.3, 1e-6, "bootstrap")
    assert sure_as(wide, 5) == Difference(0.2, 0.1, 0.3, 2.0**-4, "bootstrap")
    assert sure_as(wide, 50) == wide
    flat = sure_as(Difference(1.0, 1.0, 1.0, 0.0, "corrected t"), 12)
    assert (flat.value, flat.high, flat.p) == (1.0, 1.0, 2.0**-11)
    assert flat.low == pytest.approx(wilson(1.0, 12).low)
    unknown = Difference(0.2, np.nan, np.nan, np.nan, "")
    assert sure_as(unknown, 5) is unknown


def test_intervals_of_draws_are_widened_to_their_values():
    draws = np.random.default_rng(0).uniform(size=(50, 3))
    low, high = containing(np.array([-1.0, 0.5, 2.0]), draws, 0.9)
    assert (low[0], high[2]) == (-1.0, 2.0)
    assert_allclose([low[1], high[1]], np.quantile(draws[:, 1], [0.05, 0.95]))
    assert np.isnan(containing(np.zeros(3), draws[:0])).all()
    skewed = bootstrap(lambda weights: np.where(np.all(weights == 1.0, axis=-1), 0.9, 0.1), np.full((9, 4), 2.0))
    assert (skewed.value, skewed.low, skewed.high) == (0.9, 0.1, 0.9)
