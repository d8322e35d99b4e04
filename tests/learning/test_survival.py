"""Right-censored times: Kaplan–Meier, percentiles, triplets whose order is certain, concordance, bad input."""

import re
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import groundmetric as gm
from groundmetric import Distributions, GroundMetricLearner
from groundmetric._internal.validation import ParameterError
from groundmetric.evaluation import concordance_index
from groundmetric.learning import Survival, survival_percentiles
from groundmetric.learning.labels import OrderedTarget, SurvivalTarget
from groundmetric.learning.survival import (
    SurvivalTimes,
    check_comparable,
    concordance,
    kaplan_meier,
    survival_ranges,
)
from groundmetric.learning.triplets import candidates, random_triplets

ALL = 99  # neighbours of every level: all triplets


def surv(event, time):
    y = np.empty(len(time), dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = event, time
    return y


def usable(patients):
    try:
        check_comparable(as_times(patients))
    except ValueError:
        return False
    return True


def as_times(patients):
    time, event = zip(*patients, strict=True)
    return SurvivalTimes(np.array(time, dtype=float), np.array(event))


patients = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=4, max_size=9).filter(usable)


def as_set(triplets):
    return set(zip(triplets.i.tolist(), triplets.j.tolist(), triplets.k.tolist(), strict=True))


def drawn(target, t=ALL, **options):
    return random_triplets(target, t, np.random.RandomState(0), **options)


def test_kaplan_meier_of_the_patients_of_a_textbook():
    # Six patients: deaths at 6, 6, 7; censored at 6, 9; the last one dies at 10. S = 4/6, · 2/3, · 0.
    times = SurvivalTimes(np.array([6.0, 6, 6, 7, 9, 10]), np.array([True, True, False, True, False, True]))
    steps, alive = kaplan_meier(times)
    assert_array_equal(steps, [6, 7, 10])
    assert_allclose(alive, [4 / 6, 4 / 6 * 2 / 3, 0.0])


@given(patients)
def test_a_weight_is_how_often_a_patient_counts(subset):
    times, counts = as_times(subset), 1 + np.arange(len(subset)) % 3
    repeated = times.at(np.repeat(np.arange(len(subset)), counts))
    assert_allclose(kaplan_meier(times, counts.astype(float))[1], kaplan_meier(repeated)[1], atol=1e-12)


def test_without_censoring_percentiles_are_middle_ranks():
    time = np.array([5.0, 1.0, 3.0, 9.0])
    assert_allclose(survival_percentiles(surv(True, time)), (np.array([2, 0, 1, 3]) + 0.5) / 4)


@given(patients)
def test_the_unit_of_time_does_not_matter(subset):
    times = as_times(subset)
    second = SurvivalTimes(np.exp(times.time), times.event)
    for end, same in zip(survival_ranges(times), survival_ranges(second), strict=True):
        assert_allclose(end, same, atol=1e-12)


@given(patients)
def test_ranges_are_ordered_as_far_as_times_are(subset):
    times = as_times(subset)
    low, high = survival_ranges(times)
    assert np.all((low >= 0) & (low <= high) & (high <= 1))
    for a, b in product(range(len(times)), repeat=2):
        if times.event[a] and (
            times.time[b] > times.time[a] or (times.time[b] == times.time[a] and not times.event[b])
        ):
            assert high[a] < low[b] + 1e-12
    if times.event.any():
        beyond = ~times.event & (times.time >= times.time[times.event].max())
        assert_array_equal(low[beyond], high[beyond])  # who outlives the last death is known to


@given(patients, st.sampled_from([0.0, 0.1]))
def test_triplets_are_those_that_hold_whenever_the_censored_die(subset, gap):
    """Of a piecewise linear difference it is enough to look at the ends of all ranges."""
    target = SurvivalTarget.of(as_times(subset), gap)
    low, high = target.low, target.high
    ends = np.unique(np.concatenate([low, high]))
    possible = [ends[(ends >= a) & (ends <= b)] for a, b in zip(low, high, strict=True)]
    certain = set()
    for i, j, k in product(range(len(subset)), repeat=3):
        if len({i, j, k}) < 3:
            continue
        i_at, j_at, k_at = np.meshgrid(possible[i], possible[j], possible[k])
        if np.min(np.abs(j_at - k_at) - np.abs(j_at - i_at)) > gap + 1e-9:
            certain.add((i, j, k))
    assert as_set(drawn(target)) == certain


