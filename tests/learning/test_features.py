"""Transport of one feature at a time: known answers in one dimension, and which features are found."""

import numpy as np
import ot
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.feature_selection import f_classif

from groundmetric import Distributions
from groundmetric.learning import features
from groundmetric.learning.features import (
    FeatureDistances,
    design,
    feature_ratios,
    importance_interval,
    quantile_functions,
    within_strata,
)

N_FEATURES, PLANTED = 12, 7
ONES = np.ones(N_FEATURES)
CODES = np.repeat([0, 1], 8)


def cohort(seed=0, shift=1.5, n_points=15):
    """Two classes of eight distributions that differ in the mean of one feature."""
    random = np.random.default_rng(seed)
    points = random.normal(size=(16, n_points, N_FEATURES)) + 0.3 * random.normal(size=(16, 1, N_FEATURES))
    points[CODES == 1, :, PLANTED] += shift
    return Distributions(points.reshape(-1, N_FEATURES), np.repeat(np.arange(16), n_points))


def statistics(D, codes=CODES, inside=None, **options):
    distances = FeatureDistances(quantile_functions(D, np.ones(D.shape[1])), np.random.RandomState(0), **options)
    return distances.statistics(codes, np.ones(len(codes), bool) if inside is None else inside)


def test_the_mean_difference_of_quantiles_is_the_transport_distance_in_one_dimension():
    random = np.random.default_rng(0)
    a, b = random.normal(size=1000), random.gamma(2.0, size=1500)
    D = Distributions(np.concatenate([a, b])[:, None], np.repeat([0, 1], [1000, 1500]))
    first, second = quantile_functions(D, np.ones(1), 200)[:, :, 0].astype(np.float64)
    assert_allclose(np.abs(first - second).mean(), ot.wasserstein_1d(a, b), rtol=0.01)


def test_as_many_quantiles_as_points_are_the_sorted_points():
    points = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    found = quantile_functions(Distributions(points, np.zeros(30)), np.ones(3), 30)
    assert_array_equal(found[0], np.sort(points, axis=0))


def test_a_weight_of_two_is_a_point_given_twice():
    random = np.random.default_rng(0)
    points, counts = random.normal(size=(40, 3)), random.integers(1, 4, size=40)
    weighted = quantile_functions(Distributions(points, np.zeros(40), weights=counts), np.ones(3), 10)[0]
    repeated = np.repeat(points, counts, axis=0)
    levels = (np.arange(10) + 0.5) / 10
    assert_allclose(weighted, np.quantile(repeated, levels, axis=0, method="inverted_cdf"), rtol=1e-6)


def test_points_without_mass_have_no_part_in_quantiles():
    D = Distributions([[1.0], [2.0], [99.0]], ["a"] * 3, weights=[1.0, 1.0, 0.0])
    assert quantile_functions(D, np.ones(1), 2).ravel().tolist() == [1.0, 2.0]


def test_sparse_points_have_the_quantiles_of_dense_ones():
    dense = np.random.default_rng(0).poisson(0.4, size=(50, 300)).astype(np.float64)  # more than one block of features
    names, scale = np.repeat(["a", "b"], 25), np.linspace(1.0, 3.0, 300)
    found = quantile_functions(Distributions(sparse.csr_matrix(dense), names), scale)
    assert_array_equal(found, quantile_functions(Distributions(dense, names), scale))


def test_single_precision_changes_quantiles_by_rounding_only():
    D = cohort()
    single = D.with_points(D.points.astype(np.float32))
    assert_allclose(quantile_functions(single, ONES), quantile_functions(D, ONES), atol=1e-5)


def test_quantiles_are_in_units_of_the_scale():
    D = cohort()
    assert_allclose(quantile_functions(D, 4.0 * ONES) * 4.0, quantile_functions(D, ONES), rtol=1e-6)


def test_the_planted_feature_has_the_largest_statistic():
    found = statistics(cohort())
    assert found.argmax() == PLANTED
    assert found[PLANTED] > 2.0 * np.delete(found, PLANTED).max() > 0.0


