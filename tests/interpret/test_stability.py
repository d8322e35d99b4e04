"""Stability of importances in refits: known answers, seeds and groups."""

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import groundmetric as gm
from groundmetric.interpret import stability
from groundmetric.interpret.importance import bootstrap_indices, training_summary

OPTIONS = {"n_top": 4, "random_state": 0}


def test_features_of_the_programme_are_selected_again(case):
    result = stability(case.learner, case.D, case.y, n_refits=12, **OPTIONS)
    programme = np.isin(result.features, list(case.programme))
    assert np.all(result.selected[programme] > 0.8)
    low, high = result.interval
    assert np.all((low <= result.importance) & (result.importance <= high))
    assert np.median(low[programme]) > np.quantile(high[~programme], 0.95)  # twelve refits: single ones are wide
    assert set(result.table()["feature"][:4]) == case.programme


def test_same_seed_same_result_for_any_number_of_workers(case):
    first = stability(case.learner, case.D, case.y, n_refits=2, **OPTIONS)
    with joblib.parallel_config("threading"):
        two = stability(case.learner, case.D, case.y, n_refits=2, n_jobs=2, **OPTIONS)
    np.testing.assert_array_equal(first.refits, two.refits)


def test_short_refits_vary_as_much_as_full_training_does(case):
    long = clone(case.learner).set_params(max_epochs=30, random_state=0).fit(case.D, case.y)
    short = stability(long, case.D, case.y, n_refits=8, **OPTIONS)
    full = stability(long.set_params(max_epochs=150), case.D, case.y, n_refits=8, **OPTIONS)  # a fifth: 30 epochs
    ratio = np.sqrt(short.refits).std(axis=0) / np.sqrt(full.refits).std(axis=0)
    assert 0.75 < np.median(ratio) < 1.5


def test_learners_that_are_not_fitted_and_other_methods(case):
    fresh = stability(clone(case.learner), case.D, case.y, n_refits=2, **OPTIONS)
    np.testing.assert_array_equal(fresh.importance, case.learner.metric_.importance())
    second = stability(gm.baselines.PointTransport(LinearDiscriminantAnalysis()), case.D, case.y, n_refits=2, **OPTIONS)
    assert second.refits.shape == (2, case.D.shape[1])


@pytest.mark.parametrize("grouped", [False, True])
def test_bootstrap_keeps_class_sizes_and_two_of_each(grouped):
    codes = np.array([0, 0, 0, 0, 1, 1, 2])
    groups = ["a", "a", "b", "b", "c", "d", "e"] if grouped else None
    draws = bootstrap_indices(codes, groups, 200, np.random.RandomState(0))
    assert len(draws) == 200
    for positions in draws:
        assert np.bincount(codes[positions]).tolist() == [4, 2, 1]
        assert set(positions[codes[positions] == 1]) == {4, 5}  # of two, both are needed
        assert len(set(positions[codes[positions] == 0])) >= 2
        if grouped:
            assert np.sum(positions == 0) == np.sum(positions == 1)
    assert len({tuple(positions) for positions in draws}) > 1


def test_groups_that_leave_nothing_to_draw():
    with pytest.raises(ValueError, match="too few groups"):
        bootstrap_indices(np.array([0, 0, 1, 1]), ["a"] * 4, 3, np.random.RandomState(0))


@pytest.mark.parametrize("options", [{"n_refits": 0}, {"n_top": 1.5}])
def test_invalid_numbers_are_refused(case, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        stability(case.learner, case.D, case.y, **options)


def test_training_is_summarised_by_the_held_out_loss_if_there_is_one():
    history = {"active": [0.9, 0.0], "validation_loss": [0.5, 0.25]}
    assert "0.25 at best (epoch 2)" in training_summary(history)
    assert "nothing is left to learn" in training_summary({"active": [0.9, 0.0]})
    assert training_summary({"active": [0.9, 0.34]}).startswith("34% of the triplets are active")
    assert training_summary({"active": [0.0]}).startswith("no triplet was ever active")
