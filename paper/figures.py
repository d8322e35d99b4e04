"""The paper's figures of its synthetic data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.base import clone

from groundmetric import pl
from groundmetric._internal.files import replacing
from groundmetric.pl.style import COLOURS, INK, STYLE

from . import published as paper
from .protocol import DEFAULTS, LEARNED, Plan, halves, learner, methods_of_the_paper, synthetic
from .tables import prose

DPI = 110


def run(plan: Plan, folder: Path) -> dict[str, Any]:
    """Draw both data sets into the folder; the names of the files by data set."""
    return {name: _draw(name, plan, folder) for name in paper.DATA}


def _draw(name: str, plan: Plan, folder: Path) -> str:
    plan.log(f"figures: {name}")
    D, y = synthetic(name, plan.seed, plan.quick)
    train, _ = halves(y, 1, plan.seed)[0]
    ours = learner(plan).fit(D[train], y[train])
    methods = methods_of_the_paper(plan)
    euclid = methods["Euclidean"].fit(D)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.9, 8.4), layout="constrained")
        grid = figure.subplots(3, 3)
        pl.points(D, y, ax=grid[0, 0])
        pl.projection(ours, D, y, ax=grid[0, 1])
        if D.shape[1] == 2:
            learned = {method: clone(methods[method]).fit(D[train], y[train]) for method in LEARNED}
            pl.ellipse({"GGML": ours, **learned}, ax=grid[0, 2], variances=D.moments(weighted=False)[1])
        else:
            pl.importance(ours, ax=grid[0, 2], n=10)
        for row, (label, method) in enumerate({"GGML": ours, "Euclidean": euclid}.items(), start=1):
            distances = method.distances(D)
            pl.embedding(distances, y, ax=grid[row, 0], train=train if method is ours else None)
            pl.heatmap(distances, y, ax=grid[row, 1], order="classes")
            pl.heatmap(distances, y, ax=grid[row, 2], order="clusters")
            for ax, kind in zip(grid[row], ("embedding", "distances by class", "cluster map"), strict=True):
                _title(ax, f"{label}: {kind}", 48.0)
        for ax, kind in zip(grid[0], _titles(D.shape[1]), strict=True):
            _title(ax, kind)
        return save(figure, folder, name.lower().replace(" ", "_"))


def _titles(n_features: int) -> tuple[str, str, str]:
    last = "weights of the metrics" if n_features == 2 else "importance by GGML"
    return "points along two features", "points in the space of GGML", last


def _title(ax: Axes, text: str, upper: float = 40.0) -> None:
    """Above the legend, which is above the axes."""
    ax.annotate(text, (0.0, 1.0), (0, upper), xycoords="axes fraction", textcoords="offset points", weight="bold")


def save(figure: Figure, folder: Path, name: str) -> str:
    """As a small PNG; its name."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{name}.png") as file:
        figure.savefig(file, format="png", dpi=DPI, pil_kwargs={"optimize": True})
    return f"{name}.png"


