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
    result = ad.AnnData(X, obs=pd.DataFrame({"sample": SAMPLES[rows], **obs}, index=np.array(CELLS)[rows]))
    result.var_names = [f"{prefix}{k}" for k in range(n_features)]
    result.layers["twice"] = 2 * X
    result.obsm["X_pca"] = X[:, :2]
    return result


def parts():
    shuffled = np.random.default_rng(0).permutation(N)
    return {"rna": anndata(5, 1), "protein": anndata(3, 2, shuffled, "p")}


def test_modalities_have_the_samples_cells_and_features_of_their_anndata():
    result = Modalities.from_mudata(parts(), "sample")
    assert result.names == ["p2", "p1", "p3", "p4"]
    assert result["rna"].features == [f"g{k}" for k in range(5)]
    assert result["protein"].features == ["p0", "p1", "p2"]
    assert result.matched
    expected = np.hstack([anndata(5, 1).X, anndata(3, 2).X])
    assert_array_equal(result.joint().points, expected)


def test_the_same_cells_are_drawn_in_all_modalities():
    result = Modalities.from_mudata(parts(), "sample", n_cells=4, random_state=1)
    assert result["rna"].sizes.tolist() == [4] * 4
    assert result.matched
    different = Modalities.from_mudata(parts(), "sample", n_cells=4, random_state=2)
    assert set(result["rna"].annotations["cell"]) != set(different["rna"].annotations["cell"])
    assert Modalities.from_mudata(parts(), "sample", n_cells=None)["rna"].sizes.tolist() == [10] * 4


def test_layers_representations_and_features_are_chosen_by_modality():
    result = Modalities.from_mudata(
        parts(), "sample", layer={"rna": "twice"}, genes={"rna": ["g1", "g3"]}, use_rep={"protein": "X_pca"}
    )
    assert result["rna"].features == ["g1", "g3"]
    assert_array_equal(result["rna"].points, 2 * anndata(5, 1).X[:, [1, 3]])
    assert result["protein"].features == ["X_pca_0", "X_pca_1"]
    assert list(Modalities.from_mudata(parts(), "sample", modalities=["protein"])) == ["protein"]


def test_mudata_and_its_file_give_the_same(mudata, tmp_path):
    mdata = mudata.MuData(parts())
    mdata.write(tmp_path / "cells.h5mu")
    for mdata_or_path in (mdata, tmp_path / "cells.h5mu", str(tmp_path / "cells.h5mu")):
        result = Modalities.from_mudata(mdata_or_path, "sample")
        assert_array_equal(result.joint().points, Modalities.from_mudata(parts(), "sample").joint().points)


def test_tools_on_an_anndata_ask_for_one_modality(mudata):
    with pytest.raises(TypeError, match="cells are a MuData: expected an AnnData or a path; give one modality"):
        gm.tl.learn(mudata.MuData(parts()), "sample", "sample")


def test_samples_may_be_in_obs_of_the_mudata(mudata):
    bare = parts()
    for adata in bare.values():
        del adata.obs["sample"]
    mdata = mudata.MuData(bare)
    mdata.obs["patient"] = pd.Series(SAMPLES, index=CELLS).loc[mdata.obs_names]
    result = Modalities.from_mudata(mdata, "patient")
    assert result.names == ["p2", "p1", "p3", "p4"]
    assert_array_equal(result.joint().points, Modalities.from_mudata(parts(), "sample").joint().points)
    with pytest.raises(
        ValueError, match="neither obs of modality 'rna' nor that of the MuData has such a column: there are 'patient'"
    ):
        Modalities.from_mudata(mdata, "paitent")


def test_cells_of_one_modality_only_are_left_out_of_the_joint_one():
    incomplete = {"rna": anndata(5, 1), "protein": anndata(3, 2, np.arange(0, N, 2), "p")}
    result = Modalities.from_mudata(incomplete, "sample")
    assert not result.matched
    assert result.joint().sizes.tolist() == [5] * 4


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"modalities": ["atac"]}, ValueError, "modalities is 'atac', which does not exist: there are"),
        ({"modalities": "rna"}, ValueError, "expected a list, ['rna']"),
        ({"layer": "twice"}, ValueError, "layer is 'twice': expected a dict by modality, {'rna': 'twice'}"),
        ({"genes": {"rnaa": "all"}}, ValueError, "genes is 'rnaa', which is not a modality: there are 'rna'"),
        ({"layer": {"rna": "twise"}}, ValueError, "layer is 'twise', but layers has no such entry: there are 'twice'"),
        ({"use_rep": {"rna": "X_pca"}, "genes": {"rna": "all"}}, ValueError, "excludes layer and genes"),
        ({"n_cells": 0}, ValueError, "n_cells is 0"),
    ],
)
def test_unknown_names_are_refused(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Modalities.from_mudata(parts(), "sample", **options)


def test_samples_in_one_modality_only_are_refused():
    incomplete = {"rna": anndata(5, 1), "protein": anndata(3, 2, np.arange(30), "p")}
    with pytest.raises(ValueError, match="sample 'p4' is in modality 'rna', but not in 'protein'"):
        Modalities.from_mudata(incomplete, "sample")


def test_objects_without_modalities_are_refused():
    with pytest.raises(TypeError, match="mdata is a AnnData: expected a MuData"):
        Modalities.from_mudata(anndata(5, 1), "sample")
    obs = pd.DataFrame({"sample": SAMPLES}, index=["cell00", "cell00", *CELLS[2:]])
    with pytest.warns(UserWarning, match="not unique"):
        twice = ad.AnnData(np.ones((N, 2)), obs=obs)
    with pytest.raises(ValueError, match="cells of modality 'rna' have repeated names"):
        Modalities.from_mudata({"rna": twice}, "sample")


def test_raw_counts_give_a_warning():
    counts = np.random.default_rng(0).poisson(0.5, (N, 120)).astype(float)
    rna = ad.AnnData(counts, obs=pd.DataFrame({"sample": SAMPLES}, index=CELLS))
    with pytest.warns(UserWarning, match="raw counts"):
        Modalities.from_mudata({"rna": rna}, "sample")


def test_a_cohort_of_one_modality_learns_as_from_its_distributions():
    cells = gm.datasets.make_cohort(4, 20, 150, random_state=0)
    result = Modalities.from_mudata({"rna": cells}, "sample", genes={"rna": "all"}, n_cells=None)
    direct = gm.Distributions(cells.X, cells.obs["sample"].to_numpy(), features=list(cells.var_names))
    assert (result["rna"].points != direct.points).nnz == 0
    assert result["rna"].names == direct.names
