"""The demo: learn on built-in data, say what was found, and write figures, metrics and a page that shows them."""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.model_selection import train_test_split

from . import __version__, datasets, pl
from .distances import pairwise_distances
from .distributions import Distributions
from .estimators import GroundMetricLearner, TransportKNeighborsClassifier
from .metric import GroundMetric

Loader = Callable[[int], tuple[Distributions, np.ndarray]]
BUILT_IN: Mapping[str, Loader] = {"Synth 2D": datasets.synth_2d, "Synth 200D": datasets.synth_200d}
Log = Callable[[str], None]
N_NEIGHBORS = 5


@dataclass
class Study:
    """One data set, what was learned on half of it, and what came out."""

    D: Distributions
    y: np.ndarray
    train: np.ndarray
    history: dict[str, np.ndarray]
    metrics: dict[str, GroundMetric]
    distances: dict[str, np.ndarray]  # between all distributions, by metric
    found: dict[str, Any]  # numbers and names only: what results.json holds


class Picture(NamedTuple):
    """A figure of the page: `alt` says what kind of picture it is, `caption` what it shows."""

    name: str
    alt: str
    draw: Callable[[Axes], Axes]
    caption: str


def run(
    output: str | os.PathLike,
    *,
    seed: int = 0,
    loaders: Mapping[str, Loader] = BUILT_IN,
    max_epochs: int | None = None,
    verbose: int = 0,
    log: Log = lambda line: None,
) -> dict[str, Any]:
    """Learn on each data set, write everything into the folder `output`, and return the findings.

    Parameters
    ----------
    output : folder; made if need be, files of an earlier demo in it are replaced
    seed : of the data, the split and the learner
    loaders : by the name of the data set, functions of the seed that return Distributions and labels
    max_epochs : of learning; None is the learner's default
    verbose : 1 shows progress bars where there is a terminal
    log : is told in a line what comes next
    """
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output {os.fspath(output)!r} is a file: give a folder")
    folder.mkdir(parents=True, exist_ok=True)
    log("getting ready: after an installation, code is compiled once (up to a minute)")
    _compile()
    learner = GroundMetricLearner(random_state=seed, verbose=verbose)
    if max_epochs is not None:
        learner.set_params(max_epochs=max_epochs)
    findings: dict[str, Any] = {"groundmetric": __version__, "seed": seed, "datasets": []}
    sections = []
    for name, load in loaders.items():
        study = examine(name, *load(seed), learner, seed, log)
        log(f"{name}: drawing")
        files, section = _write_study(folder, study)
        sections.append(section)
        findings["datasets"].append({**study.found, "files": files})
    _write(folder / "results.json", json.dumps(findings, indent=2).encode())
    page = _PAGE.substitute(version=escape(__version__), seed=seed, sections="".join(sections))
    _write(folder / "index.html", page.encode())
    return findings


def examine(name: str, D: Distributions, y: np.ndarray, learner: GroundMetricLearner, seed: int, log: Log) -> Study:
    """Learn on half of the distributions, classify the other half with the learned and with the Euclidean metric."""
    train, test = map(np.sort, train_test_split(np.arange(len(D)), test_size=0.5, stratify=y, random_state=seed))
    log(f"{name}: learning from {len(train)} distributions")
    started = time.perf_counter()
    learner.fit(D[train], y[train])
    seconds = time.perf_counter() - started
    metrics = {"learned": learner.metric_, "Euclidean": GroundMetric.euclidean(D.shape[1], D.features)}
    log(f"{name}: classifying the other {len(test)}, measuring all distances")
    right = {kind: _count_right(metric, D, y, train, test) for kind, metric in metrics.items()}
    distances = {kind: pairwise_distances(D, metric=m, verbose=learner.verbose) for kind, m in metrics.items()}
    shares, history = learner.metric_.importance(), learner.history_
    solved, saved = int(history["solved"].sum()), int(history["saved"].sum())
    found = {
        "name": name, "n_distributions": len(D), "n_points": int(D.sizes.sum()), "n_features": D.shape[1],
        "n_classes": len(np.unique(y)), "train": train.tolist(), "test": test.tolist(),
        "right": right, "accuracy": {kind: count / len(test) for kind, count in right.items()},
        "important_feature": D.features[shares.argmax()] if D.features else f"feature {shares.argmax()}",
        "importance": float(shares.max()),
        "seconds": round(seconds, 3), "epochs": learner.n_iter_,
        "solved": solved, "saved": saved, "share_saved": saved / (saved + solved),
    }  # fmt: skip
    return Study(D, y, train, history, metrics, distances, found)


def summary(findings: Mapping[str, Any]) -> str:
    """What was found, for people: a few lines per data set."""
    lines = []
    for found in findings["datasets"]:
        lines.append(f"{found['name']}: {_size(found)}")
        lines += [f"  {label:<28}{text}" for label, text in _facts(found).items()]
    return "\n".join(lines)


def _size(found: Mapping[str, Any]) -> str:
    return (
        f"{found['n_distributions']} distributions of {found['n_classes']} classes, {found['n_points']:,} points, "
        f"{found['n_features']} features"
    )


