"""The number of points per distribution against the label."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from groundmetric import Distributions
from groundmetric.evaluation import size_association


def test_classes_are_compared_by_kruskal_wallis_and_numbers_by_spearman():
    sizes, y = np.array([30, 40, 35, 50, 90, 70, 60, 45]), np.repeat(["a", "b"], 4)
    result = size_association(sizes, y)
    assert result.p == pytest.approx(stats.kruskal(sizes[:4], sizes[4:]).pvalue)
    assert result.medians == {"a": 37.5, "b": 65.0}
    numbers = np.arange(8.0)
    result = size_association(sizes, numbers, target="ordered")
    assert result.p == pytest.approx(stats.spearmanr(sizes, numbers).pvalue)
    assert result.correlation == pytest.approx(stats.spearmanr(sizes, numbers).statistic)


def test_sizes_are_those_of_the_distributions_and_labels_go_by_name():
    D = Distributions(np.zeros((100, 1)), np.repeat(["a", "b", "c", "d"], [10, 20, 30, 40]))
    y = pd.Series(["x", "y", "x", "y"], index=["d", "a", "c", "b"])
    assert size_association(D, y).medians == {"x": 35.0, "y": 15.0}


def test_patients_are_the_units():
    random, small = np.random.default_rng(0), []
    for _ in range(200):  # 4 samples of a patient have similar sizes
        patients = np.repeat(np.arange(8), 4)
        sizes = np.exp(np.repeat(random.normal(size=8), 4) + 0.1 * random.normal(size=32)) * 100
        small.append(size_association(sizes, patients % 2, patients).p <= 0.05)
    assert np.sum(small) <= stats.binom.isf(0.001, 200, 0.05)


def test_labels_that_vary_within_patients_are_compared_within_them():
    random = np.random.default_rng(1)
    patients, y = np.repeat(np.arange(8), 2), np.tile([0, 1], 8)
    sizes = np.exp(3 * np.repeat(random.normal(size=8), 2)) * np.where(y == 1, 130, 100) + random.random(16)
    result = size_association(sizes, y, patients)
    assert result.p < 0.05 < size_association(sizes, y).p
    null = [size_association(np.exp(random.normal(size=16)), y, patients).p <= 0.05 for _ in range(60)]
    assert np.sum(null) <= stats.binom.isf(0.001, 60, 0.05)


def test_the_sentence_says_what_was_found():
    distant = size_association([30, 35, 28, 31, 90, 85, 99, 92], ["well"] * 4 + ["ill"] * 4)
    text = distant.sentence("disease", "sample", "cell")
    assert text.startswith(
        "The number of cells per sample is associated with disease (p = 0.021; median ill: 91, well: 30.5)"
    )
    assert "equal numbers of cells" in text
    same = size_association([50] * 8, ["well"] * 4 + ["ill"] * 4)
    assert np.isnan(same.p)
    assert "was not tested" in same.sentence()


def test_samples_without_a_label_are_ignored():
    sizes, y = [30, 35, 28, 31, 90, 85, 99, 92], ["well"] * 4 + ["ill"] * 4
    assert size_association([*sizes, 5], [*y, None]) == size_association(sizes, y)
