"""Cards, figures and tables of a report, made from its `Results`; `page.html.j2` shows them."""

from __future__ import annotations

import base64
import io
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.image import imsave
from scipy.cluster.hierarchy import dendrogram
from scipy.spatial.distance import cdist

from .._internal.tables import counted, visible
from ..interpret.axes import average_linkage, classical_scaling
from ..interpret.importance import training_summary
from ..pl.style import COLOURS, MISSING
from .collect import LEVEL, Results
from .interpretation import listed, type_composition
from .prediction import Evaluation, Predictions
from .run import Run, duration

MAX_CLASSES, MAX_COLUMNS = 60, 24  # of a column that colours a map, and columns to choose from
TOP_GENES = 20  # rows of the first table of genes
MAX_NAMED = 45  # samples whose names are written in the figures
MAX_HOVERED = 200  # samples up to which the page holds single distances
MAX_CONFUSION = 12  # classes of a confusion matrix
WIDTH, HEIGHT = 440, 340  # of the map of samples
SIDE, TREE, BAR = 300, 34, 7  # of the distance matrix: its side, the height of the tree, the width of a bar of labels
CELLS_WIDTH, CELLS_HEIGHT = 1000, 720
# Anchor of a name, its offset from the mark, and the part of its width that is left of the anchor.
NAME_OFFSETS = (("start", 7, 3, 0.0), ("end", -7, 3, 1.0), ("middle", 0, -8, 0.5), ("middle", 0, 14, 0.5))
PREDICTED, PROBABILITY = "predicted (held-out)", "probability"
KINDS = {
    "univariate": "feature weights: t statistic of the distance to other minus own labels",
    "anova": "feature weights: F statistic between labels",
    "learned": "feature weights: triplet loss under optimal transport",
    "euclidean": "equal weights of standardised features, without labels",
}


@dataclass(frozen=True)
class Column:
    """Annotation of samples or cells: codes of classes (-1: missing), or numbers if `values` is None."""

    name: str
    codes: np.ndarray
    values: list[str] | None = None

    def text(self, row: int, form: str = ".4g") -> str | None:
        code = self.codes[row]
        if self.values is not None:
            return self.values[code] if code >= 0 else None
        return format(code, form) if np.isfinite(code) else None

    @property
    def shades(self) -> np.ndarray:
        """Numbers in thousandths of their range, -1 for missing; codes of classes as they are."""
        if self.values is not None:
            return np.asarray(self.codes)
        known = np.isfinite(self.codes)
        low, high = self.range
        return np.where(known, np.rint(1000 * (np.where(known, self.codes, low) - low) / ((high - low) or 1)), -1)

    @property
    def range(self) -> tuple[float, float]:
        known = self.codes[np.isfinite(self.codes)]
        return (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)

    def data(self) -> dict[str, Any]:
        """Return the column for the script of the page."""
        codes = self.shades.astype(int).tolist()
        if self.values is not None:
            return {"name": self.name, "values": self.values, "codes": codes}
        low, high = self.range
        return {"name": self.name, "low": low, "high": high, "codes": codes}


def columns_of(obs: pd.DataFrame, first: Sequence[str]) -> list[Column]:
    """Return the columns that can colour a map; text with more than `MAX_CLASSES` values cannot."""
    found = []
    for name in dict.fromkeys([*first, *obs.columns]):
        column = obs[name]
        numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
        if numeric and column.nunique() > 8:
            found.append(Column(str(name), column.to_numpy(dtype=np.float64, na_value=np.nan)))
            continue
        codes, values = pd.factorize(column, sort=True)
        if len(values) <= MAX_CLASSES:
            found.append(Column(str(name), codes, [str(value) for value in values]))
    return found[:MAX_COLUMNS]


@dataclass(frozen=True)
class Field:
    """Column of a table.

    Attributes
    ----------
    name : str
        Heading.
    form : str or None
        Format of numbers; None: text.
    note : str
        Explanation of the heading.
    minor : bool
        Hidden on narrow screens.
    bar : bool
        Whether a bar is drawn behind the number.
    interval : (int, int, int) or None
        Columns of a value and its interval, which are drawn here.
    """

    name: str
    form: str | None = None
    note: str = ""
    minor: bool = False
    bar: bool = False
    interval: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Table:
    """Rows of plain values. `samples` are the numbers of the samples of the rows, `reference` a line in intervals."""

    identifier: str
    caption: str
    fields: list[Field]
    rows: list[list[Any]]
    samples: list[int] | None = None
    reference: float = 0.0

    def head(self, n: int) -> Table:
        """Return the first rows as a table of their own."""
        if len(self.rows) <= n:
            return self
        name = self.fields[1].name.lower()
        return replace(self, identifier="top", caption=f"{n} most important {name}s", rows=self.rows[:n])

    def share(self, row: list[Any], k: int) -> float:
        """Return the length of a bar, in percent of the longest one."""
        largest = max((other[k] for other in self.rows if other[k] is not None), default=0.0)
        return 100 * max(0.0, row[k]) / largest if largest > 0 else 0.0

    def interval(self, row: list[Any], columns: tuple[int, int, int]) -> dict[str, float] | None:
        """Return the ends of an interval, its value and the reference, in percent of the range of the column."""
        known = [other[k] for other in self.rows for k in columns if other[k] is not None]
        low, high = min([*known, self.reference]), max([*known, self.reference])
        if row[columns[0]] is None:
            return None
        value, *ends = (row[columns[0]] if row[k] is None else row[k] for k in columns)
        scaled = {"at": value, "low": ends[0], "high": ends[1], "reference": self.reference}
        return {name: 8 + 84 * (end - low) / ((high - low) or 1.0) for name, end in scaled.items()}


