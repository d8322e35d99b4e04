"""The paper's baselines: the map of its scripts (M itself, or a pivoted factor, in place of W), and bad parameters."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from paper.baselines import by_name
from paper.lfda import LFDA
from paper.paper_map import paper_map, pivoted_cholesky

from ..baselines.examples import cohort

D, y = cohort()


def test_the_paper_applied_the_matrix_itself_to_few_features():
    W = np.random.default_rng(0).normal(size=(3, 5))
    assert_allclose(paper_map(W), W.T @ W)


def test_the_paper_applied_five_rows_of_a_factor_to_many_features():
    W = np.random.default_rng(0).normal(size=(8, 101))
    F, M = paper_map(W), W.T @ W
    assert F.shape == (5, 101)
    left = M - F.T @ F
    assert np.linalg.eigvalsh(left).min() > -1e-9
    assert np.sum(np.abs(left).max(axis=0) < 1e-9) == 5  # the features that were chosen are reproduced
    assert np.abs(left[np.diag(M).argmax()]).max() < 1e-9


def test_a_pivoted_factor_of_enough_rows_is_exact():
    W = np.random.default_rng(0).normal(size=(3, 20))
    F = pivoted_cholesky(W, 10)
    assert F.shape == (3, 20)
    assert_allclose(F.T @ F, W.T @ W, atol=1e-9)
    assert_array_equal(pivoted_cholesky(np.zeros((2, 4)), 3), np.zeros((1, 4)))


@pytest.mark.parametrize("name", ["nca", "lmnn", "itml"])
def test_as_in_paper_is_the_odd_map_of_the_same_metric(name):
    usual, odd = (by_name(name, max_iter=10, random_state=0, as_in_paper=paper).fit(D, y) for paper in (False, True))
    assert_allclose(odd.components_, usual.metric_.matrix(), rtol=1e-6, atol=1e-12)


def test_lfda_as_in_paper_follows_metric_learn_and_then_maps_oddly():
    usual, odd = (LFDA(as_in_paper=paper).fit(D, y) for paper in (False, True))
    assert odd.components_.shape == (4, 4)
    assert_allclose(odd.components_, odd.components_.T, rtol=1e-9)
    assert not np.allclose(odd.components_, usual.metric_.matrix())


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("lmnn", {"n_neighbors": 0}),
        ("lmnn", {"learning_rate": 0.0}),
        ("lmnn", {"regularization": 1.5}),
        ("lfda", {"k": 0}),
        ("lfda", {"embedding": "flat"}),
        ("itml", {"gamma": 0.0}),
        ("itml", {"bounds": (0.0, 1.0)}),
        ("itml", {"bounds": "wide"}),
        ("itml", {"n_constraints": 0}),
        ("itml", {"max_points": 1}),
    ],
)
def test_impossible_parameters_are_named(name, params):
    with pytest.raises(ValueError, match=next(iter(params))):
        by_name(name, **params).fit(D, y)