@given(patients)
def test_where_all_have_died_times_are_ordered_labels(subset):
    times = as_times(subset)
    times = SurvivalTimes(times.time, np.ones(len(times), bool))
    if np.unique(times.time).size < 2:
        return
    target = SurvivalTarget.of(times)
    first, second = drawn(target), drawn(OrderedTarget(target.low, target.gap))
    assert as_set(first) == as_set(second)
    assert_allclose(np.sort(first.weights), np.sort(second.weights))


def test_triplets_of_a_patient_who_was_censored_early_by_hand():
    # Deaths at 1, 2, 8, 9 are percentiles 0.1, 0.3, 0.55, 0.85; who was censored at 3 is anywhere from 0.4 to 1.
    times = SurvivalTimes(np.array([1.0, 2, 8, 9, 3]), np.array([True, True, True, True, False]))
    target = SurvivalTarget.of(times, 0.0)
    assert_allclose(target.low, [0.1, 0.3, 0.55, 0.85, 0.4])
    assert_allclose(target.high, [0.1, 0.3, 0.55, 0.85, 1.0])
    result = as_set(drawn(target))
    assert {triplet for triplet in result if triplet[1] == 4} == {(1, 4, 0), (2, 4, 0)}
    assert {triplet for triplet in result if triplet[0] == 4} == {(4, 3, 0), (4, 3, 1)}
    assert {triplet for triplet in result if triplet[2] == 4} == {(1, 0, 4)}


def test_strata_are_compared_across():
    times = SurvivalTimes(np.arange(8.0), np.array([True] * 6 + [False] * 2))
    strata = np.arange(8) % 2
    result = drawn(SurvivalTarget.of(times, 0.0), strata=strata)
    assert len(result)
    across = [strata[i] != strata[j] and strata[k] == strata[j] for i, j, k in as_set(result)]
    assert np.mean(across) > 0.5


def test_patients_without_any_certain_triplet_are_not_said_to_be_compared_across_strata():
    # A patient censored at the start is never an anchor; all other patients have similar ones in the other stratum.
    times = SurvivalTimes(np.array([0.0, *range(1, 9), *range(1, 9)]), np.array([False] + [True] * 16))
    target, strata = SurvivalTarget.of(times), np.array([0] + [0] * 8 + [1] * 8)
    assert not np.any(drawn(target).j == 0)
    assert not any(subset.relaxed for subset in candidates(target, None, strata))
    alone = [subset.anchor for subset in candidates(target, None, np.arange(17)) if subset.relaxed]
    assert alone == list(range(1, 17))


def test_a_metric_learned_from_certain_triplets_finds_the_planted_genes_where_most_are_censored():
    result = []
    for seed in range(3):
        D, y = gm.datasets.make_survival(
            50, 12, 12, n_planted=2, share=0.4, donor_effect=0.5, censored=0.6, random_state=seed
        )
        learner = GroundMetricLearner(target="survival", form="diagonal", max_epochs=15, random_state=0).fit(D, y)
        result.append(learner.metric_.importance()[:2].sum())
    assert np.mean(result) > 0.8, result


def test_points_of_samples_and_several_labels_take_survival_times():
    D, y = gm.datasets.make_survival(20, 5, 4, n_planted=1, random_state=0)
    names = np.array(D.names)[np.repeat(np.arange(20), 5)]
    options = {"max_epochs": 2, "random_state": 0}
    complete = GroundMetricLearner(target="survival", **options).fit(D, y)
    rows = GroundMetricLearner(target=Survival(), **options).fit(D.points, np.repeat(y, 5), samples=names)
    assert_array_equal(complete.components_, rows.components_)
    assert_array_equal(complete.classes_, np.unique(y["time"][y["event"]]))
    pair = GroundMetricLearner(target=["survival", "classes"], **options).fit(D, [y, np.arange(20) % 2])
    assert pair.classes_[1].tolist() == [0, 1]


def test_tables_go_by_name_and_events_may_be_numbers():
    D, y = gm.datasets.make_survival(16, 5, 4, n_planted=1, random_state=1)
    table = pd.DataFrame({"time": y["time"], "event": y["event"].astype(int), "age": 50}, index=D.names)
    learner = GroundMetricLearner(target="survival", max_epochs=2, random_state=0)
    expected = learner.fit(D, y).components_
    assert_array_equal(learner.fit(D, table.sample(frac=1.0, random_state=0)).components_, expected)
    renamed = pd.DataFrame({"months": y["time"], "died": y["event"]}, index=D.names)
    assert_array_equal(learner.fit(D, renamed).components_, expected)


