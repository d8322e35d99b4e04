"""Which samples are alike: their map and distances, and what was predicted for each while it was left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list

from .._anndata.store import EnsembleResults
from ..interpret.axes import average_linkage, classical_scaling
from .content import Column, Field, SampleMap, Table, columns_of
from .run import Run, with_order

PREDICTED, PROBABILITY = "predicted (left out)", "its probability"  # columns of samples
MOST_LABELS = 12  # classes of a confusion matrix


@dataclass(frozen=True)
class Predictions:
    """What was predicted for samples while they were left out.

    Attributes
    ----------
    names : list of str
        Samples.
    truth, predicted : list
        Label of each, and the one predicted: text, or numbers.
    probability : list of float or None
        Probability of the predicted class; None of numbers.
    classes : list of str
        Classes; of numbers, none.
    """

    names: list[str]
    truth: list[Any]
    predicted: list[Any]
    probability: list[float] | None
    classes: list[str]

    @classmethod
    def of_ensemble(cls, results: EnsembleResults) -> Predictions:
        """Those that an ensemble made while it learned."""
        if results.numbers is not None:
            numeric = results.labels.dtype.kind in "biuf"
            convert: Any = float if numeric else str
            order = list(dict.fromkeys(results.labels[np.argsort(results.numbers, kind="stable")].tolist()))
            classes = [] if numeric else [str(name) for name in order]
            return cls(
                results.samples, [convert(label) for label in results.labels],
                [convert(label) for label in results.predicted], None, classes,
            )  # fmt: skip
        return cls.of_probabilities(results.samples, results.labels, results.held_out, results.classes)

    @classmethod
    def of_probabilities(cls, names: Sequence[Any], truth: Any, probabilities: np.ndarray, classes: Any) -> Predictions:
        """From the probabilities of the classes, (n_samples, n_classes)."""
        best = np.asarray(probabilities).argmax(axis=1)
        return cls(
            [str(name) for name in names], [str(label) for label in truth],
            [str(np.asarray(classes)[k]) for k in best], [float(row.max()) for row in np.asarray(probabilities)],
            [str(label) for label in classes],
        )  # fmt: skip

    @property
    def wrong(self) -> list[str]:
        """Samples of which another class was predicted."""
        if not self.classes:
            return []
        return [name for name, y, z in zip(self.names, self.truth, self.predicted, strict=True) if y != z]

    def confusion(self, label: str) -> Table | None:
        """Counts of samples by label (rows) and predicted label (columns); None of numbers, and of many classes."""
        if not 0 < len(self.classes) <= MOST_LABELS:
            return None
        pairs = list(zip(self.truth, self.predicted, strict=True))
        fields = [Field(label), *(Field(f"predicted {name}", "d") for name in self.classes), Field("right", ".0%")]
        rows: list[list[Any]] = []
        for one in self.classes:
            counts = [pairs.count((one, other)) for other in self.classes]
            rows.append([one, *counts, counts[self.classes.index(one)] / max(1, sum(counts))])
        return Table("confusion", "Predicted labels of samples that were left out", fields, rows)


def sample_map(run: Run, found: Predictions | None) -> tuple[SampleMap, list[str]]:
    """The samples in the plane, by distances out of bag where there are some: these hold for new samples too.

    Also the names of columns that cannot be coloured by.
    """
    out_of_bag = f"{run.key}_in_sample" in run.samples.obsp
    distances = np.asarray(run.samples.obsp[f"{run.key}_distances"])
    names = [str(name) for name in run.samples.obs_names]
    own = [name for name in run.samples.obs.columns if str(name).startswith(f"{run.key}_")]
    shown = with_order(run, run.samples.obs).drop(columns=[*own, run.sample_key], errors="ignore")
    columns, unused = columns_of(shown, [run.label_key])
    positions = classical_scaling(distances)
    order = leaves_list(average_linkage(distances)) if len(names) > 1 else np.arange(len(names))
    quality = _squared_correlation(distances, positions)
    return SampleMap(
        names, positions, [*columns, *_predicted_columns(found, names)], distances, order, quality, out_of_bag
    ), unused


def _predicted_columns(found: Predictions | None, names: list[str]) -> list[Column]:
    """Prediction of each sample, and its probability, to colour the map by."""
    if found is None:
        return []
    place = {name: k for k, name in enumerate(found.names)}
    at = [place.get(name, -1) for name in names]
    if not found.classes:
        return [Column(PREDICTED, np.array([np.nan if k < 0 else found.predicted[k] for k in at], dtype=float))]
    codes = np.array([-1 if k < 0 else found.classes.index(found.predicted[k]) for k in at])
    columns = [Column(PREDICTED, codes, found.classes)]
    if found.probability is not None:
        values = np.array([np.nan if k < 0 else found.probability[k] for k in at], dtype=float)
        columns.append(Column(PROBABILITY, values))
    return columns


def _squared_correlation(distances: np.ndarray, places: np.ndarray) -> float:
    """Correlation of the distances in the plane with those given, squared."""
    far = np.linalg.norm(places[:, None] - places[None], axis=2)
    pairs = np.triu_indices(len(distances), 1)
    one, other = distances[pairs], far[pairs]
    if one.size < 2 or one.std() == 0 or other.std() == 0:
        return 1.0
    return float(np.corrcoef(one, other)[0, 1] ** 2)


def sample_table(found: SampleMap) -> Table:
    """Every sample with what is known and predicted of it: the map for those who do not see it."""
    near = found.distances + np.diag(np.full(len(found.names), np.inf))
    fields = [Field("Sample")]
    fields += [Field(column.name, _digits(column), note=_note(column)) for column in found.columns]
    fields += [Field("Nearest sample"), Field("Its distance", ".3f")]
    rows = []
    for s, name in enumerate(found.names):
        values = [_value(column, s) for column in found.columns]
        last = [found.names[int(near[s].argmin())], float(near[s].min())] if len(found.names) > 1 else [None, None]
        rows.append([name, *values, *last])
    return Table("samples", "All samples", fields, rows)


def _digits(column: Column) -> str | None:
    if column.is_class:
        return None
    return ".2f" if column.name == PROBABILITY else ".4g"


def _note(column: Column) -> str:
    notes = {PREDICTED: "while the sample was left out", PROBABILITY: "of the label that was predicted"}
    return notes.get(column.name, "")


def _value(column: Column, row: int) -> Any:
    if column.values is not None:
        return column.values[column.codes[row]] if column.codes[row] >= 0 else None
    value = float(column.codes[row])
    return value if np.isfinite(value) else None