def _facts(found: Mapping[str, Any]) -> dict[str, str]:
    """What was found, by what it is called."""
    scores = {
        f"accuracy, {kind} metric": f"{accuracy:.2f} ({found['right'][kind]} of {len(found['test'])})"
        for kind, accuracy in found["accuracy"].items()
    }
    return scores | {
        "accuracy of guessing": f"{1 / found['n_classes']:.2f}",
        "most important feature": f"{found['important_feature']}, {pl.percent(found['importance'])} of importance",
        "learned in": f"{found['seconds']:.1f} s, {found['epochs']} epochs",
        "solves saved by bounds": f"{found['share_saved']:.0%}",
    }


def _count_right(metric: GroundMetric, D: Distributions, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> int:
    classifier = TransportKNeighborsClassifier(N_NEIGHBORS, metric=metric).fit(D[train], y[train])
    return int(np.sum(classifier.predict(D[test]) == y[test]))


def _compile() -> None:
    """Go once through everything on tiny data, so that the times reported are of the work alone."""
    D, y = datasets.make_modes(40, 1.0, class_means=(5, 10), offsets=(1, 4, 7), points_per_mode=2, random_state=0)
    learned = GroundMetricLearner(max_epochs=2, random_state=0).fit(D, y).metric_
    for metric in (learned, GroundMetric.euclidean(D.shape[1])):
        _count_right(metric, D, y, np.arange(6), np.arange(6))
        pairwise_distances(D, metric=metric)


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


def _write_study(folder: Path, study: Study) -> tuple[list[str], str]:
    """Write figures and metric; return the names of the files, and the study's section of the page."""
    found = study.found
    stem = re.sub(r"[^a-z0-9]+", "_", found["name"].lower()).strip("_")
    files, figures = [f"{stem}.gm"], ""
    study.metrics["learned"].save(folder / files[0])
    for picture in pictures(study):
        name = f"{stem}_{picture.name}"
        for suffix, content in (rendered := _render(picture, name)).items():
            files.append(f"{name}.{suffix}")
            _write(folder / files[-1], content)
        svg = _inline(rendered["svg"].decode(), name, picture.alt)
        figures += f"<figure>{svg}<figcaption>{escape(picture.caption)}</figcaption></figure>\n"
    facts = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>\n" for k, v in _facts(found).items())
    texts = {"name": escape(found["name"]), "size": _size(found), "facts": facts, "figures": figures}
    counts = {"train": len(found["train"]), "test": len(found["test"]), "neighbors": N_NEIGHBORS}
    return files, _SECTION.substitute(texts, **counts)


def _render(picture: Picture, name: str) -> dict[str, bytes]:
    """The figure as PNG, on white, and as SVG, without a background."""
    png, svg = io.BytesIO(), io.BytesIO()
    # No date and no random identifiers: the same figure is the same file.
    with mpl.rc_context({**pl.STYLE, "svg.hashsalt": name}):
        figure = Figure(layout="constrained")
        picture.draw(figure.add_subplot())
        figure.savefig(png, format="png", facecolor="white")
        figure.savefig(
            svg, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    return {"png": png.getvalue(), "svg": svg.getvalue()}


def _inline(svg: str, name: str, alt: str) -> str:
    """An SVG for the page: with identifiers of its own, its ink in the colour of the text, as wide as its place."""
    head, body = svg[svg.index("<svg") :].split(">", 1)
    box = head.split('viewBox="')[1].split('"')[0]
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", body).replace(pl.INK, "currentColor")
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(alt)}">{body}'


def _write(path: Path, content: bytes) -> None:
    """Write a file beside its place, then put it there in one step, so that a half-written one is never seen."""
    with tempfile.TemporaryDirectory(dir=path.parent) as beside:
        (Path(beside) / path.name).write_bytes(content)
        os.replace(Path(beside) / path.name, path)


_SECTION = Template("""<section>
<h2>$name</h2>
<p>$size. The metric was learned from $train of the distributions; then the other $test were classified, each by the
$neighbors nearest to it among those.</p>
<dl>
$facts</dl>
<div class="figures">
$figures</div>
</section>
""")
_PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>groundmetric demo</title>
<style>
:root { color-scheme: light dark; --paper: #fff; --ink: #222; --soft: #5c5f63; --line: #ddd }
@media (prefers-color-scheme: dark) { :root { --paper: #16181b; --ink: #e6e6e6; --soft: #a5a8ad; --line: #3a3d42 } }
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 0 auto; padding: 1rem 1rem 3rem }
h1, h2 { line-height: 1.2 } h2 { margin-top: 3rem } p { max-width: 42rem }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 0 2rem }
dl div { display: flex; justify-content: space-between; gap: 1rem; border-bottom: 1px solid var(--line) }
dt { color: var(--soft) } dt::first-letter { text-transform: uppercase }
dd { margin: 0; text-align: right; overflow-wrap: anywhere }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 2rem }
figure { margin: 0 } svg { width: 100%; height: auto }
figcaption, footer { color: var(--soft); font-size: .9rem } footer { margin-top: 3rem }
</style>
<h1>Learning a ground metric</h1>
<p>Every item here is a distribution: a cloud of points, with a class. Optimal transport says how far one cloud is from
another, given a distance between single points, the ground metric. groundmetric learns that distance from the classes
of the clouds, such that those of one class come close together. Here it learns from half of the clouds and is tested on
the other half, beside the ordinary (Euclidean) distance.</p>
$sections<footer>groundmetric $version, <code>groundmetric demo --seed $seed</code>. Every number on this page is in
results.json; the figures and the learned metrics are files beside it.</footer>
</html>
""")
