"""The scale of values: raw counts, log values or standardised ones; and whether new values are on that of training."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from .source import pieces

# Features that are a panel (markers, measurements), in which a single one in other units counts; genes are more.
PANEL = 100
# Share of zeros from which non-negative values of many features are taken for counts of genes, or logarithms of these.
_SOME_ZEROS = 0.05
# Factors between new values and those of training beyond which they are on another scale: of the typical feature, of
# all values together, and of a single feature of a panel. Between patients of six cohorts these are 0.5 to 1.6, 0.2 to
# 2.5 and 0.1 to 10; counts against their logarithms have 4, 24 and 300.
_TYPICAL, _OVERALL, _SINGLE = 5.0, 10.0, 300.0
# Means of the typical feature, in standard deviations: below the first, features were centred, above the second not.
_CENTRED, _NOT_CENTRED = 0.05, 0.25
# Shares of values below 0: standardised ones have more than the first, counts and logarithms less than the second.
_OFTEN, _SELDOM = 0.25, 0.05


@dataclass(frozen=True)
class Moments:
    """Mean and variance of every feature over some cells, and what kind of values they are.

    Attributes
    ----------
    mean, variance : arrays of shape (n_features,)
        Of each feature.
    looks_raw : bool
        Whether all values that were seen are whole numbers, and some are not 0.
    negative, zeros : float
        Share of the values that are below 0, and that are 0; NaN where it is not known.
    """

    mean: np.ndarray
    variance: np.ndarray
    looks_raw: bool
    negative: float
    zeros: float

    @property
    def looks_like_genes(self) -> bool:
        """Many features, none below 0, some zeros: counts of genes, or their logarithms."""
        return self.mean.size > PANEL and self.negative == 0.0 and self.zeros >= _SOME_ZEROS

    @property
    def root_mean_square(self) -> np.ndarray:
        return np.sqrt(np.square(self.mean) + self.variance)

    @property
    def offset(self) -> float:
        """Mean of the typical feature, in its standard deviations; NaN where none varies."""
        varying = self.variance > 0
        if not varying.any():
            return np.nan
        return float(np.median(np.abs(self.mean[varying]) / np.sqrt(self.variance[varying])))


def moments(matrix: Any, rows: np.ndarray, columns: np.ndarray | None = None) -> Moments:
    """Mean and variance of every column (or of some) over these rows, in one pass.

    Pieces are pooled by their deviations from their own means, so that no digits are lost where a mean is large.
    """
    n_columns = matrix.shape[1] if columns is None else columns.size
    count, mean, squares = np.zeros(n_columns), np.zeros(n_columns), np.zeros(n_columns)
    whole, anything, negative, other = True, False, 0, 0
    for piece in pieces(matrix, rows, columns):
        at = piece.columns
        with np.errstate(invalid="ignore", over="ignore"):  # values that are not finite are named by whoever asked
            n, m, s = piece.values.shape[0], *_deviations(piece.values)
            total = count[at] + n
            step = m - mean[at]
            squares[at] += s + step**2 * count[at] * n / total
            mean[at] += step * n / total
            count[at] = total
        stored = _stored(piece.values)
        whole = whole and looks_raw(stored)
        anything = anything or bool(np.any(m != 0))
        negative += int(np.count_nonzero(stored < 0))
        other += int(np.count_nonzero(stored))
    size = max(1, rows.size * n_columns)
    return Moments(mean, squares / max(1, rows.size), whole and anything, negative / size, 1.0 - other / size)


def _stored(values: Any) -> np.ndarray:
    return values.data if sparse.issparse(values) else values


def _deviations(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean of every column and the sum of squared deviations from it."""
    n, n_columns = values.shape
    if not sparse.issparse(values):
        mean = values.mean(axis=0, dtype=np.float64)
        return mean, np.square(values - mean).sum(axis=0)
    coo = values.tocoo()
    column, data = coo.col, coo.data.astype(np.float64)
    mean = np.bincount(column, data, n_columns) / n
    zeros = n - np.bincount(column, minlength=n_columns)
    return mean, np.bincount(column, (data - mean[column]) ** 2, n_columns) + zeros * mean**2


def looks_raw(values: Any) -> bool:
    """Are all values whole numbers?"""
    stored = _stored(values)
    return bool(np.all(stored == np.rint(stored)))


def warn_of_counts(raw: bool, layer: str | None, stacklevel: int) -> None:
    """Raw counts are dominated by how deep each cell was sequenced."""
    if raw:
        where = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
        more = "" if layer is None else f", layer={layer!r}"
        warnings.warn(
            f"{where} holds whole numbers, which look like raw counts; run these two lines first:\n"
            f"    sc.pp.normalize_total(adata, target_sum=1e4{more})\n"
            f"    sc.pp.log1p(adata{more})",
            UserWarning,
            stacklevel=stacklevel,
        )


def other_scale(new: Moments, known: Moments, names: list[str]) -> str | None:
    """Why new values are on another scale than those of training, both of these features; None where they are not.

    It is for differences in preparation, not between patients: a sample that is merely unusual passes.
    """
    if new.looks_raw and not known.looks_raw:
        return "they are whole numbers, which look like raw counts, and those of training are not"
    if known.looks_raw and not new.looks_raw and new.zeros < 1.0:
        return "those of training are whole numbers, which look like raw counts, and these are not"
    if new.offset < _CENTRED and known.offset > _NOT_CENTRED:
        return (
            f"the mean of a typical feature is {new.offset:.2f} standard deviations, in training {known.offset:.2f}: "
            "they look standardised"
        )
    shares = f"{new.negative:.0%} of the values are below 0, in training {known.negative:.0%}"
    if new.negative > _OFTEN and known.negative < _SELDOM:
        return f"{shares}: they look standardised"
    if known.negative > _OFTEN and new.negative < _SELDOM and new.zeros < 1.0:
        return f"{shares}: those of training look standardised"
    return _other_size(new.root_mean_square, known.root_mean_square, names)


def _other_size(new: np.ndarray, known: np.ndarray, names: list[str]) -> str | None:
    both = np.flatnonzero((new > 0) & (known > 0))
    if not both.size:
        return None
    ratios = new[both] / known[both]
    factors = {
        "a typical feature is": (float(np.median(ratios)), _TYPICAL),
        "taken together, they are": (float(np.linalg.norm(new) / np.linalg.norm(known)), _OVERALL),
    }
    if new.size <= PANEL:
        worst = int(np.argmax(np.abs(np.log(ratios))))
        factors[f"feature {names[both[worst]]!r} is"] = (float(ratios[worst]), _SINGLE)
    for what, (factor, most) in factors.items():
        if not 1.0 / most < factor < most:
            return f"{what} {factor:,.2g} times as large as in training (root mean squares)"
    return None
