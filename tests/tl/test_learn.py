"""tl.learn: its results, their storage in files, and equal metrics from equal cells in any format."""

import re
import tracemalloc
import warnings

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import groundmetric as gm
from groundmetric._internal.validation import AlignmentError, ParameterError
from groundmetric.tl.learn import make_learner

FAST = {"max_epochs": 4, "n_cells": 30, "n_members": 2, "kinds": ["univariate", "learned"]}
SINGLE = {"max_epochs": 4, "n_cells": 30, "method": "ggml"}


def learn(adata, **options):
    gm.tl.learn(adata, "sample", "condition", **{**FAST, **options})
    return adata


def learn_alone(adata, **options):
    gm.tl.learn(adata, "sample", "condition", **{**SINGLE, **options})
    return adata


def test_the_genes_that_tell_the_conditions_apart_are_found(learned):
    top = learned.var["groundmetric_importance"].nlargest(8).index
    assert learned.var.loc[top, "programme"].sum() >= 6  # 10 of 150 genes are


def test_everything_is_where_others_look_for_it(learned):
    metric, n = gm.get.metric(learned), learned.n_obs
    selected = learned.var_names.isin(metric.features)
    assert 0 < selected.sum() < learned.n_vars
    assert learned.obsm["X_groundmetric"].shape == (n, metric.n_components)
    np.testing.assert_allclose(learned.obsm["X_groundmetric"], metric.project(learned.X[:, selected]), rtol=1e-12)
    np.testing.assert_array_equal(learned.varm["groundmetric_components"][selected], metric.components.T)
    assert not learned.varm["groundmetric_components"][~selected].any()
    np.testing.assert_allclose(learned.var["groundmetric_importance"].sum(), 1.0)
    np.testing.assert_array_equal(learned.var["groundmetric_importance"][selected], metric.importance())
    drawn = learned.obs.loc[learned.obs["groundmetric_sampled"], "sample"].value_counts()
    assert drawn.to_dict() == learned.obs["sample"].value_counts().clip(upper=40).to_dict()
    entry = learned.uns["groundmetric"]
    assert entry["version"] == gm.__version__
    assert entry["params"] == {
        "sample_key": "sample", "label_key": "condition", "genes": "variance", "n_cells": 40, "random_state": 0,
        "raw_counts": False, "share_negative": 0.0, "method": "ensemble",
    }  # fmt: skip
    assert dict(zip(*entry["labels"].values(), strict=True))["S01"] == "control"
    assert "history" not in entry
    assert entry["learner"]["n_members"] == 14


def test_a_single_learner_leaves_its_history_and_no_held_out_predictions(learned_by_one):
    entry = learned_by_one.uns["groundmetric"]
    assert entry["params"]["method"] == "ggml"
    assert len(entry["history"]["loss"]) <= entry["learner"]["max_epochs"] == 40
    assert "ensemble" not in entry
    assert learned_by_one.obsm["X_groundmetric"].shape == (learned_by_one.n_obs, 5)
    assert "groundmetric_importance_low" not in learned_by_one.var
    assert gm.get.importance(learned_by_one).columns.tolist() == ["importance"]


def distributions_of(learned):
    """The drawn cells and selected genes, and the conditions."""
    metric = gm.get.metric(learned)
    cells = learned[learned.obs["groundmetric_sampled"], metric.features]
    D = gm.Distributions(cells.X, cells.obs["sample"], features=metric.features)
    labels = cells.obs.drop_duplicates("sample").set_index("sample")["condition"]
    return D, labels.loc[D.names].to_numpy(str)


