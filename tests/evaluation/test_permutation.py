"""Permutation test: known p-values, exchanged units, one procedure for all labels, shared computations."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold

import groundmetric as gm
from groundmetric import Distributions, GroundMetricLearner
from groundmetric._internal.validation import ParameterError
from groundmetric.evaluation import Voting, folds, leave_one_group_out, leave_one_out, permutation_test
from groundmetric.evaluation.permutation import PreparedTest, combined_p_value, merged_p_value, rank_p_values

from .methods import failing, means, oracle, tiny_cohort

pytestmark = pytest.mark.usefixtures("fewer_permutations")

D, y = tiny_cohort()


def free(feature=slice(None)):
    """A method that says of itself that it does not look at labels, and counts its fits."""
    fits = []

    class Free(type(means())):
        uses_labels = False

        def fit(self, D, y):
            fits.append(len(D))
            return self

    return Free(feature), fits


def noise(n, seed=0):
    """Return distributions of three points that are independent of labels."""
    points = np.random.default_rng(seed).normal(size=(n, 3, 2))
    return Distributions.from_arrays(list(points + points.mean(axis=1, keepdims=True)))


def test_a_strong_signal_has_the_smallest_p_value():
    learner = GroundMetricLearner(max_epochs=4, random_state=0)
    result = permutation_test(learner, D, y, cv=3, n_permutations=9, random_state=0)
    assert result.p == 1 / 10
    assert result.statistic > 0.9
    assert result.null.shape == (9,)
    assert result.null.max() < result.statistic
    assert (result.exchanged, result.failed) == ("distributions", 0)
    assert result.arrangements == math.factorial(18) // math.factorial(6) ** 3
    assert result.seconds > 0.0
    assert result.to_dict()["p"] == 0.1
    assert "p = 0.1 from 9 permutations of distributions" in repr(result)


def test_the_smallest_p_value_of_many_permutations():
    result = permutation_test(free(0)[0], D, y, n_permutations=499, random_state=0)
    assert result.p == 1 / 500


def test_ties_count_against_the_method():
    class Blind(BaseEstimator):
        def fit(self, D, y):
            return self

        def distances(self, A, B=None, *, n_jobs=None):
            return np.ones((len(A), len(A if B is None else B)))

    result = permutation_test(Blind(), D, y, cv=3, n_permutations=19, random_state=0)
    assert np.mean(result.null >= result.statistic - 1e-9) == (result.p * 20 - 1) / 19


def test_p_values_are_uniform_or_conservative_where_there_is_no_signal():
    options = {"cv": 2, "n_permutations": 9}
    labels = np.arange(12) % 2
    p = np.array(
        [permutation_test(means(), noise(12, seed), labels, random_state=seed, **options).p for seed in range(40)]
    )
    for level in (0.1, 0.2, 0.5):
        assert np.mean(p <= level + 1e-9) <= level + 3 * np.sqrt(level * (1 - level) / p.size)


def test_splits_are_made_anew_for_every_arrangement_of_labels():
    seen = []

    def splits(labels):
        seen.append(tuple(labels))
        return folds(labels, n_splits=3, random_state=0)

    names = np.array(["a", "b", "c"])[y]
    permutation_test(means(), D, names, cv=splits, n_permutations=5, random_state=0)
    assert tuple(names) in seen
    assert len(set(seen)) == 6
    assert all(sorted(labels) == sorted(names) for labels in seen)


@pytest.mark.parametrize("splits", [3, KFold(3, shuffle=True, random_state=0), leave_one_out(y), None])
def test_splits_may_be_given_in_several_ways(splits):
    result = permutation_test(means(0), D, y, cv=splits, n_permutations=9, random_state=0)
    assert result.p == 0.1


def test_the_result_does_not_depend_on_how_many_run_at_a_time():
    learner = GroundMetricLearner(max_epochs=2, random_state=0)
    first, two = (
        permutation_test(learner, D, y, cv=2, n_permutations=4, random_state=0, n_jobs=jobs) for jobs in (1, 2)
    )
    assert first.statistic == two.statistic
    assert_array_equal(first.null, two.null)


def test_more_permutations_go_on_where_fewer_ended():
    seen = []

    def splits(labels):
        seen.append(tuple(labels))
        return folds(labels, n_splits=3, random_state=0)

    test = PreparedTest(means(), D, y, cv=splits, random_state=0)
    small = test.run(3)
    del seen[:]
    more = test.run(9)
    assert len(seen) == 6
    at_once = permutation_test(means(), D, y, cv=splits, n_permutations=9, random_state=0)
    assert_array_equal(more.null, at_once.null)
    assert_array_equal(more.null[:3], small.null)
    assert (more.statistic, more.p) == (at_once.statistic, at_once.p)


def test_a_method_that_ignores_labels_is_fitted_once_per_split():
    method, fits = free(0)
    permutation_test(method, D, y, n_permutations=9, random_state=0)
    assert len(fits) == 5
    method, fits = free(0)
    splits = leave_one_group_out(np.arange(18) % 6)
    shared = permutation_test(method, D, y, cv=splits, n_permutations=19, random_state=0)
    assert len(fits) == 6
    alone = permutation_test(means(0), D, y, cv=splits, n_permutations=19, random_state=0)
    assert (shared.statistic, shared.p) == (alone.statistic, alone.p)
    assert_array_equal(shared.null, alone.null)


def test_an_arrangement_that_comes_up_twice_is_done_once():
    calls = []

    class Counting(type(means())):
        def fit(self, D, y):
            calls.append(len(D))
            return self

    donors = np.repeat(np.arange(5), 2)
    labels = np.tile([0, 1], 5)
    result = permutation_test(
        Counting(),
        noise(10),
        labels,
        groups=donors,
        cv=leave_one_group_out(donors),
        n_permutations=500,
        random_state=0,
    )
    assert result.arrangements == 32
    assert len(calls) == 32 * 5
    assert np.sum(result.null == result.statistic) >= 1  # the observed arrangement is drawn, too
    assert result.p >= 1 / 32


def test_what_cannot_be_fitted_counts_as_a_hit():
    class Fussy(type(means())):
        def fit(self, D, y):
            if np.any(y[:3] != 0):
                raise ValueError("not with these labels")
            return self

    result = permutation_test(Fussy(0), D, y, cv=leave_one_out(y), n_permutations=9, random_state=0)
    assert result.failed == 9
    assert result.p == 1.0


def test_an_error_with_the_datas_own_labels_is_raised():
    with pytest.raises(RuntimeError, match="no good"):
        permutation_test(failing(), D, y, n_permutations=9)


def test_classifiers_are_tested_too():
    result = permutation_test(
        oracle([0, 1, 2], dict(zip(D.names, y.tolist(), strict=True))), D, y, n_permutations=19, random_state=0
    )
    assert result.statistic == 1.0
    assert result.p == 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_permutations": 0}, "n_permutations is 0"),
        ({"voting": Voting(weights="cubic")}, "weights is 'cubic'"),
        ({"strata": y}, "nothing to exchange"),
        ({"strata": [1, 2]}, "strata has 2 entries for 18 distributions"),
        ({"groups": [1, 2]}, "groups has 2 entries for 18 distributions"),
        ({"cv": 7}, "class 0 has 6 distributions, but 7 are needed"),
        ({"cv": [([0, 1], [2])]}, "has no distribution of class 1 to learn from"),
    ],
)
def test_bad_input_is_refused_at_once(options, message):
    class Never(type(means())):
        def fit(self, D, y):
            raise AssertionError("the long work has begun")

    with pytest.raises(ValueError, match=message):
        permutation_test(Never(), D, y, **options)


def test_too_few_arrangements_for_a_small_p_value_are_said_so():
    donors, labels = np.repeat(np.arange(4), 2), np.tile([0, 1], 4)
    with pytest.warns(UserWarning, match=r"only 16 arrangements .* within groups: .* is about 0\.062"):
        permutation_test(means(), noise(8), labels, groups=donors, cv=leave_one_group_out(donors), n_permutations=4)


def _ensemble_cohort(seed, shift):
    random = np.random.RandomState(seed)
    y = np.arange(20) % 2
    centres = 0.5 * random.normal(size=(20, 6))
    centres[:, 0] += shift * y
    points = random.normal(size=(20, 15, 6)) + centres[:, None]
    return gm.Distributions(points.reshape(-1, 6), np.repeat(np.arange(20), 15)), y


SMALL = gm.GroundMetricEnsemble(4, kinds=["univariate"], random_state=0)


def test_an_ensemble_is_tested_by_its_held_out_score():
    D, y = _ensemble_cohort(0, shift=3.0)
    expected = gm.GroundMetricEnsemble(4, kinds=["univariate"], random_state=0).fit(D, y).score_
    for method, n_permutations in ((SMALL, 9), (gm.TransportClassifier(SMALL), 1)):
        result = permutation_test(method, D, y, n_permutations=n_permutations, random_state=0)
        assert result.p == pytest.approx(1 / (n_permutations + 1))
        assert (result.score, result.statistic) == ("log_probability", expected)


def test_statistics_are_named():
    D, y = _ensemble_cohort(0, shift=1.0)
    combined, score, association = (
        permutation_test(SMALL, D, y, n_permutations=2, statistic=name, random_state=0)
        for name in ("combined", "score", "association")
    )
    assert set(score.p_values) == {"held-out score", "map separation"}
    assert score.combined == ("held-out score",)
    assert score.p == score.p_values["held-out score"]
    assert len(association.p_values) == 6
    assert association.combined == tuple(association.p_values)
    assert association.score == "association"
    assert set(combined.p_values) == {*score.p_values, *association.p_values}
    assert combined.combined == (*score.combined, *association.combined)
    assert combined.statistic == score.statistic
    assert_array_equal(combined.null, score.null)
    for name, p in combined.p_values.items():
        assert p == {**score.p_values, **association.p_values}[name]
    assert combined.to_dict()["p_values"] == combined.p_values
    with pytest.raises(ParameterError) as caught:
        permutation_test(SMALL, D, y, n_permutations=9, statistic="best")
    assert (caught.value.parameter, caught.value.value) == ("statistic", "best")


def test_settings_of_the_ensemble_matter():
    D, y = _ensemble_cohort(0, shift=1.0)
    anova = gm.GroundMetricEnsemble(4, kinds=["anova"], random_state=0)
    first, second = (
        permutation_test(method, D, y, n_permutations=1, statistic="score", random_state=0) for method in (SMALL, anova)
    )
    assert first.statistic != second.statistic
    assert np.any(first.null != second.null)


def test_order_of_samples_does_not_matter():
    D, y = _ensemble_cohort(0, shift=0.5)
    order = np.random.default_rng(0).permutation(20)
    for options in ({}, {"groups": np.arange(20) // 2}, {"strata": np.arange(20) // 4}):
        moved = {name: values[order] for name, values in options.items()}
        first = permutation_test(SMALL, D, y, statistic="association", n_permutations=29, random_state=0, **options)
        second = permutation_test(
            SMALL, D[order], y[order], statistic="association", n_permutations=29, random_state=0, **moved
        )
        assert second.p == first.p
        assert_allclose(np.sort(second.null), np.sort(first.null), rtol=1e-9)


def test_p_values_by_association_are_uniform_or_conservative_without_signal():
    p = np.array(
        [
            permutation_test(
                SMALL, *_ensemble_cohort(seed, 0.0), statistic="association", n_permutations=19, random_state=seed
            ).p
            for seed in range(45)
        ]
    )
    for level in (0.05, 0.1, 0.2, 0.5):
        assert np.sum(p <= level + 1e-9) <= binom.ppf(0.999, p.size, level)
    assert abs(p.mean() - 0.525) < 3 * 0.29 / np.sqrt(p.size)


def test_numbers_of_points_are_no_association():
    """Give one class three times as many points: p-values are as those of chance."""
    p = []
    for seed in range(40):
        random, y = np.random.default_rng(seed), np.arange(12) % 2
        sizes = np.where(y == 0, 10, 30)
        points = random.normal(size=(sizes.sum(), 6)) + 0.3 * np.repeat(random.normal(size=(12, 6)), sizes, axis=0)
        cells = gm.Distributions(points, np.repeat(np.arange(12), sizes))
        test = permutation_test(SMALL, cells, y, statistic="association", n_permutations=19, random_state=seed)
        p.append(test.p)
    assert np.sum(np.array(p) <= 0.1) <= binom.ppf(0.999, len(p), 0.1)


def test_many_weak_features_are_found_by_association():
    """Shift all of 20 features by little: the largest F statistic alone would not do."""
    p = []
    for seed in range(5):
        random, y = np.random.default_rng(seed), np.arange(16) % 2
        centres = 0.5 * random.normal(size=(16, 20)) + 0.4 * y[:, None]
        points = random.normal(size=(16, 15, 20)) + centres[:, None]
        cells = gm.Distributions(points.reshape(-1, 20), np.repeat(np.arange(16), 15))
        p.append(permutation_test(SMALL, cells, y, statistic="association", n_permutations=99, random_state=0).p)
    assert np.median(p) <= 0.05


def test_ties_have_the_larger_p_value():
    assert rank_p_values(np.array([3.0, 1.0, 2.0, 2.0])).tolist() == [0.25, 1.0, 0.75, 0.75]
    assert rank_p_values(np.array([3.0, np.nan])).tolist() == [1.0, 0.5]


def test_merged_p_values_by_hand():
    assert merged_p_value([0.01, 0.5], [0.5, 0.5]) == pytest.approx(0.02, abs=1e-3)


@pytest.mark.parametrize("n_statistics", [1, 2, 6])
def test_combined_p_values_are_valid_whatever_the_dependence(n_statistics):
    """Take each arrangement in turn as the observed one: at most a share of `level` have p-values up to `level`."""
    random = np.random.default_rng(n_statistics)
    table = random.normal(size=(40, 1)) + random.normal(size=(40, n_statistics))
    p = np.array([combined_p_value(np.roll(table, -k, axis=0)) for k in range(40)])
    for level in np.arange(1, 40) / 40:
        assert np.mean(p <= level + 1e-9) <= level + 1e-9
    assert p.min() == 1 / 40


def test_an_ensemble_takes_no_splits():
    D, y = _ensemble_cohort(0, 0.0)
    with pytest.raises(ParameterError) as raised:
        permutation_test(SMALL, D, y, cv=3, n_permutations=4)
    assert raised.value.parameter == "cv"


def test_numbers_are_tested_by_held_out_scores():
    D, _ = _ensemble_cohort(0, 0.0)
    values = D.means()[:, 2]
    ordered = gm.GroundMetricEnsemble(4, kinds=["univariate"], target="ordered", random_state=0)
    for method, n_permutations in ((ordered, 9), (gm.TransportRegressor(SMALL), 1)):
        result = permutation_test(method, D, values, n_permutations=n_permutations, random_state=0)
        assert result.p == pytest.approx(1 / (n_permutations + 1))
        assert result.score == "log_likelihood"
    shuffled = np.random.RandomState(1).permutation(values)
    assert permutation_test(ordered, D, shuffled, n_permutations=4, random_state=0).p > 0.2


def test_survival_times_are_tested():
    D, _ = _ensemble_cohort(0, 0.0)
    times = np.zeros(20, dtype=[("event", bool), ("time", float)])
    times["time"], times["event"] = np.exp(2.0 * D.means()[:, 2]), np.arange(20) != 5
    result = permutation_test(gm.TransportSurvival(SMALL), D, times, n_permutations=9, random_state=0)
    assert result.p == pytest.approx(1 / 10)
    assert result.score == "log_likelihood"
    assert result.statistic == gm.TransportSurvival(SMALL).fit(D, times).ensemble_.score_
    shuffled = np.random.RandomState(1).permutation(times)
    assert permutation_test(gm.TransportSurvival(SMALL), D, shuffled, n_permutations=4, random_state=0).p > 0.2


def test_a_batch_that_goes_with_the_label_is_no_finding_within_strata():
    """Six against two in each batch, and nothing but the batch sets distributions apart."""
    y, batch = np.repeat([0, 1], 8), np.repeat([0, 1, 0, 1], [6, 2, 2, 6])
    points = np.random.RandomState(0).normal(size=(16, 15, 6))
    points[:, :, 1] += 4.0 * batch[:, None]
    D = gm.Distributions(points.reshape(-1, 6), np.repeat(np.arange(16), 15))
    within = permutation_test(SMALL, D, y, strata=batch, n_permutations=9, random_state=0)
    assert within.p > 0.1
    assert within.exchanged == "distributions within strata"


@pytest.mark.parametrize("by_patient", [True, False])
def test_groups_are_the_units(by_patient):
    """Repeat each patient's sample four times with the label of the patient, or with labels within patients."""
    p = []
    for seed in range(30):
        random = np.random.default_rng(seed)
        centres = np.repeat(random.normal(size=(8, 4)), 4, axis=0)
        points = centres[:, None] + 0.3 * random.normal(size=(32, 8, 4))
        cells = gm.Distributions(points.reshape(-1, 4), np.repeat(np.arange(32), 8))
        patients = np.arange(32) // 4
        labels = patients % 2 if by_patient else np.arange(32) % 2
        test = permutation_test(
            SMALL, cells, labels, groups=patients, statistic="association", n_permutations=19, random_state=seed
        )
        assert test.exchanged == ("groups" if by_patient else "distributions within groups")
        p.append(test.p)
    assert np.sum(np.array(p) <= 0.1) <= binom.ppf(0.999, len(p), 0.1)
