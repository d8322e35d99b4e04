"""tl.transfer: new samples by genes in any order, with some missing and others more."""

import anndata as ad
import numpy as np
import pytest
from scipy import sparse

import groundmetric as gm


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


def test_it_is_what_the_classifier_says(plain, halves):
    train, _ = halves
    result, new = plain
    metric = gm.get.metric(train)
    D = {}
    for name, adata in (("train", train), ("new", new)):
        cells = adata[adata.obs["groundmetric_sampled"], metric.features]
        D[name] = gm.Distributions(cells.X, cells.obs["sample"], features=metric.features)
    labels = dict(zip(*train.uns["groundmetric"]["labels"].values(), strict=True))
    known = gm.TransportKNeighborsClassifier(5, metric=metric).fit(
        D["train"], [labels[name] for name in D["train"].names]
    )
    np.testing.assert_allclose(result.obsm["groundmetric_probabilities"], known.predict_proba(D["new"]), rtol=1e-6)
    expected = gm.pairwise_distances(D["new"], D["train"], metric=metric)
    np.testing.assert_allclose(result.obsm["X_groundmetric_distances"], expected, rtol=1e-6)
    assert result.uns["groundmetric"]["training_samples"].tolist() == D["train"].names
    np.testing.assert_allclose(new.obsm["X_groundmetric"], metric.project(new[:, metric.features].X), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Variable names are not unique")
def test_other_order_and_more_genes_make_no_difference(plain, halves):
    train, new = halves
    more = ad.AnnData(sparse.random(new.n_obs, 7, 0.5, format="csr", random_state=0), obs=new.obs)
    more.var_names = [f"extra{k}" for k in range(6)] + ["extra0"]  # a name twice, but none of ours
    wide = ad.concat([more, new], axis=1, merge="first")
    order = np.random.default_rng(0).permutation(wide.n_vars)
    for changed in (new[:, ::-1], wide[:, order]):
        found, cells = transfer(changed, train)
        np.testing.assert_allclose(
            found.obsm["X_groundmetric_distances"], plain[0].obsm["X_groundmetric_distances"], rtol=1e-9
        )
        np.testing.assert_allclose(cells.obsm["X_groundmetric"], plain[1].obsm["X_groundmetric"], rtol=1e-9)


def test_the_order_of_cells_makes_no_difference(halves):
    train, new = halves
    mixed = new[np.random.default_rng(0).permutation(new.n_obs)]
    found, cells = transfer(mixed, train, n_neighbors=1)
    assert found.obs_names.tolist() == mixed.obs["sample"].unique().tolist()
    assert found.obs["groundmetric_predicted"].astype(str).tolist() == found.obs["condition"].astype(str).tolist()
    drawn = cells[cells.obs["groundmetric_sampled"]]
    for name, distances in zip(found.obs_names, found.obsm["X_groundmetric_distances"], strict=True):
        one = drawn[drawn.obs["sample"] == name].obsm["X_groundmetric"]
        chosen = train[train.obs["groundmetric_sampled"] & (train.obs["sample"] == "S07")].obsm["X_groundmetric"]
        place = found.uns["groundmetric"]["training_samples"].tolist().index("S07")
        expected = gm.pairwise_distances(*(gm.Distributions(z, np.zeros(len(z))) for z in (one, chosen)))
        np.testing.assert_allclose(distances[place], expected[0, 0], rtol=1e-9)


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
    left = new[:, ~new.var_names.isin(gone)]
    with pytest.warns(UserWarning, match=rf"3 of {len(features)} genes.*of the importance\), e\.g\. '{gone[0]}'"):
        found, _ = transfer(left[:, ::-1], train)
    np.testing.assert_allclose(
        found.obsm["X_groundmetric_distances"], expected.obsm["X_groundmetric_distances"], rtol=1e-5
    )


def test_too_many_missing_genes_are_an_error_with_examples(halves):
    train, new = halves
    features = gm.get.metric(train).features
    allowed = int(0.2 * len(features))
    with pytest.warns(UserWarning, match=f"{allowed} of {len(features)} genes"):
        transfer(new[:, ~new.var_names.isin(features[:allowed])], train)
    few = new[:, ~new.var_names.isin(features[: allowed + 1])]
    with pytest.raises(
        ValueError, match=rf"{allowed + 1} of {len(features)} genes.*e\.g\. '{features[0]}'.*names like"
    ):
        transfer(few, train)
    with pytest.warns(UserWarning, match="genes"):
        transfer(few, train, max_missing=0.5)


@pytest.mark.filterwarnings("ignore:Variable names are not unique")
def test_a_gene_that_is_there_twice_is_refused(halves):
    train, new = halves
    feature = gm.get.metric(train).features[0]
    twice = ad.concat([new, new[:, [feature]]], axis=1, merge="first")
    with pytest.raises(ValueError, match=rf"more than once, e\.g\. '{feature}'.*var_names_make_unique"):
        transfer(twice, train)


@pytest.mark.parametrize("kind", ["h5ad", "folder", "zarr"])
def test_training_from_a_file(plain, halves, kind, tmp_path, write_zarr):
    train, new = halves
    path = {"h5ad": tmp_path / "t.h5ad", "folder": tmp_path / "cells.h5ad", "zarr": tmp_path / "t.zarr"}[kind]
    bare = ad.AnnData(obs=train.obs, obsm=dict(train.obsm), uns=dict(train.uns))  # no values are needed
    write_zarr(bare, path) if kind == "zarr" else bare.write_h5ad(path)
    found, _ = transfer(new, tmp_path if kind == "folder" else path)
    np.testing.assert_array_equal(found.obsm["X_groundmetric_distances"], plain[0].obsm["X_groundmetric_distances"])


def test_a_bare_metric_places_cells_but_knows_no_samples(plain, halves, tmp_path):
    train, new = halves
    metric = gm.get.metric(train)
    metric.save(tmp_path / "metric.gm")
    for trained in (metric, tmp_path / "metric.gm"):
        found, cells = transfer(new, trained, sample_key="sample")
        np.testing.assert_array_equal(cells.obsm["X_groundmetric"], plain[1].obsm["X_groundmetric"])
        assert found.obs_names.tolist() == plain[0].obs_names.tolist()
        assert "groundmetric_predicted" not in found.obs
    with pytest.raises(ValueError, match="sample_key is None, and a bare metric"):
        transfer(new, metric)
    with pytest.raises(ValueError, match="no feature names"):
        transfer(new, gm.GroundMetric(metric.components))


def test_backed_new_cells(plain, halves, tmp_path):
    train, new = halves
    new.write_h5ad(tmp_path / "new.h5ad")
    backed = ad.read_h5ad(tmp_path / "new.h5ad", backed="r")
    found = gm.tl.transfer(backed, train, n_cells=40)
    np.testing.assert_allclose(
        found.obsm["X_groundmetric_distances"], plain[0].obsm["X_groundmetric_distances"], rtol=1e-9
    )
    assert backed.obsm["X_groundmetric"].shape == (new.n_obs, gm.get.metric(train).n_components)
    backed.file.close()
    with pytest.raises(TypeError, match=r"anndata\.read_h5ad\(path, backed='r'\)"):
        gm.tl.transfer(tmp_path / "new.h5ad", train)


def test_no_label_is_predicted_for_a_sample_that_was_learned_from(halves):
    train, new = halves
    both = ad.concat([train, new])
    with pytest.warns(UserWarning, match=r"6 samples have the name of a training sample \(e\.g\. 'S01'\)"):
        found, cells = transfer(both, train)
    seen = found.obs_names.isin(train.obs["sample"])
    assert found.obs["groundmetric_predicted"].isna().tolist() == seen.tolist()
    assert found.obs["groundmetric_probability"].isna().tolist() == seen.tolist()
    assert cells.obs["groundmetric_predicted"].isna().sum() == train.n_obs


def test_what_comes_out_can_be_compared_written_and_read(plain, halves, tmp_path):
    result, new = plain
    result.write_h5ad(tmp_path / "result.h5ad")
    new.write_h5ad(tmp_path / "new.h5ad")
    assert gm.tl.samples(tmp_path / "new.h5ad").n_obs == 4
    back = ad.read_h5ad(tmp_path / "result.h5ad")
    assert back.obsm["groundmetric_probabilities"].equals(result.obsm["groundmetric_probabilities"])
    with pytest.raises(ValueError, match="none of the 6 samples that the metric was learned from"):
        transfer(halves[1], new)


def test_raw_counts_are_noticed_unless_training_had_them(halves):
    train, new = halves
    with pytest.warns(UserWarning, match="look like raw counts"):
        transfer(new, train, layer="counts")
    raw = train.copy()
    with pytest.warns(UserWarning, match="look like raw counts"):
        gm.tl.learn(raw, "sample", "condition", layer="counts", max_epochs=2)
    transfer(new, raw)  # takes the layer of training
    _, cells = transfer(new, raw, layer="X")
    np.testing.assert_allclose(
        cells.obsm["X_groundmetric"], gm.get.metric(raw).project(new[:, gm.get.metric(raw).features].X), rtol=1e-6
    )
    with pytest.raises(ValueError, match="max_missing is 20"):
        transfer(new, train, max_missing=20)


def test_numbers_as_labels_and_another_column_of_samples(halves):
    train, new = (adata.copy() for adata in halves)
    train.obs["stage"] = (train.obs["condition"] == "disease").astype(int)
    gm.tl.learn(train, "sample", "stage", n_cells=40, max_epochs=4)
    new.obs = new.obs.rename(columns={"sample": "who"})
    with pytest.raises(ValueError, match=r"sample_key is 'sample', but obs has no such column"):
        transfer(new, train)
    found, _ = transfer(new, train, sample_key="who")
    assert found.obs["groundmetric_predicted"].astype(int).tolist() == [0, 0, 1, 1]


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
    with pytest.raises(ValueError, match="has 5 dimensions, the metric was learned on 12"):
        transfer(new, train)


def test_folders_and_files_that_hold_no_training(halves, tmp_path):
    with pytest.raises(ValueError, match=r"is no run of groundmetric learn: it has no cells\.h5ad"):
        transfer(halves[1], tmp_path)
    halves[1].write_h5ad(tmp_path / "new.h5ad")
    with pytest.raises(ValueError, match=r"no metric in uns\['groundmetric'\]"):
        transfer(halves[1], tmp_path / "new.h5ad")
