"""Every plot draws what it was given, on the axes it was given."""

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import same_color, to_rgba
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist

import groundmetric as gm
from groundmetric import pl

D, y = gm.datasets.make_modes(1, 1.0, offsets=(1.5, 4.5, 7.5, 10.5), points_per_mode=5, random_state=0)
FLAT = gm.GroundMetric([[2.0, 0.0], [0.0, 1.0]], ["signal", "noise 1"])
BROAD = gm.GroundMetric([[1.0, -0.8], [0.2, 0.2]], ["signal", "noise 1"])
LINE = gm.GroundMetric([[2.0, 0.0]], ["signal", "noise 1"])
PLACES = np.random.RandomState(1).normal(size=(len(D), 2))
DISTANCES = cdist(PLACES, PLACES)
HISTORY = {
    "loss": np.array([0.5, 0.25, 0.1]),
    "active": np.array([0.9, 0.5, 0.2]),
    "solved": np.array([10, 5, 0]),
    "saved": np.array([0, 5, 0]),
    "validation_loss": np.full(3, np.nan),
}
PLOTS = {
    "points": lambda ax=None: pl.points(D, y, ax),
    "projection": lambda ax=None: pl.projection(BROAD, D, y, ax),
    "projection on a line": lambda ax=None: pl.projection(LINE, D, y, ax),
    "ellipse": lambda ax=None: pl.ellipse({"flat": FLAT, "line": LINE}, ax),
    "heatmap": lambda ax=None: pl.heatmap(DISTANCES, y, ax, names=D.names),
    "embedding": lambda ax=None: pl.embedding(DISTANCES, y, ax, train=np.arange(6)),
    "importance": lambda ax=None: pl.importance(FLAT, ax),
    "history": lambda ax=None: pl.history(HISTORY, ax),
}
every_plot = pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS.keys())


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture
def ax():
    return plt.figure(figsize=(3.3, 2.6), layout="constrained").add_subplot()


@every_plot
def test_returns_the_axes_it_was_given(plot, ax):
    assert plot(ax) is ax
    assert plt.get_fignums() == [ax.figure.number]
    ax.figure.canvas.draw()


@every_plot
def test_makes_axes_of_the_width_of_a_column(plot):
    figure = plot().figure
    assert figure.get_size_inches()[0] == pytest.approx(3.3)
    figure.canvas.draw()


@every_plot
def test_leaves_the_settings_of_matplotlib_alone(plot):
    before = dict(mpl.rcParams)
    plot()
    assert dict(mpl.rcParams) == before


@every_plot
def test_nothing_sticks_out_of_the_figure(plot):
    figure = plot().figure
    figure.canvas.draw()
    box = figure.get_tightbbox()
    assert box.x0 >= -0.01
    assert box.x1 <= figure.get_size_inches()[0] + 0.01


@every_plot
def test_axes_are_labelled_and_legends_lie_above_the_data(plot):
    ax = plot()
    ax.figure.canvas.draw()
    if ax.images:  # a heat map is labelled by its colours
        assert ax.figure.axes[-1].get_ylabel() == "distance"
    else:
        assert ax.get_xlabel()
    if ax.get_legend() is not None:
        assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1


