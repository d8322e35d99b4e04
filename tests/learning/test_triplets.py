"""Triplets: as many as there should be, of the right classes, over pairs that are listed once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from groundmetric.learning.labels import ClassTarget, Pool
from groundmetric.learning.triplets import Triplets, nearest_triplets, random_triplets

SIZES = [(4, 4), (5, 4, 7), (6, 6, 6, 6)]


def labels_of(sizes, seed=0):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(seed).permutation(labels)


def distances_of(n, seed=0):
    shift = np.random.default_rng(seed).random((n, n))
    return shift + shift.T


def both_kinds(target, t):
    """Random and nearest triplets of classes, which may be given as an array."""
    n = len(getattr(target, "levels", target))
    return random_triplets(target, t, np.random.RandomState(0)), nearest_triplets(target, t, distances_of(n))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("t", [1, 2, 3])
def test_every_anchor_has_t_of_its_class_times_t_of_each_other(sizes, t):
    labels = labels_of(sizes)
    for triplets in both_kinds(labels, t):
        assert len(triplets) == labels.size * t**2 * (len(sizes) - 1)
        assert_array_equal(np.bincount(triplets.j), t**2 * (len(sizes) - 1))
        assert len(set(zip(triplets.i, triplets.j, triplets.k, strict=True))) == len(triplets)


class_sizes = st.lists(st.integers(1, 6), min_size=2, max_size=4)


@given(class_sizes, st.integers(1, 4))
def test_labels_are_right_and_nobody_is_its_own_neighbour(sizes, t):
    labels = labels_of(sizes)
    for triplets in both_kinds(labels, t):
        assert np.all(triplets.i != triplets.j)
        assert_array_equal(labels[triplets.i], labels[triplets.j])
        assert np.all(labels[triplets.k] != labels[triplets.j])


@given(class_sizes, st.integers(1, 4))
def test_small_classes_give_what_they_have(sizes, t):
    labels = labels_of(sizes)
    expected = sum(
        n * min(n - 1, t) * sum(min(m, t) for second, m in enumerate(sizes) if second != c) for c, n in enumerate(sizes)
    )
    for triplets in both_kinds(labels, t):
        assert len(triplets) == expected


def test_a_class_of_one_is_a_neighbour_but_no_anchor():
    labels = np.array([0, 0, 0, 1])
    triplets = random_triplets(labels, 3, np.random.RandomState(0))
    assert set(triplets.j) == {0, 1, 2}
    assert set(triplets.k) == {3}


@given(class_sizes, st.integers(1, 3))
def test_pairs_are_listed_once_and_triplets_point_to_theirs(sizes, t):
    labels = labels_of(sizes)
    for triplets in both_kinds(labels, t):
        pairs = list(zip(triplets.first, triplets.second, strict=True))
        assert np.all(triplets.first < triplets.second)
        assert len(set(pairs)) == len(pairs)
        assert set(triplets.near) | set(triplets.far) == set(range(len(pairs)))
        for i, j, k, near_id, far_id in zip(
            triplets.i, triplets.j, triplets.k, triplets.near, triplets.far, strict=True
        ):
            assert pairs[near_id] == (min(i, j), max(i, j))
            assert pairs[far_id] == (min(j, k), max(j, k))


def test_known_triplets_have_known_pairs():
    triplets = Triplets.from_indices(np.array([1, 0]), np.array([0, 1]), np.array([2, 2]), 3)
    assert (triplets.first.tolist(), triplets.second.tolist()) == ([0, 0, 1], [1, 2, 2])
    assert (triplets.near.tolist(), triplets.far.tolist()) == ([0, 0], [1, 2])


@pytest.mark.parametrize("sizes", SIZES)
def test_the_nearest_are_nearer_than_those_left_out(sizes):
    labels, t = labels_of(sizes), 2
    distances = distances_of(labels.size)
    triplets = nearest_triplets(labels, t, distances)
    for anchor in range(labels.size):
        mine = triplets.j == anchor
        for c in range(len(sizes)):
            chosen = np.unique((triplets.i if c == labels[anchor] else triplets.k)[mine])
            chosen = chosen[labels[chosen] == c]
            members = np.setdiff1d(np.flatnonzero(labels == c), anchor)
            assert_array_equal(np.sort(chosen), np.sort(members[np.argsort(distances[anchor, members])[:t]]))


def test_the_same_seed_gives_the_same_triplets_and_another_seed_others():
    labels = labels_of((6, 6))
    first, repeated, second = (random_triplets(labels, 2, np.random.RandomState(seed)) for seed in (5, 5, 6))
    assert_array_equal([first.i, first.j, first.k], [repeated.i, repeated.j, repeated.k])
    assert np.any(first.i != second.i)


def test_random_neighbours_are_drawn_evenly():
    labels, random = labels_of((5, 5)), np.random.RandomState(0)
    anchor_first = [random_triplets(labels, 1, random) for _ in range(400)]
    drawn = np.bincount([triplets.k[triplets.j == 0][0] for triplets in anchor_first], minlength=10)
    remaining = drawn[labels != labels[0]]
    assert np.all(np.abs(remaining - 80) < 5 * np.sqrt(80 * 0.8))


@given(class_sizes, st.integers(1, 3), st.integers(0, 5))
def test_nearest_triplets_in_the_fewest_words(sizes, t, seed):
    labels, distances = labels_of(sizes, seed), np.random.default_rng(seed).random((sum(sizes), sum(sizes)))
    held_out = np.random.default_rng(seed).random(labels.size) < 0.2
    members = {c: np.flatnonzero((labels == c) & ~held_out) for c in np.unique(labels)}
    expected = []
    for anchor, label in enumerate(labels):
        nearest = {
            c: sorted(set(subset) - {anchor}, key=lambda d: distances[anchor, d])[:t] for c, subset in members.items()
        }
        far_id = [k for c in members if c != label for k in nearest[c]]
        expected += [(i, anchor, k) for i in nearest[label] for k in far_id]
    result = nearest_triplets(labels, t, distances, held_out=held_out)
    assert result.weight is None
    assert result.batch is None
    assert list(zip(result.i, result.j, result.k, strict=True)) == expected


def members_of_batches(triplets):
    """The distributions of every mini-batch, and how many of them are anchors."""
    for batch in np.unique(triplets.batch):
        mine = triplets.batch == batch
        yield np.unique([triplets.i[mine], triplets.j[mine], triplets.k[mine]]), np.unique(triplets.j[mine]).size


@given(class_sizes, st.integers(1, 3), st.integers(0, 5), st.sampled_from([1, 20, 128, 10**9]))
def test_mini_batches_have_whole_anchors_and_few_distributions(sizes, t, seed, batch_size):
    labels = labels_of(sizes, seed)
    held_out = np.random.default_rng(seed).random(labels.size) < 0.2
    triplets = random_triplets(labels, t, np.random.RandomState(seed), batch_size=batch_size, held_out=held_out)
    per_anchor = np.bincount(triplets.j, minlength=1)
    for batch in np.unique(triplets.batch):
        anchors = np.unique(triplets.j[triplets.batch == batch])
        assert np.sum(triplets.batch == batch) == per_anchor[anchors].sum()
        assert np.unique(held_out[anchors]).size == 1
        assert np.sum(triplets.batch == batch) <= batch_size + per_anchor.max()
    for members, n_anchors in members_of_batches(triplets):
        assert members.size <= n_anchors + (t + 1) * len(sizes)


def test_a_larger_cohort_has_more_mini_batches_not_larger_ones():
    result = [list(members_of_batches(random_triplets(labels_of(sizes), 3, np.random.RandomState(0))))
             for sizes in ((20, 20), (200, 200))]  # fmt: skip
    small, large = ([members.size for members, _ in subset] for subset in result)
    assert max(large) <= max(small) == 14
    assert len(large) == pytest.approx(10 * len(small), rel=0.1)


def test_every_mini_batch_has_the_classes_and_strata_in_their_proportions():
    labels, strata = np.repeat([0, 1], [30, 90]), np.tile([0, 1, 2], 40)
    triplets = random_triplets(labels, 2, np.random.RandomState(0), batch_size=96, strata=strata)
    for batch in np.unique(triplets.batch):
        anchors = np.unique(triplets.j[triplets.batch == batch])
        assert np.mean(labels[anchors]) == pytest.approx(0.75, abs=0.1)
        assert np.ptp(np.bincount(strata[anchors])) <= 3


@given(class_sizes, st.integers(1, 3))
def test_balanced_classes_make_up_the_same_share_of_the_loss(sizes, t):
    labels = labels_of(sizes)
    for triplets in both_kinds(ClassTarget(labels, balanced=True), t):
        shares = np.bincount(labels[triplets.j], weights=triplets.weights)
        if len(triplets):
            assert_allclose(shares[shares > 0], len(triplets) / np.count_nonzero(shares))
    plain, balanced = (
        random_triplets(ClassTarget(labels, balanced=first), t, np.random.RandomState(0)) for first in (0, 1)
    )
    assert_array_equal([plain.i, plain.j, plain.k], [balanced.i, balanced.j, balanced.k])


def test_classes_of_one_size_need_no_weights():
    labels = labels_of((5, 5, 5))
    assert random_triplets(ClassTarget(labels, balanced=True), 2, np.random.RandomState(0)).weight is None
    assert ClassTarget(labels, balanced=True).at(np.arange(9)).balanced


def test_from_large_classes_neighbours_are_drawn_without_a_copy_of_the_class(monkeypatch):
    """To copy or shuffle a class for each of its members takes the square of its size: minutes for 100,000 points."""

    def copied(pool):
        raise AssertionError("a class was copied for one anchor")

    labels, t = labels_of((2500, 3000)), 3
    monkeypatch.setattr(Pool, "all", copied)
    triplets = random_triplets(labels, t, np.random.RandomState(0))
    assert len(triplets) == labels.size * t**2
    assert len(set(zip(triplets.i, triplets.j, triplets.k, strict=True))) == len(triplets)
    assert np.all(triplets.i != triplets.j)
    assert_array_equal(labels[triplets.i], labels[triplets.j])
    assert np.all(labels[triplets.k] != labels[triplets.j])
    for c in (0, 1):  # every member is drawn about as often, also the neighbours of the anchor in order
        drawn = np.bincount(triplets.k[labels[triplets.k] == c], minlength=labels.size)[labels == c] / t
        assert drawn.mean() == pytest.approx(t * np.mean(labels != c) / np.mean(labels == c))
        assert 0.2 * drawn.mean() < drawn.var() < drawn.mean()  # at random, and more evenly than independent draws