def test_it_is_the_ensemble_on_the_drawn_cells_and_selected_genes(learned):
    ensemble = gm.GroundMetricEnsemble(random_state=0).fit(*distributions_of(learned))
    entry = learned.uns["groundmetric"]["ensemble"]
    np.testing.assert_array_equal(ensemble.components_, gm.get.metric(learned).components)
    np.testing.assert_array_equal(ensemble.held_out_, entry["held_out"])
    np.testing.assert_array_equal(ensemble.distances_, entry["out_of_bag"])
    assert entry["weights"] == ensemble.metric_weights_
    assert entry["scores"]["log_probability"] == ensemble.score_
    predicted = ensemble.classes_[ensemble.held_out_.argmax(axis=1)]
    assert entry["predicted"].tolist() == predicted.tolist()
    right = predicted == distributions_of(learned)[1]
    assert entry["scores"]["balanced_accuracy"] == right.mean()  # five of each condition


def test_intervals_of_importance_contain_it(learned):
    table = gm.get.importance(learned)
    assert (table["low"] <= table["importance"]).all()
    assert (table["importance"] <= table["high"]).all()
    assert (table["low"] < table["high"]).any()
    assert table["selected"].between(0.0, 1.0).all()
    assert table["selected"].iloc[0] > 0.5 > table["selected"].iloc[-1]
    by_gene = learned.var.loc[table.index, ["groundmetric_importance_low", "groundmetric_importance_high"]]
    np.testing.assert_array_equal(by_gene.to_numpy(), table[["low", "high"]].to_numpy())
    assert len(gm.pl.importance(learned, n=5).collections[0].get_segments()) == 5


def test_patients_are_not_divided(cohort):
    """Each patient has a sample of either condition; without groups, members learn from one and are judged on both."""
    number = cohort.obs["sample"].cat.codes.to_numpy() % 5
    cohort.obs["donor"] = np.array([f"D{k}" for k in range(5)])[number]
    grouped = learn(cohort.copy(), n_members=4, group_key="donor")
    with pytest.warns(gm.tl.CohortWarning, match="group_key='donor'"):
        divided = learn(cohort.copy(), n_members=4)
    D, y = distributions_of(grouped)
    donors = cohort.obs.drop_duplicates("sample").set_index("sample")["donor"].loc[D.names].tolist()
    ensemble = gm.GroundMetricEnsemble(4, kinds=FAST["kinds"], max_epochs=4, random_state=0).fit(D, y, groups=donors)
    np.testing.assert_array_equal(ensemble.held_out_, grouped.uns["groundmetric"]["ensemble"]["held_out"])
    assert not np.array_equal(ensemble.held_out_, divided.uns["groundmetric"]["ensemble"]["held_out"])
    assert grouped.uns["groundmetric"]["params"]["group_key"] == "donor"
    with pytest.raises(ParameterError) as caught:
        learn(cohort, group_key="doner")
    assert (caught.value.parameter, caught.value.value) == ("group_key", "doner")
    with pytest.raises(ParameterError) as caught:
        learn(cohort, group_key="cell_type")
    assert (caught.value.parameter, caught.value.value) == ("group_key", "cell_type")


@pytest.mark.parametrize(
    ("method", "options", "owner"),
    [
        ("ensemble", {"strength": 0.1}, "ggml"),
        ("ensemble", {"n_components": 2}, "ggml"),
        ("ensemble", {"resample": True}, "ggml"),
        ("ensemble", {"target": gm.learning.Ordered(gap=1.0)}, "ggml"),
        ("ggml", {"n_members": 3}, "ensemble"),
    ],
)
def test_an_option_of_the_other_method_is_an_error_that_names_it(cohort, method, options, owner):
    with pytest.raises(ParameterError) as caught:
        gm.tl.learn(cohort, "sample", "condition", method=method, **options)
    assert (caught.value.parameter, caught.value.remedy) == (next(iter(options)), {"method": owner})


def test_an_unknown_method_is_named(cohort):
    with pytest.raises(ParameterError) as caught:
        gm.tl.learn(cohort, "sample", "condition", method="forest")
    assert (caught.value.parameter, caught.value.value) == ("method", "forest")


