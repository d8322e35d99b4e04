"""Folds: groups undivided, assigned by name, and designs in which any three folds are left out together."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from groundmetric.ensemble import Classes, Numbers
from groundmetric.ensemble.members import assign_folds, choose_design, designs

N_MEMBERS = (1, 4, 5, 10, 14, 15, 30, 56, 1000)


def covers_triples(n_folds, design):
    """Return whether any three folds, some of which may be equal, are left out together by some member."""
    return all(any(set(three) <= set(left_out) for left_out in design) for three in combinations(range(n_folds), 3))


@pytest.mark.parametrize("n_members", N_MEMBERS)
def test_any_three_folds_are_left_out_by_a_member_in_every_design(n_members):
    for n_folds, design in designs(n_members):
        assert covers_triples(n_folds, design)
        assert len(set(design)) == len(design)
        assert all(len(left_out) < n_folds for left_out in design)


def test_steiner_systems_leave_out_any_three_folds_exactly_once():
    for n_folds, design in list(designs(14))[:2]:
        assert len(design) == {8: 14, 10: 30}[n_folds]
        for three in combinations(range(n_folds), 3):
            assert sum(set(three) <= set(left_out) for left_out in design) == 1


@pytest.mark.parametrize("n_members", [4, 10, 14, 30])
def test_the_documented_numbers_of_members(n_members):
    assert len(next(designs(n_members))[1]) == n_members


@given(
    st.integers(2, 60).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 2), min_size=n, max_size=n), st.lists(st.integers(0, n), min_size=n, max_size=n)
        )
    ),
    st.sampled_from([1, 10, 14, 30]),
    st.booleans(),
)
def test_groups_are_never_divided_and_designs_cover(labels_and_groups, n_members, numeric):
    labels, groups = (np.array(values) for values in labels_and_groups)
    groups = np.unique(groups, return_inverse=True)[1]
    target = Numbers(labels.astype(float)) if numeric else Classes(labels, 3)
    folds, design = choose_design(target, groups, list(range(groups.max() + 1)), n_members, 0)
    assert all(np.unique(folds[groups == group]).size == 1 for group in range(groups.max() + 1))
    assert_array_equal(np.unique(folds), np.arange(folds.max() + 1))
    if design:
        assert covers_triples(int(folds.max()) + 1, design)
        assert all(target.can_train(~np.isin(folds, left_out), groups) for left_out in design)


def named_folds(names, codes, n_folds=8, seed=0, numeric=False):
    target = Numbers(np.asarray(codes, float)) if numeric else Classes(np.asarray(codes), int(np.max(codes)) + 1)
    return dict(zip(names, assign_folds(target, np.arange(len(names)), names, n_folds, seed).tolist(), strict=True))


@pytest.mark.parametrize("numeric", [False, True])
def test_folds_depend_on_names_and_not_on_order(numeric):
    names, codes = [f"p{k}" for k in range(40)], np.arange(40) % 3
    codes = np.random.default_rng(1).normal(size=40) if numeric else codes
    order = np.random.default_rng(0).permutation(40)
    first = named_folds(names, codes, numeric=numeric)
    assert first == named_folds([names[k] for k in order], codes[order], numeric=numeric)
    assert first != named_folds(names, codes, seed=1, numeric=numeric)
    assert first != named_folds([f"q{k}" for k in range(40)], codes, numeric=numeric)


def test_classes_and_strata_are_balanced_over_folds():
    codes, strata = np.repeat([0, 1], 32), np.tile([0, 1], 32)
    folds = assign_folds(Classes(codes, 2, strata), np.arange(64), list(range(64)), 8, 0)
    counts = np.zeros((8, 4), int)
    np.add.at(counts, (folds, 2 * codes + strata), 1)
    assert_array_equal(counts, 2)


def test_numbers_are_balanced_over_folds():
    values = np.random.default_rng(0).normal(size=64)
    folds = assign_folds(Numbers(values), np.arange(64), list(range(64)), 8, 0)
    ranks = np.argsort(np.argsort(values)) // 8
    assert all(sorted(ranks[folds == fold]) == list(range(8)) for fold in range(8))


def test_a_class_of_two_leaves_no_members():
    """Check that the design is empty as a whole: a kernel without members for some samples would reveal labels."""
    codes = np.array([0, 0] + [1] * 14)
    assert choose_design(Classes(codes, 2), np.arange(16), list(range(16)), 14, 0)[1] == []


def test_few_groups_of_a_class_get_members_that_leave_out_less():
    codes = np.array([0] * 5 + [1] * 19)
    folds, design = choose_design(Classes(codes, 2), np.arange(24), list(range(24)), 14, 0)
    assert len(design) == 56
    assert covers_triples(int(folds.max()) + 1, design)


@pytest.mark.parametrize(("n_folds", "n_designed"), [(3, 0), (4, 4), (5, 10), (6, 20), (8, 14), (10, 30)])
def test_given_folds_are_kept(n_folds, n_designed):
    given_folds = np.arange(60) % n_folds
    target = Classes(np.arange(60) // 30, 2)
    folds, design = choose_design(target, np.arange(60), list(range(60)), 1, 0, given_folds)
    assert folds is given_folds
    assert len(design) == n_designed
