"""Cohorts for an evaluation: which features each split may choose from, and what is said about it."""

import re

import numpy as np
import pytest

from groundmetric._anndata.cohort import read_cohort


@pytest.mark.parametrize(
    ("n_genes", "shift", "rule", "note"),
    [
        (150, 0.0, "variance", r"chosen by their variance, the default for genes; of all samples \d+ of 150 would be"),
        (60, 0.0, None, "all 60 features are used: the default for 100 or fewer"),
        (150, -1.0, None, "all 150 features are used: the default where values are not counts of genes"),
    ],
)
def test_the_default_rule_is_that_of_learning(cohort, n_genes, shift, rule, note):
    some = cohort[:, :n_genes].copy()
    some.X = some.X.toarray() + np.float32(shift)
    found = read_cohort(some, "sample", "condition", n_cells=20)
    assert found.rule == rule
    assert found.D.shape == (10, n_genes)
    assert re.search(note, "; ".join(found.notes))


def test_a_rule_that_is_asked_for_is_kept(cohort):
    panel = cohort[:, :60].copy()
    assert read_cohort(panel, "sample", "condition", genes="variance").rule == "variance"
    assert read_cohort(panel, "sample", "condition", genes=5).rule == 5
    assert read_cohort(cohort, "sample", "condition", genes="all").rule is None
