"""Learning from some samples of an AnnData or a file: selection of genes, scaling and learning see those alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..cells.columns import Samples, listed
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
    warn: bool = True,
) -> tuple[Fitted, Any]:
    """Learn from those of the rows whose samples have a label; also return what was read, for all rows.

    Parameters
    ----------
    rows : cells, ascending
    labels : by the name of the sample
    warn : whether to warn of raw counts
    """
    training = np.isin(samples.names, labels.index)[samples.codes[rows]]
    columns = selection.places(values.matrix, rows[training], values.names)
    points = read(values.matrix, rows, columns)
    known = points if training.all() else points[training]
    found = moments(known, np.arange(known.shape[0]))
    raw = values.is_expression and found.looks_raw
    if warn:
        warn_of_counts(raw, values.layer, stacklevel=4)
    D = Distributions(known, samples.names[samples.codes[rows[training]]], features=list(values.names[columns]))
    learner.fit(D, labels.loc[D.names].to_numpy())
    return Fitted(learner, columns, found.mean, raw), points


def make_learner(parameters: dict[str, Any], random_state: int) -> GroundMetricLearner:
    known = GroundMetricLearner().get_params()
    for name in parameters:
        if name not in known:
            raise TypeError(f"unexpected keyword {name!r}: besides those of learn {listed(name, known)}")
    return GroundMetricLearner(**{"random_state": random_state, **parameters})
