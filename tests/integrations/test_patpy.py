"""patpy's evaluations with methods of groundmetric: out-of-bag results in patpy's shapes."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist, squareform

import groundmetric as gm

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # those of its dependencies
    patpy = pytest.importorskip("patpy", reason="patpy is not installed: `make test-extras` installs it")
    from groundmetric.integrations.patpy import GroundMetricLearning, OptimalTransport
from patpy.tl.evaluation import knn_prediction_score
from patpy.tl.sample_representation import SampleRepresentationMethod
from patpy.tl.supervised import SupervisedSampleMethod

QUICK = {"n_members": 3, "kinds": ("univariate", "anova"), "n_cells": 40}


@pytest.fixture(scope="module")
def fitted(original):
    """A method after learning two labels. Do not write to it."""
    adata = original.copy()
    rank = {name: k for k, name in enumerate(adata.obs["sample"].unique())}
    adata.obs["severity"] = adata.obs["sample"].map(rank).astype(float)  # controls come first
    method = GroundMetricLearning("sample", ["condition", "severity"], ["classification", "regression"], **QUICK)
    method.prepare_anndata(adata)
    return method


@pytest.fixture
def half_labelled(cohort):
    """A cohort whose samples S02 and S09 have no label, and the cells' true labels."""
    truth = cohort.obs["condition"].astype(str)
    cohort.obs["condition"] = truth.where(~cohort.obs["sample"].isin(["S02", "S09"]))
    return cohort, truth


def test_they_are_methods_of_patpy(fitted):
    assert isinstance(fitted, SupervisedSampleMethod)
    assert isinstance(OptimalTransport("sample"), SampleRepresentationMethod)


def test_distances_are_those_that_the_ensemble_has_out_of_bag(fitted, original):
    alone = original.copy()
    gm.tl.learn(alone, "sample", "condition", random_state=42, **QUICK)
    result = alone.uns["groundmetric"]["ensemble"]
    positions = pd.Index(result["samples"]).get_indexer(fitted.samples)
    expected = result["out_of_bag"][np.ix_(positions, positions)]
    distances = fitted.calculate_distance_matrix(label="condition")
    assert_allclose(distances, expected / expected[~np.eye(10, dtype=bool)].mean(), rtol=1e-12)
    final = np.asarray(gm.tl.samples(alone).obsp["groundmetric_in_sample"])
    in_sample = fitted.calculate_distance_matrix(label="condition", out_of_bag=False)
    assert_allclose(in_sample, final / final[~np.eye(10, dtype=bool)].mean(), rtol=1e-9)


def test_several_labels_have_the_mean_of_their_distances(fitted):
    single = [fitted.calculate_distance_matrix(label=label) for label in ("condition", "severity")]
    assert not np.allclose(*single)
    assert_allclose(fitted.calculate_distance_matrix(), np.mean(single, axis=0), rtol=1e-12)


def test_labels_without_meaning_look_better_by_the_final_metric_than_out_of_bag():
    final, out_of_bag = [], []
    for seed in range(8):
        adata = gm.datasets.make_cohort(6, 30, 400, programme_strength=0.0, batch_strength=0.0, random_state=seed)
        coins = dict(zip(adata.obs["sample"].unique(), np.random.RandomState(seed).permutation(12) % 2, strict=True))
        del adata.obs["batch"]  # may be associated with the coin by chance, which is warned of
        adata.obs["coin"] = adata.obs["sample"].map(coins).astype(int)
        method = GroundMetricLearning("sample", "coin", "classification", **QUICK)
        method.prepare_anndata(adata)
        final.append(_silhouette(method, out_of_bag=False))
        out_of_bag.append(_silhouette(method, out_of_bag=True))
    assert np.mean(final) > np.mean(out_of_bag) + 0.005
    assert np.mean(out_of_bag) < 0.005


def _silhouette(method, out_of_bag):
    distances = method.calculate_distance_matrix(out_of_bag=out_of_bag)
    return patpy.tl.evaluate_representation(distances, method.labels["coin"], method="silhouette")["score"]


@pytest.mark.parametrize(
    ("how", "options"),
    [
        ("knn", {"task": "classification"}),
        ("silhouette", {}),
        ("distances", {"control_level": "control", "normalization_type": "shift", "n_bootstraps": 50}),
    ],
)
def test_evaluations_of_patpy_find_the_condition(fitted, how, options):
    distances, labels = fitted.calculate_distance_matrix(label="condition"), fitted.labels["condition"]
    result = patpy.tl.evaluate_representation(distances, labels, method=how, **options)
    assert result["n_observations"] == 10
    assert result["score"] > (0.5 if how == "knn" else 0.05)