@dataclass(frozen=True)
class Card:
    """Key figure: a title, a value, and lines below it; `link` is the section with the details."""

    title: str
    value: str
    lines: list[str]
    link: str
    warning: bool = False


@dataclass(frozen=True)
class SampleMap:
    """Map and distance matrix of the samples. Arrays of positions are in units of the figures."""

    names: list[str]
    columns: list[Column]
    distances: np.ndarray
    layout: np.ndarray  # metric multidimensional scaling, in units of the distances
    marks: np.ndarray
    texts: list[tuple[float, float, str, str]]  # x, y, anchor and name
    order: np.ndarray
    tree: str
    matrix: str
    caption: str
    limits: tuple[float, float]


@dataclass(frozen=True)
class Page:
    """Content of the page."""

    results: Results
    title: str
    cards: list[Card]
    summary: dict[str, str]
    samples: SampleMap
    sample_table: Table
    genes: Table
    settings: dict[str, dict[str, str]]
    cell_columns: list[Column]
    cell_marks: np.ndarray
    scores: Table | None = None
    confusion: Table | None = None
    types: Table | None = None
    kinds: Table | None = None
    protocol: str = ""
    gene_sets: list[Table | None] = field(default_factory=list)


def make_page(results: Results, title: str | None = None) -> Page:
    """Make the content of the page."""
    run, scores, predictions = results.run, results.evaluation, results.predictions
    samples, genes = sample_map(run, predictions), gene_table(results)
    marks, columns = cell_map(results)
    return Page(
        results=results,
        title=title or _title(run),
        cards=cards_of(results),
        summary=conclusions(results, samples),
        samples=samples,
        sample_table=sample_table(samples),
        genes=genes,
        settings=settings_of(results),
        cell_columns=columns,
        cell_marks=marks,
        scores=None if scores is None else score_table(scores),
        confusion=None if predictions is None else confusion_table(predictions, run.label_key),
        types=None if results.types is None else type_table(results),
        kinds=None if run.results is None else kind_table(run),
        protocol=_protocol(results),
        gene_sets=[_gene_set_table(a, rows) for a, rows in enumerate(results.gene_sets or [], 1)],
    )


def _title(run: Run) -> str:
    if run.is_ordered:
        return f"Association of cells with {run.label_key}"
    names = sorted(set(run.classes))
    return f"Differences between {joined(names) if len(names) < 4 else f'{len(names)} values of {run.label_key}'}"


def joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# Cards and sentences


def cards_of(results: Results) -> list[Card]:
    """Return the key figures: held-out score, p-value, cohort, significant features, warnings."""
    run, stability, warnings = results.run, results.stability, results.warnings
    n_features, feature = len(run.stored.features), run.feature
    cards = [_score_card(results), _p_value_card(results)]
    cohort = [label_counts(run), f"{n_cells(run):,} cells, {n_features:,} {feature}s"]
    cards.append(Card("Cohort", f"{run.samples.n_obs} samples", cohort, "settings"))
    significant = None if stability is None else stability.significant()
    top = f"Most important: {', '.join(results.genes.index[:3])}"
    tested = f"of {n_features:,} (q < {LEVEL})" if significant is not None else "q-values not computed"
    value = "–" if significant is None else f"{significant:,}"
    cards.append(Card(f"Significant {feature}s", value, [tested, top], "genes"))
    titles = list(dict.fromkeys(note.title for note in warnings)) or ["None found"]
    return [*cards, Card("Warnings", str(len(warnings)), titles, "warnings", bool(warnings))]


