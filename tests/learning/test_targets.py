"""Triplets of every kind of label hold, and follow from label distances alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from groundmetric.learning.labels import ClassTarget, DistanceTarget, OrderedTarget, Supervision
from groundmetric.learning.triplets import nearest_triplets, random_triplets

SEED = 3


def drawn(target, t=2, **options):
    return random_triplets(target, t, np.random.RandomState(SEED), **options)


def as_set(triplets):
    return set(zip(triplets.i.tolist(), triplets.j.tolist(), triplets.k.tolist(), strict=True))


values = st.lists(st.integers(0, 12), min_size=4, max_size=14).filter(lambda subset: len(set(subset)) > 1)
gaps = st.sampled_from([0.0, 0.5, 2.0])


@given(values, gaps, st.integers(1, 3))
def test_every_triplet_of_ordered_labels_satisfies_its_inequality(labels, gap, t):
    labels = np.array(labels, dtype=float)
    result = drawn(OrderedTarget(labels, gap), t)
    nearer, farther = np.abs(labels[result.i] - labels[result.j]), np.abs(labels[result.k] - labels[result.j])
    assert np.all(farther - nearer > gap)
    assert np.all(result.i != result.j)
    assert np.all(result.k != result.j)
    assert len(result) == 0 or np.isclose(result.weights.mean(), 1.0)


@given(values, gaps, st.floats(0.01, 100.0), st.floats(-50.0, 50.0))
def test_units_and_origin_of_a_label_do_not_matter(labels, gap, factor, shift):
    labels = np.array(labels, dtype=float)
    first, second = drawn(OrderedTarget(labels, gap)), drawn(OrderedTarget(labels * factor + shift, gap * factor))
    assert as_set(first) == as_set(second)
    assert_allclose(first.weights, second.weights, rtol=1e-6)
    assert as_set(drawn(OrderedTarget.of(labels))) == as_set(drawn(OrderedTarget.of(labels * factor + shift)))


@given(st.lists(st.integers(0, 3), min_size=3, max_size=12), st.permutations(range(4)))
def test_names_of_classes_do_not_matter(labels, order):
    labels = np.array(labels)
    distances = np.random.default_rng(0).random((labels.size, labels.size))
    first, second = (nearest_triplets(codes, 2, distances) for codes in (labels, np.array(order)[labels]))
    assert as_set(first) == as_set(second)


@given(st.lists(st.integers(0, 3), min_size=3, max_size=12))
def test_distances_of_0_and_1_are_classes(labels):
    labels = np.array(labels)
    matrix = (labels[:, None] != labels).astype(float)
    everyone = labels.size  # all neighbours are drawn
    by_matrix, by_class = drawn(DistanceTarget.of(matrix, 0.0), everyone), drawn(ClassTarget(labels), everyone)
    assert as_set(by_matrix) == as_set(by_class)
    assert_allclose(by_matrix.weights, 1.0)


def test_the_weighted_loss_is_that_of_all_triplets_there_are():
    """Weights estimate the sum over all triplets: their sum does not depend on the number of drawn triplets."""
    labels = np.repeat([0.0, 1.0, 2.0], [9, 5, 3])
    small, everyone = drawn(OrderedTarget.of(labels), 2), drawn(OrderedTarget.of(labels), 99)
    excess = np.abs(labels[everyone.k] - labels[everyone.j]) - np.abs(labels[everyone.i] - labels[everyone.j])
    assert_allclose(everyone.weights, excess / excess.mean())

    def shares(triplets):
        kinds = 9 * labels[triplets.i] + 3 * labels[triplets.j] + labels[triplets.k]
        return np.bincount(kinds.astype(int), triplets.weights, 27) / len(triplets)

    assert_allclose(shares(small), shares(everyone))


def test_two_ordered_classes_are_classes():
    labels = np.array([0, 1, 1, 0, 1, 0])
    first, second = drawn(OrderedTarget.of(labels.astype(float))), drawn(ClassTarget(labels))
    assert_array_equal([first.i, first.j, first.k], [second.i, second.j, second.k])
    assert_allclose(first.weights, 1.0)


def test_three_ordered_classes_add_what_classes_do_not_say():
    labels = np.array([0.0, 0.0, 1.0, 1.0, 2.0, 2.0])
    ordered, plain = as_set(drawn(OrderedTarget.of(labels), 2)), as_set(drawn(ClassTarget(labels.astype(int)), 2))
    assert plain < ordered
    assert {(labels[i], labels[j], labels[k]) for i, j, k in ordered - plain} == {(1, 0, 2), (1, 2, 0)}


def test_a_line_of_targets_gives_the_triplets_of_its_values():
    labels = np.array([0.0, 1.0, 3.0, 7.0])
    matrix = np.abs(labels[:, None] - labels)
    assert as_set(drawn(DistanceTarget.of(matrix, 0.5), 9)) == as_set(drawn(OrderedTarget(labels, 0.5), 9))


@pytest.mark.parametrize("kind", ["classes", "ordered", "distances"])
def test_the_unlabelled_are_in_no_triplet(kind):
    values, nobody = np.array([0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 1.0]), [2, 5]
    supervision = np.setdiff1d(np.arange(values.size), nobody)
    if kind == "classes":
        target = ClassTarget(np.where(np.isin(np.arange(values.size), nobody), -1, values.astype(int)))
    elif kind == "ordered":
        target = OrderedTarget(np.where(np.isin(np.arange(values.size), nobody), np.nan, values), 0.0)
    else:
        matrix = np.abs(values[:, None] - values)
        matrix[nobody], matrix[:, nobody] = np.nan, np.nan
        target = DistanceTarget(matrix, 0.0)
    result, without = drawn(target, 9), drawn(target.at(supervision), 9)
    assert as_set(result) == {(supervision[i], supervision[j], supervision[k]) for i, j, k in as_set(without)}
    assert len(result) > 0
    assert_array_equal(np.flatnonzero(target.labelled), supervision)


def test_unknown_entries_of_targets_are_not_compared():
    matrix = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, np.nan], [2.0, np.nan, 0.0]])
    assert as_set(drawn(DistanceTarget.of(matrix, 0.0))) == {(1, 0, 2)}


def test_many_values_are_drawn_from_fifths():
    labels = np.arange(50.0)
    result = drawn(OrderedTarget(labels, 0.0), 3)
    first = np.unique(np.concatenate([result.i[result.j == 0], result.k[result.j == 0]]))
    assert_array_equal(np.bincount((first // 10).astype(int)), 3)


def test_several_labels_make_up_their_shares_of_the_loss():
    classes, values = (
        ClassTarget(np.array([0, 0, 1, 1, 1, -1])),
        OrderedTarget.of(np.array([1.0, 2.0, 5.0, np.nan, 9.0, 3.0])),
    )
    supervision = Supervision((classes, values), np.array([3.0, 1.0]))
    result = drawn(supervision)
    n_first = len(drawn(classes))
    assert_allclose(result.weight.mean(), 1.0)
    assert_allclose(result.weight[:n_first].sum() / result.weight.sum(), 0.75)
    assert_array_equal(result.first < result.second, True)