def test_a_benchmark_of_patpy_takes_the_distances(fitted):
    samples = gm.tl.samples(fitted.adata, key="groundmetric_condition")
    samples.obsm["groundmetric_distances"] = fitted.calculate_distance_matrix()
    schema = {"relevant": {"condition": "classification", "severity": "regression"}}
    table = knn_prediction_score(samples, schema, representations=["groundmetric"])
    assert_array_equal(table["covariate"], ["condition", "severity"])
    assert (table["score"] > 0.5).all()


def test_evaluations_that_write_to_the_distances_leave_those_of_the_method(fitted):
    patpy.tl.predict_knn(fitted.calculate_distance_matrix(), fitted.labels["condition"])  # fills the diagonal
    assert not np.diag(fitted.calculate_distance_matrix()).any()


def test_predictions_are_those_while_samples_were_left_out(fitted):
    result = fitted.predict("condition")
    ensemble = fitted.adata.uns["groundmetric_condition"]["ensemble"]
    held_out = pd.DataFrame(ensemble["held_out"], ensemble["samples"], ["prob_control", "prob_disease"])
    assert list(result.columns) == ["prob_control", "prob_disease", "condition_pred"]
    assert_array_equal(result.index, fitted.samples)
    assert_allclose(result[held_out.columns], held_out.loc[list(fitted.samples)], rtol=1e-12)
    assert (result["condition_pred"] == fitted.labels["condition"]).mean() > 0.8
    numbers = fitted.predict("severity")
    assert numbers.name == "severity"
    assert np.corrcoef(numbers, fitted.labels["severity"])[0, 1] > 0.5


def test_samples_without_a_label_are_predicted_and_compared(half_labelled):
    adata, truth = half_labelled
    method = GroundMetricLearning("sample", "condition", "classification", **QUICK)
    with pytest.warns(UserWarning, match="samples without a label in .*: 2 of 10"):
        method.prepare_anndata(adata)
    result = method.predict("condition")
    assert result.loc["S02", "condition_pred"] == truth[adata.obs["sample"] == "S02"].iloc[0]
    assert result.loc["S09", "condition_pred"] == truth[adata.obs["sample"] == "S09"].iloc[0]
    distances = method.calculate_distance_matrix()
    assert distances.shape == (10, 10)
    assert (distances[~np.eye(10, dtype=bool)] > 0).all()
    importance = method.get_sample_importance()["condition_importance"]
    assert_array_equal(importance.index[importance.isna()], ["S02", "S09"])
    assert (
        patpy.tl.evaluate_representation(distances, method.labels["condition"], method="silhouette")["n_observations"]
        == 8
    )


def test_new_samples_are_predicted_as_by_transfer(halves):
    train, new = halves
    train, new = train.copy(), new.copy()
    method = GroundMetricLearning("sample", "condition", "classification", **QUICK)
    method.prepare_anndata(train)
    result = method.predict("condition", new)
    expected = gm.tl.transfer(new.copy(), train, key="groundmetric_condition", n_cells=40, random_state=42)
    assert_allclose(result.iloc[:, :2], expected.obsm["groundmetric_condition_probabilities"], rtol=1e-12)
    assert_array_equal(result["condition_pred"], expected.obs["groundmetric_condition_predicted"])
    assert_array_equal(result.index, expected.obs_names)


def test_a_new_sample_of_the_name_of_a_training_sample_is_not_predicted(fitted, original):
    repeated = original[original.obs["sample"].isin(["S01", "S06"])].copy()
    repeated.obs["sample"] = repeated.obs["sample"].astype(str).replace("S06", "new")
    with pytest.warns(UserWarning, match="samples with the name of a training sample"):
        result = fitted.predict("condition", repeated)
    assert result.loc["S01"].isna().all()
    assert result.loc["new", "condition_pred"] == "disease"


