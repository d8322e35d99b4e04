"""A penalty on what the metric sees of a nuisance: the variance that strata (batches, donors) explain under W."""

from __future__ import annotations

import numpy as np

from ..triplets import Supervision


class StrataVariance:
    """Share of the variance between distributions that their strata explain beyond the labels, from 0 to 1.

    Under W, the means m of the distributions vary by |W mᵀ|² in all, of which the effects b of the strata make up
    |W bᵀ|². A share: to make W larger or smaller changes nothing.

    Parameters
    ----------
    means : array (n_distributions, n_features), in standardised features
    known : Supervision with strata
    """

    def __init__(self, means: np.ndarray, known: Supervision) -> None:
        assert known.strata is not None
        centred = means - means.mean(axis=0)
        strata = (known.strata[:, None] == np.unique(known.strata)).astype(np.float64)
        labels = np.hstack([np.ones((len(means), 1)), *(_filled(target.response()) for target in known.targets)])
        beyond = _orthonormal(strata - _fitted(_orthonormal(labels), strata))
        # In coordinates of the strata's few dimensions, which have the same norms.
        self._strata, self._all = beyond.T @ centred, centred

    def value(self, W: np.ndarray) -> float:
        part, whole = self._sums(W)
        return part / whole if whole > 0 else 0.0

    def gradient(self, W: np.ndarray) -> np.ndarray:
        part, whole = self._sums(W)
        if whole == 0:
            return np.zeros_like(W)
        pull = (W @ self._strata.T) @ self._strata - (part / whole) * ((W @ self._all.T) @ self._all)
        return 2.0 * pull / whole

    def _sums(self, W: np.ndarray) -> tuple[float, float]:
        return float(np.sum((W @ self._strata.T) ** 2)), float(np.sum((W @ self._all.T) ** 2))


def _orthonormal(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the space that columns span."""
    left, singular, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, singular > 1e-9 * max(singular.max(initial=0.0), 1.0)]


def _fitted(basis: np.ndarray, values: np.ndarray) -> np.ndarray:
    return basis @ (basis.T @ values)


def _filled(response: np.ndarray) -> np.ndarray:
    """Missing labels count as the average, which says nothing."""
    return np.where(np.isnan(response), np.nanmean(response, axis=0), response)
