"""From content to one HTML page that needs nothing else."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np

from ..pl.style import COLOURS
from . import drawing
from .collecting import sample_table
from .columns import as_data
from .content import Axis, CellMap, Column, Content, Evaluation, Field, Table
from .markup import Markup, embedded, join, tag
from .tables import table

LEAST = 0.01  # share of the transport from which an axis is shown


def page(content: Content) -> str:
    """The whole page as text."""
    sections = _sections(content)
    contents = tag("nav", tag("ul", [tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in sections]),
                   aria_label="Contents")  # fmt: skip
    body = [tag("section", tag("h2", title, id=f"{name}-title"), inside, id=name, aria_labelledby=f"{name}-title")
            for name, title, inside in sections]  # fmt: skip
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", content.title),
        tag("style", Markup(_asset("style.css"))),
    ]
    version = content.facts["Versions"]["groundmetric"]
    whole = [
        tag("a", "Skip to the report", href="#summary", class_="skip"),
        tag("header", tag("h1", content.title), tag("p", content.subtitle, class_="subtitle"), contents),
        tag("main", body),
        tag("footer", f"Made by groundmetric {version}. This page holds all of its data and loads nothing."),
        tag("div", id="tip", hidden=True, aria_hidden="true"),
        tag("div", id="said", class_="visually-hidden", aria_live="polite"),
        embedded(_data(content), "data"),
        *(tag("script", Markup(_asset(name))) for name in ("maps.js", "tables.js")),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', whole), lang='en')}\n"


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _sections(content: Content) -> list[tuple[str, str, Markup]]:
    """Identifier, title and inside of each; what is missing is left out."""
    found: list[tuple[str, str, Any]] = [
        ("summary", "Summary", _summary(content)),
        *((part.identifier, part.title, part.body) for part in content.parts if part.first),
        ("scores", "How good it is", _scores(content.evaluation)),
        ("sample-maps", "Samples", _samples(content)),
        ("cell-maps", "Cells", _cells(content.cells)),
        ("important", "Genes" if content.feature == "gene" else "Dimensions", _genes(content)),
        ("axes", "Axes", _axes(content.axes, content.feature)),
        ("cell-types", "Cell types", None if content.types is None else _types(content.types)),
        ("training", "Training", _training(content.history)),
        ("data-and-parameters", "Learned from what", _facts(content.facts)),
        *((part.identifier, part.title, part.body) for part in content.parts if not part.first),
        ("left-out", "Left out", _left_out(content.left_out)),
    ]
    return [(name, title, inside) for name, title, inside in found if inside]


def _summary(content: Content) -> Markup:
    said = tag("div", [tag("p", sentence) for sentence in content.summary], class_="summary")
    if not content.cautions:
        return said
    items = [tag("li", tag("strong", f"{caution.title}. "), caution.text) for caution in content.cautions]
    return join(said, tag("aside", tag("h3", "Read with care"), tag("ul", items), class_="cautions"))


def _scores(found: Evaluation | None) -> Markup | None:
    if found is None:
        return None
    fields = [Field("Method"), Field("Score", ".2f"), Field("Low", ".2f"), Field("High", ".2f"),
              Field("Lead of learned", "+.2f"), Field("Lead low", "+.2f"), Field("Lead high", "+.2f"),
              Field("p (Holm)", ".2g"), Field("Seconds", ".1f", note="per fold")]  # fmt: skip
    keys = ("value", "low", "high", "lead", "lead_low", "lead_high", "p", "seconds")
    rows = [[row["method"], *(row.get(key) for key in keys)] for row in found.rows]
    parts: list[Any] = [
        tag("p", f"{found.how}."),
        tag("figure", drawing.intervals(found), class_="single"),
        table(Table("method-scores", "Balanced accuracy on held-out samples, with 95 % intervals", fields, rows)),
    ]  # fmt: skip
    if found.test is not None:
        test, exchanged = found.test, found.test["exchanged"].replace("distributions", "samples")
        parts.append(tag("p", f"Against chance: with labels permuted among {exchanged} {len(test['null'])} "
                         f"times and everything done again, p = {test['p']:.3g} (score {test['statistic']:.2f}; no p "
                         f"can be below {1 / (1 + len(test['null'])):.2g} with so many permutations)."))  # fmt: skip
    failed = [f"{row['method']}: {row['status']}" for row in found.rows if row["status"] != "ok"]
    notes = [tag("p", note, class_="note") for note in [*found.notes, *failed]]
    return join(*parts, *notes)


def _samples(content: Content) -> Markup:
    found = content.samples
    label = found.columns[0]
    one = tag(
        "figure", _select(found.columns, 0), drawing.samples(found),
        drawing.legend(label) if label.is_class else tag("ul", class_="legend"),
        tag("figcaption", "Each mark is a sample; the nearer two marks, the more alike their cells under the learned "
            f"metric. The plane shows {found.kept_variance:.0%} of how distances vary. These are samples that were "
            "learned from: how new ones fare, the scores say."), data_map="samples",
    )  # fmt: skip
    other = tag(
        "figure", drawing.heat(found), drawing.ramp_legend(float(found.distances.max())),
        tag("figcaption", f"Distances between samples, sorted by {label.name} (bars). A label held together is a dark "
            "square on the diagonal."),
    )  # fmt: skip
    return join(tag("div", one, other, class_="figures"), table(sample_table(found)))


def _select(columns: list[Column], chosen: int) -> Markup:
    options = [tag("option", column.name, value=k, selected=k == chosen) for k, column in enumerate(columns)]
    return tag("div", tag("label", "Colour by", tag("select", options)), class_="controls")


def _cells(found: CellMap) -> Markup:
    drawn = len(found.places)
    some = (
        f"{drawn:,} of {found.of:,} cells, drawn evenly from all samples"
        if drawn < found.of
        else f"All {drawn:,} cells"
    )
    shares = " and ".join(f"{share:.0%}" for share in found.shares)
    figures = []
    for chosen in (0, min(1, len(found.columns) - 1)):
        figures.append(
            tag("figure", _select(found.columns, chosen),
                tag("canvas", "A map of cells, which needs scripts.", role="img", aria_label="Map of cells"),
                tag("ul", class_="legend"), data_map="cells")
        )  # fmt: skip
    caption = (
        f"{some}, along the first two axes of the learned space ({shares} of the transport between labels), each in a "
        "scale of its own. Where colours part, single cells tell the label; where they mix, cells are alike in "
        "all samples. Relevance is how much farther a cell's mass travels to other labels than to its own."
    )
    return join(tag("div", *figures, class_="figures"), tag("p", caption, class_="note"))


def _genes(content: Content) -> Markup:
    text = (
        "Importance is the share of the squared distance between cells that a feature accounts for, in units of its "
        "spread; shares sum to 100 %. It says that a feature counts, not that it causes anything; of features that "
        "rise and fall together, the metric may choose any."
    )
    return join(tag("p", text, class_="note"), table(content.genes))


def _axes(axes: list[Axis], feature: str) -> Markup:
    articles = []
    shown = [axis for axis in axes if axis.share >= LEAST] or axes[:1]
    for axis in shown:
        most = max((abs(weight) for _, weight in axis.genes), default=1.0) or 1.0
        items = [
            tag("li", tag("span", name), tag("span", tag("i", style=f"--part: {100 * abs(weight) / most:.0f}%")),
                tag("span", f"{weight:+.2f}"), class_="down" if weight < 0 else None)
            for name, weight in axis.genes
        ]  # fmt: skip
        ends = f"low in {axis.ends[0]}, high in {axis.ends[1]}"
        inside = [
            tag("h3", f"{axis.name}: {axis.share:.0%}"),
            tag("p", ends, class_="note"),
            tag("ul", items, class_="weights"),
        ]
        articles.append(tag("article", inside, table(axis.processes) if axis.processes is not None else None))
    text = (
        "The learned space turned so that its axes are uncorrelated over cells, those first that carry most of the "
        f"transport between labels (percent). Below each, the {feature}s that weigh most on it."
    )
    if len(shown) < len(axes):
        text += f" Axes that carry less than {LEAST:.0%} are not shown ({len(axes) - len(shown)} of {len(axes)})."
    return join(tag("p", text, class_="note"), tag("div", articles, class_="axes"))


def _types(types: Table) -> Markup:
    text = (
        "How much farther samples of other labels are than those of the own, shared out among the types of the cells "
        "that travel; intervals are over samples. Shares sum to 100 %, and may be negative. The last columns are the "
        "mean shares of cells: where they differ, labels differ in composition."
    )
    return join(tag("p", text, class_="note"), table(types))


def _training(history: dict[str, np.ndarray]) -> Markup:
    loss = np.asarray(history["loss"], dtype=float)
    saved, solved = (np.asarray(history[name], dtype=float) for name in ("saved", "solved"))
    series = {
        "loss (100 % is the first epoch's)": loss / (loss[0] or 1.0),
        "triplets within the margin, which pull": np.asarray(history["active"], dtype=float),
        "transport solves saved by bounds": saved / np.maximum(saved + solved, 1),
    }
    caption = f"Loss {loss[0]:.3g} at first, {loss[-1]:.3g} after {loss.size} epochs."
    return tag("figure", drawing.lines(series, "epoch"), tag("figcaption", caption), class_="single")


def _facts(facts: dict[str, dict[str, str]]) -> Markup:
    groups = []
    for title, entries in facts.items():
        rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in entries.items()]
        groups.append(tag("div", tag("h3", title), tag("dl", rows)))
    return tag("div", groups, class_="facts")


def _left_out(notes: list[str]) -> Markup | None:
    return tag("ul", [tag("li", note) for note in notes]) if notes else None


def _data(content: Content) -> dict[str, Any]:
    """What the scripts need, in whole numbers, which are short."""
    samples, cells, order = content.samples, content.cells, content.samples.order
    most = float(samples.distances.max()) or 1.0
    low, high = cells.places.min(axis=0), cells.places.max(axis=0)
    places = np.rint(1000 * (cells.places - low) / np.where(high > low, high - low, 1.0)).astype(int)
    return {
        "colours": COLOURS, "shapes": drawing.SHAPES, "ramp": drawing.RAMP,
        "samples": {"names": samples.names, "columns": [as_data(column) for column in samples.columns]},
        "heat": {"order": order.tolist(), "most": most,
                 "far": np.rint(1000 * samples.distances[np.ix_(order, order)] / most).astype(int).tolist()},
        "cells": {"x": places[:, 0].tolist(), "y": places[:, 1].tolist(),
                  "columns": [as_data(column) for column in cells.columns]},
    }  # fmt: skip