def test_sample_importance_is_how_much_farther_other_labels_are(fitted):
    result = fitted.get_sample_importance()
    assert list(result.columns) == ["average_importance", "condition_importance", "severity_importance"]
    distances, labels = fitted.calculate_distance_matrix(label="condition"), fitted.labels["condition"].to_numpy()
    differs = labels[:, None] != labels
    first = distances[0, differs[0]].mean() - distances[0, ~differs[0]].sum() / 4  # four others of its label
    assert_allclose(result["condition_importance"].iloc[0], first / distances[differs].mean(), rtol=1e-12)
    assert result["condition_importance"].mean() > 0.05
    assert_allclose(result["average_importance"], result.iloc[:, 1:].mean(axis=1))
    # The upper half of the severity is the diseased: the same classes under another metric.
    assert result["severity_importance"].mean() > 0.0


def test_cell_importance_is_that_of_cell_relevance_and_finds_the_changed_cells(fitted):
    result = fitted.get_cell_importance()
    expected = fitted.adata.copy()
    gm.tl.cell_relevance(expected, key="groundmetric_condition", random_state=42)
    assert_allclose(result["condition_importance"], expected.obs["groundmetric_condition_relevance"], rtol=1e-9)
    assert_array_equal(fitted.adata.obs["severity_importance"], result["severity_importance"])
    assert result["condition_importance"].notna().sum() == 10 * 40  # the cells that were drawn
    active = fitted.adata.obs["programme"].to_numpy()
    for column in ("condition_importance", "severity_importance"):
        assert result[column][active].mean() > result[column][~active].mean()


def test_representations_have_the_distances_as_far_as_ten_axes_can(fitted):
    result = fitted.get_sample_representations()
    assert_array_equal(result.index, fitted.samples)
    assert result.columns[0] == "dim_0"
    correlation = np.corrcoef(pdist(result), squareform(fitted.calculate_distance_matrix()))[0, 1]
    assert correlation > 0.95
    probe = fitted.fit_linear_probe("condition", test_sample_labels=["S01", "S02", "S06", "S07"])
    assert probe["accuracy"] >= 0.75


def test_samples_that_are_numbers_and_cells_in_any_order_keep_their_names(original):
    adata = original[np.random.RandomState(0).permutation(original.n_obs)].copy()
    adata.obs["number"] = adata.obs["sample"].astype(str).str[1:].astype(int)
    adata.obs["sick"] = adata.obs["condition"] == "disease"
    method = GroundMetricLearning("number", "sick", "classification", **QUICK)
    method.prepare_anndata(adata)
    result = method.predict("sick")
    assert_array_equal(result.index, adata.obs["number"].unique())
    assert list(result.columns) == ["prob_False", "prob_True", "sick_pred"]
    assert (result["sick_pred"] == (result.index > 5)).mean() > 0.8
    assert (method.get_sample_importance()["sick_importance"] > 0).mean() > 0.8
    adata.obsm["X_line"] = 100.0 * adata.obs[["number"]].to_numpy()
    plain = OptimalTransport("number", layer="X_line", n_cells=5)
    plain.prepare_anndata(adata)
    assert_allclose(
        plain.calculate_distance_matrix(), 100.0 * np.abs(plain.samples[:, None] - plain.samples), rtol=1e-12
    )


def test_fine_tuning_adds_a_label_and_keeps_the_others(cohort):
    method = GroundMetricLearning("sample", "condition", "classification", **QUICK)
    method.prepare_anndata(cohort)
    before, first = method.predict("condition"), method.calculate_distance_matrix()
    method.get_cell_importance()
    cohort.obs["stage"] = pd.Categorical(
        cohort.obs["condition"].map({"control": "mild", "disease": "severe"}), ["mild", "severe"], ordered=True
    )
    method.fine_tune("stage", "ranking")
    assert method.label_keys == ["condition", "stage"]
    pd.testing.assert_frame_equal(method.predict("condition"), before)
    ranks = method.predict("stage")
    assert ranks[method.labels["stage"] == "severe"].mean() > ranks[method.labels["stage"] == "mild"].mean()
    assert list(method.get_cell_importance()) == ["average_importance", "condition_importance", "stage_importance"]
    cells = method.get_cell_importance()["condition_importance"]
    method.fine_tune("condition", "classification", random_state=1)  # again, by other members
    assert not np.array_equal(method.get_cell_importance()["condition_importance"], cells, equal_nan=True)
    assert not np.array_equal(method.calculate_distance_matrix(label="condition"), first)


