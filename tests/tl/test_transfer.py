"""tl.transfer: predictions of the scored estimator; reordered, missing and additional genes; other scales."""

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import groundmetric as gm
from groundmetric._internal.validation import ParameterError
from groundmetric.estimators import UnfamiliarWarning


def transfer(new, train, **options):
    """Results for a copy of the new cells, and that copy."""
    new = new.copy()
    return gm.tl.transfer(new, train, n_cells=40, **options), new


@pytest.fixture(scope="module")
def plain(halves):
    return transfer(halves[1], halves[0])


def test_labels_of_new_samples_are_predicted(plain, halves):
    result, new = plain
    assert result.obs["groundmetric_predicted"].astype(str).tolist() == result.obs["condition"].tolist()
    shares = result.obsm["groundmetric_probabilities"]
    assert shares.columns.tolist() == ["control", "disease"]
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_array_equal(result.obs["groundmetric_probability"], shares.max(axis=1))
    assert result.obs["n_cells"].to_dict() == halves[1].obs["sample"].value_counts().to_dict()
    assert (new.obs["groundmetric_predicted"] == new.obs["condition"]).all()


def as_distributions(halves, new):
    """Drawn cells of training and of new samples with the genes of the metric, and the labels of the first."""
    metric, D = gm.get.metric(halves[0]), []
    for adata in (halves[0], new):
        cells = adata[adata.obs["groundmetric_sampled"], metric.features]
        D.append(gm.Distributions(cells.X, cells.obs["sample"], features=metric.features))
    labels = dict(zip(*halves[0].uns["groundmetric"]["labels"].values(), strict=True))
    return *D, np.array([labels[name] for name in D[0].names])


def test_it_is_what_the_scored_classifier_says(plain, halves):
    train, new, labels = as_distributions(halves, plain[1])
    scored = gm.TransportClassifier(gm.GroundMetricEnsemble(random_state=0)).fit(train, labels)
    result = plain[0]
    np.testing.assert_array_equal(result.obsm["groundmetric_probabilities"], scored.predict_proba(new))
    np.testing.assert_array_equal(result.obs["groundmetric_typicality"], scored.typicality(new))
    np.testing.assert_array_equal(halves[0].uns["groundmetric"]["ensemble"]["held_out"], scored.ensemble_.held_out_)
    assert result.uns["groundmetric"]["predicted_by"] == "TransportClassifier"


def test_neighbours_vote_where_they_are_asked_for_or_there_is_no_predictor(plain, halves):
    train, new, labels = as_distributions(halves, plain[1])
    metric = gm.get.metric(halves[0])
    classifier = gm.TransportKNeighborsClassifier(5, metric=metric).fit(train, labels)
    older = halves[0].copy()
    del older.uns["groundmetric"]["predictor"]
    for result, _ in (transfer(halves[1], halves[0], n_neighbors=5), transfer(halves[1], older)):
        np.testing.assert_allclose(result.obsm["groundmetric_probabilities"], classifier.predict_proba(new), rtol=1e-6)
        assert result.uns["groundmetric"]["predicted_by"] == "votes of the 5 nearest training samples"
        assert "groundmetric_typicality" not in result.obs
    expected = gm.pairwise_distances(new, train, metric=metric)
    result, cells = plain
    np.testing.assert_allclose(result.obsm["X_groundmetric_distances"], expected, rtol=1e-6)
    assert result.uns["groundmetric"]["training_samples"].tolist() == train.names
    np.testing.assert_allclose(cells.obsm["X_groundmetric"], metric.project(cells[:, metric.features].X), rtol=1e-6)


def test_a_sample_that_is_far_from_all_is_called_a_guess(halves):
    train, new = halves
    odd = new.copy()
    odd.X[(odd.obs["sample"] == "S04").to_numpy()] *= 4.0
    with pytest.warns(UnfamiliarWarning, match=r"1 of 4 samples \(e\.g\. 'S04'\) are farther.*unreliable") as caught:
        result, _ = transfer(odd, train)
    assert [warning.category for warning in caught] == [UnfamiliarWarning]
    assert result.obs_names[result.obs["groundmetric_far"]].tolist() == ["S04"]
    assert result.obs["groundmetric_typicality"]["S04"] == pytest.approx(1 / 7)
    assert result.obs["groundmetric_typicality"].drop("S04").min() > 1 / 7


