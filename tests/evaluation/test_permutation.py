"""The permutation test: known p-values, what is exchanged, the same procedure for all labels, and what is shared."""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold

import groundmetric as gm
from groundmetric import Distributions, GroundMetricLearner
from groundmetric.evaluation import folds, leave_one_group_out, leave_one_out, permutation_test
from groundmetric.evaluation.permutation import prepare_test

from .methods import failing, means, oracle, tiny_cohort

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
    """Distributions of three points that have nothing to do with any label."""
    points = np.random.default_rng(seed).normal(size=(n, 3, 2))
    return Distributions.from_arrays(list(points + points.mean(axis=1, keepdims=True)))


def test_a_strong_signal_has_the_smallest_p_value():
    learner = GroundMetricLearner(max_epochs=4, random_state=0)
    found = permutation_test(learner, D, y, cv=3, n_permutations=9, random_state=0)
    assert found.p == 1 / 10
    assert found.statistic > 0.9
    assert found.null.shape == (9,)
    assert found.null.max() < found.statistic
    assert (found.exchanged, found.failed) == ("distributions", 0)
    assert found.arrangements == math.factorial(18) // math.factorial(6) ** 3
    assert found.seconds > 0.0
    assert found.to_dict()["p"] == 0.1
    assert "p = 0.1 from 9 permutations of distributions" in repr(found)


def test_the_smallest_p_value_of_many_permutations():
    found = permutation_test(free(0)[0], D, y, n_permutations=499, random_state=0)
    assert found.p == 1 / 500


def test_ties_count_against_the_method():
    class Blind(BaseEstimator):
        def fit(self, D, y):
            return self

        def distances(self, A, B=None, *, n_jobs=None):
            return np.ones((len(A), len(A if B is None else B)))

    found = permutation_test(Blind(), D, y, cv=3, score="roc_auc", n_permutations=19, random_state=0)
    assert np.mean(found.null >= found.statistic - 1e-9) == (found.p * 20 - 1) / 19


@pytest.mark.parametrize("score", ["balanced_accuracy", "roc_auc"])
def test_p_values_are_uniform_or_conservative_where_there_is_no_signal(score):
    options = {"cv": 2, "score": score, "n_permutations": 9}
    labels = np.arange(12) % 2
    p = np.array(
        [permutation_test(means(), noise(12, seed), labels, random_state=seed, **options).p for seed in range(40)]
    )
    for level in (0.1, 0.2, 0.5):
        assert np.mean(p <= level + 1e-9) <= level + 3 * np.sqrt(level * (1 - level) / p.size)
    if score == "roc_auc":  # few ties: the mean is near that of 0.1, 0.2, …, 1
        assert abs(p.mean() - 0.55) < 3 * 0.29 / np.sqrt(p.size)


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
    found = permutation_test(means(0), D, y, cv=splits, n_permutations=9, random_state=0)
    assert found.p == 0.1


def test_the_result_does_not_depend_on_how_many_run_at_a_time():
    learner = GroundMetricLearner(max_epochs=2, random_state=0)
    one, two = (permutation_test(learner, D, y, cv=2, n_permutations=4, random_state=0, n_jobs=jobs) for jobs in (1, 2))
    assert one.statistic == two.statistic
    assert_array_equal(one.null, two.null)


def test_more_permutations_go_on_where_fewer_ended():
    seen = []

    def splits(labels):
        seen.append(tuple(labels))
        return folds(labels, n_splits=3, random_state=0)

    test = prepare_test(means(), D, y, cv=splits, random_state=0)
    few = test.run(3)
    del seen[:]
    more = test.run(9)
    assert len(seen) == 6
    whole = permutation_test(means(), D, y, cv=splits, n_permutations=9, random_state=0)
    assert_array_equal(more.null, whole.null)
    assert_array_equal(more.null[:3], few.null)
    assert (more.statistic, more.p) == (whole.statistic, whole.p)


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
    found = permutation_test(
        Counting(),
        noise(10),
        labels,
        groups=donors,
        cv=leave_one_group_out(donors),
        n_permutations=500,
        random_state=0,
    )
    assert found.arrangements == 32
    assert len(calls) == 32 * 5
    assert np.sum(found.null == found.statistic) >= 1  # the data's own labels come up, and count as hits
    assert found.p >= 1 / 32