def _score_card(results: Results) -> Card:
    scores, ensemble = results.evaluation, results.run.results
    if scores is None:
        name, value = ("score", None) if ensemble is None else next(iter(ensemble.scores.items()))
        title = f"Held-out {'R²' if name == 'r2' else name.replace('_', ' ')}"
        return Card(title, "–" if value is None else f"{value:.2f}", ["Baselines not computed"], "prediction")
    row, best, title = scores.learned, scores.best_baseline, f"Held-out {scores.name}"
    if row["value"] is None:
        return Card(title, "–", [row["status"]], "prediction")
    interval = "" if row["low"] is None else f"95% interval {row['low']:.2f} to {row['high']:.2f}; "
    baseline = "no baseline" if best is None else f"Best baseline {best['value']:.2f} ({best['method']})"
    return Card(title, f"{row['value']:.2f}", [f"{interval}guessing {scores.chance:.2f}", baseline], "prediction")


def _p_value_card(results: Results) -> Card:
    test = None if results.evaluation is None else results.evaluation.test
    if test is None:
        return Card("p-value", "–", ["Permutation test not computed"], "prediction")
    lines = [f"{len(test['null'])} permutations of the labels", f"smallest attainable: {smallest_p(test):.2g}"]
    return Card("p-value", f"{test['p']:.2g}", lines, "prediction")


def smallest_p(test: dict[str, Any]) -> float:
    """Return the smallest p-value that the permutations and the design allow."""
    return max(1 / (1 + len(test["null"])), 1 / test["arrangements"])


def n_cells(run: Run) -> int:
    return int(run.cells.obs[f"{run.key}_sampled"].sum())


def label_counts(run: Run) -> str:
    """Return the number of samples by label, or the range of numbers."""
    labels = run.stored.labels
    if run.has_numbers:
        return f"{run.label_key} from {labels.min():.4g} to {labels.max():.4g}"
    counts = run.with_order(labels.to_frame(run.label_key))[run.label_key].value_counts().sort_index()
    return joined(counted({str(name): int(count) for name, count in counts.items()}))


def conclusions(results: Results, samples: SampleMap) -> dict[str, str]:
    """Return a few sentences for each section."""
    parts: dict[str, list[str | None]] = {
        "Prediction": [_describe_score(results), _describe_test(results), _describe_baseline(results.evaluation)],
        "Samples": [_describe_neighbors(results.run, samples), describe_errors(results.predictions)],
        f"{results.run.feature.capitalize()}s": [_describe_genes(results), _describe_stability(results)],
        "Cell types": [_describe_types(results.types), _describe_axis(results)],
        "Cell numbers": [results.cell_numbers.sentence(results.run.label_key, "sample", "cell")],
    }
    texts = {title: " ".join(filter(None, sentences)) for title, sentences in parts.items()}
    return {title: text for title, text in texts.items() if text}


def _describe_score(results: Results) -> str:
    label, scores, ensemble = results.run.label_key, results.evaluation, results.run.results
    if scores is not None and scores.learned["value"] is None:
        return f"The held-out evaluation failed: {scores.learned['status']}."
    if scores is not None:
        name, value, interval = scores.name, scores.learned["value"], _interval(scores.learned)
        return (
            f"Held-out samples: {label} is predicted with {name} {value:.2f}{interval}; guessing {scores.chance:.2f}."
        )
    if ensemble is None:
        return "Prediction of held-out samples was not tested. The map shows training samples only."
    name, value = next(iter(ensemble.scores.items()))
    name = {"r2": "R²"}.get(name, name.replace("_", " "))
    return f"Held-out samples: {label} is predicted with {name} {value:.2f}."


def _interval(row: dict[str, Any]) -> str:
    return "" if row["low"] is None else f" (95% interval {row['low']:.2f} to {row['high']:.2f})"


def _describe_test(results: Results) -> str | None:
    if results.evaluation is None:
        return None
    label, test = results.run.label_key, results.evaluation.test
    if test is None:
        return "Association with the label was not tested by permutation."
    p = f"p = {test['p']:.2g}, {len(test['null'])} permutations"
    if test["p"] <= LEVEL:
        return f"The cells are associated with {label} ({p})."
    if smallest_p(test) > LEVEL:
        return f"The test cannot reach p = {LEVEL}: the design allows {test['arrangements']} arrangements ({p})."
    return f"No association of the cells with {label} is shown ({p}): treat the results below as unconfirmed."


def _describe_baseline(scores: Evaluation | None) -> str | None:
    best = None if scores is None else scores.best_baseline
    if best is None:
        return None
    start = f"Best baseline {best['value']:.2f} ({best['method']})"
    if best.get("lead") is None:
        return f"{start}."
    details = f"difference {best['lead']:+.2f}" + ("" if best.get("p") is None else f", p = {best['p']:.2g}")
    significant = best.get("p") is not None and best["p"] < LEVEL
    verdict = "no significant difference" if not significant else (
        "groundmetric is better" if best["lead"] > 0 else "groundmetric is worse"
    )  # fmt: skip
    return f"{start}: {verdict} ({details})."