@pytest.mark.parametrize("numbers", [True, False])
def test_ordered_labels_are_predicted_as_numbers(halves, numbers, tmp_path):
    train, new = (adata.copy() for adata in halves)
    ill = train.obs["condition"] == "disease"
    train.obs["stage"] = np.where(ill, 4.0, 1.0) + 0.5 * train.obs["sample"].isin(["S02", "S07"])
    if not numbers:
        grades = pd.Categorical.from_codes(
            ill.astype(int) * 2 + train.obs["sample"].isin(["S02", "S07"]), list("zyxw"), ordered=True
        )
        train.obs["stage"] = grades
    gm.tl.learn(train, "sample", "stage", n_cells=40, target="ordered", n_members=2, kinds=["univariate"])
    # Six samples are too few for members: the views without labels predict the stage.
    assert train.uns["groundmetric"]["ensemble"]["scores"]["r2"] > 0.0
    train.write_h5ad(tmp_path / "train.h5ad")
    result, cells = transfer(new, tmp_path / "train.h5ad")
    order = np.where(result.obs["condition"] == "disease", 1, 0)
    number = result.obs["groundmetric_number"]
    assert number[order == 0].max() < number[order == 1].min()
    assert result.uns["groundmetric"]["predicted_by"] == "TransportRegressor"
    assert "groundmetric_probability" not in result.obs
    if numbers:
        np.testing.assert_array_equal(result.obs["groundmetric_predicted"], number)
    else:
        predicted = result.obs["groundmetric_predicted"]
        assert predicted.cat.categories.tolist() == list("zyxw")
        assert predicted.cat.codes.tolist() == number.round().clip(0, 3).astype(int).tolist()
    result.write_h5ad(tmp_path / "found.h5ad")
    assert cells.obs["groundmetric_predicted"].notna().all()


@pytest.mark.filterwarnings("ignore:Variable names are not unique")
def test_other_order_and_more_genes_make_no_difference(plain, halves):
    train, new = halves
    more = ad.AnnData(sparse.random(new.n_obs, 7, 0.5, format="csr", random_state=0), obs=new.obs)
    more.var_names = [f"extra{k}" for k in range(6)] + ["extra0"]  # a name twice, but none of ours
    wide = ad.concat([more, new], axis=1, merge="first")
    order = np.random.default_rng(0).permutation(wide.n_vars)
    for changed in (new[:, ::-1], wide[:, order]):
        result, cells = transfer(changed, train)
        np.testing.assert_allclose(
            result.obsm["X_groundmetric_distances"], plain[0].obsm["X_groundmetric_distances"], rtol=1e-9
        )
        np.testing.assert_allclose(cells.obsm["X_groundmetric"], plain[1].obsm["X_groundmetric"], rtol=1e-9)
        shares = (table.obsm["groundmetric_probabilities"] for table in (result, plain[0]))
        np.testing.assert_allclose(*shares, rtol=1e-8)  # points of single or of double precision


def test_the_order_of_cells_makes_no_difference(halves):
    train, new = halves
    mixed = new[np.random.default_rng(0).permutation(new.n_obs)]
    result, cells = transfer(mixed, train, n_neighbors=1)
    assert result.obs_names.tolist() == mixed.obs["sample"].unique().tolist()
    assert result.obs["groundmetric_predicted"].astype(str).tolist() == result.obs["condition"].astype(str).tolist()
    drawn = cells[cells.obs["groundmetric_sampled"]]
    for name, distances in zip(result.obs_names, result.obsm["X_groundmetric_distances"], strict=True):
        table = drawn[drawn.obs["sample"] == name].obsm["X_groundmetric"]
        chosen = train[train.obs["groundmetric_sampled"] & (train.obs["sample"] == "S07")].obsm["X_groundmetric"]
        position = result.uns["groundmetric"]["training_samples"].tolist().index("S07")
        expected = gm.pairwise_distances(*(gm.Distributions(z, np.zeros(len(z))) for z in (table, chosen)))
        np.testing.assert_allclose(distances[position], expected[0, 0], rtol=1e-9)


def test_missing_genes_count_as_their_mean_in_training(halves):
    train, new = halves
    features = gm.get.metric(train).features
    gone = features[3:6]
    means = np.asarray(train[train.obs["groundmetric_sampled"], gone].X.mean(axis=0)).ravel()
    filled = new.copy()
    values = filled.X.toarray()
    values[:, filled.var_names.get_indexer(gone)] = means
    filled.X = values
    expected, _ = transfer(filled, train)
    reduced = new[:, ~new.var_names.isin(gone)]
    with pytest.warns(UserWarning, match=rf"3 of the {len(features)} genes.*of the importance\), e\.g\. '{gone[0]}'"):
        result, _ = transfer(reduced[:, ::-1], train)
    np.testing.assert_allclose(
        result.obsm["X_groundmetric_distances"], expected.obsm["X_groundmetric_distances"], rtol=1e-5
    )
    shares = (table.obsm["groundmetric_probabilities"] for table in (result, expected))
    np.testing.assert_allclose(*shares, rtol=1e-4)


