"""The page of a report: cards, figures and tables made from its `Results`, which `page.html.j2` shows."""

from __future__ import annotations

import base64
import io
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anndata as ad
import matplotlib as mpl
import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.image import imsave
from scipy.cluster.hierarchy import dendrogram
from scipy.spatial.distance import cdist

from .. import tl
from .._anndata.cohort import LEVEL, cell_types_of
from .._internal.files import write_whole
from .._internal.tables import counted, listed, plain, score_name, visible
from .._internal.validation import ParameterError
from ..interpret.axes import average_linkage, metric_scaling, stress_of
from ..interpret.importance import training_summary
from ..pl.style import CMAP, COLOURS, DISTANCE_CMAP, MISSING
from .results import Evaluation, Results, Run, Steps, collect, duration

REPORT = "report.html"
MAX_CLASSES, MAX_COLUMNS = 60, 24  # of a column that colours a map, and columns to choose from
TOP_GENES = 20  # rows of the first table of genes
SHORT = 8  # tables with at most this number of rows are shown without a filter
MAX_NAMED = 45  # samples whose names are written in the figures
MAX_HOVERED = 200  # samples up to which the page holds single distances
MAX_CONFUSION = 12  # classes of a confusion matrix
WIDTH, HEIGHT = 440, 340  # of the map of samples
SIDE, TREE, BAR = 300, 34, 7  # of the distance matrix: its side, the height of the tree, the width of a bar of labels
CELLS_WIDTH, CELLS_HEIGHT = 1000, 720
# Anchor of a name, its offset from the mark, and the share of its width to the left of the anchor.
NAME_OFFSETS = (("start", 7, 3, 0.0), ("end", -7, 3, 1.0), ("middle", 0, -8, 0.5), ("middle", 0, 14, 0.5))
# Marks of classes, as SVG paths around the origin: circle, triangle, square, diamond, triangle.
SHAPES = (
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z", "M0-5L5 4H-5z", "M-4-4H4V4H-4z", "M0-5.5L5.5 0L0 5.5L-5.5 0z",
    "M0 5L5-4H-5z",
)  # fmt: skip
RAMP = [mpl.colors.to_hex(colour) for colour in mpl.colormaps[CMAP](np.linspace(0, 1, 9))]  # colours of numbers
PREDICTED, PROBABILITY = "predicted (held-out)", "probability"
KINDS = {
    "univariate": "feature weights: t statistic of the distance to other minus own labels",
    "anova": "feature weights: F statistic between labels",
    "learned": "feature weights: triplet loss under optimal transport",
    "linear": "ten linear combinations of features: leave-one-out likelihood under optimal transport",
    "euclidean": "equal weights of standardised features, without labels",
}


