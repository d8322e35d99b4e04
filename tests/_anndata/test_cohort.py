"""Cohorts for an evaluation: rules of the feature selection, and notes."""

import re

import numpy as np
import pytest

from groundmetric._anndata.cohort import read_cohort


@pytest.mark.parametrize(
    ("n_genes", "shift", "rule", "note"),
    [
        (
            150,
            0.0,
            "variance",
            r"selected by their variance, the default for genes; all samples together select \d+ of 150",
        ),
        (60, 0.0, None, "all 60 features are used: the default for 100 or fewer"),
        (150, -1.0, None, "all 150 features are used: the default for values other than counts of genes"),
    ],
)
def test_the_default_rule_is_that_of_learning(cohort, n_genes, shift, rule, note):
    cells = cohort[:, :n_genes].copy()
    cells.X = cells.X.toarray() + np.float32(shift)
    labelled = read_cohort(cells, "sample", "condition", n_cells=20)
    assert labelled.rule == rule
    assert labelled.D.shape == (10, n_genes)
    assert re.search(note, "; ".join(labelled.notes))


def test_a_rule_that_is_asked_for_is_kept(cohort):
    panel = cohort[:, :60].copy()
    assert read_cohort(panel, "sample", "condition", genes="variance").rule == "variance"
    assert read_cohort(panel, "sample", "condition", genes=5).rule == 5
    assert read_cohort(cohort, "sample", "condition", genes="all").rule is None