def test_labels_without_meaning_have_statistics_around_zero():
    found = np.concatenate([statistics(cohort(seed, shift=0.0)) for seed in range(8)])
    assert abs(found.mean()) < 0.5
    assert np.abs(found).max() < 6.0


def test_permuted_features_have_permuted_statistics():
    D, order = cohort(), np.random.default_rng(1).permutation(N_FEATURES)
    assert_allclose(statistics(D.with_points(D.points[:, order])), statistics(D)[order], rtol=1e-5)


def test_permuted_distributions_and_exchanged_classes_change_no_statistic():
    D, order = cohort(), np.random.default_rng(1).permutation(16)
    assert_allclose(statistics(D[order], CODES[order]), statistics(D), rtol=1e-4)
    assert_allclose(statistics(D, 1 - CODES), statistics(D), rtol=1e-6)


def test_distributions_that_are_left_out_have_no_part_in_statistics():
    D, inside = cohort(), np.random.default_rng(1).permutation(16) < 9
    others = D.points.copy()
    others[np.repeat(~inside, D.sizes)] += 50.0
    alone = statistics(D[np.flatnonzero(inside)], CODES[inside])
    assert_allclose(statistics(D, inside=inside), alone, rtol=1e-4)
    assert_allclose(statistics(D.with_points(others), inside=inside), alone, rtol=1e-4)


def test_few_partners_find_the_planted_feature_too():
    D = cohort()
    limited = FeatureDistances(quantile_functions(D, ONES), np.random.RandomState(0), most=16 * N_FEATURES * 5)
    assert limited.values.shape == (16, 5, N_FEATURES)
    assert all(i not in limited.partners[i] and np.unique(limited.partners[i]).size == 5 for i in range(16))
    assert statistics(D, most=16 * N_FEATURES * 5).argmax() == PLANTED


def test_a_statistic_by_hand():
    D = Distributions([[0.0], [1.0], [4.0], [6.0]], range(4))
    # farther from unlike than from like: 5 - 1, 4 - 1, 3.5 - 2, 5.5 - 2
    gains = np.array([4.0, 3.0, 1.5, 3.5])
    expected = gains.mean() / (gains.std(ddof=1) / 2.0)
    assert_allclose(statistics(D, np.array([0, 0, 1, 1])), [expected], rtol=1e-5)


def test_every_other_class_counts_the_same_whatever_its_size():
    D = Distributions([[0.0], [1.0], [5.0], [2.0], [2.0], [2.0]], range(6))
    contrast = features._contrast(0, np.array([0, 1, 2, 2, 2]), np.ones(5, bool))
    assert_allclose(contrast, [-1.0, 0.5, 1 / 6, 1 / 6, 1 / 6])
    assert np.isfinite(statistics(D, np.array([0, 0, 1, 2, 2, 2]))).all()


@pytest.mark.parametrize("codes", [np.arange(16), np.zeros(16, dtype=int), np.zeros(16)])
def test_labels_that_tell_nothing_apart_have_statistics_of_zero(codes):
    assert_array_equal(statistics(cohort(), codes), np.zeros(N_FEATURES))


def test_a_feature_that_follows_numbers_is_found():
    values = np.linspace(-1.0, 1.0, 16)
    D = cohort(shift=0.0)
    points = D.points.copy()
    points[:, 3] += 2.0 * np.repeat(values, D.sizes)
    moved = D.with_points(points)
    assert statistics(moved, values).argmax() == 3
    assert feature_ratios(quantile_functions(moved, ONES), values)[0].argmax() == 3


def test_ratios_of_single_points_are_those_of_an_analysis_of_variance(monkeypatch):
    monkeypatch.setattr(features, "_FLOOR", 0.0)
    random = np.random.default_rng(0)
    X, codes = random.normal(size=(30, 6)), random.permutation(np.arange(30) % 3)
    X[:, 2] += codes
    quantiles = quantile_functions(Distributions(X, range(30)), np.ones(6), 1).astype(np.float64)
    ratios, spread = feature_ratios(quantiles, codes)
    assert_allclose(ratios, f_classif(X, codes)[0], rtol=1e-5)
    residual = X - np.array([X[codes == c].mean(axis=0) for c in range(3)])[codes]
    assert_allclose(spread, np.sqrt((residual**2).sum(axis=0) / 27), rtol=1e-5)


