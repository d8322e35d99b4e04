"""Restricted permutations: known sets of arrangements, equal probabilities, independence of the order of samples."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import stats

from groundmetric.learning.splits import restricted_permutations


@st.composite
def cohorts(draw):
    """Classes, groups and strata of a few distributions, in any order."""
    n = draw(st.integers(4, 12))
    return tuple(np.array(draw(st.lists(st.integers(0, top), min_size=n, max_size=n))) for top in (2, 4, 1))


@given(cohorts(), st.integers(0, 100))
def test_labels_of_distributions_are_exchanged_within_strata(cohort, seed):
    codes, _, strata = cohort
    try:
        exchange = restricted_permutations(codes, strata=strata)
    except ValueError:
        assert all(np.unique(codes[strata == s]).size == 1 for s in np.unique(strata))
        return
    drawn = exchange.draw(np.random.RandomState(seed))
    for stratum in np.unique(strata):
        assert sorted(drawn[strata == stratum]) == sorted(codes[strata == stratum])


@given(cohorts(), st.integers(0, 100))
def test_groups_of_one_label_exchange_it_as_one(cohort, seed):
    codes, groups, _ = cohort
    codes = groups % 2  # every group has one label
    if np.unique(codes).size < 2:
        return
    exchange = restricted_permutations(codes, groups)
    drawn = exchange.draw(np.random.RandomState(seed))
    assert exchange.among == "groups"
    assert all(np.unique(drawn[groups == g]).size == 1 for g in np.unique(groups))
    first = np.unique(groups, return_index=True)[1]
    assert sorted(drawn[first]) == sorted(codes[first])


def every_draw(exchange, n=500):
    random = np.random.RandomState(0)
    return {tuple(exchange.draw(random)) for _ in range(n)}


def test_groups_of_several_labels_exchange_them_inside():
    codes, groups = np.array([0, 1, 0, 1, 0, 0, 1]), np.array([1, 1, 2, 2, 3, 3, 3])
    exchange = restricted_permutations(codes, groups)
    assert (exchange.among, exchange.arrangements) == ("distributions within groups", 2 * 2 * 3)
    drawn = every_draw(exchange)
    assert len(drawn) == 12
    assert all(sum(labels[4:]) == 1 == sum(labels[:2]) for labels in drawn)


def test_groups_that_differ_in_what_they_hold_also_exchange_it_with_others_of_their_size():
    codes, groups = np.array([0, 0, 1, 1, 0, 1, 1]), np.array([1, 1, 2, 2, 3, 3, 4])
    exchange = restricted_permutations(codes, groups)
    assert exchange.among == "distributions within groups and groups of one size"
    assert exchange.arrangements == 6 * 2  # who holds 00, 11 and 01, and in which order the last
    drawn = every_draw(exchange)
    assert len(drawn) == 12
    for labels in drawn:
        assert labels[6] == 1  # alone in its size
        assert sorted(tuple(sorted(labels[at : at + 2])) for at in (0, 2, 4)) == [(0, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize("groups", [None, [0, 0, 1, 1, 2], [0, 0, 0, 0, 1], [0, 1, 2, 3, 4], [0, 0, 0, 0, 0]])
@pytest.mark.parametrize("codes", [[0, 1, 0, 1, 1], [0, 0, 1, 1, 1], [0, 1, 2, 1, 0]])
def test_arrangements_are_counted_right(codes, groups):
    exchange = restricted_permutations(np.array(codes), groups)
    assert len(every_draw(exchange)) == exchange.arrangements


def test_strata_and_groups_together():
    codes, patients, centres = np.array([0, 0, 1, 1, 0, 1]), list("aabbcd"), list("xxxxyy")
    exchange = restricted_permutations(codes, patients, centres)
    assert (exchange.among, exchange.arrangements) == ("groups within strata", 4)
    mixed = restricted_permutations(np.array([0, 1, 1, 1, 0, 0]), list("aabbcc"), list("xxxxyy"))
    assert (mixed.among, mixed.arrangements) == ("distributions within groups and groups of one size within strata", 4)


def test_groups_in_several_strata_exchange_with_groups_in_the_same_strata():
    """Crossover: each donor is treated in one batch and not in the other; labels stay in their batch."""
    groups, batches = np.repeat(list("abcd"), 2), np.tile(list("xy"), 4)
    codes = np.array([0, 1, 0, 1, 1, 0, 1, 0])
    exchange = restricted_permutations(codes, groups, batches)
    assert exchange.arrangements == 6
    for labels in every_draw(exchange):
        assert sum(labels[0::2]) == sum(labels[1::2]) == 2
        assert all(labels[k] != labels[k + 1] for k in range(0, 8, 2))
    spanning = restricted_permutations(np.array([0, 0, 1, 1, 0, 1]), list("aabbcd"), list("xyxxyy"))
    assert every_draw(spanning) == {(0, 0, 1, 1, 0, 1), (0, 0, 1, 1, 1, 0)}


def test_one_sample_with_another_label_does_not_make_samples_independent():
    """12 patients with 4 samples each: the arrangements are those of patients, times the place of the exception."""
    codes, patients = np.repeat(np.arange(12) % 2, 4), np.repeat(np.arange(12), 4)
    codes[0] = 1
    exchange = restricted_permutations(codes, patients)
    assert exchange.arrangements == 12 * 462 * 4  # who has the exception, which 5 of 11 others have class 0, its place
    for labels in exchange.draws(50, np.random.default_rng(0)):
        assert Counter(labels.reshape(12, 4).sum(axis=1).tolist()) == {0: 5, 1: 1, 4: 6}


def test_groups_of_different_sizes_exchange_labels_only_if_groups_are_the_units():
    codes, patients = np.array([0, 0, 1, 1, 0, 1]), list("aabbcd")
    assert restricted_permutations(codes, patients).arrangements == 6
    assert restricted_permutations(codes, patients, equal_sizes=True).arrangements == 4
    with pytest.raises(ValueError, match="nothing to exchange"):
        restricted_permutations(np.array([0, 0, 1]), list("aab"), equal_sizes=True)


def test_numbers_are_permuted_as_classes_are():
    values = np.array([0.5, 2.5, 1.5, 3.5])
    assert restricted_permutations(values).arrangements == 24
    within = restricted_permutations(values, list("aabb"))
    assert {tuple(sorted(labels[:2])) for labels in every_draw(within)} == {(0.5, 2.5), (1.5, 3.5)}


@given(cohorts(), st.integers(0, 100), st.booleans())
def test_the_order_of_samples_does_not_matter(cohort, seed, constant):
    codes, groups, strata = cohort
    codes = groups % 2 if constant else codes
    names = [f"s{k}" for k in np.random.default_rng(seed).permutation(codes.size)]
    order = np.random.default_rng(seed + 1).permutation(codes.size)
    try:
        single = restricted_permutations(codes, groups, strata, names=names)
    except ValueError:
        return
    second = restricted_permutations(codes[order], groups[order], strata[order], names=[names[k] for k in order])
    draws = [exchange.sample(5, np.random.default_rng(seed)) for exchange in (single, second)]
    assert sorted(map(tuple, draws[0][:, order])) == sorted(map(tuple, draws[1]))
    assert (single.among, single.arrangements, single.partitions) == (
        second.among,
        second.arrangements,
        second.partitions,
    )


DESIGNS = [
    ([0, 0, 1, 1, 1], None, None),
    ([0, 1, 0, 1, 0, 1], list("aabbcc"), None),
    ([0, 0, 0, 1, 1, 1], list("aabbcc"), list("xyxyxy")),
    ([0, 0, 1, 1, 2, 2], None, list("xxxyyy")),
    ([0, 0, 1, 1, 0, 1, 1], list("aabbccd"), None),
]


@pytest.mark.parametrize(("codes", "groups", "strata"), DESIGNS)
def test_all_arrangements_are_listed_once_and_drawn_with_equal_probabilities(codes, groups, strata):
    exchange = restricted_permutations(np.array(codes), groups, strata)
    listed = exchange.sample(exchange.arrangements - 1, np.random.default_rng(0))
    assert_array_equal(listed[0], codes)
    assert len({tuple(labels) for labels in listed}) == len(listed) == exchange.arrangements
    drawn = Counter(map(tuple, exchange.draws(400 * len(listed), np.random.default_rng(1))))
    assert set(drawn) == {tuple(labels) for labels in listed}
    assert stats.chisquare(list(drawn.values())).pvalue > 0.001
    random = exchange.sample(exchange.arrangements - 2, np.random.default_rng(0))
    assert_array_equal(random[0], codes)


def test_classes_have_no_order():
    """A statistic that treats classes alike cannot tell 6 exchanged pairs from the observed ones."""
    pairs = restricted_permutations(np.tile([0, 1], 6), np.repeat(np.arange(6), 2))
    assert (pairs.arrangements, pairs.partitions) == (64, 32)
    assert restricted_permutations(np.array([0, 0, 1, 1, 1])).partitions == 10


@pytest.mark.parametrize(
    ("codes", "groups"),
    [
        ([0, 0, 1, 1], None),
        ([0, 0, 1, 1, 1], None),
        ([0, 0, 1, 1, 2, 2], None),
        ([0, 1, 0, 1, 0, 1], ["a", "a", "b", "b", "c", "c"]),
        ([0, 0, 1, 1, 1, 1], ["a", "a", "b", "b", "c", "c"]),
    ],
)
def test_partitions_are_arrangements_up_to_the_names_of_classes(codes, groups):
    exchange = restricted_permutations(np.array(codes), groups)
    random = np.random.RandomState(0)
    seen = set()
    for _ in range(2000):
        drawn = exchange.draw(random).tolist()
        seen.add(tuple(drawn.index(code) for code in drawn))  # the first position of each class names it
    assert exchange.partitions == len(seen)
