"""Every figure is drawn on the axes it was given, in the style, with names and colours that can be told apart."""

from functools import partial

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import same_color

from groundmetric import pl
from groundmetric.interpret import flow

from .shown import BROAD, DISTANCES, FLAT, HISTORY, LINE, POSITIONS, VIEWS, D, y

FLOW = flow(D, D.names[0], D.names[1], FLAT, np.arange(len(D.points)) % 2)
PLOTS = {
    "points": partial(pl.points, D, y),
    "projection": partial(pl.projection, BROAD, D, y),
    "projection on a line": partial(pl.projection, LINE, D, y),
    "ellipse": partial(pl.ellipse, {"flat": FLAT, "line": LINE}),
    "heatmap": partial(pl.heatmap, DISTANCES, y, names=D.names),
    "embedding": partial(pl.embedding, DISTANCES, y, train=np.arange(6)),
    "importance": partial(pl.importance, FLAT),
    "history": partial(pl.history, HISTORY),
    "clustered heatmap": partial(pl.heatmap, DISTANCES, {"class": y, "side": POSITIONS[:, 0] > 0}, order="clusters"),
    "history of an ensemble": partial(pl.history, VIEWS),
    "held-out history": partial(pl.history, {**HISTORY, "validation_loss": np.array([0.5, 0.4, 0.3])}),
    "heatmap with long names": partial(pl.heatmap, DISTANCES, y, names=[f"sample {k} of 12" for k in y]),
    "clustermap": partial(pl.clustermap, DISTANCES, y, names=D.names),
    "confusion": partial(pl.confusion, y, np.roll(y, 1)),
    "flow": partial(pl.flow, FLOW),
}
every_plot = pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS.keys())


@every_plot
def test_returns_the_axes_it_was_given(plot, ax):
    assert plot(ax=ax) is ax
    assert plt.get_fignums() == [ax.figure.number]
    ax.figure.canvas.draw()


@every_plot
def test_its_own_figure_has_the_width_of_a_column_labels_and_nothing_outside(plot):
    before = dict(mpl.rcParams)
    ax = plot()
    assert dict(mpl.rcParams) == before
    width = ax.figure.get_size_inches()[0]
    assert width == pytest.approx(3.3)
    ax.figure.canvas.draw()
    box = ax.figure.get_tightbbox()
    assert box.x0 >= -0.01
    assert box.x1 <= width + 0.01
    if ax.child_axes:  # a heat map is labelled by its colours
        assert ax.child_axes[-1].get_ylabel() == "distance"
    else:
        assert ax.get_xlabel()
    if ax.get_legend() is not None:
        legend, data = ax.get_legend().get_window_extent(), ax.get_window_extent()
        assert legend.y0 >= data.y1 or legend.x0 >= data.x1


def test_dir_shows_plots_and_no_helpers():
    assert dir(pl) == sorted(pl.__all__)
    assert all(callable(getattr(pl, name)) for name in dir(pl))


def test_a_figure_is_shown_if_asked_for(monkeypatch):
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(1))
    for show in (None, False, True):
        pl.importance(FLAT, show=show)
    assert shown == [1]


def test_names_are_shown_as_they_are_and_many_classes_fit(ax):
    labels = np.array([f"_cl<a>ss ${k % 6}^ with a long name" for k in range(len(D))])
    pl.embedding(DISTANCES, labels, ax=ax, train=[0, 1])
    ax.figure.canvas.draw()
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == [*np.unique(labels), "training", "test"]


def test_labels_must_fit_the_distributions(ax):
    with pytest.raises(ValueError, match="label is needed for each of 12"):
        pl.heatmap(DISTANCES, y[:-1], ax=ax)
    with pytest.raises(ValueError, match="label is needed for each of 12"):
        pl.points(D, y[:-1], ax=ax)


@pytest.mark.parametrize("palette", [["red", "green", "blue"], {2: "blue", 0: "red", 1: "green"}])
def test_a_palette_gives_the_colours(ax, palette):
    pl.embedding(DISTANCES, y, ax=ax, palette=palette)
    assert all(
        same_color(marks.get_edgecolor(), colour)
        for marks, colour in zip(ax.collections, ["red", "red", "green", "green", "blue", "blue"], strict=True)
        if len(marks.get_offsets())
    )


def test_a_palette_must_have_enough_colours(ax):
    with pytest.raises(ValueError, match="palette has 2 colours for 3 classes"):
        pl.points(D, y, ax=ax, palette=["red", "green"])
    with pytest.raises(ValueError, match=r"palette has no colour for \[1, 2\]"):
        pl.points(D, y, ax=ax, palette={0: "red"})


def test_sixty_classes_look_different():
    labels = np.arange(60)
    ax = pl.embedding(np.random.RandomState(0).normal(size=(60, 2)), labels)
    looks = {(marks.get_edgecolor().tobytes(), marks.get_paths()[0].vertices.tobytes()) for marks in ax.collections}
    assert len(looks) == 60


def test_names_too_long_for_a_figure_keep_both_ends():
    labels = np.repeat(["Hypertrophic cardiomyopathy of the left ventricle, stage 1", "the same, stage 2"], 6)
    texts = [text.get_text() for text in pl.embedding(DISTANCES, labels).get_legend().get_texts()]
    assert texts[0].startswith("Hypertrophic")
    assert texts[0].endswith("stage 1")
    assert len(texts[0]) <= 40


def test_a_long_legend_makes_a_higher_figure_not_a_smaller_plot():
    short, long = (pl.embedding(POSITIONS, [f"a class with the name {k % n}" for k in range(12)]) for n in (2, 12))
    for ax in (short, long):
        ax.figure.canvas.draw()
    assert long.get_window_extent().height > 0.7 * short.get_window_extent().height
