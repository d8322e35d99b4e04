"""The simulated cohort is drawn from the model that it states, and says how."""

import subprocess
import sys

import anndata
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from groundmetric._internal.validation import ParameterError
from groundmetric.datasets import cohort as cohorts
from groundmetric.datasets import make_cohort


@pytest.fixture(scope="module")
def cohort():
    return make_cohort(4, 150, 300, random_state=0)


def same(first, second):
    assert_array_equal(first.X.toarray(), second.X.toarray())
    assert_array_equal(first.layers["counts"].toarray(), second.layers["counts"].toarray())
    pd.testing.assert_frame_equal(first.obs, second.obs)
    pd.testing.assert_frame_equal(first.var, second.var)
    assert first.uns["truth"].keys() == second.uns["truth"].keys()
    for name, value in first.uns["truth"].items():
        assert_array_equal(value, second.uns["truth"][name])


def expected_counts(adata):
    """Mean of every count, by the formulas of the docstring and what `uns["truth"]` says was drawn."""
    truth, obs, var = adata.uns["truth"], adata.obs, adata.var
    strengths = dict(zip(truth["conditions"], truth["condition_strengths"], strict=True))
    patients = pd.Index(truth["patients"]).get_indexer(obs["patient"])
    batches = pd.Index(truth["batches"]).get_indexer(obs["batch"])
    marks = obs["cell_type"].astype(str).to_numpy()[:, None] == var["marker_of"].astype(str).to_numpy()
    runs = obs["condition"].map(strengths).astype(float).to_numpy() * obs["programme"].to_numpy()
    rates = truth["gene_rates"] + truth["parameters"]["marker_strength"] * marks
    rates = rates + np.outer(runs, var["programme"]) + truth["patient_effects"][patients]
    grown = np.exp(rates + truth["batch_effects"][batches])
    return truth["parameters"]["library_size"] * grown / grown.sum(axis=1, keepdims=True)


def test_has_the_parts_that_it_promises(cohort):
    assert list(cohort.obs.columns) == ["sample", "patient", "condition", "batch", "cell_type", "programme"]
    assert list(cohort.var.columns) == ["marker_of", "programme"]
    assert cohort.n_vars == 300
    assert cohort.obs["sample"].nunique() == 8
    assert cohort.obs_names.is_unique
    assert cohort.var_names.is_unique
    assert sorted(cohort.var_names[cohort.var["programme"]]) == [f"PROG{k:02d}" for k in range(1, 21)]
    assert_array_equal(cohort.uns["truth"]["programme_genes"], [f"PROG{k:02d}" for k in range(1, 21)])
    markers = cohort.var["marker_of"].value_counts()
    assert markers.pop("") == 200
    assert_array_equal(markers, 20)
    assert not (cohort.var["programme"] & (cohort.var["marker_of"] != "")).any()
    # The order of the genes says nothing.
    assert not cohort.var["programme"].is_monotonic_decreasing


def test_a_sample_has_one_condition_patient_and_batch_as_the_truth_says(cohort):
    truth = cohort.uns["truth"]
    for column, name in (("condition", "conditions"), ("patient", "patients"), ("batch", "batches")):
        by_sample = cohort.obs.groupby("sample", observed=True)[column].unique()
        assert (by_sample.map(len) == 1).all()
        assert_array_equal([values[0] for values in by_sample.loc[truth["samples"]]], truth[f"sample_{name}"])


def test_counts_are_whole_numbers_and_x_is_their_logarithm(cohort):
    counts = cohort.layers["counts"]
    for matrix in (cohort.X, counts):
        assert isinstance(matrix, sparse.csr_matrix)
        assert matrix.dtype == np.float32
    assert_array_equal(counts.data, np.rint(counts.data))
    assert counts.data.min() >= 1
    dense = counts.toarray().astype(float)
    assert_allclose(cohort.X.toarray(), np.log1p(1e4 * dense / dense.sum(axis=1, keepdims=True)), rtol=1e-5)


def test_same_seed_same_data_other_seed_other_data(cohort):
    same(make_cohort(4, 150, 300, random_state=0), cohort)
    same(make_cohort(4, 150, 300, random_state=np.random.RandomState(0)), cohort)
    second = make_cohort(4, 150, 300, random_state=1)
    assert second.shape != cohort.shape or (second.X != cohort.X).nnz > 0


def test_a_file_holds_all_of_it(cohort, tmp_path):
    cohort.write_h5ad(tmp_path / "cohort.h5ad")
    same(anndata.read_h5ad(tmp_path / "cohort.h5ad"), cohort)


@pytest.fixture
def model(monkeypatch):
    """Yield a function that changes settings of the model."""
    return lambda **settings: [monkeypatch.setitem(cohorts._MODEL, name, value) for name, value in settings.items()]


def test_counts_have_the_mean_and_the_variance_of_the_model(model):
    model(library_spread=0.0)
    adata = make_cohort(3, 400, 150, n_markers=10, programme_share=0.5, random_state=0)
    counts, mean = adata.layers["counts"].toarray().astype(float), expected_counts(adata)
    variance = mean + adata.uns["truth"]["parameters"]["dispersion"] * mean**2
    scores = (counts - mean).sum(axis=0) / np.sqrt(variance.sum(axis=0))  # a standard normal for each gene
    assert abs(scores).max() < 4.5
    assert 0.8 < scores.std() < 1.2
    assert_allclose(np.mean((counts - mean) ** 2 / variance), 1.0, atol=0.03)


