"""Statistics of the association between labels and distributions, which need no fit, and their combination.

The held-out score of an ensemble has little power for many weak differences. The statistics here need no fit, so that
hundreds of permutations take a second. PERMANOVA of means has power for many weak differences, the mean over all
standardised features for many weak differences of the same sign (a programme), and a likelihood ratio of sparse
differences for a few strong ones. The first and the last exist for standard deviations, too.

Any number of statistics may be combined: each is turned into a rank among all arrangements of the labels, ranks are
combined, and the combination is ranked again among the same arrangements. Since the observed labels are one of the
arrangements, the p-value is valid whatever the dependence of the statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._internal.keyed import keyed_uniform
from ..ensemble import Classes, Geometry
from ..ensemble.views import EuclideanView, replace_diagonal

# Share of features that differ, and variance of their standardised differences, in the likelihood ratio.
_SHARE, _VARIANCE = 0.1, 5.0
# Degrees of freedom that the median residual variance is worth in moderated variances.
_PRIOR_DEGREES = 4.0
# Values this close to each other, relative to their size, are ties.
_TIE = 1e-9
# Statistics and their weights in the combination. PERMANOVA of means has most of the weight, so that the power for many
# weak differences is nearly that of this test alone.
WEIGHTS = {
    "PERMANOVA of means": 0.45,
    "PERMANOVA of transport": 0.05,
    "PERMANOVA of standard deviations": 0.05,
    "sparse differences of means": 0.2,
    "sparse differences of standard deviations": 0.05,
    "common shift of means": 0.2,
}


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
        self._degrees = round(float(np.trace(self._centre)))
        means = (geometry.description.drawn.means() - geometry.scaling.centre)[used]
        self._means, self._deviations = (
            self._centre @ average @ _standardised(x) for x in (means, geometry.description.deviations[used])
        )
        # The diagonal is that of the distributions in use: a nearby distribution of the same group would enlarge it.
        transport = replace_diagonal(np.exp(-EuclideanView.fit(geometry).distances[np.ix_(used, used)]))
        self._kernels = [self._centre @ average @ k @ average.T @ self._centre for k in (means @ means.T, transport)]
        self._kernels.append(self._deviations @ self._deviations.T)

    def statistics(self, target: Any) -> np.ndarray:
        """Return the statistics in the order of `WEIGHTS`; large values are extreme."""
        if isinstance(target, Classes):
            columns = (target.codes[self._first, None] == np.arange(target.n_classes)).astype(np.float64)
        else:
            columns = target.values[self._first, None]
        basis, sizes, _ = np.linalg.svd(self._centre @ columns, full_matrices=False)
        basis = basis[:, sizes > 1e-9 * max(float(sizes[0]), 1e-300)]
        between = [float(np.trace(basis.T @ kernel @ basis)) for kernel in self._kernels]
        sparse = [_sparse_likelihood_ratio(x, basis, self._degrees) for x in (self._means, self._deviations)]
        shift = float(np.square(basis.T @ self._means.mean(axis=1)).sum())
        return np.array([*between, *sparse, shift])


def _standardised(x: np.ndarray) -> np.ndarray:
    deviation = x.std(axis=0)
    varies = deviation > 1e-9 * max(float(np.abs(x).max(initial=0.0)), 1e-300)
    return (x - x.mean(axis=0)) / np.where(varies, deviation, np.inf)


def _sparse_likelihood_ratio(x: np.ndarray, basis: np.ndarray, degrees: int) -> float:
    """Return the log-likelihood ratio of a share of columns with differences against none.

    Columns are treated as independent, with normal differences; the permutation distribution accounts for the rest.
    Residual variances are moderated by their median: of few units, some are small by chance.
    """
    n_between, n_error = basis.shape[1], max(degrees - basis.shape[1], 1)
    explained = np.square(basis.T @ x).sum(axis=0)
    residual = np.maximum(np.square(x).sum(axis=0) - explained, 0.0) / n_error
    moderated = (_PRIOR_DEGREES * np.median(residual) + n_error * residual) / (_PRIOR_DEGREES + n_error)
    squares = explained / np.maximum(moderated, 1e-12)
    gain = 0.5 * squares * _VARIANCE / (1.0 + _VARIANCE) - 0.5 * n_between * np.log1p(_VARIANCE)
    return float(np.logaddexp(np.log1p(-_SHARE), np.log(_SHARE) + gain).sum())


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


def combined_p_value(table: np.ndarray, weights: Sequence[float] | None = None) -> float:
    """Return the p-value of the first row of (n_arrangements, n_statistics) by all statistics together.

    P-values of the statistics are combined by the weighted Cauchy combination (Liu & Xie 2020), and the combination is
    ranked among all arrangements.
    """
    return float(rank_p_values(combined_scores(table, weights))[0])


def combined_scores(table: np.ndarray, weights: Sequence[float] | None = None) -> np.ndarray:
    """Return the weighted Cauchy combination of the statistics of each row; a single statistic as it is."""
    if table.shape[1] == 1:
        return table[:, 0]
    p = np.array([rank_p_values(column) for column in table.T])
    cauchy = np.tan((0.5 - np.minimum(p, 1.0 - 0.5 / len(table))) * np.pi)
    return np.average(cauchy, axis=0, weights=weights)


def merged_p_value(p: Sequence[float], weights: Sequence[float]) -> float:
    """Return the Cauchy combination of p-values from different numbers of permutations (Liu & Xie 2020).

    >>> round(merged_p_value([0.01, 0.5], [0.5, 0.5]), 3)
    0.02
    """
    values = np.asarray(p, dtype=np.float64)
    score = float(np.average(np.tan((0.5 - np.minimum(values, 0.99)) * np.pi), weights=weights))
    return float(min(max(0.5 - np.arctan(score) / np.pi, 0.0), 1.0))