def test_a_feature_that_hardly_varies_is_not_worth_more_than_the_planted_one():
    D = cohort()
    points = D.points.copy()
    points[:, 0] = 1e-7 * np.repeat(CODES, D.sizes)  # follows the classes, by nearly nothing
    ratios, _ = feature_ratios(quantile_functions(D.with_points(points), ONES), CODES)
    assert ratios.argmax() == PLANTED


def test_constant_features_have_ratios_and_statistics_of_zero():
    D = cohort()
    points = D.points.copy()
    points[:, 4] = 3.0
    constant = D.with_points(points)
    assert feature_ratios(quantile_functions(constant, ONES), CODES)[0][4] == 0.0
    assert statistics(constant)[4] == 0.0


@pytest.mark.parametrize(("codes", "rank"), [(np.array([0, 1, 2, 2, 1, 0]), 2), (np.array([0.3, 1.0, 2.5, 2.0]), 1)])
def test_a_design_is_orthonormal_and_without_the_mean(codes, rank):
    basis = design(codes)
    assert basis.shape == (codes.size, rank)
    assert_allclose(basis.T @ basis, np.eye(rank), atol=1e-12)
    assert_allclose(basis.sum(axis=0), 0.0, atol=1e-12)


def test_at_most_fifty_features_count_and_they_are_the_strongest():
    gains = np.random.default_rng(0).permutation(np.linspace(0.1, 1.0, 80))
    weights = features.strongest_features(gains)
    assert np.count_nonzero(weights) == 50
    assert_array_equal(np.sort(weights)[-50:], np.sort(gains)[-50:])


@pytest.mark.parametrize("n_features", [1, 2, 3, 10])
def test_some_features_always_count(n_features):
    gains = -np.arange(1.0, n_features + 1)
    expected = np.where(np.arange(n_features) < 3, 1.0, 0.0)
    assert_array_equal(features.strongest_features(gains), expected)


BATCH = np.repeat([0, 1, 0, 1], [6, 2, 2, 6])  # six of a class against two of the other in each
IN_BATCHES = 3


def in_batches(seed=0):
    """The cohort, with a second feature that is shifted in one of two batches."""
    D = cohort(seed)
    points = D.points.copy()
    points[np.repeat(BATCH, 15) == 1, IN_BATCHES] += 3.0
    return D.with_points(points)


def test_within_strata_a_feature_of_the_batch_is_not_one_of_the_label():
    D = in_batches()
    quantiles = quantile_functions(D, ONES)
    t = [
        FeatureDistances(found, np.random.RandomState(0)).statistics(CODES)
        for found in (quantiles, within_strata(quantiles, BATCH))
    ]
    for plain, within in (t, [feature_ratios(quantiles, CODES, strata)[0] for strata in (None, BATCH)]):
        assert plain[IN_BATCHES] > 1.0
        assert within[IN_BATCHES] < 0.4 * plain[IN_BATCHES]
        assert np.argmax(within) == PLANTED


def test_ratios_within_strata_are_those_of_an_analysis_of_variance_with_two_factors():
    random = np.random.default_rng(0)
    values = random.normal(size=(16, 1, 3)) + CODES[:, None, None] + 2.0 * BATCH[:, None, None]
    ratios, spread = feature_ratios(values, CODES, BATCH)
    both = np.column_stack([np.ones(16), BATCH, CODES]).astype(float)
    rests = [np.linalg.lstsq(x, values[:, 0], rcond=None)[1] for x in (both[:, :2], both)]
    rest = rests[1] / 13
    assert_allclose(ratios, (rests[0] - rests[1]) / (rest + features._FLOOR * np.median(rest)), rtol=1e-6)
    assert_allclose(spread, np.sqrt(rest), rtol=1e-9)


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
