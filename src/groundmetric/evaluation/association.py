"""Statistics of the association between labels and distributions, which need no fit, and their combination.

The held-out score of an ensemble has little power for many weak differences, and PERMANOVA of means little power for a
few strong ones. A permutation test may combine any number of statistics: each is turned into a rank among all
arrangements of the labels, ranks are combined, and the combination is ranked again among the same arrangements. Since
the observed labels are one of the arrangements, the p-value is valid for any number of statistics, whatever their
dependence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._internal.keyed import keyed_uniform
from ..ensemble import Classes, Geometry
from ..ensemble.views import EuclideanView, LinearView, replace_diagonal

# Features whose F statistics are averaged in one of the statistics.
_N_TOP = 10
# Values this close to each other, relative to their size, are ties.
_TIE = 1e-9
NAMES = (
    "PERMANOVA of means", "PERMANOVA of transport", "PERMANOVA of moments", "largest F", f"mean of {_N_TOP} largest F",
)  # fmt: skip


class Association:
    """Statistics of labels on the label-free geometry of a cohort.

    Patients are the units: distributions of a group with one label are averaged, the same number in each group (drawn
    by name), because averages of more distributions vary less and would not be exchangeable with the others. Where
    labels differ within groups (paired designs), differences between groups are removed; differences between strata
    always are.

    Parameters
    ----------
    geometry : Geometry
        Geometry of the distributions.
    labels : array of shape (n_distributions,)
        Observed labels, from which the design (labels of groups or within groups) is read.
    groups : array of int of shape (n_distributions,)
        Group of each distribution.
    strata : array of int of shape (n_distributions,) or None
        Stratum of each distribution.
    """

    def __init__(
        self, geometry: Geometry, labels: np.ndarray, groups: np.ndarray, strata: np.ndarray | None = None
    ) -> None:
        n = labels.size
        _, first = np.unique(groups, return_index=True)
        whole_groups = bool(np.all(labels == labels[first][groups]))
        used = np.arange(n)
        if whole_groups and first.size < n:
            count = int(np.bincount(groups).min())
            order = keyed_uniform(geometry.names, geometry.scaling.seed, "group average")
            used = np.concatenate(
                [sorted(np.flatnonzero(groups == g), key=order.__getitem__)[:count] for g in groups[first]]
            )
            average, self._first = np.kron(np.eye(first.size), np.full((1, count), 1.0 / count)), first
            blocks = None if strata is None else strata[first]
        else:
            average, self._first = np.eye(n), np.arange(n)
            blocks = strata
            if not whole_groups:
                pairs = np.column_stack([groups, np.zeros(n, np.intp) if strata is None else strata])
                blocks = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
        self._centre = _centring(self._first.size, blocks)
        means = (geometry.description.drawn.means() - geometry.scaling.centre)[used]
        moments = LinearView.fit(geometry, "moments").x[used]
        # The diagonal is that of the distributions in use: a nearby distribution of the same group would enlarge it.
        transport = replace_diagonal(np.exp(-EuclideanView.fit(geometry).distances[np.ix_(used, used)]))
        kernels = [means @ means.T, transport, moments @ moments.T]
        self._kernels = [self._centre @ average @ kernel @ average.T @ self._centre for kernel in kernels]
        self._x = self._centre @ average @ moments
        self._total = np.square(self._x).sum(axis=0)

    def statistics(self, target: Any) -> np.ndarray:
        """Return the statistics in the order of `NAMES`; large values are extreme."""
        if isinstance(target, Classes):
            columns = (target.codes[self._first, None] == np.arange(target.n_classes)).astype(np.float64)
        else:
            columns = target.values[self._first, None]
        basis, sizes, _ = np.linalg.svd(self._centre @ columns, full_matrices=False)
        basis = basis[:, sizes > 1e-9 * max(float(sizes[0]), 1e-300)]
        between = [float(np.trace(basis.T @ kernel @ basis)) for kernel in self._kernels]
        explained = np.square(basis.T @ self._x).sum(axis=0)
        residual = np.sqrt(np.maximum(self._total - explained, 0.0))
        # Moderated by the median residual: of few units, some features have a small residual by chance.
        ratios = -np.sort(-explained / np.square(residual + np.median(residual) + 1e-12))
        return np.array([*between, ratios[0], ratios[:_N_TOP].mean()])


def _centring(n: int, blocks: np.ndarray | None) -> np.ndarray:
    """Return the matrix that subtracts the mean or, with blocks, the mean of the block."""
    blocks = np.zeros(n, np.intp) if blocks is None else blocks
    same = (blocks[:, None] == blocks).astype(np.float64)
    return np.eye(n) - same / same.sum(axis=1, keepdims=True)


def separation(distances: np.ndarray, target: Any) -> float:
    """Return the share of the variance of a 2-D map (classical scaling) of the distances that labels explain."""
    n = len(distances)
    centre = _centring(n, None)
    values, vectors = np.linalg.eigh(-0.5 * centre @ distances**2 @ centre)
    z = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0.0))
    if isinstance(target, Classes):
        columns = (target.codes[:, None] == np.arange(target.n_classes)).astype(np.float64)
    else:
        columns = target.values[:, None]
    basis, sizes, _ = np.linalg.svd(centre @ columns, full_matrices=False)
    basis = basis[:, sizes > 1e-9 * max(float(sizes[0]), 1e-300)]
    total = float(np.square(z).sum())
    return float(np.square(basis.T @ z).sum()) / total if total > 0 else 0.0


def rank_p_values(values: np.ndarray) -> np.ndarray:
    """Return for each arrangement the share of arrangements with a value at least as large; NaN counts as largest.

    >>> rank_p_values(np.array([3.0, 1.0, 2.0, 2.0])).tolist()
    [0.25, 1.0, 0.75, 0.75]
    """
    values = np.where(np.isnan(values), np.inf, values)
    ordered = np.sort(values)
    with np.errstate(invalid="ignore"):
        tied = np.where(np.isfinite(values), values - _TIE * np.maximum(np.abs(values), _TIE), values)
    return (values.size - np.searchsorted(ordered, tied, side="left")) / values.size


def combined_p_value(table: np.ndarray) -> float:
    """Return the p-value of the first row of (n_arrangements, n_statistics) by all statistics together.

    P-values of the statistics are combined by the Cauchy combination, which is close to the smallest p-value but also
    counts several small ones.
    """
    p = np.array([rank_p_values(column) for column in table.T])
    if len(p) == 1:
        return float(p[0, 0])
    scores = np.tan((0.5 - np.minimum(p, 1.0 - 0.5 / p.shape[1])) * np.pi).mean(axis=0)
    return float(rank_p_values(scores)[0])