@given(patients, st.data())
def test_concordance_is_the_share_of_pairs_counted_one_by_one(subset, data):
    times = as_times(subset)
    risk = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(subset), max_size=len(subset))), dtype=float)
    right = total = 0.0
    for a, b in product(range(len(subset)), repeat=2):
        before = times.time[a] < times.time[b] or (times.time[a] == times.time[b] and not times.event[b])
        if a != b and times.event[a] and before:
            total += 1
            right += 1.0 if risk[a] > risk[b] else 0.5 if risk[a] == risk[b] else 0.0
    assert concordance_index(surv(times.event, times.time), risk) == pytest.approx(right / total)


def test_concordance_of_perfect_opposite_and_equal_risks():
    y = surv([True, True, False, True], [1.0, 2.0, 2.5, 3.0])
    assert concordance_index(y, -y["time"]) == 1.0
    assert concordance_index(y, y["time"]) == 0.0
    assert concordance_index(y, np.zeros(4)) == 0.5


def test_concordance_within_folds_counts_pairs_of_the_same_fold():
    times = SurvivalTimes(np.arange(4.0), np.ones(4, bool))
    risk = np.array([0.9, 0.1, 0.8, 0.2])  # in order within each fold, not between
    assert concordance(times, risk, np.array([0, 1, 0, 1])) == 0.5
    assert concordance(times, risk, np.array([0, 0, 1, 1])) == 1.0
    assert np.isnan(concordance(times, risk, np.arange(4)))


def test_concordance_goes_by_name():
    table = pd.DataFrame({"event": True, "time": [1.0, 2.0, 3.0]}, index=["a", "b", "c"])
    assert concordance_index(table, pd.Series({"c": 0.1, "a": 0.9, "b": 0.5})) == 1.0


D = Distributions(np.arange(8.0)[:, None], np.repeat(list("abcd"), 2))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (surv(True, [1.0, -2.0, 3.0, 4.0]), "y has the time -2 of 'b': expected a number of at least 0"),
        (surv(True, [1.0, np.nan, 3.0, 4.0]), "y has the time nan of 'b'"),
        (surv(True, [1.0, np.inf, 3.0, 4.0]), "y has the time inf of 'b'"),
        (
            surv(False, [1.0, 2.0, 3.0, 4.0]),
            "y has no event among 4 distributions: the order of censored times is unknown",
        ),
        (surv([False, False, False, True], [1.0, 2.0, 3.0, 4.0]), "no time is later than the first event, at 4"),
        (surv(True, [2.0, 2.0, 2.0, 2.0]), "y has no two survival times of known order"),
        (surv(True, [1.0, 2.0, 3.0]), "time of shape (3,): one is needed for each of 4"),
        ([1.0, 2.0, 3.0, 4.0], "y is a list without column names: expected a structured array"),
        (np.ones((4, 2)), "y is a ndarray without column names"),
        (pd.DataFrame({"time": np.arange(4.0), "status": [1, 0, 1, 0]}), "y has the columns ['time', 'status']"),
        (pd.DataFrame({"time": np.arange(4.0), "event": [1, 2, 1, 2]}), "y has the event 2 of 'b': expected True"),
        (pd.DataFrame({"time": np.arange(4.0), "event": [1, None, 1, 0]}), "y has a missing event of 'b'"),
        (pd.DataFrame({"time": list("1234"), "event": [1, 1, 1, 0]}), "time of y must be numbers: found text"),
        (pd.DataFrame({"time": np.arange(4.0), "event": True}, index=list("abce")), "missing 'd'"),
    ],
)
def test_times_that_cannot_be_learned_from_are_refused(y, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        GroundMetricLearner(target="survival").fit(D, y)
    with pytest.raises(ValueError, match=re.escape(message)):
        gm.TransportSurvival().fit(D, y)


def test_other_bad_input_of_survival_is_refused():
    y = surv(True, [1.0, 2.0, 3.0, 4.0])
    with pytest.raises(ValueError, match=r"risk has shape \(3,\)"):
        concordance_index(y[:3], [1.0, np.nan, 2.0])
    with pytest.raises(ParameterError) as caught:
        Survival(gap=-1.0)
    assert (caught.value.parameter, caught.value.value) == ("gap", -1.0)
    with pytest.raises(ValueError, match="the labels give no triplet to learn from: lower the `gap`"):
        GroundMetricLearner(target=Survival(gap=0.9)).fit(D, y)
    with pytest.raises(ValueError, match="class_weight is 'balanced', but `target` contains no classes"):
        GroundMetricLearner(target="survival", class_weight="balanced").fit(D, y)
