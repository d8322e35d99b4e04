"""The scale of values: their kind, and differences in preprocessing between new and training values."""

import re

import numpy as np
import pytest
from scipy import sparse

from groundmetric._anndata.cohort import default_rule
from groundmetric._anndata.source import moments
from groundmetric.tl.transfer import other_scale

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(RNG.gamma(0.5, 2.0, 200), (300, 200)).astype(float)


def logs(counts, target=1e4):
    return np.log1p(counts * target / np.maximum(counts.sum(axis=1, keepdims=True), 1.0))


def standardised(values):
    return (values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-9)


def of(values):
    return moments(values, np.arange(len(values)))


def why(new, training):
    return other_scale(of(new), of(training), [f"f{k}" for k in range(training.shape[1])])


PANEL = RNG.gamma(4.0, 10.0 ** RNG.uniform(-2, 4, 20), (300, 20))


def test_kinds_of_values_are_counted_the_same_in_sparse_and_dense_matrices():
    values = np.where(COUNTS > 3, -COUNTS, COUNTS)
    dense, thin = of(values), moments(sparse.csr_matrix(values), np.arange(300))
    assert (dense.negative, dense.zeros) == (np.mean(values < 0), np.mean(values == 0))
    assert (thin.negative, thin.zeros) == (dense.negative, pytest.approx(dense.zeros))
    columns = moments(sparse.csr_matrix(values), np.arange(300), np.array([3, 7]))
    np.testing.assert_allclose(columns.mean, values[:, [3, 7]].mean(axis=0))
    np.testing.assert_allclose(columns.root_mean_square, np.sqrt(np.square(values[:, [3, 7]]).mean(axis=0)))


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        (COUNTS, "variance"), (logs(COUNTS), "variance"), (standardised(logs(COUNTS)), "all"),
        (PANEL, "all"), (logs(COUNTS)[:, :100], "all"), (COUNTS + 0.5, "all"),
    ],
)  # fmt: skip
def test_the_variance_rule_is_for_genes(values, rule):
    assert default_rule(of(values))[0] == rule


@pytest.mark.parametrize(
    ("new", "training", "message"),
    [
        (COUNTS, logs(COUNTS), "they are whole numbers, which look like raw counts, and those of training are not"),
        (logs(COUNTS), COUNTS, "those of training are whole numbers"),
        (standardised(logs(COUNTS)), logs(COUNTS), "they look standardised"),
        (standardised(logs(COUNTS)) - 0.2, logs(COUNTS), "of the values are below 0, in training 0%: they look"),
        (standardised(PANEL), PANEL, "they look standardised"),
        (logs(COUNTS), standardised(logs(COUNTS)), "0% of the values are below 0, in training .*: those of training"),
        (np.expm1(logs(COUNTS)), logs(COUNTS), "times as large as in training"),
        (logs(COUNTS) / 1000, logs(COUNTS), r"the median feature is 0\.001 times as large as in training"),
        (PANEL * 1000, PANEL, "the median feature is 1e"),
        (PANEL * np.where(np.arange(20) == 4, 1000.0, 1.0), PANEL, "'f4' is 1e|all values together are"),
        (PANEL * np.where(np.arange(20) == PANEL.mean(axis=0).argmin(), 1e3, 1.0), PANEL, r"feature 'f\d+' is 1e"),
    ],
)
def test_other_preprocessing_is_recognised(new, training, message):
    assert re.search(message, why(new + 0.0, training) or "")


def test_differences_between_patients_are_accepted():
    """Few cells, a deeper sample, genes that are switched on or off, other proportions."""
    training = logs(COUNTS)
    assert why(training[:5], training) is None
    assert why(logs(np.random.default_rng(1).poisson(3.0 * COUNTS + 0.2)), training) is None
    switched = COUNTS.copy()
    switched[:, :20] = 0.0
    switched[:, 20:30] += np.random.default_rng(2).poisson(20.0, (300, 10))
    assert why(logs(switched), training) is None
    assert why(PANEL[:3] * 2.0, PANEL) is None
    assert why(standardised(training)[:20], standardised(training)) is None
    assert why(np.zeros((4, 200)), training) is None  # nothing to judge by