def _describe_neighbors(run: Run, samples: SampleMap) -> str | None:
    """Compare the label of each sample with that of its nearest sample."""
    label = samples.columns[0]
    known = np.flatnonzero(np.isfinite(label.codes) if label.values is None else label.codes >= 0)
    if known.size < 3:
        return None
    codes, distances = label.codes[known], samples.distances[np.ix_(known, known)].copy()
    np.fill_diagonal(distances, np.inf)
    nearest = codes[distances.argmin(axis=1)]
    if label.values is None:
        apart = np.abs(codes[:, None] - codes)
        chance = apart.sum() / (known.size * (known.size - 1))
        near = np.abs(codes - nearest).mean()
        return (
            f"The {run.label_key} of a sample differs from that of its nearest sample by {near:.3g} on average "
            f"({chance:.3g} expected by chance)."
        )
    counts = np.bincount(codes)
    chance = float(np.sum(counts * (counts - 1)) / (known.size - 1))
    same = int(np.sum(nearest == codes))
    return (
        f"The nearest sample has the same {run.label_key} for {same} of {known.size} samples ({chance:.0f} expected by "
        "chance)."
    )


def describe_errors(predictions: Predictions | None) -> str | None:
    if predictions is None or not predictions.classes:
        return None
    place = {name: k for k, name in enumerate(predictions.names)}
    errors = [
        f"{name} ({predictions.truth[place[name]]}, predicted {predictions.predicted[place[name]]})"
        for name in predictions.errors
    ]
    return f"Held-out errors: {listed(errors, 4)}." if errors else "All held-out predictions are correct."


def _describe_genes(results: Results) -> str:
    genes = results.genes

    def text(name: Any, row: Any) -> str:
        parts = [f"{row['importance']:.1%}"]
        if isinstance(row.get("highest"), str):
            parts.append(f"{'highest' if genes['lowest'].nunique() > 2 else 'higher'} in {row['highest']}")
        elif "highest" not in row and row.get("effect") is not None and np.isfinite(row["effect"]):
            parts.append(f"{'rises' if row['effect'] > 0 else 'falls'} with {results.run.label_key}")
        return f"{name} ({', '.join(parts)})"

    top = joined([text(name, row) for name, row in genes.head(3).iterrows()])
    return f"Largest importance: {top}."


def _describe_stability(results: Results) -> str | None:
    stability, run = results.stability, results.run
    if stability is None:
        return None
    text, n = "", stability.n_top
    if n < len(run.stored.features):
        place = {name: f for f, name in enumerate(run.stored.features)}
        often = sum(stability.selected[place[str(name)]] >= 0.9 for name in results.genes.index[:n])
        text = f"{often} of the top {n} are among the top {n} in at least 90% of the {stability.repeats}."
    significant = stability.significant()
    return text if significant is None else f"{text} {significant:,} {run.feature}s have q < {LEVEL}.".strip()


def _describe_types(types: dict[str, Any] | None) -> str | None:
    if types is None or not types["types"]:
        return None
    if not types["certain"]:
        return "No cell type can be said to carry the difference between labels."
    first = int(np.nanargmax(np.array(types["share"], dtype=float)))
    low, high = types["low"][first], types["high"][first]
    return (
        f"{types['types'][first]} carries {types['share'][first]:.0%} of the difference between labels (95% interval "
        f"{low:.0%} to {high:.0%}), the largest share of a cell type."
    )


def _describe_axis(results: Results) -> str | None:
    axes = results.axes
    first = next((a for a, separating in enumerate(axes.separating) if separating), None)
    if first is None:
        return None
    low, high = axes.ends(first) or ("", "")
    genes = joined([name for name, _ in axes.genes(first, results.run.stored.features)[:3]])
    sets = results.gene_sets[first] if results.gene_sets else []
    process = f"; gene set: {sets[0][0]}" if sets else ""
    return (
        f"Axis {first + 1} carries {axes.share[first]:.0%} of the transport between labels, from {low} to {high} "
        f"({genes}{process})."
    )


# Samples


def sample_map(run: Run, predictions: Predictions | None) -> SampleMap:
    """Lay out the samples by their distances, which are out-of-bag for an ensemble."""
    distances = np.asarray(run.samples.obsp[f"{run.key}_distances"], dtype=float)
    names = [str(name) for name in run.samples.obs_names]
    shown = run.with_order(run.samples.obs).drop(columns=[*run.own_columns, run.sample_key], errors="ignore")
    columns = [*columns_of(shown, [run.label_key]), *_predicted_columns(predictions, names)]
    return draw_samples(names, columns, distances, f"{run.key}_in_sample" in run.samples.obsp)


