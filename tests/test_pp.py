"""Genes are marked, cells are drawn, and raw counts are noticed."""

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc

import groundmetric as gm

RAW = (
    r"adata\.X holds whole numbers.*\n    sc\.pp\.normalize_total\(adata, target_sum=1e4\)\n    sc\.pp\.log1p\(adata\)"
)


def test_the_rule_of_the_paper_marks_genes_and_copies_nothing(cohort):
    matrix = cohort.X
    assert gm.pp.select_genes(cohort) is None
    variance = cohort.X.toarray().astype(float).var(axis=0)
    assert np.array_equal(cohort.var["selected_genes"], variance > variance.mean())
    assert cohort.uns["selected_genes"]["method"] == "variance"
    assert cohort.X is matrix


def test_the_rule_works_in_backed_mode(cohort, tmp_path):
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    gm.pp.select_genes(backed, key_added="mine")
    gm.pp.select_genes(cohort)
    assert np.array_equal(backed.var["mine"], cohort.var["selected_genes"])
    with pytest.raises(ValueError, match="backed mode"):
        gm.pp.select_genes(backed, method="highly_variable")
    backed.file.close()


def test_highly_variable_genes_are_those_of_scanpy(cohort):
    gm.pp.select_genes(cohort, method="highly_variable", n_top_genes=20)
    assert "highly_variable" not in cohort.var
    sc.pp.highly_variable_genes(cohort, n_top_genes=20)
    assert np.array_equal(cohort.var["selected_genes"], cohort.var["highly_variable"])
    cohort.var["highly_variable"] = cohort.var_names == "PROG01"  # as somebody has marked them
    gm.pp.select_genes(cohort, method="highly_variable")
    assert cohort.var_names[cohort.var["selected_genes"]].tolist() == ["PROG01"]


def test_raw_counts_give_the_two_lines_to_run(cohort):
    cohort.X = cohort.layers["counts"]
    with pytest.warns(UserWarning, match=RAW):
        gm.pp.select_genes(cohort)
    with pytest.warns(UserWarning, match=RAW):
        gm.tl.learn(cohort, "sample", "condition", max_epochs=1)
    with pytest.warns(
        UserWarning, match=r"layers\['counts'\] holds whole.*\n.*layer='counts'\)\n.*log1p\(adata, layer="
    ):
        gm.pp.select_genes(cohort, layer="counts")


def test_wrong_methods_and_options(cohort):
    with pytest.raises(ValueError, match="method is 'best'"):
        gm.pp.select_genes(cohort, method="best")
    with pytest.raises(TypeError, match="n_top_genes"):
        gm.pp.select_genes(cohort, n_top_genes=3)


def test_subsample_cuts_in_place_or_copies(cohort, tmp_path):
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    by_columns = cohort.copy()
    by_columns.X = by_columns.X.tocsc()
    by_columns.write_h5ad(tmp_path / "by_columns.h5ad")
    part = gm.pp.subsample(cohort, "sample", 40, random_state=3, copy=True)
    sizes = cohort.obs["sample"].value_counts()
    assert part.obs["sample"].value_counts().to_dict() == sizes.clip(upper=40).to_dict()
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with pytest.raises(ValueError, match="copy=True"):
        gm.pp.subsample(backed, "sample", 40)
    read = gm.pp.subsample(backed, "sample", 40, random_state=3, copy=True)
    backed.file.close()
    backed = ad.read_h5ad(tmp_path / "by_columns.h5ad", backed="r")
    stored_by_columns = gm.pp.subsample(backed, "sample", 40, random_state=3, copy=True)
    backed.file.close()
    assert gm.pp.subsample(cohort, "sample", 40, random_state=3) is None
    for other in (part, read, stored_by_columns):
        pd.testing.assert_frame_equal(other.obs, cohort.obs)
        pd.testing.assert_frame_equal(other.var, cohort.var)
        assert (cohort.X != other.X).nnz == 0
        assert (cohort.layers["counts"] != other.layers["counts"]).nnz == 0
    assert gm.pp.subsample(cohort, "sample", 10_000) is None
    assert cohort.n_obs == part.n_obs


@pytest.mark.parametrize("n", [0, -1, 2.5, True, "many"])
def test_impossible_numbers_of_cells(cohort, n):
    with pytest.raises(ValueError, match="n is "):
        gm.pp.subsample(cohort, "sample", n)
    with pytest.raises(ValueError, match="n_cells is "):
        gm.tl.learn(cohort, "sample", "condition", n_cells=n)
