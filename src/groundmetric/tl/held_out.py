"""How often each cell is classified right by metrics that were learned without its sample."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from ..cells.columns import Samples, draw, labels_of, samples_of
from ..cells.genes import Selection, afresh
from ..cells.matrix import project
from ..cells.source import Source
from ..estimators import GroundMetricLearner
from ..estimators.votes import class_shares
from ..evaluation.splits import folds
from .fitting import Values, fit, in_order, make_learner, per_sample
from .stored import recall


def held_out_accuracy(
    adata: Any,
    key: str,
    *,
    n_neighbors: int,
    n_folds: int,
    n_repeats: int,
    group_key: str | None,
    genes: Any,
    random_state: int,
    n_jobs: int | None,
) -> np.ndarray:
    """Share of its turns in which each cell is classified right; missing for samples without a label.

    A sample is either learned from or held out, with all its cells; so is a group of samples.
    """
    with Source(adata) as source:
        entry = source.noted(key)
        stored = recall(entry, key, "adata")
        params = stored.params
        samples = samples_of(source.obs, params["sample_key"])
        labels = labels_of(source.obs, params["label_key"], samples, params["sample_key"])
        labels = in_order(labels, source.obs[params["label_key"]], entry["learner"].get("target"))
        groups = _groups(source.obs, group_key, samples, labels)
        batch_key = params.get("batch_key")
        strata = None if batch_key is None else per_sample(source.obs, batch_key, "batch_key", samples)
        values = Values.of(source, params.get("layer"), params.get("use_rep"))
        selection = afresh(genes, params["genes"], len(stored.features), pd.DataFrame(index=values.names))
        redraw = partial(draw, samples, params.get("n_cells"), params["random_state"])
        rows = redraw()
        right, turns = np.zeros(samples.codes.size), np.zeros(samples.codes.size)
        splits = folds(labels, groups=groups, n_splits=n_folds, n_repeats=n_repeats, random_state=random_state)
        for training, testing in splits:
            tested = np.flatnonzero(np.isin(samples.names, labels.index[testing])[samples.codes])
            learner = _again(entry["learner"], params["random_state"], n_jobs)
            found = _classify(
                values, selection, rows, tested, samples, labels.iloc[training], learner, n_neighbors, strata,
                redraw=redraw if params.get("resample") else None,
            )  # fmt: skip
            right[tested] += found == labels.reindex(samples.names).to_numpy()[samples.codes[tested]]
            turns[tested] += 1
    return np.divide(right, turns, out=np.full(turns.size, np.nan), where=turns > 0)


def _groups(obs: pd.DataFrame, group_key: str | None, samples: Samples, labels: pd.Series) -> np.ndarray | None:
    """What may not be divided beside the samples: the group of each labelled sample."""
    if group_key is None:
        return None
    return per_sample(obs, group_key, "group_key", samples).loc[labels.index].to_numpy()


def _again(parameters: Mapping[str, Any], seed: int, n_jobs: int | None) -> GroundMetricLearner:
    """The learner that was used before."""
    known = {name: value.item() if isinstance(value, np.generic) else value for name, value in parameters.items()}
    if not isinstance(known.get("random_state"), numbers.Integral):
        known["random_state"] = seed
    return make_learner({**known, "n_jobs": n_jobs, "verbose": 0, "checkpoint": None}, seed)


def _classify(
    values: Values,
    selection: Selection,
    rows: np.ndarray,
    tested: np.ndarray,
    samples: Samples,
    labels: pd.Series,
    learner: GroundMetricLearner,
    n_neighbors: int,
    strata: pd.Series | None,
    redraw: Callable[[int], np.ndarray] | None,
) -> np.ndarray:
    """Labels of the tested cells by the nearest of the drawn cells that were learned from."""
    seen = rows[np.isin(samples.names, labels.index)[samples.codes[rows]]]
    fitted, points = fit(values, selection, seen, samples, labels, learner, strata=strata, warn=False, redraw=redraw)
    search = NearestNeighbors(n_neighbors=min(n_neighbors, seen.size), n_jobs=learner.n_jobs)
    search.fit(learner.metric_.project(points))
    distances, places = search.kneighbors(project(values.matrix, tested, fitted.columns, learner.components_))
    classes, codes = np.unique(labels.loc[samples.names[samples.codes[seen]]].to_numpy(), return_inverse=True)
    return classes[class_shares(distances, codes[places], classes.size, "distance").argmax(axis=1)]