@pytest.mark.parametrize("method", ["ensemble", "ggml"])
@pytest.mark.parametrize("name", ["use_raw", "n_epochs"])
def test_an_unknown_option_lists_every_name_once(cohort, method, name):
    with pytest.raises(TypeError, match=name) as caught:
        gm.tl.learn(cohort, "sample", "condition", method=method, **{name: 3})
    names = re.findall(r"\w+", str(caught.value).partition("options: ")[2])
    assert names == sorted(set(names))
    assert {"max_epochs", "order", "n_members" if method == "ensemble" else "n_components"} <= set(names)
    assert ("adata.raw is not read" in str(caught.value)) == (name == "use_raw")


def test_the_annotated_object_is_returned(cohort, tmp_path):
    path = tmp_path / "cells.h5ad"
    cohort.write_h5ad(path)
    assert gm.tl.learn(cohort, "sample", "condition", **FAST) is cohort
    assert "groundmetric" in gm.tl.learn(path, "sample", "condition", **FAST).uns
    backed = ad.read_h5ad(path, backed="r")
    with pytest.warns(UserWarning, match="adata is backed and is not changed"):
        part = gm.tl.learn(backed, "sample", "condition", **FAST)
    assert "groundmetric" in part.uns
    assert "groundmetric" not in backed.uns


def design(**columns):
    """Warnings of `learn` for a cohort of 6 + 6 samples with these columns by sample."""
    adata = gm.datasets.make_cohort(6, 40, 130, random_state=0)
    adata.obs = adata.obs[["sample", "condition"]].copy()
    number = adata.obs["sample"].str[1:].astype(int).to_numpy() - 1
    sizes = columns.pop("sizes", None)
    for name, values in columns.items():
        adata.obs[name] = np.asarray(values)[number]
    if sizes is not None:
        order = adata.obs.groupby("sample", observed=True).cumcount().to_numpy()
        adata = adata[order < np.asarray(sizes)[number]].copy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gm.tl.learn(adata, "sample", "condition", max_epochs=1, n_members=2, kinds=["anova"], genes="all")
    return " ".join(str(warning.message) for warning in caught if issubclass(warning.category, gm.tl.CohortWarning))


def test_an_ordinary_design_gives_no_warning():
    assert design(sizes=[20] * 12, age=np.arange(12), batch=[0, 1] * 6) == ""


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"condition": ["a"] * 10 + ["b"] * 2}, "label 'b' of obs['condition'] has 2 of 12 samples"),
        ({"condition": ["a"] * 5 + ["b"] * 5 + ["c"] * 2}, "label 'c'"),
        ({"donor": np.arange(12) // 2}, "group_key='donor'"),
        ({"batch": [0] * 6 + [1] * 6}, "obs['batch'] is associated with obs['condition']"),
        ({"sizes": [10] * 6 + [30] * 6}, "number of cells per sample is associated with condition"),
        ({"sizes": [3] * 1 + [30] * 11}, "samples with fewer than 10 cells: 1 of 12 ('S01' has 3)"),
    ],
)
def test_designs_that_make_results_unreliable_give_a_warning(columns, message):
    assert message in design(**{"sizes": [20] * 12, **columns})


def test_a_label_of_one_sample_needs_a_single_learner(cohort):
    cohort.obs["condition"] = np.where(cohort.obs["sample"] == "S01", "rare", cohort.obs["condition"])
    with pytest.raises(ParameterError) as caught:
        learn(cohort)
    assert (caught.value.parameter, caught.value.remedy) == ("label_key", {"method": "ggml"})


def test_it_is_the_plain_learner_on_the_drawn_cells_and_selected_genes(learned_by_one):
    learned, metric = learned_by_one, gm.get.metric(learned_by_one)
    plain = gm.GroundMetricLearner(max_epochs=40, random_state=0).fit(*distributions_of(learned))
    np.testing.assert_array_equal(plain.components_, metric.components)
    variance = learned[learned.obs["groundmetric_sampled"]].X.toarray().astype(float).var(axis=0)
    assert learned.var_names[variance > variance.mean()].tolist() == metric.features