def draw_samples(names: list[str], columns: list[Column], distances: np.ndarray, out_of_bag: bool) -> SampleMap:
    layout = metric_scaling(distances)
    low, high = layout.min(axis=0), layout.max(axis=0)
    scale = min((WIDTH - 60) / max(high[0] - low[0], 1e-12), (HEIGHT - 40) / max(high[1] - low[1], 1e-12))
    marks = np.array([WIDTH, HEIGHT]) / 2 + (layout - (low + high) / 2) * scale * np.array([1, -1])
    drawn = dendrogram(average_linkage(distances), no_plot=True) if len(names) > 1 else None
    order = np.arange(len(names)) if drawn is None else np.array(drawn["leaves"])
    pairs = distances[np.triu_indices(len(names), 1)]
    limits = (float(pairs.min()), float(pairs.max())) if pairs.size else (0.0, 1.0)
    shades = mpl.colormaps["viridis"](
        np.clip((distances[np.ix_(order, order)] - limits[0]) / ((limits[1] - limits[0]) or 1.0), 0, 1)
    )
    shades[np.eye(len(names), dtype=bool)] = (0.85, 0.85, 0.85, 1)  # a sample has no distance to itself
    imsave(image := io.BytesIO(), shades, format="png")
    matrix = base64.b64encode(image.getvalue()).decode()
    caption = _layout_caption(layout, distances, columns[0], out_of_bag)
    tree = "" if drawn is None else _tree_path(drawn, len(names))
    return SampleMap(
        names, columns, distances, layout, marks.round(1), name_places(marks, names), order, tree, matrix, caption,
        limits,
    )  # fmt: skip


def metric_scaling(distances: np.ndarray, n_steps: int = 500) -> np.ndarray:
    """Return positions in the plane by metric multidimensional scaling (SMACOF), started from classical scaling.

    It minimises the sum of squared differences between distances and their images, so that a small distance between
    two samples is drawn small, and equal distances stay similar; classical scaling may draw distant samples on one
    spot.
    """
    n = len(distances)
    if n < 3:
        return np.column_stack([np.arange(n) * (distances.max() if n else 0.0), np.zeros(n)])
    places = classical_scaling(distances)
    places = places + 1e-6 * distances.max() * np.random.default_rng(0).normal(size=places.shape)
    stress = np.inf
    for _ in range(n_steps):
        drawn = cdist(places, places)
        np.fill_diagonal(drawn, 1.0)
        ratio = distances / np.maximum(drawn, 1e-12)
        places = (ratio.sum(axis=1)[:, None] * places - ratio @ places) / n  # Guttman transform
        previous, stress = stress, float(np.sum((distances - cdist(places, places)) ** 2))
        if previous - stress <= 1e-7 * stress:
            break
    return places - places.mean(axis=0)


def stress_of(layout: np.ndarray, distances: np.ndarray) -> float:
    """Return Kruskal's stress-1: 0 if all distances are drawn exactly."""
    return float(np.sqrt(np.sum((distances - cdist(layout, layout)) ** 2) / (np.sum(distances**2) or 1.0)))


def contrast(distances: np.ndarray, label: Column) -> float | None:
    """Return the mean distance between labels divided by the mean distance within labels."""
    if label.values is None:
        return None
    known = np.flatnonzero(label.codes >= 0)
    same = label.codes[known][:, None] == label.codes[known]
    pairs, others = distances[np.ix_(known, known)], ~np.eye(known.size, dtype=bool)
    if not (same & others).any() or same.all():
        return None
    return float(pairs[~same].mean() / (pairs[same & others].mean() or np.nan))


def _layout_caption(layout: np.ndarray, distances: np.ndarray, label: Column, out_of_bag: bool) -> str:
    kind = "out-of-bag distances" if out_of_bag else "distances of training samples"
    text = f"Metric multidimensional scaling of {kind}; stress {stress_of(layout, distances):.2f}."
    true, drawn = contrast(distances, label), contrast(cdist(layout, layout), label)
    if true is not None and drawn is not None:
        text += f" Mean distance between labels / within labels: {true:.2f}, in the map {drawn:.2f}."
    return text


def _tree_path(drawn: dict[str, Any], n: int) -> str:
    """Return the dendrogram as an SVG path above the matrix."""
    heights = np.array(drawn["dcoord"])
    joins = heights[heights > 0]
    base = joins.min() - 0.15 * ((joins.max() - joins.min()) or 1.0)  # below the lowest join nothing happens
    y = -2 - (TREE - 4) * np.maximum(heights - base, 0) / ((joins.max() - base) or 1.0)
    x = np.array(drawn["icoord"]) / (10 * n) * SIDE
    points = ([f"{a:.1f} {b:.1f}" for a, b in zip(*line, strict=True)] for line in zip(x, y, strict=True))
    return "".join("M" + "L".join(line) for line in points)


