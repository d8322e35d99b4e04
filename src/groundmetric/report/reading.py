"""The learned space read: its axes, and the cell types that carry the difference. Needs no values of genes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cells.columns import samples_of
from ..interpret.axes import canonical_axes
from ..interpret.relevance import annotation_relevance
from ..metric import GroundMetric
from ..tl.stored import trained_from
from .computing import Log, kept
from .run import Run

PARTNERS = 5  # of every class that a sample is compared with


@dataclass(frozen=True)
class Directions:
    """The axes of the learned space, those first that carry most of the transport between labels.

    Attributes
    ----------
    rotation : (n_axes, n_components) to turn the learned space onto them
    share : (n_axes,) of the transport between labels
    loadings : (n_axes, n_features) for standardised features
    labels, positions : (n_labels, n_axes) mean of each label, in standard deviations
    """

    rotation: np.ndarray
    share: np.ndarray
    loadings: np.ndarray
    labels: list[str]
    positions: np.ndarray


def directions(run: Run, n_jobs: int | None, log: Log) -> Directions:
    def compute() -> dict[str, Any]:
        log("reading the axes of the learned space")
        trained = trained_from(run.cells, run.key)
        D, y = trained.cells, run.stored.labels
        assert D is not None
        own = GroundMetric(np.eye(D.shape[1]))
        axes = canonical_axes(own, D, y.loc[D.names].to_numpy(), max_partners=PARTNERS, n_jobs=n_jobs)
        return {
            "rotation": axes.metric.components.tolist(), "share": axes.share.tolist(),
            "labels": [str(label) for label in axes.classes], "positions": axes.positions.tolist(),
        }  # fmt: skip

    found = kept(run, "axes", PARTNERS, compute)
    metric = run.stored.metric
    rotation, positions = np.array(found["rotation"]), np.array(found["positions"])
    spread = np.ones(metric.n_features) if metric.variances is None else np.sqrt(metric.variances)
    loadings = rotation @ metric.components * spread
    # The strongest gene of an axis points up: a direction has no sign of its own.
    strongest = np.abs(loadings).argmax(axis=1)
    sign = np.where(loadings[np.arange(len(loadings)), strongest] < 0, -1.0, 1.0)
    return Directions(
        rotation * sign[:, None], np.array(found["share"]), loadings * sign[:, None], found["labels"], positions * sign
    )


def type_relevance(run: Run, type_key: str, n_jobs: int | None, log: Log) -> dict[str, list]:
    """By cell type, the share that its cells have in how much farther other labels are, with its interval."""

    def compute() -> dict[str, list]:
        log("asking which cell types carry the difference")
        trained = trained_from(run.cells, run.key)
        D = trained.cells
        assert D is not None
        kinds = _kinds(run, type_key, D.names)
        own = GroundMetric(np.eye(D.shape[1]))
        y = run.stored.labels.loc[D.names].to_numpy()
        found = annotation_relevance(own, D, y, kinds, max_partners=PARTNERS, n_jobs=n_jobs, n_draws=500)
        low, high = found.interval
        return {
            "values": [str(value) for value in found.values], "share": found.share.tolist(), "low": low.tolist(),
            "high": high.tolist(), "relevance": found.relevance.tolist(),
        }  # fmt: skip

    return kept(run, "types", [type_key, PARTNERS], compute)


def _kinds(run: Run, type_key: str, names: list) -> np.ndarray:
    """The type of each cell in the order in which distributions hold them: by sample, then as in `obs`."""
    obs = run.cells.obs
    who = samples_of(obs, run.sample_key)
    drawn = obs[f"{run.key}_sampled"].to_numpy(dtype=bool)
    kinds = obs[type_key].astype(object).where(obs[type_key].notna(), "unknown").astype(str).to_numpy()
    own = who.names[who.codes]
    return np.concatenate([kinds[drawn & (own == name)] for name in names])