def same(first, second):
    """Two entries of `uns`, nested."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    if np.asarray(first).dtype.kind in "OUT":
        return np.asarray(first).tolist() == np.asarray(second).tolist()
    return np.array_equal(first, second, equal_nan=True)


@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
def test_files_keep_everything_and_are_enough_for_the_metric(learned, suffix, tmp_path, write_zarr):
    path = tmp_path / f"cells{suffix}"
    learned.write_h5ad(path) if suffix == ".h5ad" else write_zarr(learned, path)
    back = ad.read_h5ad(path) if suffix == ".h5ad" else ad.read_zarr(path)
    assert same(learned.uns["groundmetric"], back.uns["groundmetric"])
    np.testing.assert_array_equal(back.obsm["X_groundmetric"], learned.obsm["X_groundmetric"])
    np.testing.assert_array_equal(back.varm["groundmetric_components"], learned.varm["groundmetric_components"])
    for source in (back, path, back[:, ::-1]):
        metric = gm.get.metric(source)
        np.testing.assert_array_equal(metric.components, gm.get.metric(learned).components)
        np.testing.assert_array_equal(metric.importance(), gm.get.metric(learned).importance())
        assert metric.features == gm.get.metric(learned).features


@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_every_format_and_place_gives_the_same_metric(cohort, kind, tmp_path):
    expected = gm.get.metric(learn(cohort.copy()))
    form = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix, "dense": lambda X: X.toarray()}[kind]
    cohort.layers["mine"] = cohort.X = form(cohort.X)
    path = tmp_path / "cells.h5ad"
    cohort.write_h5ad(path)
    before = path.read_bytes()
    backed = ad.read_h5ad(path, backed="r")
    parts = [gm.tl.learn(str(path), "sample", "condition", **FAST)]
    with pytest.warns(UserWarning, match="adata is backed"):
        parts.append(gm.tl.learn(backed, "sample", "condition", **FAST))
    parts.append(gm.tl.learn(path, "sample", "condition", layer="mine", **FAST))
    backed.file.close()
    assert path.read_bytes() == before
    for result in [learn(cohort.copy()), *parts]:
        matrix = gm.get.metric(result).matrix()  # of components, the sign is left to rounding
        np.testing.assert_allclose(matrix, expected.matrix(), rtol=1e-4, atol=1e-4 * expected.matrix().max())
        assert gm.get.metric(result).features == expected.features


def test_of_a_file_the_drawn_cells_and_selected_genes_come_back(cohort, tmp_path):
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    part = gm.tl.learn(tmp_path / "cells.h5ad", "sample", "condition", **FAST)
    complete = learn(cohort)
    metric = gm.get.metric(part)
    assert part.var_names.tolist() == metric.features
    assert part.obs["groundmetric_sampled"].all()
    expected = complete[complete.obs["groundmetric_sampled"], metric.features]
    assert part.obs_names.equals(expected.obs_names)
    assert part.obs.columns.tolist() == complete.obs.columns.tolist()
    assert (part.X != expected.X).nnz == 0
    np.testing.assert_allclose(part.obsm["X_groundmetric"], expected.obsm["X_groundmetric"], rtol=1e-12)
    np.testing.assert_array_equal(part.varm["groundmetric_components"], metric.components.T)


@pytest.mark.filterwarnings("ignore:.*max_epochs")
def test_while_learning_there_is_one_copy_of_the_points(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    cells = ad.AnnData(sparse.random(3000, 400, 0.3, "csr", np.float32, random_state=0))
    cells.obs["sample"] = random.permutation(np.arange(3000) % 10).astype(str)  # mixed, as they are in an atlas
    cells.obs["condition"] = np.array(["a", "b"])[cells.obs["sample"].astype(int) % 2]
    cells.write_h5ad(tmp_path / "cells.h5ad")
    held, inner = [], gm.GroundMetricLearner.fit

    def fit(self, *arguments, **options):
        held.append(tracemalloc.get_traced_memory()[0])
        return inner(self, *arguments, **options)

    monkeypatch.setattr(gm.GroundMetricLearner, "fit", fit)
    tracemalloc.start()
    part = gm.tl.learn(
        tmp_path / "cells.h5ad", "sample", "condition", genes="all", n_cells=250, max_epochs=1, method="ggml"
    )
    tracemalloc.stop()
    assert held[0] < 1.5 * (part.X.data.nbytes + part.X.indices.nbytes)
    names = ad.read_h5ad(tmp_path / "cells.h5ad")[part.obs_names]
    np.testing.assert_array_equal(part.X.toarray(), names.X.toarray())  # in the order of the file again


def test_whole_numbers_in_a_layer_can_be_learned_from(cohort):
    cohort.layers["counts"] = cohort.layers["counts"].astype(np.int64)
    with pytest.warns(UserWarning, match=r"layers\['counts'\] holds whole numbers"):
        learn(cohort, layer="counts")
    assert cohort.uns["groundmetric"]["params"]["layer"] == "counts"


def test_a_representation_can_be_learned_on(cohort):
    Z = cohort.X[:, :10].toarray().astype(np.float32)
    cohort.obsm["X_mine"] = Z
    learn_alone(cohort, use_rep="X_mine", n_components=2)
    metric = gm.get.metric(cohort)
    assert metric.components.shape == (2, 10)
    assert metric.features[:2] == ["X_mine_0", "X_mine_1"]
    np.testing.assert_allclose(cohort.obsm["X_groundmetric"], metric.project(Z), rtol=1e-6)
    assert not list(cohort.varm)
    assert "groundmetric_importance" not in cohort.var
    with pytest.raises(ParameterError) as caught:
        learn(cohort, use_rep="X_mine", genes="all")
    assert (caught.value.parameter, caught.value.value) == ("use_rep", "X_mine")


def test_key_added(cohort):
    result = gm.tl.learn(cohort.copy(), "sample", "condition", key_added="mine", **FAST)
    assert "mine" not in cohort.uns
    assert {"X_mine"} == set(result.obsm)
    assert {"mine_components"} == set(result.varm)
    assert {"mine_importance"} <= set(result.var)
    assert "mine" in result.uns
    np.testing.assert_array_equal(gm.get.metric(result, key="mine").components, gm.get.metric(learn(cohort)).components)
    with pytest.raises(ValueError, match=r"no metric in uns\['mine'\]: run tl\.learn first"):
        gm.get.metric(cohort, key="mine")


def test_nothing_is_learned_from_samples_without_a_label(cohort):
    """Neither genes nor scales nor the metric depend on them; but they are placed."""
    labels = cohort.obs["condition"].astype(object)
    hidden = cohort.obs["sample"].isin(["S02", "S09"]).to_numpy()
    cohort.obs["partial"] = labels.where(~hidden)
    labelled = cohort[~hidden].copy()
    gm.tl.learn(labelled, "sample", "partial", **FAST)
    wild = cohort.copy()
    wild.X = sparse.csr_matrix(sparse.diags(np.where(hidden, 50.0, 1.0)) @ cohort.X).astype(np.float32)
    for adata in (cohort, wild):
        with pytest.warns(UserWarning, match=r"samples without a label in obs\['partial'\]: 2 of 10 \(e\.g\. 'S02'\)"):
            gm.tl.learn(adata, "sample", "partial", **FAST)
        np.testing.assert_array_equal(gm.get.metric(adata).components, gm.get.metric(labelled).components)
        assert gm.get.metric(adata).features == gm.get.metric(labelled).features
        np.testing.assert_array_equal(
            adata.uns["groundmetric"]["metric"]["means"], labelled.uns["groundmetric"]["metric"]["means"]
        )
        assert np.isfinite(adata.obsm["X_groundmetric"]).all()
        assert "S02" not in adata.uns["groundmetric"]["labels"]["samples"]


@pytest.mark.parametrize("labels", [None, "ill"])
def test_labels_that_teach_nothing(cohort, labels):
    cohort.obs["condition"] = pd.Series(labels, index=cohort.obs_names, dtype=object)
    with pytest.raises(ParameterError) as caught:
        learn(cohort)
    assert (caught.value.parameter, caught.value.value) == ("label_key", "condition")


def test_genes_by_rule_column_list_or_mask(cohort):
    fast = {"n_members": 1, "kinds": ["univariate"]}
    cohort.var["highly_variable"] = cohort.var["programme"]
    programme = cohort.var_names[cohort.var["programme"]].tolist()
    for genes in ("highly_variable", "programme", programme, programme[::-1], cohort.var["programme"].to_numpy()):
        adata = learn(cohort.copy(), genes=genes, **fast)
        assert gm.get.metric(adata).features == programme
    assert len(gm.get.metric(learn(cohort.copy(), genes="all", **fast)).features) == cohort.n_vars
    cohort.var["selected_genes"] = cohort.var["programme"]
    assert gm.get.metric(learn(cohort, **fast)).features == programme
    assert cohort.uns["groundmetric"]["params"]["genes"] == "selected_genes"


def test_a_mask_with_names_marks_the_genes_of_these_names(cohort):
    programme = cohort.var_names[cohort.var["programme"]].tolist()
    mask = cohort.var["programme"].astype(bool).sort_index(ascending=False)
    assert gm.get.metric(learn(cohort.copy(), genes=mask)).features == programme
    with pytest.raises(AlignmentError) as caught:
        learn(cohort, genes=mask.iloc[1:])
    assert (caught.value.parameter, caught.value.missing) == ("genes", [mask.index[0]])


def test_marks_of_select_genes_are_found_in_a_file(cohort, tmp_path):
    gm.pp.select_genes(cohort)
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    part = gm.tl.learn(tmp_path / "cells.h5ad", "sample", "condition", **FAST)
    assert part.var_names.equals(cohort.var_names[cohort.var["selected_genes"]])
    assert part.uns["groundmetric"]["params"]["genes"] == "variance"


@pytest.mark.parametrize(
    ("genes", "value"),
    [
        ("varience", "varience"), ("highly_variable", "highly_variable"), ("marker_of", "marker_of"),
        (np.zeros(150, bool), "given"),
    ],
)  # fmt: skip
def test_genes_that_select_nothing_are_refused(cohort, genes, value):
    with pytest.raises(ParameterError) as caught:
        learn(cohort, genes=genes)
    assert (caught.value.parameter, caught.value.value) == ("genes", value)


@pytest.mark.parametrize(
    ("genes", "message"),
    [
        (["PROG01", "PRG02"], r"names that var_names lacks \(1, e\.g\. 'PRG02'\): there are 'PROG02'"),
        (np.ones(3, bool), r"mask of shape \(3,\): expected \(150,\)"),
    ],
)
def test_invalid_genes_are_refused(cohort, genes, message):
    with pytest.raises(ValueError, match=message):
        learn(cohort, genes=genes)


@pytest.mark.parametrize(
    "option",
    [{"genes": 5.5}, {"genes": True}, {"genes": []}, {"key_added": "a/b"}, {"key_added": None}, {"order": "ab"}],
)
def test_values_of_the_wrong_kind_are_named(cohort, option):
    with pytest.raises(ParameterError) as caught:
        learn(cohort, **option)
    assert {caught.value.parameter: caught.value.value} == option


@pytest.mark.parametrize(
    ("name", "hint"),
    [("seed", "'random_state'"), ("n_top_genes", "(genes=…)"), ("batch", "'batch_key'"), ("groups", "'group_key'")],
)
def test_options_of_other_packages_give_a_hint(cohort, name, hint):
    with pytest.raises(TypeError, match=re.escape(hint)):
        learn(cohort, **{name: "batch"})


@pytest.mark.parametrize("method", ["ensemble", "ggml"])
def test_a_label_of_its_own_for_each_sample_is_refused(cohort, method):
    cohort.obs["age"] = 20 + cohort.obs["sample"].cat.codes.astype(int)
    with pytest.raises(ParameterError) as caught:
        gm.tl.learn(cohort, "sample", "age", method=method)
    assert (caught.value.parameter, caught.value.remedy) == ("label_key", {"target": "ordered"})
    cohort.obs.loc[cohort.obs["sample"] == "S02", "age"] = 20  # S01 and S02 have one label
    with pytest.raises(ParameterError) as caught:
        gm.tl.learn(cohort, "sample", "age")
    assert (caught.value.parameter, caught.value.remedy) == ("label_key", {"target": "ordered"})


def test_marks_other_than_true_and_false_are_refused(cohort):
    cohort.var["selected_genes"] = "yes"
    with pytest.raises(ParameterError, match=r"var\['selected_genes'\] holds") as caught:
        learn(cohort)
    assert caught.value.parameter == "genes"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named(cohort, value):
    cohort.X = cohort.X.toarray()
    cohort.X[7, 30] = value
    gene = cohort.var_names[30]
    with pytest.raises(ValueError, match=f"values are NaN or infinite in 1 of 150 features, e.g. '{gene}'"):
        learn(cohort, n_cells=None)
    with pytest.raises(ValueError, match=f"points contain NaN or infinity.*feature '{gene}'"):
        learn(cohort, n_cells=None, genes="all")


def test_values_of_cells_that_were_not_drawn_give_a_warning(cohort):
    fast = {"n_cells": 10, "genes": "programme", "n_members": 1, "kinds": ["univariate"]}
    row = int(np.argmin(learn(cohort.copy(), **fast).obs["groundmetric_sampled"]))
    cohort.X = cohort.X.toarray()
    cohort.X[row, cohort.var["programme"].to_numpy().argmax()] = np.nan
    with pytest.warns(UserWarning, match=f"NaN or infinity in 1 of {cohort.n_obs} cells.*'{cohort.obs_names[row]}'"):
        learn(cohort, **fast)


def test_the_selection_of_features_is_reported(cohort, capsys):
    learn(cohort, verbose=1)
    result, n = cohort.uns["groundmetric"]["features"], len(gm.get.metric(cohort).features)
    text = f"{n} of 150 features (variance above the average); {150 - n} were left out: the default for genes"
    assert result == {"rule": "variance", "n_selected": n, "n_features": 150, "text": text}
    assert f"learning from {result['text']}" in capsys.readouterr().err


def test_the_default_choice_of_features_does_not_depend_on_their_units(cohort):
    """All markers and measurements are used, in any units; the variance rule would select the largest."""
    panel = cohort[:, :60].copy()
    units = np.where(np.arange(60) < 3, 1000.0, 1.0)
    wide = cohort.copy()
    wide.X = cohort.X.toarray() - 1.0  # below 0: no counts
    for adata in (panel, wide):
        adata.X = adata.X.toarray() if hasattr(adata.X, "toarray") else adata.X
        adata.X = adata.X * np.resize(units, adata.n_vars)
        learn(adata, n_members=1, kinds=["univariate"])
        assert gm.get.metric(adata).features == adata.var_names.tolist()
        assert adata.uns["groundmetric"]["params"]["genes"] == "all"
        assert adata.uns["groundmetric"]["features"]["text"].startswith(f"all {adata.n_vars} features: the default")
    learn(panel, genes="variance", n_members=1, kinds=["univariate"])
    assert gm.get.metric(panel).features == panel.var_names[:3].tolist()


def test_genes_of_the_same_name_are_refused_where_they_are_selected(cohort):
    cohort.var_names = [*cohort.var_names[:-1], cohort.var_names[0]]
    with pytest.raises(ValueError, match=r"have equal names.*var_names_make_unique"):
        learn(cohort, genes="all")


def test_unknown_keywords_are_named(cohort):
    with pytest.raises(TypeError, match=r"no option 'strenght'"):
        learn(cohort, strenght=1.0)
    with pytest.raises(TypeError, match=r"no option 'n_member': did you mean 'n_members'\?"):
        learn(cohort, n_member=1)


def test_custom_penalties_and_starts_are_stored(cohort, tmp_path):
    start = np.ones((1, 10))
    learn_alone(cohort, genes="programme", penalty=gm.learning.Lasso(), init=start, n_components=1)
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    stored = ad.read_h5ad(tmp_path / "cells.h5ad").uns["groundmetric"]["learner"]
    assert "Lasso" in stored["penalty"]
    np.testing.assert_array_equal(stored["init"], start)


def test_numeric_samples_and_labels_survive_a_file(cohort, tmp_path):
    cohort.obs["number"] = cohort.obs["sample"].cat.codes.astype(int)
    cohort.obs["stage"] = (cohort.obs["condition"] == "disease").astype(int)
    gm.tl.learn(cohort, "number", "stage", **FAST)
    cohort.write_h5ad(tmp_path / "cells.h5ad")
    labels = ad.read_h5ad(tmp_path / "cells.h5ad").uns["groundmetric"]["labels"]
    assert labels["samples"].tolist() == [str(k) for k in range(10)]
    assert labels["labels"].tolist() == [0] * 5 + [1] * 5


@pytest.mark.parametrize("options", [{"cost": "manhattan"}, {"form": gm.learning.Mapped("anything")}])
def test_metrics_that_an_anndata_cannot_hold_are_refused(options):
    with pytest.raises(ParameterError) as caught:
        make_learner("ggml", options)
    assert {caught.value.parameter: caught.value.value} == options


def test_an_order_of_labels_means_ordered_categories(cohort):
    """With three labels, another order gives another metric."""
    names = cohort.obs["sample"].unique()
    grade = {name: ["mild", "moderate", "severe"][k % 3] for k, name in enumerate(names)}
    cohort.obs["grade"] = cohort.obs["sample"].astype(str).map(grade)
    options = {"method": "ggml", "n_cells": 20, "max_epochs": 3, "init": "random"}

    def components(order):
        gm.tl.learn(cohort, "sample", "grade", order=order, **options)
        assert cohort.uns["groundmetric"]["params"]["order"].tolist() == order
        return gm.get.metric(cohort).components

    with pytest.raises(ParameterError) as caught:
        gm.tl.learn(cohort, "sample", "grade", target="ordered", **options)
    assert caught.value.parameter == "label_key"
    assert caught.value.remedy == {"order": ["mild", "moderate", "severe"]}
    first, second = components(["mild", "moderate", "severe"]), components(["moderate", "mild", "severe"])
    assert not np.array_equal(first, second)
    cohort.obs["grade"] = pd.Categorical(cohort.obs["grade"], ["mild", "moderate", "severe"], ordered=True)
    gm.tl.learn(cohort, "sample", "grade", target="ordered", **options)
    np.testing.assert_array_equal(gm.get.metric(cohort).components, first)
    for order in (["mild", "moderate"], ["mild", "moderate", "severe", "mild"]):
        with pytest.raises(ParameterError) as caught:
            gm.tl.learn(cohort, "sample", "grade", order=order, **options)
        assert (caught.value.parameter, caught.value.value) == ("order", order)


def test_genes_may_be_a_number_of_the_most_variable(cohort):
    gm.tl.learn(cohort, "sample", "condition", genes=12, n_cells=None, method="ggml", max_epochs=1)
    values = cohort.X.toarray() if hasattr(cohort.X, "toarray") else cohort.X
    expected = cohort.var_names[np.sort(np.argsort(-values.var(axis=0), kind="stable")[:12])]
    assert gm.get.metric(cohort).features == expected.tolist()
    assert cohort.uns["groundmetric"]["params"]["genes"] == 12  # from which reports repeat the selection
    with pytest.raises(ParameterError) as caught:
        gm.tl.learn(cohort, "sample", "condition", genes=0)
    assert (caught.value.parameter, caught.value.value) == ("genes", 0)


def test_numbers_with_fractions_are_not_classes(cohort):
    cohort.obs["age"] = cohort.obs["sample"].cat.codes / 3.0 if hasattr(cohort.obs["sample"], "cat") else 0.5
    with pytest.raises(ParameterError) as caught:
        gm.tl.learn(cohort, "sample", "age")
    assert (caught.value.parameter, caught.value.remedy) == ("label_key", {"target": "ordered"})
