"""An AnnData whose values Dask holds, or which is read lazily, gives what one in memory gives."""

import warnings

import anndata as ad
import numpy as np
import pytest
from scipy import sparse

import groundmetric as gm

da = pytest.importorskip("dask.array")

OPTIONS = {
    "sample_key": "sample", "label_key": "condition", "n_cells": 20, "max_epochs": 3, "n_members": 2,
    "kinds": ["univariate", "learned"],
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:.*max_epochs")
KINDS = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix, "dense": lambda matrix: matrix.toarray()}


@pytest.fixture
def cells(cohort):
    del cohort.layers["counts"]
    return cohort


def in_blocks(adata, kind, rows=100, columns=None):
    """The same cells with their values in blocks of Dask."""
    copy = adata.copy()
    chunks = (rows, columns or adata.n_vars)
    copy.X = da.from_array(adata.X.toarray(), chunks).map_blocks(lambda block: KINDS[kind](sparse.csr_matrix(block)))
    return copy


@pytest.mark.parametrize(
    ("kind", "chunks"),
    [("csr", (100, None)), ("csr", (593, 40)), ("csr", (37, 64)), ("csc", (37, 64)), ("dense", (37, 64))],
)
def test_genes_metric_and_distances_are_those_of_memory(cells, kind, chunks):
    blocks = in_blocks(cells, kind, *chunks)
    cells.X = KINDS[kind](cells.X)
    for adata in (cells, blocks):
        gm.pp.select_genes(adata)
        assert gm.tl.learn(adata, **OPTIONS) is adata
    assert np.array_equal(blocks.var["selected_genes"], cells.var["selected_genes"])
    np.testing.assert_allclose(gm.get.metric(blocks).components, gm.get.metric(cells).components, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(blocks.obsm["X_groundmetric"], cells.obsm["X_groundmetric"], rtol=1e-6, atol=1e-9)
    result, expected = gm.tl.samples(blocks), gm.tl.samples(cells)
    key = "groundmetric_distances"
    np.testing.assert_allclose(result.obsp[key], expected.obsp[key], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(result.X, expected.X, rtol=1e-6)
    assert hasattr(blocks.X, "__dask_graph__")  # still


def test_new_cells_of_dask_are_placed(cells):
    gm.tl.learn(cells, **OPTIONS)
    new = in_blocks(cells[:, ::-1], "csr")
    new.obs["sample"] = "new " + new.obs["sample"].astype(str)
    assert "groundmetric_predicted" in gm.tl.transfer(new, cells).obs
    np.testing.assert_allclose(new.obsm["X_groundmetric"], cells.obsm["X_groundmetric"], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_lazy_anndata_gives_what_its_file_gives(cells, kind, tmp_path):
    pytest.importorskip("xarray")
    from anndata.experimental import read_lazy

    cells.X = KINDS[kind](cells.X)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # anndata's own, about names that are read
        lazy = read_lazy(tmp_path / "cells.h5ad")
        with pytest.warns(UserWarning, match="adata is lazy"):
            result = gm.tl.learn(lazy, **OPTIONS)
    expected = gm.tl.learn(tmp_path / "cells.h5ad", **OPTIONS)
    assert isinstance(result, ad.AnnData)
    np.testing.assert_array_equal(gm.get.metric(result).components, gm.get.metric(expected).components)
    assert result.obs_names.equals(expected.obs_names)
    assert result.var_names.equals(expected.var_names)
    gm.tl.samples(result)
