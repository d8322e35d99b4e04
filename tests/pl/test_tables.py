"""Figures of AnnData show its contents in its colours, and do not change it."""

import anndata
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

import groundmetric as gm
from groundmetric import pl
from groundmetric._anndata.store import Stored
from groundmetric.interpret.axes import metric_scaling
from groundmetric.pl.style import COLOURS

N = 12


@pytest.fixture
def samples():
    """Return samples as `tl.samples` does, with a UMAP."""
    random = np.random.RandomState(0)
    positions = random.normal(size=(N, 2))
    obs = pd.DataFrame(
        {
            "condition": pd.Categorical.from_codes(np.arange(N) % 2, ["sick", "healthy", "unseen"]),
            "batch": [f"b{k % 3}" for k in range(N)],
            "age": np.linspace(20, 80, N),
            "train": np.arange(N) < 8,
        },
        index=[f"S{k}" for k in range(N)],
    )
    adata = anndata.AnnData(np.zeros((N, 1), np.float32), obs=obs)
    adata.obsp["groundmetric_distances"] = cdist(positions, positions)
    adata.obsm["X_umap"] = random.normal(size=(N, 2))
    adata.uns["condition_colors"] = ["#ff0000", "#00ff00", "#0000ff"]
    return adata


@pytest.fixture
def cells():
    """Return cells with the results of `tl.learn`, and their metric."""
    random = np.random.RandomState(1)
    names = [f"GENE{k}" for k in range(30)]
    metric = gm.GroundMetric(random.normal(size=(2, 30)), names, variances=random.uniform(1, 2, 30))
    obs = {
        "cell_type": pd.Categorical.from_codes(np.arange(200) % 10, [f"type {k}" for k in range(10)]),
        "condition": np.where(np.arange(200) < 100, "a", "b"),
        "score": np.arange(200.0),
    }
    adata = anndata.AnnData(random.rand(200, 30).astype(np.float32), obs=pd.DataFrame(obs, index=map(str, range(200))))
    adata.var_names = names
    adata.var["symbol"] = [f"symbol {k}" for k in range(30)]
    adata.var["groundmetric_importance"] = metric.importance()
    adata.varm["groundmetric_components"] = metric.components.T
    adata.obsm["X_groundmetric"] = metric.project(adata.X)
    stored = Stored("groundmetric", metric, np.zeros(30), {"label_key": "condition"}, pd.Series(["a"], ["S0"]))
    adata.uns["groundmetric"] = stored.entry() | {"history": {"loss": np.array([0.5, 0.2]), "active": [0.9, 0.4]}}
    return adata, metric


@pytest.fixture
def held_out(cells):
    """Return cells with the results of an ensemble on six samples."""
    adata, _ = cells
    adata.obs["condition"] = pd.Categorical(adata.obs["condition"], ["b", "a"])
    adata.uns["condition_colors"] = ["#ff0000", "#00ff00"]
    names = [f"S{k}" for k in range(6)]
    adata.uns["groundmetric"]["ensemble"] = {
        "samples": np.array(names, dtype=object), "labels": np.array(list("aaabbb"), dtype=object),
        "predicted": np.array(list("aababb"), dtype=object), "classes": np.array(["a", "b"], dtype=object),
        "out_of_bag": np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0))),
        "score": -0.3, "chance": -0.69, "views": {"learned": -0.2, "means": -0.5},
    }  # fmt: skip
    return adata


def colours_by_name(ax):
    legend = ax.get_legend()
    return {
        text.get_text(): to_hex(getattr(handle, "get_markeredgecolor", getattr(handle, "get_facecolor", None))())
        for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)
    }


