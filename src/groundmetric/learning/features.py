"""Transport of one feature at a time: which features follow the labels, before any metric is learned.

In one dimension transport is a sort: the distance between two distributions is that between their quantile functions,
so a feature of a distribution is a short vector. Two statistics say how much a feature is worth: t, how much farther
distributions are from unlike than from like ones; and F, the variance between distributions that labels explain over
the rest, as in an analysis of variance. With more features than distributions they hold where a discriminant of means,
which separates any labels, does not. Last, how sure importances of features are.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ..distributions import Distributions

# Quantiles by which a feature of a distribution is described.
_N_QUANTILES = 20
# Features whose quantiles are found at a time.
_BLOCK = 256
# Ratios are taken over the residual variance plus this share of the median one: a feature that hardly varies in a few
# distributions may do so in others.
_FLOOR = 0.05
# Features that a metric of weights keeps at least and at most.
_FEWEST = 3
_MOST = 50
# Distances of single features that are kept: 400 MB.
_MOST_ENTRIES = 10**8


def quantile_functions(D: Distributions, scale: np.ndarray, n_quantiles: int = _N_QUANTILES) -> np.ndarray:
    """Quantiles of every feature in every distribution, in units of `scale`: (distributions, quantiles, features).

    They are those at the middle of `n_quantiles` parts of equal mass, as float32.

    >>> D = Distributions([[0.0], [1.0], [2.0], [3.0]], ["a"] * 4)
    >>> quantile_functions(D, np.ones(1), 2).ravel().tolist()
    [0.5, 2.5]
    """
    levels = (np.arange(n_quantiles) + 0.5) / n_quantiles
    found = np.empty((len(D), n_quantiles, D.shape[1]), dtype=np.float32)
    for d in range(len(D)):
        rows = slice(D.bounds[d], D.bounds[d + 1])
        masses = None if D.uniform[d] else D.weights[rows]
        for low in range(0, D.shape[1], _BLOCK):
            columns = slice(low, low + _BLOCK)
            values = D.points[rows][:, columns]
            values = values.toarray() if sparse.issparse(values) else values
            found[d, :, columns] = _quantiles(values / scale[columns], masses, levels)
    return found


def _quantiles(values: np.ndarray, masses: np.ndarray | None, levels: np.ndarray) -> np.ndarray:
    if masses is None:
        return np.quantile(values, levels, axis=0, method="hazen")
    order = np.argsort(values, axis=0)
    below = np.cumsum(masses[order], axis=0) / masses.sum()
    at = np.stack([np.argmax(below >= level - 1e-12, axis=0) for level in levels])
    return np.take_along_axis(np.take_along_axis(values, order, axis=0), at, axis=0)


def design(codes: np.ndarray, strata: np.ndarray | None = None) -> np.ndarray:
    """Orthonormal columns that span what classes (whole numbers) or ordered values say beyond the mean (of strata)."""
    values = np.unique(codes)
    columns = codes[:, None] == values if codes.dtype.kind in "iu" else codes[:, None].astype(np.float64)
    columns = within_strata(columns.astype(np.float64), strata)
    basis, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    return basis[:, sizes > 1e-9 * max(sizes[0], 1e-300)]


def within_strata(rows: np.ndarray, strata: np.ndarray | None) -> np.ndarray:
    """Rows minus their mean; with strata, minus that of their own."""
    if strata is None:
        return rows - rows.mean(axis=0)
    found = rows.copy()
    for stratum in np.unique(strata):
        found[strata == stratum] -= rows[strata == stratum].mean(axis=0)
    return found


def feature_ratios(
    quantiles: np.ndarray, codes: np.ndarray, strata: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """F of each feature (explained variance between distributions over the rest, per degree of freedom), and the
    standard deviation of the rest. With strata (batches), all variance is that within them.

    >>> quantiles = np.array([[[0.0, 5.0]], [[0.2, 3.0]], [[4.0, 4.0]], [[4.2, 4.0]]])
    >>> ratios, _ = feature_ratios(quantiles, np.array([0, 0, 1, 1]))
    >>> bool(ratios[0] > 100 * ratios[1])
    True
    """
    n, n_quantiles, n_features = quantiles.shape
    basis = design(codes, strata)
    centred = within_strata(quantiles.reshape(n, -1), strata)
    n_means = 1 if strata is None else np.unique(strata).size
    explained = np.square(basis.T.astype(centred.dtype) @ centred).sum(axis=0)
    total = np.einsum("ij,ij->j", centred, centred)
    between, rest = (
        np.sum(part.reshape(n_quantiles, n_features), axis=0, dtype=np.float64)
        for part in (explained, np.maximum(total - explained, 0.0))
    )
    rest /= max(n - n_means - basis.shape[1], 1)
    floor = _FLOOR * float(np.median(rest)) + 1e-12 * max(float(total.max(initial=0.0)), 1e-300)
    return between / max(basis.shape[1], 1) / (rest + floor), np.sqrt(rest / n_quantiles)


class FeatureDistances:
    """Transport distances of one feature at a time, between every distribution and partners of it.

    They do not depend on labels, so that one computation serves all parts of a cohort and all permutations of labels.
    The partners are all others, or as many as fit into memory, drawn at random.
    """

    def __init__(self, quantiles: np.ndarray, random: np.random.RandomState, most: int = _MOST_ENTRIES) -> None:
        n, _, n_features = quantiles.shape
        count = min(n - 1, max(2, most // (n * n_features)))
        if count == n - 1:
            self.partners = np.array([[j for j in range(n) if j != i] for i in range(n)])
        else:
            self.partners = np.array([(i + 1 + random.choice(n - 1, count, replace=False)) % n for i in range(n)])
        self.values = np.empty((n, count, n_features), dtype=np.float32)
        for i in range(n):
            self.values[i] = np.abs(quantiles[self.partners[i]] - quantiles[i]).mean(axis=1)

    def statistics(
        self,
        codes: np.ndarray,
        inside: np.ndarray | None = None,
        *,
        moderated: bool = False,
    ) -> np.ndarray:
        """t of each feature: how much farther distributions are from unlike than from like ones, over its error.

        Only distributions `inside` take part. With classes, every other class counts the same; with numbers, a pair
        counts by how much farther apart its values are than others of the same distribution. `codes` may have rows, one
        for each arrangement of the labels; then so has the result. Of few distributions, some features have a small
        error by luck; `moderated` adds the median error to that of each (Tusher, Tibshirani & Chu 2001).
        """
        rows = np.atleast_2d(codes)
        inside = np.ones(rows.shape[1], dtype=bool) if inside is None else inside
        shape = (len(rows), self.values.shape[2])
        total, squares, count = np.zeros(shape), np.zeros(shape), np.zeros((len(rows), 1))
        for i in np.flatnonzero(inside):
            mine = self.partners[i]
            contrasts = [_contrast(row[i], row[mine], inside[mine]) for row in rows]
            known = np.array([contrast is not None for contrast in contrasts])
            if known.any():
                stacked = np.array([contrast for contrast in contrasts if contrast is not None], dtype=np.float32)
                gains = (stacked @ self.values[i]).astype(np.float64)
                total[known] += gains
                squares[known] += gains**2
                count[known] += 1
        n = np.maximum(count, 2)
        variance = np.maximum(squares - total**2 / n, 0.0) / (n - 1)
        error = np.sqrt(variance / n)
        error = error + np.median(error, axis=1, keepdims=True) if moderated else error
        found = np.where(count < 2, 0.0, total / n / (error + 1e-9))
        return found if codes.ndim == 2 else found[0]


def _contrast(own: float, codes: np.ndarray, inside: np.ndarray) -> np.ndarray | None:
    """Weights of the distances to partners, of sum 0: unlike ones minus like ones; None without both kinds."""
    weights = np.zeros(codes.size)
    if codes.dtype.kind not in "iu":
        apart = np.where(inside, np.abs(codes - own), 0.0)
        if np.ptp(apart[inside]) == 0 if inside.any() else True:
            return None
        centred = np.where(inside, apart - apart[inside].mean(), 0.0)
        return centred / np.abs(centred).sum()
    like = inside & (codes == own)
    others = [inside & (codes == c) for c in np.unique(codes[inside]) if c != own]
    if not like.any() or not others:
        return None
    weights[like] = -1.0 / like.sum()
    for unlike in others:
        weights[unlike] = 1.0 / (unlike.sum() * len(others))
    return weights


def strongest_features(gains: np.ndarray) -> np.ndarray:
    """Weights of features by what they gain: 0 below 0 and beyond the strongest fifty.

    Where fewer than three gain anything, the best three count the same: a metric needs some.

    >>> strongest_features(np.array([0.5, -1.0, 2.0, 0.1, 0.0])).tolist()
    [0.5, 0.0, 2.0, 0.1, 0.0]
    >>> strongest_features(np.array([-0.5, -1.0, -2.0, -3.0])).tolist()
    [1.0, 1.0, 1.0, 0.0]
    """
    order = np.argsort(-gains, kind="stable")
    weights = np.maximum(gains, 0.0)
    if np.count_nonzero(weights) < min(_FEWEST, weights.size):
        weights = np.zeros(gains.size)
        weights[order[:_FEWEST]] = 1.0
    weights[order[_MOST:]] = 0.0
    return weights


def importance_interval(importance: np.ndarray, refits: np.ndarray, confidence: float = 0.95) -> np.ndarray:
    """Lower and upper ends of importances, (2, n_features), from how much they vary between refits.

    A refit has fewer different distributions than the cohort, so that weight scatters over more features, and
    percentiles of refits may lie wholly below the importance of a strong feature. So they are also moved until their
    median is the importance itself (on the scale of weights, whose squares importances are), and the interval holds
    both, the percentiles and these. In simulated cohorts of 12 distributions it covered the mean importance of strong
    features in at least 72 to 89 % rather than in 62 to 80 %: of few distributions it is still too narrow.

    Parameters
    ----------
    importance : array of shape (n_features,)
        Importances as fitted.
    refits : array of shape (n_refits, n_features)
        Importances from samples of the distributions drawn anew (bootstrap samples, or halves).
    confidence : float, default=0.95
        Confidence level of the intervals.

    Returns
    -------
    array of shape (2, n_features)
        Ends; the importance is between them.
    """
    ends = [0.5 - confidence / 2, 0.5, 0.5 + confidence / 2]
    low, middle, high = np.quantile(np.sqrt(refits), ends, axis=0)
    weight = np.sqrt(importance)
    lowest = np.minimum(low, np.maximum(weight - (middle - low), 0.0)) ** 2
    highest = np.maximum(high, np.minimum(weight + (high - middle), 1.0)) ** 2
    return np.stack([np.minimum(lowest, importance), np.maximum(highest, importance)])  # whatever the rounding