def name_places(marks: np.ndarray, names: list[str]) -> list[tuple[float, float, str, str]]:
    """Place names beside marks where they cover neither a mark nor another name; the others are left out."""
    if len(names) > MAX_NAMED:
        return []
    boxes = [(x - 5, y - 5, x + 5, y + 5) for x, y in marks]
    places = []
    for (x, y), name in zip(marks, names, strict=True):
        name = visible(name)[:14]
        wide = 5.2 * len(name)
        for anchor, dx, dy, left in NAME_OFFSETS:
            x0, y0 = x + dx - left * wide, y + dy - 8
            box = (x0, y0, x0 + wide, y0 + 9)
            inside = box[0] > 0 and box[2] < WIDTH and box[1] > 0 and box[3] < HEIGHT
            if inside and not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in boxes):
                boxes.append(box)
                places.append((round(x + dx, 1), round(y + dy, 1), anchor, name))
                break
    return places


def _predicted_columns(predictions: Predictions | None, names: list[str]) -> list[Column]:
    if predictions is None:
        return []
    place = {name: k for k, name in enumerate(predictions.names)}
    rows = [place.get(name, -1) for name in names]
    if not predictions.classes:
        return [Column(PREDICTED, np.array([np.nan if k < 0 else predictions.predicted[k] for k in rows], float))]
    codes = [-1 if k < 0 else predictions.classes.index(predictions.predicted[k]) for k in rows]
    columns = [Column(PREDICTED, np.array(codes), predictions.classes)]
    if predictions.probability is not None:
        columns.append(
            Column(PROBABILITY, np.array([np.nan if k < 0 else predictions.probability[k] for k in rows], float))
        )
    return columns


def sample_table(samples: SampleMap) -> Table:
    """Return a row per sample with its columns and its nearest sample."""
    distances = samples.distances + np.diag(np.full(len(samples.names), np.inf))
    fields = [Field("Sample")]
    for k, column in enumerate(samples.columns):
        form = None if column.values is not None else ".4g"
        fields.append(Field(column.name, form, minor=k > 0 and column.name != PREDICTED))
    fields += [Field("Nearest sample", minor=True), Field("Distance", ".3f", "to the nearest sample", minor=True)]
    rows: list[list[Any]] = []
    for s, name in enumerate(samples.names):
        values: list[Any] = [
            column.text(s) if column.values is not None else _number(column.codes[s]) for column in samples.columns
        ]
        nearest = int(distances[s].argmin())
        alone = len(samples.names) < 2
        rows.append([name, *values, *([None, None] if alone else [samples.names[nearest], float(distances[s].min())])])
    return Table("samples-table", "All samples", fields, rows, list(range(len(rows))))


def _number(value: Any) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


# Prediction


def score_table(scores: Evaluation) -> Table:
    """Return a row per method with its interval and the lead of the learned model over it."""
    keys = ("method", "value", "low", "high", "lead", "lead_low", "lead_high", "p", "seconds")
    fields = [
        Field("Method"), Field(scores.name.capitalize(), ".2f"), Field("Low", ".2f", minor=True),
        Field("High", ".2f", minor=True), Field("Lead", "+.2f", "of groundmetric over the method", minor=True),
        Field("Lead, low", "+.2f", minor=True), Field("Lead, high", "+.2f", minor=True),
        Field("p", ".2g", "of the lead, corrected by Holm", minor=True), Field("s per fold", ".1f", minor=True),
    ]  # fmt: skip
    rows = [[row.get(key) for key in keys] for row in scores.rows]
    known = [k for k in range(len(keys)) if any(row[k] is not None for row in rows)]
    fields, rows = [fields[k] for k in known], [[row[k] for k in known] for row in rows]
    if len(known) > 3 and known[2] == 2:  # with intervals
        fields = [*fields[:2], Field("95% interval", interval=(1, 3, 4)), *fields[2:]]
        rows = [[*row[:2], None, *row[2:]] for row in rows]
    caption = f"{scores.name[0].upper()}{scores.name[1:]} on held-out samples"
    return Table("scores", caption, fields, rows, reference=scores.chance)


def confusion_table(predictions: Predictions, label: str) -> Table | None:
    """Return the number of samples by true (rows) and predicted label (columns)."""
    classes = predictions.classes
    if not 0 < len(classes) <= MAX_CONFUSION:
        return None
    pairs = list(zip(predictions.truth, predictions.predicted, strict=True))
    fields = [Field(label), *(Field(f"predicted {name}", "d") for name in classes), Field("correct", ".0%")]
    rows: list[list[Any]] = []
    for name in classes:
        counts = [pairs.count((name, other)) for other in classes]
        rows.append([name, *counts, counts[classes.index(name)] / max(1, sum(counts))])
    return Table("confusion", "Held-out predictions by label", fields, rows)


