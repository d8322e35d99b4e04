"""Intervals of scores: laws, known answers, and coverage of the score on new patients by simulation."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.spatial.distance import cdist

from groundmetric import Distributions
from groundmetric.baselines import Euclidean
from groundmetric.evaluation import compare, folds, leave_one_group_out, shuffled, vote
from groundmetric.evaluation.scores import (
    INFLATION,
    SCORES,
    Predictions,
    auc_influence,
    difference,
    interval,
    score_codes,
    wilson_ends,
)
from groundmetric.learning.splits import rounds_of


def predictions(codes, probabilities, units=None, test_share=0.2):
    """Predictions of one round."""
    probabilities = np.asarray(probabilities, dtype=float)
    counts = np.eye(probabilities.shape[1])[probabilities.argmax(axis=1)]
    units = np.arange(len(codes)) if units is None else units
    return Predictions(np.asarray(codes), units, counts[None], probabilities[None], test_share)


def random_predictions(seed, n=24, n_classes=2, signal=1.0):
    random = np.random.default_rng(seed)
    codes = np.arange(n) % n_classes
    scores = signal * np.eye(n_classes)[codes] + random.normal(size=(n, n_classes))
    return codes, np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


def value_of(predicted, score):
    return float(score_codes(predicted.codes, predicted.probabilities[0])[score])


def test_all_right_has_wilsons_interval_of_the_effective_number_of_patients():
    codes = np.repeat([0, 1], 10)
    predicted = predictions(codes, np.eye(2)[codes])
    quantile = stats.t.ppf(0.975, 18)
    low = wilson_ends(1.0, 10 / INFLATION, quantile)[0]
    expected = 1.0 - np.sqrt(2.0) * (1.0 - low) / 2.0  # two classes, by the square-and-add rule
    assert_allclose(interval(predicted, "balanced_accuracy", 1.0), (expected, 1.0))


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_copies_of_samples_of_a_patient_change_nothing(score, n_classes):
    codes, table = random_predictions(0, n_classes=n_classes)
    once = predictions(codes, table)
    thrice = predictions(np.repeat(codes, 3), np.repeat(table, 3, axis=0), np.repeat(np.arange(24), 3))
    value = value_of(once, score)
    assert_allclose(interval(thrice, score, value), interval(once, score, value), atol=1e-9)


@pytest.mark.parametrize("score", SCORES)
def test_rounds_that_agree_count_once_and_the_order_of_patients_does_not_matter(score):
    codes, table = random_predictions(1)
    predicted, value = predictions(codes, table), value_of(predictions(codes, table), score)
    twice = Predictions(
        codes, predicted.units, *(np.repeat(part, 2, axis=0) for part in (predicted.counts, predicted.probabilities))
    )
    assert_allclose(interval(twice, score, value), interval(predicted, score, value))
    order = np.random.default_rng(0).permutation(24)
    shuffled_ = predictions(codes[order], table[order])
    assert_allclose(interval(shuffled_, score, value), interval(predicted, score, value))


@pytest.mark.parametrize("score", SCORES)
def test_intervals_contain_the_score_and_grow_with_the_share_of_shared_training(score):
    for seed in range(5):
        codes, table = random_predictions(seed, signal=[0.0, 1.0, 9.0][seed % 3])
        value = value_of(predictions(codes, table), score)
        low, high = interval(predictions(codes, table), score, value)
        assert low <= value <= high
        wide = interval(predictions(codes, table, test_share=1 / 24), score, value)
        assert wide[0] <= low <= high <= wide[1]


@pytest.mark.parametrize("score", SCORES)
def test_differences_are_antisymmetric_and_p_values_agree_with_intervals(score):
    codes, first = random_predictions(2, n=60)
    for seed, signal in ((3, 1.0), (4, 2.0), (5, 4.0), (6, 0.0)):
        second = random_predictions(seed, n=60, signal=signal)[1]
        left_result, right_result = predictions(codes, first), predictions(codes, second)
        values = value_of(left_result, score), value_of(right_result, score)
        low, high, p = difference(left_result, right_result, score, values)
        assert_allclose(difference(right_result, left_result, score, values[::-1]), (-high, -low, p), atol=1e-9)
        assert low <= values[0] - values[1] <= high
        assert (p <= 0.05) == (low > 0.0 or high < 0.0)
    assert difference(left_result, left_result, score, (values[0], values[0]))[2] == 1.0


def test_no_p_value_is_below_that_of_a_sign_test():
    codes = np.arange(10) % 2
    right, wrong = predictions(codes, np.eye(2)[codes]), predictions(codes, np.eye(2)[1 - codes])
    assert difference(right, wrong, "accuracy", (1.0, 0.0))[2] >= 2.0**-9


def test_influence_on_the_area_is_its_derivative():
    codes, table = random_predictions(7, n=15, n_classes=3)
    step = 1e-6
    nudged = [score_codes(codes, table, np.ones(15) + step * row)["roc_auc"] for row in np.eye(15)]
    derivative = (np.array(nudged) - score_codes(codes, table)["roc_auc"]) / step
    assert_allclose(derivative, auc_influence(codes, table), atol=1e-5)


def cohort(random, y, effect, per_patient=1, n_features=12):
    """Samples as points, with their labels and patients; the class shifts 4 features."""
    x = random.normal(size=(len(y), n_features))
    x[:, :4] += effect * np.asarray(y)[:, None]
    x = np.repeat(x, per_patient, axis=0)
    x += 0.5 * (per_patient > 1) * random.normal(size=x.shape)
    return x, np.repeat(y, per_patient), np.repeat(np.arange(len(y)), per_patient)


def several(groups):
    """Groups of several samples, else None: splits of groups take longer."""
    return groups if np.unique(groups).size < len(groups) else None


CV = {
    "folds": lambda y, groups, seed: folds(y, groups=several(groups), n_splits=5, random_state=seed),
    "repeated": lambda y, groups, seed: folds(y, groups=several(groups), n_splits=5, n_repeats=2, random_state=seed),
    "leave one out": lambda y, groups, seed: leave_one_group_out(groups),
    "shuffled": lambda y, groups, seed: shuffled(y, groups=several(groups), random_state=seed),
}


def nearest(x, y, new):
    """Probabilities by votes of 5 nearest samples."""
    return vote(cdist(new, x), y, [0, 1])


def cross_validated(x, y, patients, splits):
    """Predictions in rounds, as `compare` collects them, and the scores of the method."""
    rounds = rounds_of(splits, y.size)
    rounds = np.arange(len(splits)) if rounds is None else rounds
    tables, counts = (np.zeros((rounds.max() + 1, y.size, 2)) for _ in range(2))
    for at, (train, test) in zip(rounds, splits, strict=True):
        tables[at, test] = nearest(x[train], y[train], x[test])
        counts[at, test] = np.eye(2)[tables[at, test].argmax(axis=1)]
    share = np.mean([np.unique(patients[test]).size for _, test in splits]) / np.unique(patients).size
    item = [score_codes(y, table, count.any(axis=1) + 0.0) for table, count in zip(tables, counts, strict=True)]
    values = {score: float(np.mean([left_result[score] for left_result in item])) for score in SCORES}
    return Predictions(y, patients, counts, tables, share), values


def scores_on_new_patients(y, effect, cv, per_patient, n_cohorts=50):
    """Mean scores on 200 new patients, over training sets of the size of the training parts."""
    random, results = np.random.default_rng(1), []
    for seed in range(n_cohorts):
        x, labels, patients = cohort(random, y, effect, per_patient)
        train = CV[cv](labels, patients, seed)[0][0]
        new, truth, _ = cohort(random, np.tile(y, 200 // len(y)), effect, per_patient)
        results.append(score_codes(truth, nearest(x[train], labels[train], new)))
    return {score: np.mean([result[score] for result in results]) for score in SCORES}


@pytest.mark.parametrize(
    ("n", "share", "effect", "cv", "per_patient"),
    [
        (20, 0.5, 0.0, "folds", 1),
        (20, 0.5, 1.2, "folds", 1),
        (20, 0.5, 3.0, "folds", 1),
        (20, 0.25, 1.2, "folds", 1),
        (20, 0.5, 1.2, "leave one out", 1),
        (20, 0.5, 1.2, "repeated", 1),
        (20, 0.5, 1.2, "shuffled", 1),
        (20, 0.5, 1.0, "folds", 3),
        (40, 0.5, 0.7, "folds", 1),
    ],
)
def test_intervals_cover_the_score_on_new_patients(n, share, effect, cv, per_patient):
    y = np.repeat([0, 1], [n - round(share * n), round(share * n)])
    truth = scores_on_new_patients(y, effect, cv, per_patient)
    n_cohorts, covered = 60, dict.fromkeys(SCORES, 0)
    for seed in range(n_cohorts):
        x, labels, patients = cohort(np.random.default_rng([n, seed]), y, effect, per_patient)
        predicted, values = cross_validated(x, labels, patients, CV[cv](labels, patients, seed))
        for score in SCORES:
            low, high = interval(predicted, score, values[score])
            covered[score] += low <= truth[score] <= high
    least = stats.binom.ppf(0.001, n_cohorts, 0.92)
    assert all(count >= least for count in covered.values()), covered


def test_p_values_of_equally_good_methods_are_at_most_nominal():
    """Two methods see different features of the same effect: their scores on new patients are equal."""
    y, n_cohorts, small = np.repeat([0, 1], 10), 100, dict.fromkeys(SCORES, 0)
    for seed in range(n_cohorts):
        random, splits = np.random.default_rng([9, seed]), CV["folds"](y, np.arange(20), seed)
        (left_result, first), (right_result, second) = (
            cross_validated(*cohort(random, y, 0.8), splits) for _ in range(2)
        )
        for score in SCORES:
            small[score] += difference(left_result, right_result, score, (first[score], second[score]))[2] <= 0.05
    assert all(count <= stats.binom.isf(0.001, n_cohorts, 0.05) for count in small.values()), small


def test_compare_reports_these_intervals():
    y = np.repeat([0, 1], 10)
    x, _, patients = cohort(np.random.default_rng(0), y, 1.0)
    for name, cv in CV.items():
        splits = cv(y, patients, 0)
        comparison = compare({"method": Euclidean()}, Distributions(x, np.arange(20)), y, cv=splits, points=False)
        predicted, values = cross_validated(x, y, patients, splits)
        for score in SCORES:
            if name == "shuffled" and score == "macro_f1":
                continue  # pooled here
            estimate = comparison.estimate("method", score)
            assert estimate.value == pytest.approx(values[score])
            assert_allclose((estimate.low, estimate.high), interval(predicted, score, values[score]), atol=1e-9)