def test_points_are_points_of_the_data_in_their_class_colour(ax):
    marks = pl.points(D, y, ax, n=20).collections[0]
    shown = np.asarray(marks.get_offsets())
    assert len(shown) == 20
    rows = cdist(shown, D.points).argmin(axis=1)
    assert_allclose(D.points[rows], shown)
    labels = np.repeat(y, D.sizes)[rows]
    assert all(
        same_color(to_rgba(pl.COLOURS[c]), (*colour[:3], 1))
        for c, colour in zip(labels, marks.get_facecolor(), strict=True)
    )
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["class 0", "class 1", "class 2"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("signal", "noise 1")


def test_points_of_sparse_data_and_other_features(ax):
    thin = gm.Distributions(sparse.csr_matrix(D.points), np.repeat(D.names, D.sizes))
    marks = pl.points(thin, y, ax, features=(1, 0), n=10_000).collections[0]
    assert len(marks.get_offsets()) == len(D.points)
    assert_allclose(np.sort(np.asarray(marks.get_offsets())[:, 0]), np.sort(D.points[:, 1]))
    assert ax.get_xlabel() == "feature 1"


def test_projection_keeps_the_distances_of_the_learned_space(ax):
    marks = pl.projection(BROAD, D, y, ax, n=10_000).collections[0]
    drawn, learned = np.asarray(marks.get_offsets()), BROAD.project(D)
    assert_allclose(np.sort(cdist(drawn, drawn), axis=None), np.sort(cdist(learned, learned), axis=None), atol=1e-9)


def test_projection_on_a_line_counts_every_point(ax):
    pl.projection(LINE, D, y, ax)
    outlines = [patch.get_path().vertices for patch in ax.patches if not patch.get_fill()]
    counted = sum(np.sum(v[1:-1:2, 1]) for v in outlines)
    assert len(outlines) == 3
    assert counted == len(D.points)
    assert "100% of variance" in ax.get_xlabel()


@pytest.mark.parametrize(
    ("metric", "variances", "width", "height", "angle"),
    [
        (FLAT, None, 2.0, 1.0, 0.0),
        (FLAT, (1.0, 16.0), 2.0, 1.0, 90.0),
        (LINE, None, 2.0, 0.0, 0.0),
        (gm.GroundMetric([[1.0, 1.0]]), None, 2.0, 0.0, 45.0),
        (gm.GroundMetric.euclidean(2), None, 2.0, 2.0, None),
    ],
)
def test_ellipse_has_the_axes_of_the_matrix(ax, metric, variances, width, height, angle):
    drawn = pl.ellipse({"it": metric}, ax, variances=variances).patches[-1]
    assert drawn.get_label() == "it"
    assert_allclose((drawn.width, drawn.height), (width, height), atol=1e-7)
    assert angle is None or drawn.angle % 180 == pytest.approx(angle)


def test_ellipse_needs_two_features(ax):
    with pytest.raises(ValueError, match="'wide' has 3 features"):
        pl.ellipse({"wide": gm.GroundMetric.euclidean(3)}, ax)


def test_heatmap_shows_the_distances_in_the_order_of_its_names(ax):
    pl.heatmap(DISTANCES, y, ax, names=np.arange(len(D)))
    order = np.array([int(text.get_text()) for text in ax.get_yticklabels()])
    assert_array_equal(ax.images[0].get_array(), DISTANCES[np.ix_(order, order)])
    assert_array_equal(order, pl.arrange(DISTANCES, y))
    assert_array_equal(y[order], np.sort(y))


def test_heatmap_marks_each_class_along_its_rows(ax):
    unequal = np.array([2, 2, 2, 2, 2, 0, 0, 0, 1, 1, 1, 1])
    strips = [patch for patch in pl.heatmap(DISTANCES, unequal, ax).patches if patch.get_width() == 0.035]
    assert [(strip.get_y(), strip.get_height()) for strip in strips] == [(-0.5, 3.0), (2.5, 4.0), (6.5, 5.0)]
    assert [same_color(strip.get_facecolor(), pl.COLOURS[c]) for c, strip in enumerate(strips)] == [True] * 3


def test_arrange_puts_near_ones_side_by_side_and_classes_in_one_direction():
    line = np.array([3.0, 0.0, 2.0, 1.0, 0.1, 2.1, 3.1, 1.1])
    order = pl.arrange(np.abs(np.subtract.outer(line, line)), np.repeat(["a", "b"], 4))
    steps = np.sign(np.diff(line[order].reshape(2, 4), axis=1))
    assert len(np.unique(steps)) == 1


def test_embedding_recovers_places_in_the_plane():
    found = pl.embed(DISTANCES)
    assert_allclose(cdist(found, found), DISTANCES, atol=1e-9)


def test_embedding_of_few_or_coinciding_distributions():
    assert_array_equal(pl.embed(np.zeros((3, 3))), np.zeros((3, 2)))
    assert pl.embed(np.zeros((1, 1))).shape == (1, 2)


@pytest.mark.parametrize("train", [np.arange(5), np.arange(len(D)) < 5, list(range(5))])
def test_embedding_marks_training_as_filled(ax, train):
    pl.embedding(DISTANCES, y, ax, train=train)
    drawn = np.vstack([marks.get_offsets() for marks in ax.collections])
    assert_allclose(drawn[np.lexsort(drawn.T)], (e := pl.embed(DISTANCES))[np.lexsort(e.T)])
    filled = sum(len(marks.get_offsets()) for marks in ax.collections if len(marks.get_facecolor()))
    assert filled == 5
    # Read by rows: the classes, and below them the two kinds.
    columns = [text.get_text() for text in ax.get_legend().get_texts()]
    assert columns == ["class 0", "training", "class 1", "test", "class 2"]


def test_importance_has_a_bar_per_top_feature(ax):
    metric = gm.GroundMetric(np.sqrt([[0.1, 0.6, 0.3]]), ["low", "high", "$mid$"])
    pl.importance(metric, ax, n=2)
    assert_allclose([bar.get_width() for bar in ax.patches], [60.0, 30.0])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["high", "$mid$"]
    assert "the other 1: 10.00%" in [text.get_text() for text in ax.texts]
    ax.figure.canvas.draw()


def test_history_draws_loss_and_shares(ax):
    loss, active, saved = pl.history(HISTORY, ax).lines
    assert_allclose(loss.get_xdata(), [1, 2, 3])
    assert_allclose(loss.get_ydata(), [100.0, 50.0, 20.0])
    assert_allclose(active.get_ydata(), [90.0, 50.0, 20.0])
    assert_allclose(saved.get_ydata(), [0.0, 50.0, 0.0])


def test_history_draws_the_held_out_loss_where_there_is_one(ax):
    lines = pl.history({**HISTORY, "validation_loss": np.array([0.5, 0.4, 0.3])}, ax).lines
    assert_allclose(lines[1].get_ydata(), [100.0, 80.0, 60.0])


def test_history_of_one_epoch_without_loss(ax):
    pl.history({name: values[:1] * 0 for name, values in HISTORY.items()}, ax)
    ax.figure.canvas.draw()


def test_names_are_shown_as_they_are_and_many_classes_fit(ax):
    labels = np.array([f"_cl<a>ss ${k % 6}^ with a long name" for k in range(len(D))])
    pl.embedding(DISTANCES, labels, ax, train=[0, 1])
    ax.figure.canvas.draw()
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == [*np.unique(labels), "training", "test"]


def test_labels_must_fit_the_distributions(ax):
    with pytest.raises(ValueError, match="label is needed for each of 12"):
        pl.heatmap(DISTANCES, y[:-1], ax)
    with pytest.raises(ValueError, match="label is needed for each of 12"):
        pl.points(D, y[:-1], ax)


def test_percent_never_rounds_up_to_all():
    assert [pl.percent(share) for share in (0.0, 0.12345, 0.999999, 1.0)] == ["0.0%", "12.3%", ">99.9%", "100%"]
