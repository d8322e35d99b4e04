"""Across strata: the nearer ones from others, the farther ones from the same, as far as there are any."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from groundmetric.learning.labels import OrderedTarget, Supervision
from groundmetric.learning.triplets import candidates, nearest_triplets, random_triplets


def drawn(target, strata=None, t=2):
    return random_triplets(target, t, np.random.RandomState(0), strata=strata)


def relaxed(target, strata):
    return {subset.anchor for subset in candidates(Supervision.of(target).targets[0], None, strata) if subset.relaxed}


pairs = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=4, max_size=14)


@given(pairs)
def test_only_anchors_without_a_choice_stay_within_or_go_across(pairs):
    labels, strata = np.array(pairs).T
    result, exempt = drawn(labels, strata), relaxed(labels, strata)
    bound = ~np.isin(result.j, list(exempt))
    assert np.all(strata[result.i] != strata[result.j], where=bound)
    assert np.all(strata[result.k] == strata[result.j], where=bound)
    for j in set(range(labels.size)) - exempt:
        assert np.any((labels == labels[j]) & (strata != strata[j]))
        assert np.any((labels != labels[j]) & (strata == strata[j]))


@given(pairs)
def test_an_anchor_has_triplets_with_strata_where_it_has_them_without(pairs):
    labels, strata = np.array(pairs).T
    assert_array_equal(np.unique(drawn(labels, strata).j), np.unique(drawn(labels).j))


def test_a_paired_design_compares_a_donors_arms():
    arm, donor = np.array([0, 1, 0, 1, 0, 1]), np.array([0, 0, 1, 1, 2, 2])
    result = drawn(arm, donor, t=9)
    assert not relaxed(arm, donor)
    assert_array_equal(result.k, result.j ^ 1)  # the other arm of the donor
    assert_array_equal(arm[result.i], arm[result.j])
    assert len(result) == 6 * 2


def test_strata_that_are_the_classes_leave_no_choice():
    labels = np.array([0, 0, 0, 1, 1, 1])
    assert relaxed(labels, labels) == set(range(6))
    assert len(drawn(labels, labels)) == len(drawn(labels))


def test_ordered_labels_within_strata():
    labels, strata = np.array([0.0, 1.0, 2.0, 0.0, 1.0, 2.0]), np.array([0, 0, 0, 1, 1, 1])
    result = drawn(OrderedTarget(labels, 0.0), strata)
    assert np.all(strata[result.i] != strata[result.j])
    assert np.all(strata[result.k] == strata[result.j])
    assert np.all(np.abs(labels[result.k] - labels[result.j]) > np.abs(labels[result.i] - labels[result.j]))


def test_the_nearest_across_strata():
    labels, strata = np.array([0, 0, 0, 1, 1]), np.array([0, 1, 1, 0, 0])
    distances = np.abs(np.arange(5.0)[:, None] - np.arange(5.0))
    result = nearest_triplets(labels, 1, distances, strata=strata)
    mine = result.j == 0
    assert (result.i[mine].tolist(), result.k[mine].tolist()) == ([1], [3])