def test_a_representation_in_obsm_and_a_layer_are_found_as_patpy_does(cohort):
    cohort.obsm["X_few"] = np.asarray(cohort.X[:, :20].todense())
    cohort.layers["twice"] = cohort.X * 2.0
    for layer, n_features in (("X_few", 20), ("twice", cohort.n_vars)):
        method = GroundMetricLearning("sample", "condition", "classification", layer=layer, genes=None, **QUICK)
        method.prepare_anndata(cohort)
        assert cohort.uns["groundmetric_condition"]["features"]["n_features"] == n_features
    unknown = r"layer is 'X_pca': expected one of \['X', 'X_few', .*'counts', 'twice'\]"
    with pytest.raises(ValueError, match=unknown):
        GroundMetricLearning("sample", "condition", "classification", layer="X_pca").prepare_anndata(cohort)
    plain = OptimalTransport("sample")
    plain.prepare_anndata(cohort)
    with pytest.raises(ValueError, match=unknown):
        plain.calculate_distance_matrix()


def test_errors_name_what_is_wrong(cohort):
    with pytest.raises(ValueError, match="tasks holds 'clustering': expected some of"):
        GroundMetricLearning("sample", "condition", "clustering")
    method = GroundMetricLearning("sample", "condition", "classification", **QUICK)
    with pytest.raises(RuntimeError, match="Call prepare_anndata"):
        method.predict("condition")
    method.prepare_anndata(cohort, train=False)
    with pytest.raises(RuntimeError, match="not fitted"):
        method.calculate_distance_matrix()
    method.fine_tune("condition", "classification")
    with pytest.raises(ValueError, match=r"label is 'batch', but \['condition'\] were learned: call fine_tune"):
        method.predict("batch")


def test_a_backed_file_is_refused(cohort, tmp_path):
    import anndata

    cohort.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with pytest.raises(ValueError, match=r"load it with adata.to_memory\(\)"):
        GroundMetricLearning("sample", "condition", "classification").prepare_anndata(backed)
    backed.file.close()


def test_plain_transport_is_that_of_pairwise_distances(cohort):
    method = OptimalTransport("sample", layer="X", n_cells=None)
    method.prepare_anndata(cohort)
    D = gm.Distributions(cohort.X, cohort.obs["sample"].to_numpy())
    positions = [D.names.index(name) for name in method.samples]
    expected = gm.pairwise_distances(D)[np.ix_(positions, positions)]
    assert_allclose(method.calculate_distance_matrix(), expected, rtol=1e-12)
    assert_allclose(cohort.uns["X_optimal_transport_distances"], expected, rtol=1e-12)


def test_plain_transport_takes_a_learned_metric_by_the_names_of_its_genes(trained):
    metric = gm.get.metric(trained)
    assert 1 < len(metric.features) < trained.n_vars
    shuffled = trained[:, np.random.RandomState(0).permutation(trained.n_vars)].copy()
    result = []
    for adata in (trained, shuffled):
        method = OptimalTransport("sample", layer="X", metric=metric, n_cells=30)
        method.prepare_anndata(adata)
        result.append(method.calculate_distance_matrix())
    assert_array_equal(*result)
    small = trained[:, [name for name in trained.var_names if name != metric.features[0]]].copy()
    method.prepare_anndata(small)
    with pytest.raises(ValueError, match=f"metric has the feature '{metric.features[0]}'"):
        method.calculate_distance_matrix()


def test_plain_transport_is_computed_once_and_never_taken_from_another_object(cohort):
    first, differs = (OptimalTransport("sample", layer="X", metric=name) for name in ("euclidean", "cityblock"))
    for method in (first, differs):
        method.prepare_anndata(cohort)
    result = first.calculate_distance_matrix().copy()
    assert not np.allclose(result, differs.calculate_distance_matrix())
    first.calculate_distance_matrix()[:] = 0.0
    assert_array_equal(first.calculate_distance_matrix(), result)


def test_plain_transport_is_evaluated_and_made_an_anndata_by_patpy(cohort):
    method = OptimalTransport("sample", layer="X")
    method.prepare_anndata(cohort)
    assert method.evaluate_representation("condition", task="classification")["n_observations"] == 10
    truth, predicted = method.predict_metadata("condition")
    assert len(truth) == len(predicted) == 10
    samples = method.to_adata(method._extract_metadata(["condition"]))
    assert samples.shape == (10, method.sample_representation.shape[1])
    assert_array_equal(samples.obsm["X_optimal_transport_distances"], method.calculate_distance_matrix())
