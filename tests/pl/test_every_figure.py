"""Every figure is drawn on the axes it was given, in the style, with names and colours that can be told apart."""

import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import same_color

from groundmetric import pl
from groundmetric.interpret import flow
from groundmetric.pl.style import percent

from .shown import BROAD, DISTANCES, FLAT, HISTORY, LINE, PLACES, VIEWS, D, y

FLOW = flow(D, D.names[0], D.names[1], FLAT, np.arange(len(D.points)) % 2)
PLOTS = {
    "points": lambda ax=None: pl.points(D, y, ax),
    "projection": lambda ax=None: pl.projection(BROAD, D, y, ax),
    "projection on a line": lambda ax=None: pl.projection(LINE, D, y, ax),
    "ellipse": lambda ax=None: pl.ellipse({"flat": FLAT, "line": LINE}, ax),
    "heatmap": lambda ax=None: pl.heatmap(DISTANCES, y, ax, names=D.names),
    "embedding": lambda ax=None: pl.embedding(DISTANCES, y, ax, train=np.arange(6)),
    "importance": lambda ax=None: pl.importance(FLAT, ax),
    "importance with intervals": lambda ax=None: pl.importance(FLAT, ax, intervals=([0.7, 0.1], [0.9, 0.3])),
    "history": lambda ax=None: pl.history(HISTORY, ax),
    "clustered heatmap": lambda ax=None: pl.heatmap(
        DISTANCES, {"class": y, "side": PLACES[:, 0] > 0}, ax, order="clusters"
    ),
    "history of an ensemble": lambda ax=None: pl.history(VIEWS, ax),
    "held-out history": lambda ax=None: pl.history({**HISTORY, "validation_loss": np.array([0.5, 0.4, 0.3])}, ax),
    "heatmap with long names": lambda ax=None: pl.heatmap(DISTANCES, y, ax, names=[f"sample {k} of 12" for k in y]),
    "clustermap": lambda ax=None: pl.clustermap(DISTANCES, y, ax, names=D.names),
    "confusion": lambda ax=None: pl.confusion(y, np.roll(y, 1), ax),
    "components": lambda ax=None: pl.components(BROAD, ax),
    "cells": lambda ax=None: pl.cells(PLACES, y, ax),
}
every_plot = pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS.keys())


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
def test_axes_are_labelled_and_legends_lie_outside_of_the_data(plot):
    ax = plot()
    ax.figure.canvas.draw()
    if ax.child_axes:  # a heat map is labelled by its colours
        assert ax.child_axes[-1].get_ylabel() == "distance"
    else:
        assert ax.get_xlabel()
    if ax.get_legend() is not None:
        place, data = ax.get_legend().get_window_extent(), ax.get_window_extent()
        assert place.y0 >= data.y1 or place.x0 >= data.x1


NAMED = {
    "cells": lambda **o: pl.cells(PLACES, y, **o), "clustermap": lambda **o: pl.clustermap(DISTANCES, y, **o),
    "components": lambda **o: pl.components(FLAT, **o), "confusion": lambda **o: pl.confusion(y, y, **o),
    "ellipse": lambda **o: pl.ellipse(FLAT, **o), "embedding": lambda **o: pl.embedding(DISTANCES, y, **o),
    "flow": lambda **o: pl.flow(FLOW, **o), "heatmap": lambda **o: pl.heatmap(DISTANCES, y, **o),
    "history": lambda **o: pl.history(HISTORY, **o), "importance": lambda **o: pl.importance(FLAT, **o),
    "points": lambda **o: pl.points(D, y, **o), "projection": lambda **o: pl.projection(FLAT, D, y, **o),
    "scores": lambda **o: pl.scores({"a": (0.5, 0.4, 0.6)}, **o),
}  # fmt: skip


def test_dir_shows_plots_and_no_helpers():
    assert dir(pl) == sorted(NAMED)
    assert all(callable(getattr(pl, name)) for name in dir(pl))


@pytest.mark.parametrize("name", NAMED)
def test_every_plot_is_saved_and_shown_as_in_scanpy(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "scanpy", raising=False)
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(1))
    ax = NAMED[name](save="_kang.png", show=True)
    assert (tmp_path / "figures" / f"{name}_kang.png").read_bytes().startswith(b"\x89PNG")
    assert shown == [1]
    assert NAMED[name](show=False) is not ax
    assert shown == [1]


def test_files_have_scanpys_names_or_are_where_a_path_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "scanpy", raising=False)
    for save in (True, "_a", "_b.svg", Path("c.png"), "deep/d.pdf"):
        pl.importance(FLAT, save=save)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    assert found == ["c.png", "deep/d.pdf", "figures/importance.pdf", "figures/importance_a.pdf",
                     "figures/importance_b.svg"]  # fmt: skip
    monkeypatch.setitem(sys.modules, "scanpy", SimpleNamespace(settings=SimpleNamespace(figdir=tmp_path / "of scanpy")))
    pl.importance(FLAT, save=True)
    assert (tmp_path / "of scanpy" / "importance.pdf").exists()


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
    with pytest.raises(ValueError, match="label is needed for each of 12 cells"):
        pl.cells(PLACES, y[:-1], ax)


@pytest.mark.parametrize("palette", [["red", "green", "blue"], {2: "blue", 0: "red", 1: "green"}])
def test_a_palette_gives_the_colours(ax, palette):
    pl.embedding(DISTANCES, y, ax, palette=palette)
    assert all(
        same_color(marks.get_edgecolor(), colour)
        for marks, colour in zip(ax.collections, ["red", "red", "green", "green", "blue", "blue"], strict=True)
        if len(marks.get_offsets())
    )


def test_a_palette_must_have_enough_colours(ax):
    with pytest.raises(ValueError, match="palette has 2 colours for 3 classes"):
        pl.points(D, y, ax, palette=["red", "green"])
    with pytest.raises(ValueError, match=r"palette has no colour for \[1, 2\]"):
        pl.points(D, y, ax, palette={0: "red"})


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
    few, many = (pl.embedding(PLACES, [f"a class with the name {k % n}" for k in range(12)]) for n in (2, 12))
    for ax in (few, many):
        ax.figure.canvas.draw()
    assert many.get_window_extent().height > 0.7 * few.get_window_extent().height


def test_axes_of_another_style_are_brought_into_this_one(ax):
    pl.embedding(DISTANCES, y, ax)
    assert ax.xaxis.label.get_fontsize() == 8
    assert not ax.spines["top"].get_visible()


def test_percent_never_rounds_up_to_all():
    assert [percent(share) for share in (0.0, 0.12345, 0.999999, 1.0)] == ["0.0%", "12.3%", ">99.9%", "100%"]
