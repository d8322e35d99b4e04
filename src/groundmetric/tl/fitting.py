"""Learning from some samples of an AnnData or a file: selection of genes, scaling and learning see those alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..cells.columns import Samples, constant_columns, find_column, listed
from ..cells.genes import Selection, moments, warn_of_counts
from ..cells.matrix import read
from ..cells.source import Source
from ..distributions import Distributions
from ..estimators import GroundMetricLearner


@dataclass(frozen=True)
class Values:
    """What describes a cell: the genes of X or of a layer, or a representation.

    Attributes
    ----------
    matrix : of all cells, in memory or in a file
    names : of its columns
    layer : which one the genes are from
    is_expression : whether columns are genes
    """

    matrix: Any
    names: pd.Index
    layer: str | None
    is_expression: bool

    @classmethod
    def of(cls, source: Source, layer: str | None, use_rep: str | None) -> Values:
        if use_rep is None:
            return cls(source.matrix(layer), source.genes, layer, True)
        matrix = source.representation(use_rep)
        return cls(matrix, pd.Index([f"{use_rep}_{k}" for k in range(matrix.shape[1])]), None, False)


@dataclass(frozen=True)
class Fitted:
    """A learner after `fit`, with the columns that it learned from and their means."""

    learner: GroundMetricLearner
    columns: np.ndarray
    means: np.ndarray
    raw_counts: bool  # whether the values look like raw counts


def fit(
    values: Values,
    selection: Selection,
    rows: np.ndarray,
    samples: Samples,
    labels: pd.Series,
    learner: GroundMetricLearner,
    *,
    strata: pd.Series | None = None,
    warn: bool = True,
    redraw: Callable[[int], np.ndarray] | None = None,
) -> tuple[Fitted, Any]:
    """Learn from those of the rows whose samples have a label; also return what was read, for all rows.

    Parameters
    ----------
    rows : cells, ascending
    labels : by the name of the sample
    strata : batches by the name of the sample
    warn : whether to warn of raw counts
    redraw : from a number of epochs to the rows to learn from thereafter, of the same samples
    """
    known_samples = np.isin(samples.names, labels.index)
    training = known_samples[samples.codes[rows]]
    columns = selection.places(values.matrix, rows[training], values.names)
    points = read(values.matrix, rows, columns)
    known = points if training.all() else points[training]
    found = moments(known, np.arange(known.shape[0]))
    raw = values.is_expression and found.looks_raw
    if warn:
        warn_of_counts(raw, values.layer, stacklevel=4)
    D = Distributions(known, samples.names[samples.codes[rows[training]]], features=list(values.names[columns]))
    # While learning there is one copy of the points: D has them by sample, which is undone afterwards.
    points, known = None if training.all() else points, None

    def fresh(epoch: int) -> Distributions:
        assert redraw is not None
        again = redraw(epoch)
        return _same(D, values.matrix, again[known_samples[samples.codes[again]]], columns, samples)

    known_labels = labels.loc[D.names]
    learner.fit(
        D,
        known_labels if isinstance(known_labels.dtype, pd.CategoricalDtype) else known_labels.to_numpy(),
        strata=None if strata is None else strata.loc[D.names].to_numpy(),
        fresh=None if redraw is None else fresh,
    )
    return Fitted(learner, columns, found.mean, raw), _as_read(D) if points is None else points


def _as_read(D: Distributions) -> Any:
    """The points of D in the order in which they were given."""
    if np.all(np.diff(D.order) > 0):
        return D.points
    return D.points[np.argsort(D.order)]


def _same(D: Distributions, matrix: Any, rows: np.ndarray, columns: np.ndarray, samples: Samples) -> Distributions:
    """The distributions of D with other cells, brought into their order here: each step after would copy them again."""
    names = samples.names[samples.codes[rows]]
    order = np.argsort(pd.Index(D.names).get_indexer(names), kind="stable")
    return Distributions(read(matrix, rows, columns)[order], names[order], features=D.features)


def per_sample(obs: pd.DataFrame, key: str, argument: str, samples: Samples) -> pd.Series:
    """A column that says the same of all cells of a sample, by the names of the samples."""
    column = find_column(obs, key, argument)
    if key not in constant_columns(obs[[key]], samples):
        raise ValueError(f"obs[{key!r}] differs within a sample: {argument} needs one value per sample")
    return pd.Series(column.iloc[samples.first].astype(object).to_numpy(), index=samples.names)


def in_order(labels: pd.Series, column: pd.Series, target: Any) -> pd.Series:
    """The labels with the order of the column's categories, where the target needs one."""
    if target != "ordered" or labels.dtype.kind in "biuf" or not getattr(column.dtype, "ordered", False):
        return labels
    return labels.astype(pd.CategoricalDtype([str(name) for name in column.cat.categories], ordered=True))


def make_learner(parameters: dict[str, Any], random_state: int) -> GroundMetricLearner:
    known = GroundMetricLearner().get_params()
    for name in parameters:
        if name not in known:
            raise TypeError(f"unexpected keyword {name!r}: besides those of learn {listed(name, known)}")
    if parameters.get("target", "classes") not in ("classes", "ordered"):
        raise ValueError(
            f"target is {parameters['target']!r}: labels in a column are 'classes' or 'ordered'; for target distances "
            "or several labels, use GroundMetricLearner on Distributions"
        )
    for name in ("cost", "feature_map"):
        if parameters.get(name, known[name]) != known[name]:
            raise ValueError(
                f"{name} is {parameters[name]!r}, but tools on an AnnData take distances between embedded cells to be "
                "Euclidean and components to weight genes: use GroundMetricLearner on Distributions"
            )
    return GroundMetricLearner(**{"random_state": random_state, **parameters})