def _protocol(results: Results) -> str:
    scores = results.evaluation
    if scores is None:
        return ""
    text = scores.protocol
    if scores.test is not None:
        refit = "a smaller ensemble is fitted" if results.run.results is not None else "everything is fitted again"
        among = scores.test["exchanged"].replace("distributions", "samples")
        text += (
            f" Permutation test: labels are permuted among {among}, and {refit} each time; the p-value is the rank of "
            f"the true labels by held-out score. Smallest attainable p-value: {smallest_p(scores.test):.2g} "
            f"({scores.test['arrangements']:,} arrangements of the labels)."
        )
        separation = scores.test.get("p_values", {}).get("map separation")
        if separation is not None:
            text += f" Separation of the labels in the distances, against the same refits: p = {separation:.2g}."
    return text


# Genes, cell types and cells


def gene_table(results: Results) -> Table:
    """Return the most important features, with what is known of each."""
    run, genes, stability = results.run, results.genes, results.stability
    several = "lowest" in genes and genes["lowest"].nunique() > 1 and run.classes.nunique() > 2
    columns: list[tuple[Field, Any]] = [
        (Field("Rank", "d", minor=True), range(1, len(genes) + 1)),
        (Field(run.feature.capitalize()), genes.index.astype(str)),
        (Field("Importance", ".1%", "share of the squared distance between cells", bar=True), genes["importance"]),
    ]
    place = {name: f for f, name in enumerate(run.stored.features)}
    rows = [place[name] for name in genes.index]
    if stability is not None:
        ends = [f"{low:.1%} to {high:.1%}" for low, high in zip(stability.low[rows], stability.high[rows], strict=True)]
        columns.append((Field("95% range", None, f"of the importance over {stability.repeats}", minor=True), ends))
    if "highest" in genes:
        columns.append((Field("Highest in" if several else "Higher in"), genes["highest"]))
        if several:
            columns.append((Field("Lowest in", minor=True), genes["lowest"]))
        difference = "between means of labels, in standard deviations of the cells"
        columns.append((Field("Difference", ".2f", difference, minor=True), genes["effect"]))
    elif "effect" in genes:
        columns.append((Field("Correlation", "+.2f", f"Spearman, sample means with {run.label_key}"), genes["effect"]))
    if "cell_type" in genes:
        columns.append(
            (Field("Cell type", None, "with the largest difference of means", minor=True), genes["cell_type"])
        )
    main = np.abs(results.axes.loadings[:, rows]).argmax(axis=0)
    columns.append((Field("Axis", "d", "with the largest loading", minor=True), main + 1))
    if stability is not None and stability.n_top < len(run.stored.features):
        note = f"share of the {stability.repeats} with the {run.feature} in their top {stability.n_top}"
        columns.append((Field(f"In top {stability.n_top}", ".0%", note, minor=True), stability.selected[rows]))
    if stability is not None and stability.q is not None:
        columns.append((Field("q", ".2g", "false discovery rate, by permuted labels"), stability.q[rows]))
    cells = [[_plain(value) for value in values] for _, values in columns]
    n = len(run.stored.features)
    caption = f"All {n:,} {run.feature}s" if n == len(genes) else f"{len(genes)} most important of {n:,} {run.feature}s"
    return Table(
        "genes-table", caption, [column for column, _ in columns], [list(row) for row in zip(*cells, strict=True)]
    )


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value


def type_table(results: Results) -> Table:
    """Return a row per cell type: its share of the difference between labels, and its share of the cells by label."""
    found, type_key = results.types, results.type_key
    assert found is not None
    assert type_key is not None
    composition = type_composition(results.run, type_key)
    how = "out-of-bag" if found["out_of_bag"] else "training samples"
    fields = [
        Field("Cell type"), Field("Share of difference", ".0%", how), Field("95% interval", interval=(1, 3, 4)),
        Field("Low", ".0%", minor=True), Field("High", ".0%", minor=True),
        Field("Relevance", "+.3f", "how much farther cells are from cells of their type in other labels", minor=True),
        *(Field(f"Cells in {label}", ".1%", "mean over samples", minor=True) for label in composition.index),
    ]  # fmt: skip
    rows: list[list[Any]] = []
    for k, name in enumerate(found["types"]):
        share, low, high = (found[part][k] if found["certain"] else None for part in ("share", "low", "high"))
        rows.append([name, share, None, low, high, found["relevance"][k], *map(float, composition[name])])
    rows.sort(key=lambda row: -(row[5] if row[1] is None else row[1]) if row[5] is not None else np.inf)
    return Table("types-table", f"Cell types (column {type_key!r}), {how}", fields, rows)


