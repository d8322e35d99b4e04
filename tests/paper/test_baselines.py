"""The linear map of the paper's scripts, and the baselines by name."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import groundmetric as gm
from paper.baselines import BASELINES, as_in_scripts, by_name, pivoted_cholesky, scripts_map

from .examples import cohort

D, y = cohort()
QUICK = {"nca": {"max_iter": 10}, "lmnn": {"max_iter": 10}, "itml": {"max_iter": 20}}


def test_the_scripts_apply_the_matrix_itself_to_few_features():
    W = np.random.default_rng(0).normal(size=(3, 5))
    assert_allclose(scripts_map(W), W.T @ W)


def test_the_scripts_apply_five_rows_of_a_factor_to_many_features():
    W = np.random.default_rng(0).normal(size=(8, 101))
    F, M = scripts_map(W), W.T @ W
    assert F.shape == (5, 101)
    residual = M - F.T @ F
    assert np.linalg.eigvalsh(residual).min() > -1e-9
    assert np.sum(np.abs(residual).max(axis=0) < 1e-9) == 5  # the features that were chosen come out exactly
    assert np.abs(residual[np.diag(M).argmax()]).max() < 1e-9


def test_a_pivoted_factor_of_enough_rows_is_exact():
    W = np.random.default_rng(0).normal(size=(3, 20))
    F = pivoted_cholesky(W, 10)
    assert F.shape == (3, 20)
    assert_allclose(F.T @ F, W.T @ W, atol=1e-9)
    assert_array_equal(pivoted_cholesky(np.zeros((2, 4)), 3), np.zeros((1, 4)))


@pytest.mark.parametrize("name", QUICK)
def test_the_form_of_the_scripts_is_another_map_of_the_same_metric(name):
    published = by_name(name, **QUICK[name], random_state=0).fit(D, y)
    scripts = as_in_scripts(name, **QUICK[name], random_state=0).fit(D, y)
    assert_allclose(scripts.components_, published.metric_.matrix(), rtol=1e-6, atol=1e-12)
    assert_allclose(scripts.distances(D), gm.pairwise_distances(D, metric=scripts.metric_), atol=1e-12)
    assert_array_equal(scripts.metric_.variances, published.metric_.variances)


def test_lfda_in_the_form_of_the_scripts_follows_metric_learn_as_well():
    published, scripts = by_name("lfda").fit(D, y), as_in_scripts("lfda").fit(D, y)
    assert scripts.components_.shape == (4, 4)
    assert_allclose(scripts.components_, scripts.components_.T, rtol=1e-9)
    assert not np.allclose(scripts.components_, published.metric_.matrix())


def test_the_papers_baselines_are_added_to_those_of_the_package():
    added = {kind.__name__ for kind in BASELINES.values()} - set(gm.baselines.__all__)
    assert added == {"LMNN", "LFDA", "ITML", "NCA", "Manhattan", "Cosine", "PCAEuclidean", "LinearDiscriminant"}
    with pytest.raises(ValueError, match="no baseline is called 'svm'"):
        by_name("svm")
