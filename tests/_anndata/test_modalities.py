"""Modalities from MuData: samples, cells drawn alike, layers and genes by modality, files, and plain errors."""

import re

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import groundmetric as gm
from groundmetric import Modalities

N = 40
SAMPLES = np.repeat(["p2", "p1", "p3", "p4"], 10)
CELLS = [f"cell{k:02d}" for k in range(N)]


@pytest.fixture
def mudata():
    library = pytest.importorskip("mudata")
    if hasattr(library, "set_options"):  # before 0.4, which does so by itself
        library.set_options(pull_on_update=False)
    return library


def anndata(n_features, seed, rows=None, prefix="g", **obs):
    rows = np.arange(N) if rows is None else rows
    X = np.random.default_rng(seed).normal(size=(N, n_features))[rows]
    found = ad.AnnData(X, obs=pd.DataFrame({"sample": SAMPLES[rows], **obs}, index=np.array(CELLS)[rows]))
    found.var_names = [f"{prefix}{k}" for k in range(n_features)]
    found.layers["twice"] = 2 * X
    found.obsm["X_pca"] = X[:, :2]
    return found


def parts():
    shuffled = np.random.default_rng(0).permutation(N)
    return {"rna": anndata(5, 1), "protein": anndata(3, 2, shuffled, "p")}


def test_modalities_have_the_samples_cells_and_features_of_their_anndata():
    found = Modalities.from_mudata(parts(), "sample")
    assert found.names == ["p2", "p1", "p3", "p4"]
    assert found["rna"].features == [f"g{k}" for k in range(5)]
    assert found["protein"].features == ["p0", "p1", "p2"]
    assert found.matched
    expected = np.hstack([anndata(5, 1).X, anndata(3, 2).X])
    assert_array_equal(found.joint().points, expected)


def test_the_same_cells_are_drawn_in_all_modalities():
    found = Modalities.from_mudata(parts(), "sample", n_cells=4, random_state=1)
    assert found["rna"].sizes.tolist() == [4] * 4
    assert found.matched
    other = Modalities.from_mudata(parts(), "sample", n_cells=4, random_state=2)
    assert set(found["rna"].annotations["cell"]) != set(other["rna"].annotations["cell"])
    assert Modalities.from_mudata(parts(), "sample", n_cells=None)["rna"].sizes.tolist() == [10] * 4


def test_layers_representations_and_features_are_chosen_by_modality():
    found = Modalities.from_mudata(
        parts(), "sample", layer={"rna": "twice"}, genes={"rna": ["g1", "g3"]}, use_rep={"protein": "X_pca"}
    )
    assert found["rna"].features == ["g1", "g3"]
    assert_array_equal(found["rna"].points, 2 * anndata(5, 1).X[:, [1, 3]])
    assert found["protein"].features == ["X_pca_0", "X_pca_1"]
    assert list(Modalities.from_mudata(parts(), "sample", modalities=["protein"])) == ["protein"]


def test_mudata_and_its_file_give_the_same(mudata, tmp_path):
    mdata = mudata.MuData(parts())
    mdata.write(tmp_path / "cells.h5mu")
    for given in (mdata, tmp_path / "cells.h5mu", str(tmp_path / "cells.h5mu")):
        found = Modalities.from_mudata(given, "sample")
        assert_array_equal(found.joint().points, Modalities.from_mudata(parts(), "sample").joint().points)


def test_tools_on_an_anndata_ask_for_one_modality(mudata):
    with pytest.raises(
        TypeError, match=re.escape("cells are a MuData: expected an AnnData or the path of an .h5ad file;")
    ):
        gm.tl.learn(mudata.MuData(parts()), "sample", "sample")


def test_samples_may_be_in_obs_of_all(mudata):
    bare = parts()
    for adata in bare.values():
        del adata.obs["sample"]
    mdata = mudata.MuData(bare)
    mdata.obs["patient"] = pd.Series(SAMPLES, index=CELLS).loc[mdata.obs_names]
    found = Modalities.from_mudata(mdata, "patient")
    assert found.names == ["p2", "p1", "p3", "p4"]
    assert_array_equal(found.joint().points, Modalities.from_mudata(parts(), "sample").joint().points)
    with pytest.raises(
        ValueError, match="neither obs of modality 'rna' nor that of all has such a column: there are 'patient'"
    ):
        Modalities.from_mudata(mdata, "paitent")


def test_cells_of_one_modality_only_are_left_out_of_the_joint_one():
    some = {"rna": anndata(5, 1), "protein": anndata(3, 2, np.arange(0, N, 2), "p")}
    found = Modalities.from_mudata(some, "sample")
    assert not found.matched
    assert found.joint().sizes.tolist() == [5] * 4


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"modalities": ["atac"]}, ValueError, "modalities is 'atac', which does not exist: there are"),
        ({"modalities": "rna"}, ValueError, "expected a list, ['rna']"),
        ({"layer": "twice"}, ValueError, "layer is 'twice': expected a dict by modality, {'rna': 'twice'}"),
        ({"genes": {"rnaa": "all"}}, ValueError, "genes is 'rnaa', which is not a modality: there are 'rna'"),
        ({"layer": {"rna": "twise"}}, ValueError, "layer is 'twise', but layers has no such entry: there are 'twice'"),
        ({"use_rep": {"rna": "X_pca"}, "genes": {"rna": "all"}}, ValueError, "no choice of layer or genes"),
        ({"n_cells": 0}, ValueError, "n_cells is 0"),
    ],
)
def test_what_there_is_not_is_refused(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Modalities.from_mudata(parts(), "sample", **options)


def test_samples_in_one_modality_only_are_refused():
    some = {"rna": anndata(5, 1), "protein": anndata(3, 2, np.arange(30), "p")}
    with pytest.raises(ValueError, match="sample 'p4' is in modality 'rna', but not in 'protein'"):
        Modalities.from_mudata(some, "sample")


def test_other_things_than_modalities_are_refused():
    with pytest.raises(TypeError, match="mdata is a AnnData: expected a MuData"):
        Modalities.from_mudata(anndata(5, 1), "sample")
    obs = pd.DataFrame({"sample": SAMPLES}, index=["cell00", "cell00", *CELLS[2:]])
    with pytest.warns(UserWarning, match="not unique"):
        twice = ad.AnnData(np.ones((N, 2)), obs=obs)
    with pytest.raises(ValueError, match="cells of modality 'rna' have names that repeat"):
        Modalities.from_mudata({"rna": twice}, "sample")


def test_raw_counts_give_a_warning():
    counts = np.random.default_rng(0).poisson(0.5, (N, 120)).astype(float)
    rna = ad.AnnData(counts, obs=pd.DataFrame({"sample": SAMPLES}, index=CELLS))
    with pytest.warns(UserWarning, match="raw counts"):
        Modalities.from_mudata({"rna": rna}, "sample")


def test_a_cohort_of_one_modality_learns_as_from_its_distributions():
    cells = gm.datasets.make_cohort(4, 20, 150, random_state=0)
    found = Modalities.from_mudata({"rna": cells}, "sample", genes={"rna": "all"}, n_cells=None)
    direct = gm.Distributions(cells.X, cells.obs["sample"].to_numpy(), features=list(cells.var_names))
    assert (found["rna"].points != direct.points).nnz == 0
    assert found["rna"].names == direct.names