def test_too_many_missing_genes_are_an_error_with_examples(halves):
    train, new = halves
    features = gm.get.metric(train).features
    allowed = int(0.2 * len(features))
    with pytest.warns(UserWarning, match=f"{allowed} of the {len(features)} genes"):
        transfer(new[:, ~new.var_names.isin(features[:allowed])], train)
    reduced = new[:, ~new.var_names.isin(features[: allowed + 1])]
    with pytest.raises(ParameterError) as caught:
        transfer(reduced, train)
    assert caught.value.parameter == "max_missing"
    with pytest.warns(UserWarning, match="genes"):
        transfer(reduced, train, max_missing=0.5)


@pytest.mark.filterwarnings("ignore:Variable names are not unique")
def test_a_gene_that_is_there_twice_is_refused(halves):
    train, new = halves
    feature = gm.get.metric(train).features[0]
    twice = ad.concat([new, new[:, [feature]]], axis=1, merge="first")
    with pytest.raises(ValueError, match=rf"more than once \(1, e\.g\. '{feature}'\).*var_names_make_unique"):
        transfer(twice, train)


@pytest.mark.parametrize("kind", ["h5ad", "folder", "zarr"])
def test_training_from_a_file(plain, halves, kind, tmp_path, write_zarr):
    train, new = halves
    path = {"h5ad": tmp_path / "t.h5ad", "folder": tmp_path / "cells.h5ad", "zarr": tmp_path / "t.zarr"}[kind]
    bare = ad.AnnData(obs=train.obs, obsm=dict(train.obsm), uns=dict(train.uns))  # no values are needed
    write_zarr(bare, path) if kind == "zarr" else bare.write_h5ad(path)
    result, _ = transfer(new, tmp_path if kind == "folder" else path)
    np.testing.assert_array_equal(result.obsm["X_groundmetric_distances"], plain[0].obsm["X_groundmetric_distances"])
    assert result.obsm["groundmetric_probabilities"].equals(plain[0].obsm["groundmetric_probabilities"])


def test_a_metric_without_samples_is_refused(halves, tmp_path):
    metric = gm.get.metric(halves[0])
    metric.save(tmp_path / "metric.gm")
    for trained in (metric, tmp_path / "metric.gm"):
        with pytest.raises(ValueError, match="is a metric without labels: give the AnnData of"):
            transfer(halves[1], trained)


def test_backed_new_cells(plain, halves, tmp_path):
    train, new = halves
    new.write_h5ad(tmp_path / "new.h5ad")
    backed = ad.read_h5ad(tmp_path / "new.h5ad", backed="r")
    result = gm.tl.transfer(backed, train, n_cells=40)
    np.testing.assert_allclose(
        result.obsm["X_groundmetric_distances"], plain[0].obsm["X_groundmetric_distances"], rtol=1e-9
    )
    assert backed.obsm["X_groundmetric"].shape == (new.n_obs, gm.get.metric(train).n_components)
    backed.file.close()
    with pytest.raises(TypeError, match=r"anndata\.read_h5ad\(path\)"):
        gm.tl.transfer(tmp_path / "new.h5ad", train)


def test_no_label_is_predicted_for_a_sample_that_was_learned_from(halves):
    train, new = halves
    combined = ad.concat([train, new])
    with pytest.warns(UserWarning, match=r"samples with the name of a training sample: 6 \(e\.g\. 'S01'\)"):
        result, cells = transfer(combined, train)
    seen = result.obs_names.isin(train.obs["sample"])
    assert result.obs["groundmetric_predicted"].isna().tolist() == seen.tolist()
    assert result.obs["groundmetric_probability"].isna().tolist() == seen.tolist()
    assert cells.obs["groundmetric_predicted"].isna().sum() == train.n_obs


def test_what_comes_out_can_be_compared_written_and_read(plain, halves, tmp_path):
    result, new = plain
    result.write_h5ad(tmp_path / "result.h5ad")
    new.write_h5ad(tmp_path / "new.h5ad")
    assert gm.tl.samples(tmp_path / "new.h5ad").n_obs == 4
    back = ad.read_h5ad(tmp_path / "result.h5ad")
    assert back.obsm["groundmetric_probabilities"].equals(result.obsm["groundmetric_probabilities"])
    with pytest.raises(ValueError, match="none of the 6 training samples of the metric"):
        transfer(halves[1], new)