def test_embedding_is_at_the_umap_in_the_colours_of_uns(samples):
    ax = pl.embedding(samples, color="condition")
    drawn = np.vstack([marks.get_offsets() for marks in ax.collections])
    assert_allclose(np.sort(drawn, axis=0), np.sort(samples.obsm["X_umap"], axis=0))
    # In the order of the categories; one that does not occur is not shown.
    assert colours_by_name(ax) == {"sick": "#ff0000", "healthy": "#00ff00"}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("UMAP 1", "UMAP 2")


def test_embedding_without_umap_is_by_the_distances(samples):
    del samples.obsm["X_umap"]
    ax = pl.embedding(samples, color="condition", train="train")
    drawn = np.vstack([marks.get_offsets() for marks in ax.collections])
    expected = metric_scaling(samples.obsp["groundmetric_distances"])
    assert_allclose(np.sort(drawn, axis=0), np.sort(expected, axis=0))
    assert sum(len(marks.get_offsets()) for marks in ax.collections if len(marks.get_facecolor())) == 8


@pytest.mark.parametrize("basis", ["pca", "X_pca"])
def test_embedding_takes_a_basis_by_scanpys_name(samples, basis):
    samples.obsm["X_pca"] = np.arange(3.0 * N).reshape(N, 3)
    ax = pl.embedding(samples, color="batch", basis=basis)
    assert ax.get_xlabel() == "PCA 1"
    assert sum(len(marks.get_offsets()) for marks in ax.collections) == N


def test_embedding_shows_numbers_as_shades(samples):
    ax = pl.embedding(samples, color="age")
    (marks,) = ax.collections
    assert_array_equal(marks.get_array(), samples.obs["age"])
    assert ax.figure.axes[-1].get_ylabel() == "age"


def test_default_colours_where_uns_has_none_or_too_few(samples):
    assert colours_by_name(pl.embedding(samples, color="batch"))["b0"] == COLOURS[0].lower()
    samples.uns["condition_colors"] = ["#ff0000"]
    assert colours_by_name(pl.embedding(samples, color="condition"))["sick"] == COLOURS[0].lower()


def test_heatmap_has_a_bar_for_each_labelling_and_names(samples):
    ax = pl.heatmap(samples, color=["condition", "batch"], names=True)
    order = [text.get_text() for text in ax.get_yticklabels()]
    rows = samples.obs_names.get_indexer(order)
    distances = samples.obsp["groundmetric_distances"]
    assert_array_equal(ax.images[0].get_array(), distances[np.ix_(rows, rows)])
    colours = colours_by_name(ax)
    assert (colours["sick"], colours["healthy"]) == ("#ff0000", "#00ff00")
    assert {"b0", "b1", "b2"} <= set(colours)
    assert (samples.obs["condition"].iloc[rows].cat.codes.diff().dropna() >= 0).all()


def test_samples_without_a_label_are_shown_as_such(samples):
    samples.obs["batch"] = samples.obs["batch"].astype(object)
    samples.obs.iloc[0, samples.obs.columns.get_loc("batch")] = None
    samples.obs.iloc[0, samples.obs.columns.get_loc("condition")] = np.nan
    for ax in (pl.embedding(samples, color="batch"), pl.heatmap(samples, color="condition")):
        assert "no label" in colours_by_name(ax)


def test_importance_reads_var_and_the_intervals_of_members(cells):
    adata, metric = cells
    ax = pl.importance(adata, n=5)
    assert_allclose([bar.get_width() for bar in ax.patches], 100 * np.sort(metric.importance())[::-1][:5])
    best = metric.importance().argmax()
    assert ax.get_yticklabels()[0].get_text() == f"GENE{best}"
    for end, factor in (("low", 0.5), ("high", 2.0)):
        adata.var[f"groundmetric_importance_{end}"] = factor * metric.importance()
    ax = pl.importance(adata, n=3)
    assert_allclose(
        ax.collections[0].get_segments()[0][:, 0], [50 * metric.importance()[best], 200 * metric.importance()[best]]
    )


