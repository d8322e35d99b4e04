"""Run the pages on cells of patients, which recover the effects of the simulated cohorts."""

import numpy as np
import pytest

from .pages import CELLS, run_page

pytest.importorskip("scanpy")
pytest.importorskip("dask.array")


def check_atlas(names):
    assert names["patients"].n_obs == 8


def check_from_ggml_ot(names):
    assert names["learner"].metric_.importance().argmax() == 0
    assert names["W"].shape == (5, 6)


def check_from_moscot(names):
    assert names["plan"].optimal
    assert np.isclose(names["flow"].mass.sum(), 1)


def check_from_pertpy(names):
    assert names["adata"].uns["groundmetric"]["ensemble"]["scores"]["balanced_accuracy"] > 0.5
    if "row" in names:  # pertpy is installed
        assert names["row"]["S01"] == 0 < names["row"]["S02"]


def check_from_pilot_patpy(names):
    assert names["distances"].shape == names["held_out"].shape == (10, 10)
    assert 0 < names["plan"].value < 1


def check_multimodal(names):
    assert names["cells"].matched
    assert np.mean(names["held_out"] == names["y"].loc[names["cells"].names]) > 0.7
    assert names["accuracies"]["joint"] > 0.9
    assert max(names["accuracies"]["rna"], names["accuracies"]["protein"]) < 0.75


def check_new_patients(names):
    assert names["test"].p <= 0.1
    assert names["test"].p_values["held-out score"] == 0.05  # the smallest of 19 permutations
    planted = names["genes"].table()["feature"].str.startswith("PROG")
    assert planted.head(10).sum() >= 8
    truth = names["y"].loc[names["D"].names] == "disease"
    assert (names["ensemble"].held_out_.argmax(axis=1) == truth).mean() > 0.7
    assert names["batches"].covariates == ["batch"]
    assert names["types"].table()["value"][0] == "Macrophage"
    assert names["types"].share.max() > 0.85


def check_spatial(names):
    assert names["by_weight"][0.0] <= 0.5
    assert names["by_weight"][0.5] > 0.9
    assert names["turned"]["six neighbours"] > 0.9
    assert names["turned"]["coordinates"] < 0.9
    assert names["weight_of_space"] > 0.5  # the rest includes the Euclidean share of the metric


def check_tutorial(names):
    genes = names["adata"].var
    assert genes.loc[genes["groundmetric_importance"].nlargest(10).index, "programme"].sum() >= 5
    assert names["accuracy"] >= 0.5
    assert names["by_type"].idxmax() == names["adata"].uns["truth"]["programme_type"]
    first = names["change"].table().iloc[0]
    assert first["kind"] == names["pilot"].uns["truth"]["programme_type"]
    assert first["feature"].startswith("PROG")


def check_counterfactual(names):
    assert names["result"].table()["kind"].iloc[0] == "Macrophage"
    assert names["result"].table()["feature"].iloc[0].startswith("PROG")


def check_influence(names):
    assert len(names["result"].table()) == 12


def check_planning(names):
    assert names["curve"].n_patients == 16


def check_prediction_sets(names):
    assert names["result"].contains.any(axis=1).all()


# scanpy and umap have warnings of their own; few epochs, which keep pages short, give ours.
WARNINGS = {
    "atlas": "ignore:.*max_epochs",
    "from_ggml_ot": "ignore:.*max_epochs",
    "multimodal": "ignore:From 0.4",  # of mudata 0.3
    "counterfactual": "ignore",
    "influence": "ignore",
    "new_patients": "ignore",
    "planning": "ignore",
    "prediction_sets": "ignore",
    "tutorial": "ignore",
}


def _page(name):
    # Others keep the filters of pyproject.toml: a mark of "error" would come before what these ignore.
    return pytest.param(name, marks=pytest.mark.filterwarnings(WARNINGS[name]) if name in WARNINGS else ())


@pytest.mark.parametrize("name", [_page(name) for name in CELLS])
def test_the_page_runs(name, tmp_path, monkeypatch):
    globals()[f"check_{name}"](run_page(name, tmp_path, monkeypatch))