def write(
    run: str | os.PathLike[str] | ad.AnnData, output: str | os.PathLike[str] | None = None, *,
    cells: str | os.PathLike[str] | None = None, title: str | None = None, cell_type_key: str | None = None,
    gene_sets: str | os.PathLike[str] | None = None, permutations: int | None = None, evaluation: bool = True,
    budget: float | None = None, n_jobs: int | None = None, verbose: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Write one HTML page about a run, and return its main results.

    Long computations are cached in the folder of the run: a second report is quick.

    Parameters
    ----------
    run : str, path or AnnData
        Folder that `groundmetric learn` wrote, or AnnData after `tl.learn`.
    output : str, path or None, default=None
        File to write; None: report.html in the folder of the run. An older report is replaced; any other file is an
        error.
    cells : str, path or None, default=None
        File that was learned from; None: the one that the run names.
    title : str or None, default=None
        Title of the page; None: made from the labels.
    cell_type_key : str or None, default=None
        Column of `obs` with the cell types; None: "cell_type" or a similar name, if present.
    gene_sets : str, path or None, default=None
        GMT file with gene sets, which are tested for enrichment in the axes.
    permutations : int or None, default=None
        Permutations of the labels for p- and q-values; 0: no test. None: 99 for an ensemble and 0 for a single metric,
        where each permutation costs a whole cross-validation.
    evaluation : bool, default=True
        Whether to compute baselines, tests and the stability of a single metric.
    budget : float or None, default=None
        Seconds for the whole report: steps that do not fit are reduced or omitted, and the page says so.
    n_jobs : int or None, default=None
        Threads or processes; None: one.
    verbose : int, default=0
        1 prints a line per step, and shows progress bars on a terminal.

    Returns
    -------
    dict
        "report" (path), "bytes", "summary" (section to text), "warnings" and "omitted" (dicts with "title", "text" and
        "remedy"), "scores" and "permutation_test".

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import groundmetric as gm
    >>> adata = gm.datasets.make_cohort(4, 50, 200, random_state=0)
    >>> adata = gm.tl.learn(adata, "sample", "condition", method="ggml", n_components=2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = gm.report.write(adata, Path(folder) / "report.html", evaluation=False)
    >>> results["warnings"][0]["title"]
    'Few samples'
    """
    steps = Steps(n_jobs, verbose, float("inf") if budget is None else budget)
    if isinstance(run, ad.AnnData):
        run = Run(run, tl.samples(run, verbose=0), run if cells is None else Path(cells), {})
    opened = run if isinstance(run, Run) else Run.open(run, cells)
    if output is None and opened.folder is None:
        raise ParameterError("output", None, ": a run in memory needs the path of a file")
    path = Path(output) if output is not None else opened.folder / REPORT  # type: ignore[operator]
    check_output(path)
    results = collect(
        opened, cell_type_key=cell_type_key, gene_sets=gene_sets, permutations=permutations, evaluation=evaluation,
        steps=steps,
    )  # fmt: skip
    results.warnings += steps.overrun()
    page, scores = make_page(results, title), results.evaluation
    text = render(page).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, [text])
    return {
        "report": str(path), "bytes": len(text), "summary": page.summary,
        "warnings": [note.data() for note in results.warnings],
        "omitted": [note.data() for note in results.omitted],
        "scores": None if scores is None else scores.rows,
        "permutation_test": None if scores is None else scores.test,
    }  # fmt: skip


def check_output(path: Path) -> None:
    """Raise if a page would replace a file that is not a report."""
    if path.is_dir():
        raise ParameterError("output", str(path), ", which is a folder: expected a file")
    if os.path.lexists(path) and not is_page(path):
        raise ParameterError("output", str(path), ", which exists and is not a report: give another file")


def is_page(path: Path) -> bool:
    if not path.is_file():
        return False
    text = path.read_bytes()
    return not text or (text.startswith(b"<!doctype html>") and b"<footer>Made by groundmetric " in text)


# Parts of the page


@dataclass(frozen=True)
class Column:
    """Annotation of samples or cells: codes of classes (-1: missing), or numbers if `values` is None."""

    name: str
    codes: np.ndarray
    values: list[str] | None = None

    def text(self, row: int) -> str | None:
        code = self.codes[row]
        if self.values is not None:
            return self.values[code] if code >= 0 else None
        return format(code, ".4g") if np.isfinite(code) else None

    @property
    def range(self) -> tuple[float, float]:
        numbers = self.codes[np.isfinite(self.codes)]
        return (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 1.0)

    @property
    def shades(self) -> np.ndarray:
        """Numbers in thousandths of their range, -1 for missing; codes of classes unchanged."""
        if self.values is not None:
            return np.asarray(self.codes)
        low, high = self.range
        shades = np.rint(1000 * (np.asarray(self.codes, dtype=float) - low) / ((high - low) or 1))
        return np.where(np.isfinite(shades), shades, -1)

    def colours(self) -> list[str]:
        """Return the colour of each row; numbers have nine colours."""
        shades = self.shades.astype(int)
        if self.values is None:
            return [MISSING if shade < 0 else RAMP[min(shade // 112, 8)] for shade in shades]
        return [MISSING if code < 0 else COLOURS[code % len(COLOURS)] for code in shades]

    def legend(self, shapes: bool) -> list[tuple[str, int, str]]:
        """Return colour, shape and name of every class that occurs; none for numbers."""
        used = [(code, name) for code, name in enumerate(self.values or []) if np.any(self.codes == code)]
        entries = [(COLOURS[code % len(COLOURS)], code % len(SHAPES) if shapes else 0, name) for code, name in used]
        return [*entries, (MISSING, 0, "unknown")] if np.any(self.shades < 0) else entries

    def data(self) -> dict[str, Any]:
        low, high = self.range
        scale = {"low": low, "high": high} if self.values is None else {"values": self.values}
        return {"name": self.name, **scale, "codes": self.shades.astype(int).tolist()}


def columns_of(obs: pd.DataFrame, first: Sequence[str]) -> list[Column]:
    """Return the columns that can colour a map; text with more than `MAX_CLASSES` values cannot."""
    columns = []
    for name in dict.fromkeys([*first, *obs.columns]):
        column = obs[name]
        numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
        if numeric and column.nunique() > 8:
            columns.append(Column(str(name), column.to_numpy(dtype=np.float64, na_value=np.nan)))
            continue
        codes, values = pd.factorize(column, sort=True)
        if len(values) <= MAX_CLASSES:
            columns.append(Column(str(name), codes, [str(value) for value in values]))
    return columns[:MAX_COLUMNS]


@dataclass(frozen=True)
class Field:
    """Column of a table."""

    name: str  # heading
    form: str | None = None  # format of numbers; None: text
    note: str = ""  # explanation of the heading
    minor: bool = False  # whether narrow screens hide the column
    bar: bool = False  # whether a bar is drawn behind the number
    interval: bool = False  # whether entries are a value and the ends of its interval, which are drawn


@dataclass(frozen=True)
class Table:
    """Rows of plain values. `samples` are the numbers of the samples of the rows, `reference` a line in intervals."""

    identifier: str
    caption: str
    fields: list[Field]
    rows: list[list[Any]]
    samples: list[int] | None = None
    reference: float = 0.0

    @classmethod
    def of(cls, identifier: str, caption: str, columns: Sequence[tuple[Field, Any]]) -> Table:
        """Return a table of fields with their values."""
        rows = zip(*([plain(value) for value in values] for _, values in columns), strict=True)
        return cls(identifier, caption, [field for field, _ in columns], list(map(list, rows)))

    def head(self, n: int) -> Table:
        """Return the first rows as a table of their own."""
        if len(self.rows) <= n:
            return self
        name = self.fields[1].name.lower()
        return replace(self, identifier="top", caption=f"{n} most important {name}s", rows=self.rows[:n])

    def share(self, row: list[Any], k: int) -> float:
        """Return the length of a bar, in percent of the longest one."""
        largest = max((values[k] for values in self.rows if values[k] is not None), default=0.0)
        return 100 * max(0.0, row[k]) / largest if largest > 0 else 0.0

    def interval(self, row: list[Any], k: int) -> dict[str, float] | None:
        """Return the ends of an interval, its value and the reference, in percent of the range of the column."""
        if row[k] is None:
            return None
        numbers = [number for values in self.rows for number in values[k] or () if number is not None]
        low, high = min([*numbers, self.reference]), max([*numbers, self.reference])
        value, start, end = (row[k][0] if number is None else number for number in row[k])
        scaled = {"at": value, "low": start, "high": end, "reference": self.reference}
        return {name: 4 + 92 * (number - low) / ((high - low) or 1.0) for name, number in scaled.items()}


@dataclass(frozen=True)
class SampleMap:
    """Map and distance matrix of the samples. Positions are in units of the figures."""

    names: list[str]
    columns: list[Column]
    distances: np.ndarray
    layout: np.ndarray  # metric multidimensional scaling, in units of the distances
    marks: np.ndarray
    texts: list[tuple[float, float, str, str]]  # x, y, anchor and name
    order: np.ndarray  # samples in the order of the tree
    tree: str  # SVG path
    matrix: str  # PNG as base64
    limits: tuple[float, float]  # smallest and largest distance
    caption: str


def make_page(results: Results, title: str | None = None) -> SimpleNamespace:
    """Return the content of the page, for its template; a table is None if its result was not computed."""
    run, scores, predictions = results.run, results.evaluation, results.predictions
    samples = sample_map(run, predictions)
    marks, columns = cell_map(results)
    if title is None:
        names = sorted(set(run.classes))
        labels = joined(names) if len(names) < 4 else f"{len(names)} values of {run.label_key}"
        if len(names) < 4 and all(name.replace(".", "", 1).isdigit() for name in names):
            labels = f"{run.label_key} {labels}"  # "0 and 1" alone would not name the label
        title = f"Association of cells with {run.label_key}" if run.is_ordered else f"Differences between {labels}"
    kinds, plan, influence = None, None, None
    if run.results is not None:
        weights = pd.Series(run.results.weights).sort_values(ascending=False, kind="stable")
        kinds = Table.of("kinds", f"Weights of the {run.results.n_members} ensemble members in the metric", [
            (Field("Members"), weights.index), (Field("Metric"), [KINDS.get(kind, "") for kind in weights.index]),
            (Field("Weight", ".0%", bar=True), weights),
        ])  # fmt: skip
    fields = [Field("Gene set"), Field("q", ".1e"), Field("Fold", ".1f"), Field("Genes", minor=True)]
    gene_sets = [
        Table(f"sets-{a}", f"Gene sets of axis {a}", fields, rows) if rows else None
        for a, rows in enumerate(results.gene_sets or [], 1)
    ]
    if results.influence is not None:
        rows, n_patients = pd.DataFrame(results.influence["rows"]), results.influence["n_patients"]
        caption = "Results without each patient"
        if len(rows) < n_patients:
            caption = f"Results without one patient, for the {len(rows)} most unusual of {n_patients} patients"
        influence = Table.of("influence", caption, [
            (Field("Without"), rows["patient"]), (Field("Influence", ".1f", bar=True), rows["influence"]),
            (Field("p", ".3f"), rows["p"]), (Field("Score", "+.2f"), rows["score"]),
            (Field(f"{run.feature.capitalize()}s kept", ".0%", minor=True), rows["overlap"]),
            (Field("Share of map", ".0%", minor=True), rows["map share"]),
        ])  # fmt: skip
    if results.plan is not None:
        fields = [
            Field("Patients", "d"), Field("Accuracy", ".2f"), Field("95% band", ".2f", interval=True),
            Field("Power", ".2f"), Field("95% band", ".2f", minor=True, interval=True),
        ]  # fmt: skip
        values = [[int(row[0]), row[1], tuple(row[1:4]), row[4], tuple(row[4:7])] for row in results.plan["rows"]]
        caption = "Expected accuracy and power of the test at level 0.05 with more patients"
        plan = Table("plan", caption, fields, values)
    return SimpleNamespace(
        results=results, title=title, summary=conclusions(results, samples), samples=samples,
        sample_table=sample_table(samples), genes=gene_table(results),
        cell_columns=columns, cell_marks=marks,
        scores=None if scores is None else score_table(scores),
        confusion=None if predictions is None else confusion_table(predictions, run.label_key),
        types=None if results.types is None else type_table(results),
        kinds=kinds, gene_sets=gene_sets, influence=influence, plan=plan,
        changes=[change_table(k, patient, run.feature) for k, patient in enumerate(results.changes or [], 1)],
    )  # fmt: skip


def joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# Sentences


def smallest_p(test: dict[str, Any]) -> float:
    """Return the smallest p-value that the permutations and the design allow."""
    return max(1 / (1 + len(test["null"])), 1 / test["arrangements"])


def label_counts(run: Run) -> str:
    labels = run.stored.labels
    if run.has_numbers:
        return f"{run.label_key} from {labels.min():.4g} to {labels.max():.4g}"
    counts = run.with_order(labels.to_frame(run.label_key))[run.label_key].value_counts().sort_index()
    return joined(counted({str(name): int(count) for name, count in counts.items()}))


def conclusions(results: Results, samples: SampleMap) -> dict[str, str]:
    parts = {
        "Prediction": describe_prediction(results),
        "Samples": [*describe_neighbors(results.run, samples), *describe_errors(results.predictions)],
        f"{results.run.feature.capitalize()}s": describe_genes(results),
        "Axes" if results.types is None else "Cell types": [*describe_types(results.types), *describe_axis(results)],
        "Cell numbers": [results.cell_numbers.sentence(results.run.label_key, "sample", "cell")],
    }
    return {title: " ".join(sentences) for title, sentences in parts.items() if sentences}


def describe_prediction(results: Results) -> list[str]:
    label, scores, ensemble = results.run.label_key, results.evaluation, results.run.results
    if scores is None and ensemble is None:
        return ["Prediction of held-out samples was not tested. The map shows training samples only."]
    if scores is None:
        name, value = next(iter(ensemble.scores.items()))  # type: ignore[union-attr]
        name = score_name(name)
        return [f"Held-out samples: {label} is predicted with {name} {value:.2f}."]
    row, test = scores.learned, scores.test
    if row["value"] is None:
        sentences = [f"The held-out evaluation failed: {row['status']}."]
    else:
        interval = "" if row["low"] is None else f" (95% interval {row['low']:.2f} to {row['high']:.2f})"
        score = f"{scores.name} {row['value']:.2f}{interval}; guessing {scores.chance:.2f}"
        sentences = [f"Held-out samples: {label} is predicted with {score}."]
    if test is None:
        sentences.append("Association with the label was not tested by permutation.")
    else:
        p = f"p = {test['p']:.2g}, {len(test['null'])} permutations"
        if test["p"] <= LEVEL:
            text = f"The cells are associated with {label} ({p})."
        elif smallest_p(test) > LEVEL:
            few = 1 / test["arrangements"] > LEVEL
            reason = f"the design allows {test['arrangements']} arrangements" if few else "give more permutations"
            text = f"The test cannot reach p = {LEVEL}: {reason} ({p})."
        else:
            text = f"No association of the cells with {label} is shown ({p}): treat the results below as unconfirmed."
        sentences.append(text)
    if scores.verdict is not None:
        sentences.append(scores.verdict)
    return sentences


def describe_neighbors(run: Run, samples: SampleMap) -> list[str]:
    """Compare the label of each sample with that of its nearest sample."""
    label = samples.columns[0]
    labelled = np.flatnonzero(np.isfinite(label.codes) if label.values is None else label.codes >= 0)
    n = labelled.size
    if n < 3:
        return []
    codes, distances = label.codes[labelled], samples.distances[np.ix_(labelled, labelled)].copy()
    np.fill_diagonal(distances, np.inf)
    nearest = codes[distances.argmin(axis=1)]
    if label.values is None:
        chance = np.abs(codes[:, None] - codes).sum() / (n * (n - 1))
        difference = f"{np.abs(codes - nearest).mean():.3g} on average ({chance:.3g} expected by chance)"
        return [f"The {run.label_key} of a sample differs from that of its nearest sample by {difference}."]
    counts = np.bincount(codes)
    chance = float(np.sum(counts * (counts - 1)) / (n - 1))
    same = f"{int(np.sum(nearest == codes))} of {n} samples ({chance:.0f} expected by chance)"
    return [f"The nearest sample has the same {run.label_key} for {same}."]


def describe_errors(predictions: dict[str, Any] | None) -> list[str]:
    """Name the samples with a wrong held-out class."""
    if predictions is None or not predictions["classes"]:
        return []
    triples = zip(predictions["names"], predictions["truth"], predictions["predicted"], strict=True)
    errors = [f"{name} ({y}, predicted {z})" for name, y, z in triples if y != z]
    return [f"Held-out errors: {listed(errors, 4)}." if errors else "All held-out predictions are correct."]


def describe_genes(results: Results) -> list[str]:
    """Name the most important features, and summarise their stability."""
    genes, stability, run = results.genes, results.stability, results.run
    texts = []
    for name, row in genes.head(3).iterrows():
        direction = ""
        if isinstance(row.get("highest"), str):
            direction = f", {'highest' if genes['lowest'].nunique() > 2 else 'higher'} in {row['highest']}"
        elif "highest" not in row and row.get("effect") is not None and np.isfinite(row["effect"]):
            direction = f", {'rises' if row['effect'] > 0 else 'falls'} with {run.label_key}"
        texts.append(f"{name} ({row['importance']:.1%}{direction})")
    sentences = [f"Largest importance: {joined(texts)}."]
    if stability is None:
        return sentences
    n = stability.n_top
    if n < len(run.stored.features):
        selected = dict(zip(run.stored.features, stability.selected, strict=True))
        often = sum(selected[str(name)] >= 0.9 for name in genes.index[:n])
        sentences.append(f"{often} of the top {n} are among the top {n} in at least 90% of the {stability.repeats}.")
    if stability.q is not None and stability.smallest_p > LEVEL:
        reason = f"this design allows no p-value below {stability.smallest_p:.2g}"
        sentences.append(f"No {run.feature} can reach q < {LEVEL}: {reason}.")
    elif (significant := stability.significant()) is not None:
        sentences.append(f"{significant:,} {run.feature}s have q < {LEVEL}.")
    return sentences


def describe_types(types: dict[str, Any] | None) -> list[str]:
    """Name the cell type with the largest share in the difference between labels."""
    if types is None or not types["types"]:
        return []
    if not types["certain"]:
        return ["No cell type can be said to carry the difference between labels."]
    first = int(np.nanargmax(np.array(types["share"], dtype=float)))
    interval = f"95% interval {types['low'][first]:.0%} to {types['high'][first]:.0%}"
    share = f"{types['share'][first]:.0%} ({interval})"
    return [f"Largest share of the difference between labels: {types['types'][first]}, {share}."]


def describe_axis(results: Results) -> list[str]:
    axes = results.axes
    if not any(axes.separating):
        return []
    a = axes.separating.index(True)  # the first axis along which labels differ
    low, high = axes.ends(a) or ("", "")
    genes = joined([name for name, _ in axes.genes(a, results.run.stored.features)[:3]])
    sets = results.gene_sets[a] if results.gene_sets else []
    process = f"; gene set: {sets[0][0]}" if sets else ""
    share = f"{axes.share[a]:.0%} of the transport between labels"
    return [f"Axis {a + 1} carries {share}, from {low} to {high} ({genes}{process})."]


# Samples


def sample_map(run: Run, predictions: dict[str, Any] | None) -> SampleMap:
    """Lay out the samples by their distances, which are out-of-bag for an ensemble."""
    distances, names = np.asarray(run.samples.obsp[f"{run.key}_distances"], dtype=float), list(run.samples.obs_names)
    obs = run.with_order(run.samples.obs).drop(columns=[*run.own_columns, run.sample_key], errors="ignore")
    columns = columns_of(obs, [run.label_key])
    if predictions is not None:
        predicted = pd.Series(predictions["predicted"], predictions["names"]).reindex(names)
        if classes := predictions["classes"]:
            columns.append(Column(PREDICTED, pd.Categorical(predicted, classes).codes.astype(int), classes))
        else:
            columns.append(Column(PREDICTED, predicted.to_numpy(dtype=float)))
        if predictions["probability"] is not None:
            probability = pd.Series(predictions["probability"], predictions["names"]).reindex(names)
            columns.append(Column(PROBABILITY, probability.to_numpy(dtype=float)))
    return draw_samples(names, columns, distances, f"{run.key}_in_sample" in run.samples.obsp)


def draw_samples(names: list[str], columns: list[Column], distances: np.ndarray, out_of_bag: bool) -> SampleMap:
    """Draw the map and the matrix of the samples."""
    n, layout = len(names), metric_scaling(distances)
    low, high = layout.min(axis=0), layout.max(axis=0)
    scale = min((WIDTH - 60) / max(high[0] - low[0], 1e-12), (HEIGHT - 40) / max(high[1] - low[1], 1e-12))
    marks = np.array([WIDTH, HEIGHT]) / 2 + (layout - (low + high) / 2) * scale * np.array([1, -1])
    order, tree = np.arange(n), ""
    if n > 1:
        drawn = dendrogram(average_linkage(distances), no_plot=True)
        order, heights = np.array(drawn["leaves"]), np.array(drawn["dcoord"])
        joins = heights[heights > 0]
        base = joins.min() - 0.15 * ((joins.max() - joins.min()) or 1.0)  # the tree begins below its lowest join
        y = -2 - (TREE - 4) * np.maximum(heights - base, 0) / ((joins.max() - base) or 1.0)
        x = np.array(drawn["icoord"]) / (10 * n) * SIDE  # SciPy's leaves are 10 apart
        lines = ([f"{a:.1f} {b:.1f}" for a, b in zip(*line, strict=True)] for line in zip(x, y, strict=True))
        tree = "".join("M" + "L".join(line) for line in lines)
    pairs = distances[np.triu_indices(n, 1)]
    limits = (float(pairs.min()), float(pairs.max())) if pairs.size else (0.0, 1.0)
    image = io.BytesIO()
    shares = mpl.colors.Normalize(*limits)(distances[np.ix_(order, order)])
    imsave(image, DISTANCE_CMAP(shares), format="png")
    caption = f"Metric multidimensional scaling of {'out-of-bag distances' if out_of_bag else 'training samples'}; "
    caption += f"stress {stress_of(layout, distances):.2f}."
    true, mapped = contrast(distances, columns[0]), contrast(cdist(layout, layout), columns[0])
    if true is not None and mapped is not None:
        caption += f" Mean distance between labels / within labels: {true:.2f}, in the map {mapped:.2f}."
    return SampleMap(
        names, columns, distances, layout, marks.round(1), name_positions(marks, names), order, tree,
        base64.b64encode(image.getvalue()).decode(), limits, caption,
    )  # fmt: skip


def contrast(distances: np.ndarray, label: Column) -> float | None:
    """Return the mean distance between labels divided by the mean distance within labels."""
    if label.values is None:
        return None
    labelled = np.flatnonzero(label.codes >= 0)
    same = label.codes[labelled][:, None] == label.codes[labelled]
    pairs, off_diagonal = distances[np.ix_(labelled, labelled)], ~np.eye(labelled.size, dtype=bool)
    if not (same & off_diagonal).any() or same.all():
        return None
    return float(pairs[~same].mean() / (pairs[same & off_diagonal].mean() or np.nan))


def name_positions(marks: np.ndarray, names: list[str]) -> list[tuple[float, float, str, str]]:
    """Return x, y, anchor and text of names that cover neither a mark nor another name; other names are omitted."""
    if len(names) > MAX_NAMED:
        return []
    boxes = [(x - 5, y - 5, x + 5, y + 5) for x, y in marks]
    texts = []
    for (x, y), name in zip(marks, names, strict=True):
        name = visible(name)[:14]
        width = 5.2 * len(name)
        for anchor, dx, dy, left_share in NAME_OFFSETS:
            x0, y0 = x + dx - left_share * width, y + dy - 8
            x1, y1 = x0 + width, y0 + 9
            overlaps = any(x0 < b[2] and b[0] < x1 and y0 < b[3] and b[1] < y1 for b in boxes)
            if x0 > 0 and x1 < WIDTH and y0 > 0 and y1 < HEIGHT and not overlaps:
                boxes.append((x0, y0, x1, y1))
                texts.append((round(x + dx, 1), round(y + dy, 1), anchor, name))
                break
    return texts


def sample_table(samples: SampleMap) -> Table:
    """Return a row per sample with its columns and its nearest sample."""
    n = len(samples.names)
    columns: list[tuple[Field, Any]] = [(Field("Sample"), samples.names)]
    for k, column in enumerate(samples.columns):
        field = Field(column.name, None if column.values else ".4g", minor=k > 0 and column.name != PREDICTED)
        columns.append((field, [column.text(s) for s in range(n)] if column.values else column.codes.tolist()))
    distances = samples.distances + np.diag(np.full(n, np.inf))
    columns += [
        (Field("Nearest sample", minor=True), [samples.names[s] if n > 1 else None for s in distances.argmin(axis=1)]),
        (Field("Distance", ".3f", "to the nearest sample", minor=True), distances.min(axis=1).tolist()),
    ]
    return replace(Table.of("samples-table", "All samples", columns), samples=list(range(n)))


# Prediction


def score_table(scores: Evaluation) -> Table:
    """Return a row per method with its interval and the lead of the learned model over it."""
    name = scores.name[0].upper() + scores.name[1:]
    fields = [
        Field("Method"), Field(name, ".2f"), Field("95% interval", ".2f", interval=True),
        Field("Lead", "+.2f", "of groundmetric over the method", minor=True),
        Field("95% interval of the lead", None, minor=True),
        Field("p (Holm)", ".2g", "of the lead, corrected for the number of methods", minor=True),
        Field("s per fold", ".2g", minor=True),
    ]  # fmt: skip
    rows: list[list[Any]] = []
    for row in scores.rows:
        interval = None if row["low"] is None else (row["value"], row["low"], row["high"])
        ends = None if row.get("lead_low") is None else f"{row['lead_low']:+.2f} to {row['lead_high']:+.2f}"
        rows.append([row["method"], row["value"], interval, row.get("lead"), ends, row.get("p"), row["seconds"]])
    columns = [(field, values) for field, *values in zip(fields, *rows, strict=True) if set(values) != {None}]
    return replace(Table.of("scores", f"{name} on held-out samples", columns), reference=scores.chance)


def confusion_table(predictions: dict[str, Any], label: str) -> Table | None:
    """Return the number of samples by true (rows) and predicted label (columns)."""
    classes = predictions["classes"]
    if not 0 < len(classes) <= MAX_CONFUSION:
        return None
    pairs = list(zip(predictions["truth"], predictions["predicted"], strict=True))
    fields = [Field(label), *(Field(f"predicted {name}", "d") for name in classes), Field("correct", ".0%")]
    rows: list[list[Any]] = []
    for k, name in enumerate(classes):
        counts = [pairs.count((name, predicted)) for predicted in classes]
        rows.append([name, *counts, counts[k] / max(1, sum(counts))])
    return Table("confusion", "Held-out predictions by label", fields, rows)


def change_table(number: int, patient: dict[str, Any], feature: str) -> Table:
    """Return the changes of a patient on the way to another label, the most certain first."""
    has_types = any(row[0] != "all" for row in patient["rows"])
    fields = [
        Field(f"{feature.capitalize()}, cell type" if has_types else feature.capitalize()), Field("Change", "+.2f"),
        Field("95% interval", "+.2f", interval=True), Field("p", ".3f", "adjusted for all cell types and features"),
    ]  # fmt: skip
    rows = [
        [name if kind == "all" else f"{name}, {kind}", change, (change, low, high), p]
        for kind, name, change, low, high, p in patient["rows"]
    ]
    caption = f"{patient['patient']} ({patient['label']}): changes to {patient['other']}"
    return Table(f"changes-{number}", caption, fields, rows)


# Genes, cell types and cells


def gene_table(results: Results) -> Table:
    """Return the most important features with their interval, direction, cell type, axis and q-value."""
    run, genes, stability = results.run, results.genes, results.stability
    several = "lowest" in genes and genes["lowest"].nunique() > 1 and run.classes.nunique() > 2
    columns: list[tuple[Field, Any]] = [
        (Field("Rank", "d", minor=True), range(1, len(genes) + 1)),
        (Field(run.feature.capitalize()), genes.index.astype(str)),
        (Field("Importance", ".1%", "share of the squared distance between cells", bar=True), genes["importance"]),
    ]
    rows = pd.Index(run.stored.features).get_indexer(genes.index)
    if stability is not None:
        ends = [f"{low:.1%} to {high:.1%}" for low, high in zip(stability.low[rows], stability.high[rows], strict=True)]
        columns.append((Field("95% range", None, f"of the importance over {stability.repeats}", minor=True), ends))
    if "highest" in genes:
        columns.append((Field("Highest in" if several else "Higher in"), genes["highest"]))
        if several:
            columns.append((Field("Lowest in", minor=True), genes["lowest"]))
        note = "between means of labels, in standard deviations of the cells"
        columns.append((Field("Difference", ".2f", note, minor=True), genes["effect"]))
    elif "effect" in genes:
        columns.append((Field("Correlation", "+.2f", f"Spearman, sample means with {run.label_key}"), genes["effect"]))
    if "cell_type" in genes:
        field = Field("Cell type", None, "with the largest difference of means", minor=True)
        columns.append((field, genes["cell_type"]))
    axis = np.abs(results.axes.loadings[:, rows]).argmax(axis=0) + 1
    columns.append((Field("Axis", "d", "with the largest loading", minor=True), axis))
    if stability is not None and stability.n_top < len(run.stored.features):
        note = f"share of the {stability.repeats} with the {run.feature} in their top {stability.n_top}"
        columns.append((Field(f"In top {stability.n_top}", ".0%", note, minor=True), stability.selected[rows]))
    if stability is not None and stability.q is not None:
        columns.append((Field("q", ".2g", "false discovery rate, by permuted labels"), stability.q[rows]))
    n = len(run.stored.features)
    caption = f"All {n:,} {run.feature}s" if n == len(genes) else f"{len(genes)} most important of {n:,} {run.feature}s"
    return Table.of("genes-table", caption, columns)


def type_table(results: Results) -> Table:
    """Return a row per cell type: its share of the difference between labels, and its share of the cells by label."""
    run, types, type_key = results.run, results.types, results.cohort.type_key
    assert types is not None
    assert type_key is not None
    counts = pd.crosstab(run.cells.obs[run.sample_key].astype(str), cell_types_of(run.cells.obs, type_key))
    shares = counts.div(counts.sum(axis=1), axis=0)
    composition = shares.groupby(run.classes.reindex(shares.index).to_numpy()).mean()
    source = "out-of-bag" if types["out_of_bag"] else "training samples"
    fields = [
        Field("Cell type"), Field("Share of difference", ".0%", source), Field("95% interval", ".0%", interval=True),
        Field("Relevance", "+.3f", "how much farther cells are from cells of their type in other labels", minor=True),
        *(Field(f"Cells in {label}", ".1%", "mean over samples", minor=True) for label in composition.index),
    ]  # fmt: skip
    rows: list[list[Any]] = []
    for k, name in enumerate(types["types"]):
        interval = tuple(types[part][k] for part in ("share", "low", "high"))
        share = [interval[0], interval] if types["certain"] and interval[0] is not None else [None, None]
        rows.append([name, *share, types["relevance"][k], *map(float, composition[name])])
    rows.sort(key=lambda row: -(row[3] if row[1] is None else row[1]) if row[3] is not None else np.inf)
    if not types["certain"]:  # without shares
        fields = [fields[0], replace(fields[3], minor=False), *fields[4:]]
        rows = [[row[0], *row[3:]] for row in rows]
    return Table("types-table", f"Cell types (column {type_key!r}), {source}", fields, rows)


def cell_map(results: Results) -> tuple[np.ndarray, list[Column]]:
    """Return positions of the drawn cells along two axes, in units of the figure, and the columns that colour them."""
    run, rows = results.run, results.cohort.cells.rows
    z = np.asarray(run.cells.obsm[f"X_{run.key}"])
    positions = (z[rows] - z.mean(axis=0)) @ results.axes.rotation[:2].T
    if positions.shape[1] < 2:  # a single component: the second coordinate is random
        noise = np.random.default_rng(0).uniform(-1, 1, len(positions))
        positions = np.column_stack([positions[:, 0], noise * positions.std()])
    low, high = positions.min(axis=0), positions.max(axis=0)
    shares = (positions - low) / np.where(high > low, high - low, 1.0)
    shares[:, 1] = 1 - shares[:, 1]
    marks = np.rint(12 + shares * np.array([CELLS_WIDTH - 24, CELLS_HEIGHT - 24])).astype(int)
    obs = run.with_order(run.cells.obs).iloc[rows]
    added = [name for name in obs.columns if str(name).startswith(f"{run.key}_")]
    first = [run.label_key, *([] if results.cohort.type_key is None else [results.cohort.type_key])]
    columns = columns_of(obs.drop(columns=[*added, run.sample_key]), first)
    sample = run.samples.obs_names.get_indexer(obs[run.sample_key].astype(str))
    samples = Column(run.sample_key, sample, list(run.samples.obs_names))
    return marks, [*columns, Column("relevance", results.relevance[rows]), samples]


def cell_paths(marks: np.ndarray, column: Column) -> list[tuple[str, str]]:
    """Return a colour and an SVG path of dots for every class, or for nine ranges of numbers."""
    colours = np.array(column.colours())
    return [
        (str(colour), "".join(f"M{x} {y}h0" for x, y in marks[colours == colour]))
        for colour in dict.fromkeys(colours[np.argsort(column.shades, kind="stable")])
    ]


# HTML and files


def render(page: SimpleNamespace) -> str:
    environment = Environment(
        loader=PackageLoader(__package__, ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_visible,
    )  # fmt: skip
    environment.filters |= {"number": format, "prose": prose, "breakable": breakable}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    samples = page.samples
    largest = float(samples.distances.max()) or 1.0
    hovered = len(samples.names) <= MAX_HOVERED
    data = {  # for the scripts; whole numbers are short
        "colours": COLOURS, "missing": MISSING, "ramp": RAMP, "shapes": len(SHAPES),
        "samples": {"names": samples.names, "columns": [column.data() for column in samples.columns],
                    "order": samples.order.tolist(), "largest": largest,
                    "distances": np.rint(1000 * samples.distances / largest).astype(int).tolist() if hovered else None},
        "cells": {"x": page.cell_marks[:, 0].tolist(), "y": page.cell_marks[:, 1].tolist(),
                  "columns": [column.data() for column in page.cell_columns]},
    }  # fmt: skip
    versions = {"groundmetric": str(page.results.run.entry["version"]), "Python": platform.python_version()}
    versions |= {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "anndata")}
    environment.globals |= globals()  # the template uses functions and constants of this module
    text = environment.get_template("page.html.j2").render(
        page=page, results=page.results, run=page.results.run, versions=versions, data=_visible(data),
        duration=duration, training_summary=training_summary,
    )  # fmt: skip
    return text.lstrip()  # macros leave empty lines before the page


def asset(name: str) -> Markup:
    return Markup(files(__package__).joinpath("assets", name).read_text(encoding="utf-8"))


def _visible(data: Any) -> Any:
    """Return data in which invisible characters of texts are written out: two different names look different."""
    if isinstance(data, str) and not isinstance(data, Markup):
        return visible(data)
    if isinstance(data, dict):
        return {_visible(key): _visible(value) for key, value in data.items()}
    return [_visible(value) for value in data] if isinstance(data, list | tuple) else data


def breakable(text: Any) -> Markup:
    """Return text that lines may break after an underscore.

    >>> breakable("type_<b>")
    Markup('type_<wbr>&lt;b&gt;')
    """
    return Markup("_<wbr>").join(visible(str(text)).split("_"))


def prose(text: Any) -> Markup:
    """Return text for the page, with names and values of parameters as code.

    >>> prose("learn again within batches (batch_key='site')")
    Markup('learn again within batches (<code>batch_key=&#39;site&#39;</code>)')
    """
    parts = re.split(r"\b(\w+=(?:'[^']*'|[\w.]+))", visible(text))
    code = Markup("<code>{}</code>")
    return Markup("").join(part if k % 2 == 0 else code.format(part) for k, part in enumerate(parts))