def kind_table(run: Run) -> Table:
    assert run.results is not None
    fields = [Field("Members"), Field("Metric"), Field("Weight", ".0%", bar=True)]
    rows: list[list[Any]] = [[kind, KINDS.get(kind, ""), weight] for kind, weight in run.results.weights.items()]
    caption = f"Weights of the {run.results.n_members} ensemble members in the metric"
    return Table("kinds", caption, fields, sorted(rows, key=lambda row: -row[2]))


def _gene_set_table(a: int, rows: list[list[Any]]) -> Table | None:
    fields = [Field("Gene set"), Field("q", ".1e"), Field("Fold", ".1f"), Field("Genes", minor=True)]
    return Table(f"sets-{a}", f"Gene sets of axis {a}", fields, rows) if rows else None


def cell_map(results: Results) -> tuple[np.ndarray, list[Column]]:
    """Return positions of the drawn cells, in units of the figure, and the columns that can colour them."""
    run, rows, places = results.run, results.cells.rows, results.positions
    low, high = places.min(axis=0), places.max(axis=0)
    shares = (places - low) / np.where(high > low, high - low, 1.0)
    shares[:, 1] = 1 - shares[:, 1]
    marks = np.rint(12 + shares * np.array([CELLS_WIDTH - 24, CELLS_HEIGHT - 24])).astype(int)
    obs = run.with_order(run.cells.obs).iloc[rows]
    own = [name for name in obs.columns if str(name).startswith(f"{run.key}_")]
    first = [run.label_key, *([] if results.type_key is None else [results.type_key])]
    columns = columns_of(obs.drop(columns=[*own, run.sample_key]), first)
    place = {str(name): s for s, name in enumerate(run.samples.obs_names)}
    sample = obs[run.sample_key].astype(str).map(place).fillna(-1).to_numpy(dtype=int)
    columns.append(Column("relevance", results.relevance[rows]))
    return marks, [*columns, Column(run.sample_key, sample, [str(name) for name in run.samples.obs_names])]


def cell_paths(marks: np.ndarray, column: Column) -> list[tuple[str, str]]:
    """Return a colour and an SVG path of dots for every class, or for nine ranges of numbers."""
    ramp = ramp_colours()
    shades = column.shades
    codes = shades if column.values is not None else np.where(shades < 0, -1, np.minimum(shades // 112, 8)).astype(int)
    found = []
    for code in np.unique(codes):
        colour = MISSING if code < 0 else ramp[code] if column.values is None else COLOURS[code % len(COLOURS)]
        found.append((colour, "".join(f"M{x} {y}h0" for x, y in marks[codes == code])))
    return found


def ramp_colours() -> list[str]:
    """Return nine colours for numbers, from low to high."""
    return [mpl.colors.to_hex(colour) for colour in mpl.colormaps["viridis"](np.linspace(0, 1, 9))]


# Settings


def settings_of(results: Results) -> dict[str, dict[str, str]]:
    """Return groups of names and values: data, training, parameters and versions."""
    run = results.run
    params, findings = run.stored.params, run.findings
    values = f"obsm[{params['use_rep']!r}]" if params.get("use_rep") else (
        f"layer {params['layer']!r}" if params.get("layer") else "X"
    )  # fmt: skip
    chosen = f" selected by {params['genes']!r}" if run.is_expression else ""
    data = {
        "File": str(findings.get("cells", "in memory")),
        "Samples": f"{run.samples.n_obs} (column {run.sample_key!r})",
        "Labels": f"{label_counts(run)} (column {run.label_key!r})",
        "Patients": f"column {results.group_key!r}" if results.group_key else "each sample is a patient",
        "Cells": f"{n_cells(run):,}, at most {params.get('n_cells', 'all')} per sample",
        "Values": f"{values}, {len(run.stored.features):,} {run.feature}s{chosen}",
    }
    if run.results is not None:
        training = {"Method": "ensemble", "Members": str(run.results.n_members)}
    else:
        history = run.entry["history"]
        training = {"Method": "ggml (a single metric)", "Epochs": str(len(history["loss"])),
                    "Course": training_summary(history)}  # fmt: skip
    if findings.get("seconds") is not None:
        training["Time"] = duration(findings["seconds"])
    training["Seed"] = str(params.get("random_state", 0))
    shown = {name: str(value) for name, value in run.learner.items() if name not in ("verbose", "n_jobs")}
    versions = {"groundmetric": str(run.entry["version"]), "Python": platform.python_version()}
    for name in ("numpy", "scipy", "scikit-learn", "anndata"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # installed without its metadata
            versions[name] = "unknown"
    return {"Data": data, "Training": training, "Parameters": shown, "Versions": versions}