def test_history_of_adata_is_of_views_or_of_epochs_or_an_error(cells, held_out):
    ax = pl.history(held_out)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["all views", "learned", "means"]
    assert [line.get_xdata()[0] for line in ax.lines if str(line.get_gid()).startswith("score")] == [-0.3, -0.2, -0.5]
    del held_out.uns["groundmetric"]["ensemble"]
    assert_allclose(pl.history(held_out).lines[0].get_ydata(), [90, 40])
    del held_out.uns["groundmetric"]["history"]  # as `tl.transfer` leaves it
    with pytest.raises(TypeError, match="has no history"):
        pl.history(held_out)
    with pytest.raises(TypeError, match="int has no history: give a fitted learner"):
        pl.history(3)


def test_distances_of_tl_samples_are_drawn(samples):
    samples.obsp["groundmetric_in_sample"] = 0.5 * samples.obsp["groundmetric_distances"]
    most = samples.obsp["groundmetric_distances"].max()
    assert pl.heatmap(samples, color="batch").images[0].get_array().max() == most
    assert pl.clustermap(samples, color="batch").images[0].get_array().max() == most


def test_a_heatmap_of_a_learned_number_is_in_its_order(samples):
    samples.uns["groundmetric"] = {"params": {"label_key": "age"}}
    samples.obs["age"] = np.random.RandomState(0).permutation(N) / 3.0
    order = np.argsort(samples.obs["age"].to_numpy())
    ax = pl.heatmap(samples, names=True)
    assert [text.get_text() for text in ax.get_yticklabels()] == samples.obs_names[order].tolist()
    assert ax.get_legend() is None
    assert ax.get_ylabel() == "samples, from low to high age"
    assert len(pl.clustermap(samples).child_axes) == 2


def test_confusion_of_samples_is_of_held_out_predictions(samples):
    samples.uns["groundmetric"] = {"params": {"label_key": "condition"}}
    with pytest.raises(ValueError, match=r"has no 'groundmetric_held_out': only an ensemble"):
        pl.confusion(samples)
    training = np.arange(N) < 8
    samples.obs["groundmetric_held_out"] = samples.obs["condition"].where(training)
    ax = pl.confusion(samples)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["sick", "healthy"]
    assert [int(text.get_text()) for text in ax.texts] == [4, 0, 0, 4]
    del samples.uns["groundmetric"]
    with pytest.raises(ValueError, match="does not name the label"):
        pl.confusion(samples)


def test_cells_have_no_distances_between_samples(cells):
    adata, _ = cells
    for draw in (pl.clustermap, pl.heatmap, pl.embedding, pl.confusion):
        with pytest.raises(ValueError, match=r"adata has a row per cell: draw gm\.tl\.samples\(adata\)"):
            draw(adata)
    assert plt.get_fignums() == []


def test_the_label_that_was_learned_is_the_colour_unless_another_is_named(samples):
    samples.uns["groundmetric"] = {"params": {"label_key": "condition"}}
    for draw in (pl.embedding, pl.heatmap, pl.clustermap):
        assert set(colours_by_name(draw(samples))) == {"sick", "healthy"}


def test_embedding_of_several_colours_is_a_panel_each(samples):
    panels = pl.embedding(samples, color=["condition", "age", "batch", "condition"])
    assert len(panels) == 4
    assert len({panel.figure for panel in panels}) == 1
    assert panels[0].get_legend().get_texts()[0].get_text() == "condition:"
    assert_array_equal(panels[1].collections[0].get_array(), samples.obs["age"])
    panels[0].figure.canvas.draw()
    _, axes = plt.subplots(1, 2)
    assert pl.embedding(samples, color=["age", "batch"], ax=axes) == list(axes)


