"""Splits: stratified, by outer group, and feasible; errors contain names and numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import GroupKFold, LeaveOneOut

from groundmetric.evaluation import folds, leave_one_group_out, leave_one_out, shuffled
from groundmetric.learning.splits import as_splits, check_splits, rounds_of

TWO = np.repeat(["ill", "well"], [6, 12])


@st.composite
def grouped_cohorts(draw):
    """Labels and outer groups: groups of one class or of several, every class in at least three groups."""
    n_classes = draw(st.integers(2, 3))
    one_class = [[c] * draw(st.integers(1, 3)) for c in range(n_classes) for _ in range(draw(st.integers(3, 5)))]
    several = [list(range(n_classes)) for _ in range(draw(st.integers(0, 3)))]
    labels = [label for group in one_class + several for label in group]
    groups = [f"p{g}" for g, group in enumerate(one_class + several) for _ in group]
    order = draw(st.permutations(range(len(labels))))
    return np.array(labels)[order], np.array(groups)[order]


@given(grouped_cohorts(), st.integers(0, 100))
def test_a_group_never_straddles_and_every_class_can_be_learned(cohort, seed):
    y, groups = cohort
    made = [
        shuffled(y, groups=groups, n_splits=3, test_size=0.4, random_state=seed),
        folds(y, groups=groups, n_splits=3, n_repeats=2, random_state=seed),
    ]
    for train, test in made[0] + made[1]:
        assert not set(groups[train]) & set(groups[test])
        assert set(train) | set(test) == set(range(y.size))
        assert not set(train) & set(test)
        assert set(y[train]) == set(y)
    assert rounds_of(made[1], y.size).tolist() == [0, 0, 0, 1, 1, 1]


@given(st.integers(0, 1000))
def test_shuffled_splits_keep_the_class_shares(seed):
    for train, test in shuffled(TWO, n_splits=3, test_size=1 / 3, random_state=seed):
        assert (np.sum(TWO[test] == "ill"), np.sum(TWO[test] == "well")) == (2, 4)
        assert train.size == 12


def test_groups_are_shuffled_near_to_the_class_shares_and_size():
    groups = np.arange(36) // 2
    y = np.where(groups % 3 == 0, "ill", "well")
    for _, test in shuffled(y, groups=groups, test_size=1 / 3, random_state=0):
        assert (np.sum(y[test] == "ill"), np.sum(y[test] == "well")) == (4, 8)


def test_donors_who_are_treated_and_not_are_split_whole():
    donors, y = np.repeat(np.arange(8), 2), np.tile(["control", "treated"], 8)
    splits = shuffled(y, groups=donors, n_splits=10, test_size=0.25, random_state=0)
    assert all(np.bincount(donors[test], minlength=8).max() == 2 for _, test in splits)
    assert len({tuple(test) for _, test in splits}) == 10


def test_the_same_seed_gives_the_same_splits_and_another_gives_others():
    groups = np.arange(18) // 2 * 2
    for make in (
        lambda seed: shuffled(TWO, random_state=seed),
        lambda seed: folds(TWO, groups=groups, n_splits=3, random_state=seed),
    ):
        once, repeated, second = ([test.tolist() for _, test in make(seed)] for seed in (0, 0, 1))
        assert once == repeated != second


def test_leave_one_out_and_leave_one_group_out_test_everybody_once():
    assert [test.tolist() for _, test in leave_one_out(TWO)] == [[position] for position in range(18)]
    splits = leave_one_group_out(["b", "a", "b", "c"])
    assert [(train.tolist(), test.tolist()) for train, test in splits] == [
        ([1, 3], [0, 2]),
        ([0, 2, 3], [1]),
        ([0, 1, 2], [3]),
    ]
    assert rounds_of(splits, 4).tolist() == [0, 0, 0]


def test_shuffled_splits_have_no_rounds():
    assert rounds_of(shuffled(TWO, random_state=0), 18) is None


def test_splits_of_scikit_learn_are_taken_as_they_are():
    groups = np.arange(18) // 3
    ours = as_splits(GroupKFold(3), TWO, groups)
    theirs = list(GroupKFold(3).split(TWO, TWO, groups))
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(ours, theirs, strict=True))
    assert len(as_splits(LeaveOneOut(), TWO)) == 18
    assert as_splits([(np.arange(18) > 3, [0, 1, 2, 3])], TWO)[0][0].tolist() == list(range(4, 18))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: folds(["a", "a", "a", "b", "b"], n_splits=3), "class 'b' has 2 distributions, but 3 are needed"),
        (lambda: folds(["a"] * 4 + ["b"] * 4, groups=[1, 2, 3, 4, 5, 5, 6, 6], n_splits=3),
         r"class 'b' has 2 groups \(5, 6\), but 3 are needed: one for every fold"),
        (lambda: shuffled(["a", "a", "b"]), "class 'b' has 1 distributions, but 2 are needed"),
        (lambda: shuffled(["a", "a", "b", "b"], groups=["p", "q", "r", "r"]), r"class 'b' has 1 groups \('r'\)"),
        (lambda: shuffled([0, 0, 1, 1, 2, 2], test_size=0.2), "2 of 6 distributions are tested, but there are 3"),
        (lambda: shuffled([0, 1] * 5, groups=np.arange(10) // 2), "only 5 different splits of 5 groups were found"),
        (lambda: shuffled([0, 0, 1, 1], test_size=1.5), "test_size is 1.5: expected a share between 0 and 1"),
        (lambda: shuffled([1, 1, 1]), r"all distributions have one class \(\[1\]\): at least two"),
        (lambda: folds([0, 0, 1, 1], n_splits=1), "n_splits is 1: expected a whole number of at least 2"),
        (lambda: folds([0, 0, 1, 1], groups=[1, 2], n_splits=2), "groups has 2 entries for 4 distributions"),
        (lambda: folds([0, 0, 1, 1], groups=[1, 2, 3, None], n_splits=2), r"missing value \(None\)"),
        (lambda: leave_one_group_out(["x", "x"]), r"all distributions are in one group \('x'\)"),
        (lambda: leave_one_out(["x"]), "1 distributions: at least two"),
        (lambda: as_splits([[0, 1, 2]], TWO), r"splits must be pairs \(train, test\) of indices below 18"),
        (lambda: as_splits([([0, 1], [18])], TWO), "18 is out of range"),
        (lambda: as_splits([([0, 1], [0.5])], TWO), "splits must be pairs"),
        (lambda: check_splits([], TWO), "there are no splits"),
        (lambda: check_splits(as_splits([([0, 7], [])], TWO), TWO), "split 0 has 2 distributions to learn from and 0"),
        (lambda: check_splits(as_splits([([0, 7], [7])], TWO), TWO), "distribution 7 is on both sides"),
        (lambda: check_splits(as_splits([([0, 7], [1])], TWO), TWO, list("xx" + "y" * 16)), "divides group 'x'"),
        (lambda: check_splits(as_splits([([0, 1], [7])], TWO), TWO), "split 0 has no distribution of class 'well'"),
        (lambda: check_splits(leave_one_group_out([1, 1, 2, 3]), np.array(list("aabb")), [1, 1, 2, 3]),
         r"class 'a' to learn from: it occurs in one group only \(1\), which is tested here"),
    ],
)  # fmt: skip
def test_what_cannot_be_split_is_said_with_names_and_numbers(call, message):
    with pytest.raises(ValueError, match=message):
        call()