def test_what_cannot_be_fitted_counts_as_a_hit():
    class Fussy(type(means())):
        def fit(self, D, y):
            if np.any(y[:3] != 0):
                raise ValueError("not with these labels")
            return self

    found = permutation_test(Fussy(0), D, y, cv=leave_one_out(y), n_permutations=9, random_state=0)
    assert found.failed == 9
    assert found.p == 1.0


def test_an_error_with_the_datas_own_labels_is_raised():
    with pytest.raises(RuntimeError, match="no good"):
        permutation_test(failing(), D, y, n_permutations=9)


def test_a_score_that_no_split_has_is_refused():
    splits = leave_one_out(y)[:5]  # single distributions, and not all of them: nothing to pool
    with pytest.raises(ValueError, match="roc_auc is not defined on any of these splits"):
        permutation_test(means(), D, y, cv=splits, score="roc_auc", n_permutations=9)


def test_classifiers_are_tested_too():
    found = permutation_test(
        oracle([0, 1, 2], dict(zip(D.names, y.tolist(), strict=True))), D, y, n_permutations=19, random_state=0
    )
    assert found.statistic == 1.0
    assert found.p == 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_permutations": 0}, "n_permutations is 0"),
        ({"score": "elegance"}, "score is 'elegance'"),
        ({"weights": "cubic"}, "weights is 'cubic'"),
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
    y = np.arange(12) % 2
    centres = 0.5 * random.normal(size=(12, 6))
    centres[:, 0] += shift * y
    points = random.normal(size=(12, 15, 6)) + centres[:, None]
    return gm.Distributions(points.reshape(-1, 6), np.repeat(np.arange(12), 15)), y


def test_an_ensemble_is_tested_out_of_bag():
    D, y = _ensemble_cohort(0, shift=3.0)
    for method in (gm.GroundMetricEnsemble(2), gm.TransportClassifier()):
        # Two of 924 arrangements have the observed partition of the samples; seed 1 draws neither.
        found = permutation_test(method, D, y, n_permutations=39, random_state=1)
        assert found.p == pytest.approx(1 / 40)
        assert found.score == "log_probability"


def test_an_ensemble_finds_nothing_where_labels_say_nothing():
    found = [
        permutation_test(
            gm.GroundMetricEnsemble(2), *_ensemble_cohort(seed, 0.0), n_permutations=9, random_state=seed
        ).p
        for seed in range(12)
    ]
    assert np.mean(np.array(found) <= 0.1) <= 0.4  # 0.1 is promised; 5 of 12 have a chance below 0.005
    assert max(found) > 0.3


@pytest.mark.parametrize(("arguments", "message"), [({"cv": 3}, "cv"), ({"score": "accuracy"}, "log_probability")])
def test_an_ensemble_has_its_own_way_to_hold_out(arguments, message):
    D, y = _ensemble_cohort(0, 0.0)
    with pytest.raises(ValueError, match=message):
        permutation_test(gm.GroundMetricEnsemble(), D, y, n_permutations=1, **arguments)


def test_numbers_are_tested_out_of_bag():
    D, _ = _ensemble_cohort(0, 0.0)
    values = D.means()[:, 2]
    for method in (gm.GroundMetricEnsemble(2, target="ordered"), gm.TransportRegressor()):
        found = permutation_test(method, D, values, n_permutations=19, random_state=0)
        assert found.p == pytest.approx(1 / 20)
        assert found.score == "log_likelihood"
    shuffled = np.random.RandomState(1).permutation(values)
    assert permutation_test(gm.TransportRegressor(), D, shuffled, n_permutations=19, random_state=0).p > 0.05


def test_a_batch_that_goes_with_the_label_is_no_finding_within_strata():
    """Six against two in each batch, and nothing but the batch sets distributions apart."""
    y, batch = np.repeat([0, 1], 8), np.repeat([0, 1, 0, 1], [6, 2, 2, 6])
    points = np.random.RandomState(0).normal(size=(16, 15, 6))
    points[:, :, 1] += 4.0 * batch[:, None]
    D = gm.Distributions(points.reshape(-1, 6), np.repeat(np.arange(16), 15))
    ensemble = gm.GroundMetricEnsemble(2)
    within = permutation_test(ensemble, D, y, strata=batch, n_permutations=39, random_state=0)
    assert within.p > 0.1
    assert within.exchanged == "distributions within strata"