def draw_classification(result: dict[str, Any], folder: Path) -> str:
    """Plot accuracies of distributions with intervals, and the paper's mean ± SD."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 3.6), layout="constrained")
        panels = figure.subplots(1, len(result), sharey=True)
        for ax, (name, study) in zip(np.ravel(panels), result.items(), strict=True):
            rows = {method: row["distributions"] for method, row in study["rows"].items() if row["distributions"]}
            _intervals(ax, rows)
            printed = paper.CLASSIFICATION[name, "distributions"]
            labelled = {position: printed[method] for position, method in enumerate(rows) if method in printed}
            means, spreads = ([getattr(a, part) for a in labelled.values()] for part in ("mean", "sd"))
            look: dict[str, Any] = {"fmt": "s", "ms": 3, "mfc": "white", "c": COLOURS[1], "lw": 1}
            ax.errorbar(means, np.array(list(labelled)) + 0.3, xerr=spreads, label="paper, mean ± SD", **look)
            ax.axvline(1 / 3, color=INK, lw=0.6, ls=":", label="chance")
            ax.set(xlabel="accuracy of 5-NN among distributions", title=name, xlim=(0, 1.02))
        figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return save(figure, folder, "classification")


def draw_scores(studies: dict[str, dict[str, Any]], score: str, folder: Path, name: str, columns: int = 3) -> str:
    """A panel per study: the score of every method with its interval."""
    rows = -(-len(studies) // columns)
    columns = min(columns, len(studies))
    with mpl.rc_context(STYLE):
        most = max(len(study["rows"]) for study in studies.values())
        figure = Figure(figsize=(1.4 + 2.3 * columns, (0.8 + 0.18 * most) * rows), layout="constrained")
        panels = list(np.ravel(figure.subplots(rows, columns, sharey=True)))
        for ax, (title, study) in zip(panels, studies.items(), strict=False):
            shown = study.get("score", score)
            _intervals(ax, {method: row.get(shown) or {} for method, row in study["rows"].items()})
            ax.set(title=title, xlabel=shown.replace("_", " "))
        for ax in panels[len(studies) :]:
            ax.remove()
        return save(figure, folder, name)


def _intervals(ax: Axes, rows: dict[str, dict[str, float]]) -> None:
    positions = np.arange(len(rows))
    for position, row in zip(positions, rows.values(), strict=True):
        if not row or row["mean"] is None or not np.isfinite(row["mean"]):
            continue
        low, high = (
            row["mean"] if row[end] is None or not np.isfinite(row[end]) else row[end] for end in ("low", "high")
        )
        ours = position == 0 or list(rows)[position] == DEFAULTS
        shade = COLOURS[0] if ours else INK
        label = "here, with 95 % interval" if position == 0 else None
        ax.plot([low, high], [position, position], color=shade, lw=1.2)
        ax.plot(row["mean"], position, "o", color=shade, ms=4, label=label)
    ax.set_yticks(positions, list(rows))
    ax.set_ylim(len(rows) - 0.4, -0.6)


def draw_surface(result: dict[str, Any], folder: Path) -> str:
    """Accuracy by margin and strength, for both levels and data sets."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.2, 5.4), layout="constrained")
        panels = figure.subplots(2, 2, sharex=True, sharey=True)
        ticks = [f"{value:g}" for value in result["grid"]]
        for row, level in zip(panels, ("distributions", "points"), strict=True):
            for ax, name in zip(row, paper.DATA, strict=True):
                values = np.array(result[name][level])
                image = ax.imshow(values, cmap="viridis", vmin=0.3, vmax=1.0 if level == "distributions" else 0.6)
                for (i, j), value in np.ndenumerate(values):
                    dark = image.norm(value) < 0.6
                    ax.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if dark else "black", size=6)
                ax.set_title(f"{name}, {level}")
                ax.set_xticks(range(len(ticks)), ticks)
                ax.set_yticks(range(len(ticks)), ticks)
                ax.spines[:].set_visible(False)
            figure.colorbar(image, ax=row, label="accuracy", shrink=0.8)
        figure.supxlabel("strength (λ)", fontsize=8)
        figure.supylabel("margin (α)", fontsize=8)
        return save(figure, folder, "surface")


READING = """
    Top: the points; the points in the learned space; and the weights of the metrics (the longer the half axis of an
    ellipse, the larger the weight of a direction, in units of the standard deviations of the features) or, for many
    features, the importance. Middle: distances between all distributions by GGML with default settings, learned from
    the filled ones. Bottom: the same by the Euclidean metric. Positions are by metric multidimensional scaling; the
    paper has UMAP."""


def figures(result: dict[str, str], folder: Path) -> list[str]:
    """The section's paragraphs; the figures are there already."""
    shown = [
        f"![{data}: points, learned space, embeddings, cluster maps](results/{name})" for data, name in result.items()
    ]
    parts = [part for data, image in zip(result, shown, strict=True) for part in (f"### Figures of {data}", image)]
    return ["## Figures", prose(READING), *parts]
