"""What learning leaves in an AnnData, and the way back from there to the metric and its training samples.

`uns[key]` is enough to rebuild the metric, so it survives when genes are dropped or reordered; `varm` and `var` show
the same numbers where other tools look for them. Only arrays, text and numbers are stored: every version of anndata
writes and reads them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import __version__
from ..distributions import Distributions
from ..estimators import GroundMetricLearner
from ..metrics.base import GroundMetric
from .annotations import Samples, samples_of
from .source import Source, listed

FORMAT = 1
# The file of a run folder of the command line that holds the training cells.
RUN_CELLS = "cells.h5ad"


@dataclass(frozen=True)
class Stored:
    """What `uns[key]` says: the metric, the means of its training cells, the parameters, and who was learned from."""

    key: str
    metric: GroundMetric
    means: np.ndarray
    params: dict[str, Any]
    labels: pd.Series  # by the name of the training sample

    @property
    def features(self) -> list[str]:
        assert self.metric.features is not None
        return self.metric.features

    def entry(self, learner: GroundMetricLearner | None = None) -> dict[str, Any]:
        """The entry of `uns`; with the learner, how it was learned as well."""
        entry = {
            "format": FORMAT,
            "version": __version__,
            "params": _plain(self.params),
            "metric": {
                "components": self.metric.components,
                "features": np.array(self.features, dtype=object),
                "variances": self.metric.variances,
                "means": self.means,
            },
            "labels": {"samples": np.array(self.labels.index, dtype=object), "labels": self.labels.to_numpy()},
        }
        if learner is not None:
            params = learner.get_params()
            # Where a checkpoint was is no part of how it was learned, and of no use to those who learn again.
            entry["learner"] = _plain({name: params[name] for name in params if not name.startswith("checkpoint")})
            entry["history"] = {name: np.asarray(values) for name, values in learner.history_.items()}
            entry["converged"] = bool(learner.converged_)
        return entry


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """What a file can hold: None is left out, objects are named."""
    plain = {}
    for name, value in params.items():
        if isinstance(value, np.ndarray | bool | int | float | str):
            plain[name] = value
        elif value is not None:
            plain[name] = repr(value)
    return plain


def read_entry(entry: Any, key: str, where: str) -> Stored:
    """Read an entry of `uns`."""
    if not isinstance(entry, Mapping) or "metric" not in entry:
        raise ValueError(
            f"{where} has no metric in uns[{key!r}]: run tl.learn first, or give the key that it was run with"
        )
    if int(entry.get("format", 0)) > FORMAT:
        raise ValueError(f"uns[{key!r}] was written by groundmetric {entry['version']}: update groundmetric to read it")
    check_parts(entry, ("format", "params", "labels"), key)
    saved = entry["metric"]
    metric = GroundMetric(
        saved["components"], [str(name) for name in saved["features"]], variances=saved.get("variances")
    )
    names, labels = entry["labels"]["samples"], np.asarray(entry["labels"]["labels"])
    labels = labels if labels.dtype.kind in "biuf" else np.array([str(label) for label in labels])
    params = {name: value.item() if isinstance(value, np.generic) else value for name, value in entry["params"].items()}
    return Stored(key, metric, np.asarray(saved["means"]), params, pd.Series(labels, [str(name) for name in names]))


def check_parts(entry: Mapping[str, Any], parts: Iterable[str], key: str) -> None:
    """Raise where an entry of `uns` lacks a part, as those of older versions may."""
    for part in parts:
        if part not in entry:
            version = entry.get("version", "of an unknown version")
            raise ValueError(f"uns[{key!r}] was written by groundmetric {version}, without {part!r}: learn again")


@dataclass(frozen=True)
class Trained:
    """A metric with the cells that it was learned from, in its space, and their samples' labels."""

    stored: Stored
    cells: Distributions | None  # one distribution per training sample, projected; None where only a metric is known


def trained_from(trained: Any, key: str) -> Trained:
    """From an AnnData after `learn`, its file, the folder of a run, a metric or its file."""
    if isinstance(trained, GroundMetric):
        return Trained(_bare(trained, key), None)
    if isinstance(trained, str | os.PathLike):
        path = Path(trained)
        if path.is_dir() and path.suffix != ".zarr":
            if not (path / RUN_CELLS).exists():
                raise ValueError(f"{str(path)!r} is no run of groundmetric learn: it has no {RUN_CELLS}")
            trained = path = path / RUN_CELLS
        elif path.is_file() and path.read_bytes()[:1] == b"{":  # as a saved metric begins
            return Trained(_bare(GroundMetric.load(path), key), None)
    with Source(trained) as source:
        stored = read_entry(source.uns_entry(key), key, "trained")
        return Trained(stored, _training_cells(source, stored))


def _bare(metric: GroundMetric, key: str) -> Stored:
    if metric.features is None:
        raise ValueError("the metric has no feature names, by which genes are found: give them (features=…)")
    return Stored(key, metric, np.zeros(metric.n_features), {}, pd.Series(dtype=object))


def _training_cells(source: Source, stored: Stored) -> Distributions:
    samples = samples_of(source.obs, stored.params["sample_key"])
    here = [name for name in samples.names if name in stored.labels.index]
    if not here:
        raise ValueError(
            f"trained holds none of the {len(stored.labels)} samples that the metric was learned from "
            f"({listed('', stored.labels.index[:3])}, …): give the AnnData that tl.learn was run on"
        )
    return drawn_cells(source, samples, stored.key, only=here)


def drawn_cells(source: Source, samples: Samples, key: str, only: list[str] | None = None) -> Distributions:
    """The drawn cells of all samples (or only some) in the learned space."""
    z = np.asarray(source.representation(f"X_{key}")[:])
    drawn = source.obs[f"{key}_sampled"].to_numpy(dtype=bool)
    if only is not None:
        drawn = drawn & np.isin(samples.names, only)[samples.codes]
    return by_sample(z, samples, drawn, only)


def by_sample(z: np.ndarray, samples: Samples, drawn: np.ndarray, only: list[str] | None = None) -> Distributions:
    """The drawn cells as distributions, in the order of the samples (or of some of them)."""
    D = Distributions(z[drawn], samples.names[samples.codes[drawn]])
    position = {name: d for d, name in enumerate(D.names)}  # as drawn cells happen to come, not as samples do
    wanted = samples.names if only is None else only
    absent = [name for name in wanted if name not in position]
    if absent:
        raise ValueError(f"sample {absent[0]!r} has no drawn cell: run tl.learn or tl.transfer with these samples")
    return D[[position[name] for name in wanted]]
