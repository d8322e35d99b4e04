"""gm.get: the metric and tables from an AnnData or its file, as copies."""

import numpy as np
import pytest

import groundmetric as gm

FUNCTIONS = {"metric": gm.get.metric, "importance": gm.get.importance, "distances": gm.get.distances}


@pytest.fixture(scope="module")
def table(learned):
    return gm.tl.samples(learned)


@pytest.fixture(params=["memory", "file"])
def stored(request, tmp_path):
    """A function from an AnnData to where it is read from."""

    def store(adata):
        if request.param == "memory":
            return adata
        adata.write_h5ad(tmp_path / "stored.h5ad")
        return tmp_path / "stored.h5ad"

    return store


def test_every_function_is_tested_here():
    assert sorted(FUNCTIONS) == sorted(gm.get.__all__) == dir(gm.get)


def test_the_metric_is_the_one_that_projected_the_cells(trained, stored):
    metric = gm.get.metric(stored(trained))
    values = trained[:, metric.features].X
    np.testing.assert_allclose(metric.project(values), trained.obsm["X_groundmetric"], atol=1e-6)


def test_the_metric_survives_when_genes_are_dropped_and_reordered(learned):
    fewer = learned[:, ::-3].copy()
    np.testing.assert_array_equal(gm.get.metric(fewer).components, gm.get.metric(learned).components)
    assert gm.get.metric(fewer).features == gm.get.metric(learned).features


def test_importance_is_that_of_var_the_largest_first(trained, stored):
    table = gm.get.importance(stored(trained))
    assert table.index.name == "gene"
    np.testing.assert_allclose(table["importance"], trained.var.loc[table.index, "groundmetric_importance"])
    assert (np.diff(table["importance"]) <= 0).all()
    np.testing.assert_allclose(table["importance"].sum(), 1.0)
    assert set(table.index) == set(gm.get.metric(trained).features)


def test_distances_between_samples_are_those_of_obsp(table, stored):
    distances_table = gm.get.distances(stored(table))
    assert distances_table.index.tolist() == distances_table.columns.tolist() == table.obs_names.tolist()
    np.testing.assert_array_equal(distances_table, table.obsp["groundmetric_distances"])


def test_distances_of_new_samples_are_those_to_the_training_samples(halves):
    train, new = halves
    result = gm.tl.transfer(new.copy(), train)
    distances_table = gm.get.distances(result)
    assert distances_table.index.tolist() == result.obs_names.tolist()
    assert sorted(distances_table.columns) == sorted(train.obs["sample"].unique())
    nearest = distances_table.idxmin(axis=1).map(train.obs.drop_duplicates("sample").set_index("sample")["condition"])
    assert nearest.tolist() == new.obs.drop_duplicates("sample")["condition"].tolist()


def test_another_key(original):
    adata = original.copy()
    gm.tl.learn(adata, "sample", "condition", n_cells=20, max_epochs=2, method="ggml", n_components=3, key_added="mine")
    assert gm.get.metric(adata, key="mine").n_components == 3
    assert gm.get.importance(adata, key="mine").shape == (len(gm.get.metric(adata, key="mine").features), 1)
    assert gm.get.distances(gm.tl.samples(adata, key="mine"), key="mine").shape == (10, 10)


def test_results_are_copies(trained, table):
    before = gm.get.metric(trained).components.copy()
    gm.get.metric(trained).components[:] = 7.0
    np.testing.assert_array_equal(trained.uns["groundmetric"]["metric"]["components"], before)
    importance = trained.var["groundmetric_importance"].copy()
    shares = gm.get.importance(trained)
    shares.iloc[:] = 7.0
    np.testing.assert_array_equal(trained.var["groundmetric_importance"], importance)
    distances = table.obsp["groundmetric_distances"].copy()
    distances_table = gm.get.distances(table)
    distances_table.iloc[:] = 7.0
    np.testing.assert_array_equal(table.obsm["X_groundmetric_distances"], distances)


@pytest.mark.parametrize("name", ["metric", "importance"])
def test_without_a_metric_the_error_names_the_function_to_run(original, trained, stored, name):
    with pytest.raises(ValueError, match=r"adata has no metric in uns\['groundmetric'\]: run tl\.learn first"):
        FUNCTIONS[name](stored(original.copy()))
    with pytest.raises(ValueError, match=r"no metric in uns\['other'\]"):
        FUNCTIONS[name](stored(trained), key="other")


def test_without_distances_the_error_names_the_function_to_run(trained, table, stored):
    with pytest.raises(ValueError, match=r"obsm lacks 'X_groundmetric_distances': give the AnnData of tl\.samples"):
        gm.get.distances(stored(trained))
    with pytest.raises(ValueError, match="obsm lacks 'X_other_distances'"):
        gm.get.distances(table, key="other")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_types_are_refused(name):
    with pytest.raises(TypeError, match="cells are a ndarray: expected an AnnData"):
        FUNCTIONS[name](np.zeros((2, 2)))


def test_entries_of_other_versions_say_what_to_do(trained):
    entry = trained.uns["groundmetric"]
    trained.uns["groundmetric"] = {**entry, "format": 99, "version": "7.0"}
    with pytest.raises(ValueError, match=r"written by groundmetric 7\.0: update groundmetric to read it"):
        gm.get.metric(trained)
    trained.uns["groundmetric"] = {name: entry[name] for name in entry if name != "labels"} | {"version": "0.1"}
    with pytest.raises(ValueError, match=r"written by groundmetric 0\.1, without 'labels': learn again"):
        gm.get.metric(trained)