def test_importance_counts_the_genes_of_the_metric(learned):
    features = learned.uns["groundmetric"]["metric"]["features"]
    assert len(features) < learned.n_vars
    ax = pl.importance(learned, n=5)
    assert any(text.get_text().startswith(f"the other {len(features) - 5}: ") for text in ax.texts)
    segments = ax.collections[0].get_segments()  # between which the members lie, without being asked for
    best = learned.var["groundmetric_importance"].idxmax()
    ends = 100 * learned.var.loc[best, ["groundmetric_importance_low", "groundmetric_importance_high"]]
    assert_allclose(segments[0][:, 0], ends.astype(float))
    with pytest.raises(ValueError, match="n is 0"):
        pl.importance(learned, n=0)


def test_a_metric_on_a_representation_has_its_dimensions_as_features(original):
    adata = original.copy()
    adata.obsm["X_two"] = np.asarray(adata.X[:, :2].todense() if hasattr(adata.X, "todense") else adata.X[:, :2])
    gm.tl.learn(adata, "sample", "condition", use_rep="X_two", n_cells=20, n_members=2)
    names = {text.get_text() for text in pl.importance(adata).get_yticklabels()}
    assert names == {"X_two_0", "X_two_1"}
    assert pl.ellipse(adata).get_xlabel() == "X_two_0 (relative weight × spread)"


def test_ellipse_of_adata_draws_two_genes_or_says_why_not(cells):
    adata, metric = cells
    with pytest.raises(ValueError, match=r"'learned' has 30 features: an ellipse needs two; name them, e\.g\."):
        pl.ellipse(adata)
    drawn = pl.ellipse(adata, features=("GENE3", "GENE5")).patches[-1]
    expected = pl.ellipse(metric, features=(3, 5), variances=metric.variances[[3, 5]]).patches[-1]
    assert_allclose((drawn.width, drawn.height, drawn.angle), (expected.width, expected.height, expected.angle))


def test_adata_is_left_as_it_is(cells, samples):
    adata, _ = cells
    before, of_samples = adata.copy(), samples.copy()
    pl.importance(adata)
    pl.embedding(samples, color="batch")
    pl.heatmap(samples, color=["batch", "condition"], order="clusters")
    for after, copy in ((adata, before), (samples, of_samples)):
        pd.testing.assert_frame_equal(after.obs, copy.obs)
        assert after.uns.keys() == copy.uns.keys()
        assert after.obsm.keys() == copy.obsm.keys()


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda a: pl.embedding(a, color="nonsense"), r"adata.obs has no 'nonsense': it has \['age', 'batch'"),
        (lambda a: pl.embedding(a), "color is missing: name a column of adata.obs"),
        (lambda a: pl.embedding(a, color="batch", basis="tsne"), r"adata.obsm has no 'tsne': it has \['X_umap'\]"),
        (lambda a: pl.heatmap(a, color="age"), r"adata.obs\['age'\] holds numbers, but classes are needed"),
        (lambda a: pl.heatmap(a, color="batch", key="other"), "adata.obsp has no 'other_distances'"),
        (lambda a: pl.embedding(a, color=[]), "color is missing"),
        (
            lambda a: pl.embedding(a, color=["age", "batch"], ax=plt.figure().add_subplot()),
            "ax has 1 axes for 2 colours",
        ),
        (lambda a: pl.importance(a), "adata.var has no 'groundmetric_importance'"),
        (lambda a: pl.ellipse(a), "adata.uns has no 'groundmetric'"),
        (lambda a: pl.history(a), "adata.uns has no 'groundmetric'"),
    ],
)
def test_what_is_not_there_is_an_error_that_says_what_is(samples, draw, message):
    with pytest.raises(ValueError, match=message):
        draw(samples)


def test_an_error_leaves_no_figure_behind(samples):
    for draw in (pl.embedding, pl.heatmap, pl.clustermap):
        with pytest.raises(ValueError, match="nonsense"):
            draw(samples, color="nonsense")
        with pytest.raises(ValueError, match="nonsense"):
            draw(samples, color=["batch", "nonsense"])
    assert plt.get_fignums() == []