def test_library_sizes_have_their_mean_and_spread(model):
    model(dispersion=1e-4, library_size=500, library_spread=0.4)
    adata = make_cohort(3, 500, 150, n_markers=10, random_state=0)
    sizes = adata.layers["counts"].sum(axis=1)
    assert_allclose(sizes.mean(), 500, rtol=0.03)
    assert_allclose(np.log(sizes).std(), np.hypot(0.4, 1 / np.sqrt(500)), rtol=0.05)


def test_the_programme_acts_in_its_cell_type_where_the_disease_is_and_grows_with_it(model):
    model(patient_strength=0.0)
    options = {
        "conditions": ("healthy", "mild", "severe"),
        "cell_types": {"T cell": 2, "B cell": 1},
        "programme_strength": 3.0,
    }
    adata = make_cohort(3, 200, 300, **options, batch_strength=0.0, random_state=0)
    active = adata.obs.groupby(["condition", "cell_type"], observed=True)["programme"].mean().unstack()
    assert_array_equal(active["T cell"], [0.0, 1.0, 1.0])
    assert active.drop(columns="T cell").to_numpy().sum() == 0
    assert_allclose(adata.uns["truth"]["condition_strengths"], [0.0, 1.5, 3.0])
    counts = adata.layers["counts"].toarray()
    t_cells = (adata.obs["cell_type"] == "T cell").to_numpy()
    marked, remainder = adata.var["programme"].to_numpy(), ~adata.var["programme"].to_numpy()
    log_ratios = []
    for condition in options["conditions"]:
        cells = counts[t_cells & (adata.obs["condition"] == condition).to_numpy()]
        log_ratios.append(
            np.log(cells[:, marked].sum() / cells[:, remainder].sum())
        )  # relative to other genes, which removes the softmax
    assert_allclose(np.subtract(log_ratios[1:], log_ratios[0]), [1.5, 3.0], atol=0.05)


def test_markers_are_higher_in_their_own_type(cohort):
    counts = cohort.layers["counts"].toarray()
    for kind in cohort.obs["cell_type"].cat.categories:
        marks, of_type = (cohort.var["marker_of"] == kind).to_numpy(), (cohort.obs["cell_type"] == kind).to_numpy()
        assert counts[of_type][:, marks].mean() > 3 * counts[~of_type][:, marks].mean()


@pytest.mark.parametrize(
    ("confounding", "tables"), [(0.0, [[4, 4], [4, 4]]), (0.5, [[6, 2], [2, 6]]), (1.0, [[8, 0], [0, 8]])]
)
def test_confounding_ties_condition_and_batch(confounding, tables):
    truth = make_cohort(8, 5, 120, confounding=confounding, random_state=0).uns["truth"]
    table = pd.crosstab(truth["sample_conditions"], truth["sample_batches"])
    assert_array_equal(table.reindex(columns=["batch1", "batch2"], fill_value=0), tables)


def test_a_number_of_samples_for_each_condition_and_one_patient_for_each_sample():
    truth = make_cohort([4, 3], 5, 120, random_state=0).uns["truth"]
    assert truth["sample_conditions"].tolist() == ["control"] * 4 + ["disease"] * 3
    assert truth["sample_patients"].tolist() == [f"P{k:02d}" for k in range(1, 8)]


def test_cell_types_have_their_proportions_and_may_shift():
    kinds = {"a": 3.0, "b": 1.0}
    options = {"concentration": 1000.0, "composition_strength": 1.0}
    adata = make_cohort(20, 200, 60, cell_types=kinds, **options, random_state=0)
    shares = pd.crosstab(adata.obs["condition"], adata.obs["cell_type"], normalize="index")["a"]
    assert_allclose(shares["control"], 0.75, atol=0.03)
    assert_allclose(shares["disease"], 3 * np.e / (3 * np.e + 1), atol=0.03)


def test_numbers_of_cells_vary_around_their_mean():
    sizes = make_cohort(40, 100, 120, random_state=0).obs["sample"].value_counts()
    assert_allclose(sizes.mean(), 100, rtol=0.1)
    assert_allclose(np.log(sizes).std(), 0.2, rtol=0.25)


def test_names_of_types_may_be_alike_or_odd():
    adata = make_cohort(2, 20, 100, cell_types=["T cell", "T-cell", "Prog", "γδ", "/"], n_markers=3, random_state=0)
    assert adata.var_names.is_unique
    assert adata.obs["programme"].any()


@pytest.mark.parametrize(
    "options",
    [
        {"n_genes": 50}, {"n_genes": 200.5}, {"cells_per_sample": 0}, {"programme_strength": np.nan},
        {"programme_share": 1.5}, {"conditions": ("a", "a")}, {"conditions": ()}, {"n_samples_per_condition": [3]},
        {"n_samples_per_condition": 0}, {"cell_types": []}, {"confounding": 1.5}, {"concentration": 0.0},
        {"composition_strength": np.inf}, {"batch_strength": -1.0},
    ],
)  # fmt: skip
def test_errors_name_the_parameter(options):
    with pytest.raises(ParameterError) as caught:
        make_cohort(**options)
    assert caught.value.parameter == next(iter(options))


def test_errors_name_the_cell_type_of_a_bad_proportion():
    with pytest.raises(ParameterError) as caught:
        make_cohort(cell_types={"a": 1.0, "b": -1.0})
    assert (caught.value.parameter, caught.value.value) == ("proportion of cell type 'b'", -1.0)


def test_without_anndata_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ModuleNotFoundError, match=r'make_cohort: pip install "groundmetric\[single-cell\]"'):
        make_cohort()


def test_the_names_are_there_without_loading_anndata():
    code = "import sys, groundmetric as gm; gm.datasets.make_cohort, gm.datasets.cellxgene; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert "groundmetric.datasets.cohort" in done.stdout.split()
    assert not {"anndata", "scanpy"} & set(done.stdout.split())