def test_values_on_another_scale_are_an_error_unless_forced(halves):
    train, new = halves
    with pytest.raises(ParameterError) as caught:
        transfer(new, train, layer="counts")
    assert (caught.value.parameter, caught.value.value, caught.value.remedy) == ("layer", "counts", {"force": True})
    with (
        pytest.warns(UserWarning, match="is on another scale than the values of training: they are whole numbers"),
        pytest.warns(UnfamiliarWarning, match="4 of 4 samples"),
    ):
        transfer(new, train, layer="counts", force=True)
    scaled = new.copy()
    scaled.X = sparse.csr_matrix(1e3 * new.X)
    with pytest.raises(ParameterError, match="times as large as in training"):
        transfer(scaled, train)
    dense = new.X.toarray()
    scaled.X = (dense - dense.mean(axis=0)) / np.maximum(dense.std(axis=0), 1e-6)
    with pytest.raises(ParameterError, match="they look standardised"):
        transfer(scaled, train)
    with pytest.raises(ParameterError) as caught:
        transfer(new, train, max_missing=20)
    assert (caught.value.parameter, caught.value.value) == ("max_missing", 20)


def test_new_cells_that_are_not_finite_are_named(halves):
    train, new = halves[0], halves[1].copy()
    new.X = new.X.toarray()
    gene = gm.get.metric(train).features[0]
    new.X[3, new.var_names.get_loc(gene)] = np.nan
    drawn = transfer(halves[1], train)[1].obs["groundmetric_sampled"]
    assert not drawn.all()
    with pytest.raises(ValueError, match=f"values are NaN or infinite in 1 of .* features, e.g. '{gene}'"):
        gm.tl.transfer(new, train, n_cells=None)
    row = int(np.argmin(drawn))  # a cell that is projected only
    new.X[[3, row]] = new.X[[row, 3]]
    with pytest.raises(ValueError, match=f"NaN or infinity in 1 of {new.n_obs} cells, e.g. '{new.obs_names[row]}'"):
        transfer(new, train)
    with pytest.raises(ParameterError) as caught:
        transfer(halves[1], train, n_neighbors=0)
    assert (caught.value.parameter, caught.value.value) == ("n_neighbors", 0)


def test_after_learning_from_raw_counts_these_are_the_scale(halves):
    train, new = halves
    raw = train.copy()
    with pytest.warns(UserWarning, match="look like raw counts"):
        gm.tl.learn(raw, "sample", "condition", layer="counts", n_cells=40, n_members=1, kinds=["univariate"])
    transfer(new, raw)  # takes the layer of training
    with pytest.raises(ParameterError) as caught:
        transfer(new, raw, layer="X")
    assert (caught.value.parameter, caught.value.value, caught.value.remedy) == ("layer", "X", {"force": True})


def test_numbers_as_labels_and_another_column_of_samples(halves):
    train, new = (adata.copy() for adata in halves)
    train.obs["stage"] = (train.obs["condition"] == "disease").astype(int)
    gm.tl.learn(train, "sample", "stage", n_cells=40, max_epochs=4)
    new.obs = new.obs.rename(columns={"sample": "who"})
    with pytest.raises(ParameterError) as caught:
        transfer(new, train)
    assert (caught.value.parameter, caught.value.value) == ("sample_key", "sample")
    result, _ = transfer(new, train, sample_key="who")
    assert result.obs["groundmetric_predicted"].astype(int).tolist() == [0, 0, 1, 1]


def test_representations_are_transferred_as_they_are(halves):
    train, new = (adata.copy() for adata in halves)
    for adata in (train, new):
        adata.obsm["X_mine"] = adata.X[:, :12].toarray()
    gm.tl.learn(train, "sample", "condition", use_rep="X_mine", n_cells=40, max_epochs=4)
    _, cells = transfer(new, train)
    np.testing.assert_allclose(
        cells.obsm["X_groundmetric"], gm.get.metric(train).project(new.obsm["X_mine"]), rtol=1e-6
    )
    new.obsm["X_mine"] = new.obsm["X_mine"][:, :5]
    with pytest.raises(ValueError, match="has 5 dimensions, but the metric was learned from 12"):
        transfer(new, train)


def test_folders_and_files_that_hold_no_training(halves, tmp_path):
    with pytest.raises(ValueError, match=r"is not the folder of a `groundmetric learn` run: it lacks cells\.h5ad"):
        transfer(halves[1], tmp_path)
    halves[1].write_h5ad(tmp_path / "new.h5ad")
    with pytest.raises(ValueError, match=r"no metric in uns\['groundmetric'\]"):
        transfer(halves[1], tmp_path / "new.h5ad")
