"""The figures of a study of synthetic data, as files and in a section of the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes

from .. import pl
from ..report import Part
from ..report.figures import plain_name, render
from ..report.markup import Markup, join, tag
from ..safe_files import write_whole
from .studies import N_NEIGHBORS, Study, facts, size


class Picture(NamedTuple):
    """A figure of the page: `alt` says what kind of picture it is, `caption` what it shows."""

    name: str
    alt: str
    draw: Callable[[Axes], Axes]
    caption: str


def pictures(study: Study) -> list[Picture]:
    """The figures of a study. Captions say what is drawn and quote what was found, whatever that is."""
    D, found, learned = study.D, study.found, study.metrics["learned"]
    few = "" if D.shape[1] == 2 else f" along the first two of {D.shape[1]} features"
    important = f"{found['important_feature']} has {pl.percent(found['importance'])} of the importance"
    weights = Picture(
        "importance", "Bar chart of the most important features", partial(pl.importance, learned, n=10),
        f"What counts in the learned metric: {important}.",
    ) if D.shape[1] > 2 else Picture(
        "ellipses", "Ellipse of each metric", partial(pl.ellipse, study.metrics, variances=learned.variances),
        "What counts in each metric: a distance looks mostly along the long axis of its ellipse, here in units of the "
        f"data's spread. In the learned metric, {important}.",
    )  # fmt: skip
    return [
        Picture("data", "Scatter plot of points", partial(pl.points, D, study.y),
                f"The data: some points of all distributions{few}, coloured by the class of their distribution."),
        Picture("learned_space", "Points in the learned space", partial(pl.projection, learned, D, study.y),
                "The points as the learned metric sees them. Where colours part, it tells the classes apart."),
        weights,
        Picture("training", "Line chart over the epochs of training", partial(pl.history, study.history),
                "Training: the loss, the share of triplets that still pull, and the share of transport solves that "
                f"bounds made unnecessary ({found['share_saved']:.0%} of all)."),
        *(_embedding(study, kind) for kind in study.metrics),
        *(_heatmap(study, kind) for kind in study.metrics),
    ]  # fmt: skip


def _embedding(study: Study, kind: str) -> Picture:
    caption = (
        f"Distributions under the {kind} metric: the nearer two marks, the more alike. By the nearest, "
        f"{study.found['right'][kind]} of {len(study.found['test'])} test distributions are classified right."
    )
    draw = partial(pl.embedding, study.distances[kind], study.y, train=study.train)
    return Picture(f"embedding_{kind.lower()}", f"Scatter plot under the {kind} metric", draw, caption)


def _heatmap(study: Study, kind: str) -> Picture:
    caption = (
        f"Distances under the {kind} metric, sorted by class. A class held together is a dark square on the diagonal."
    )
    draw = partial(pl.heatmap, study.distances[kind], study.y)
    return Picture(f"distances_{kind.lower()}", f"Heat map of distances under the {kind} metric", draw, caption)


def write_study(folder: Path, study: Study) -> tuple[list[str], Part]:
    """Write figures and metric; return the names of the files, and the study's section of the page."""
    found = study.found
    stem = plain_name(found["name"])
    files, figures = [f"{stem}.gm"], []
    study.metrics["learned"].save(folder / files[0])
    for picture in pictures(study):
        name = f"{stem}_{picture.name}"
        for suffix, content in (rendered := render(picture.draw, name)).items():
            files.append(f"{name}.{suffix}")
            write_whole(folder / files[-1], [content])
        svg = _inline(rendered["svg"].decode(), name, picture.alt)
        figures.append(tag("figure", svg, tag("figcaption", picture.caption)))
    train, test = len(found["train"]), len(found["test"])
    text = (
        f"{size(found)}. The metric was learned from {train} of the distributions; then the other {test} were "
        f"classified, each by the {N_NEIGHBORS} nearest to it among those."
    )
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts(found).items()]
    body = join(tag("p", text), tag("dl", rows, class_="facts"), tag("div", figures, class_="figures"))
    return files, Part(stem, found["name"], body)


def _inline(svg: str, name: str, alt: str) -> Markup:
    """An SVG for the page: with identifiers of its own, its ink in the colour of the text, as wide as its place."""
    head, body = svg[svg.index("<svg") :].split(">", 1)
    box = head.split('viewBox="')[1].split('"')[0]
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", body).replace(pl.INK, "currentColor")
    return Markup(f'<svg viewBox="{box}" role="img" aria-label="{escape(alt)}">{body}')
