"""Points from outside: tables of numbers, several of them as one, samples of rows, names and moments of features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from .validation import is_missing, real_array, refuse_mask

# Entries of points whose squares are summed at a time: 2 MB.
_ENTRIES = 2**18
# The square of anything smaller is 0, or has few digits.
_LEAST = 1e-150


def as_points(points: Any, what: str = "points") -> Any:
    """A 2-D float array or CSR matrix, float32 or float64; copied only where it has to be."""
    if sparse.issparse(points):
        points = points.tocsr()
        points = sparse.csr_matrix((real_array(points.data, what), points.indices, points.indptr), points.shape)
    else:
        points = np.ascontiguousarray(real_array(points, what))
    if points.ndim != 2:
        raise ValueError(f"{what} have shape {points.shape}: expected two dimensions, (n_points, n_features)")
    if points.shape[1] == 0:
        raise ValueError(f"{what} have 0 features: at least one is needed")
    return points


def are_sets(X: Any) -> bool:
    """Whether X holds several sets of points rather than the rows of one."""
    if getattr(X, "ndim", None) == 3:
        return True
    if not isinstance(X, list | tuple) and str(getattr(X, "dtype", "")) != "object":
        return False
    if not len(X) or getattr(X, "ndim", 1) != 1 or hasattr(X, "iloc"):
        return False
    first = X[0]
    nested = isinstance(first, list | tuple) and len(first) > 0 and isinstance(first[0], list | tuple | np.ndarray)
    return getattr(first, "ndim", None) == 2 or nested


def stack(
    arrays: list[Any], names: list[Hashable] | None, features: Sequence[str] | None
) -> tuple[Any, list[Hashable], Any]:
    """All points of several arrays, the name of the array of each, and names of the features."""
    names = list(range(len(arrays))) if names is None else names
    columns = [list(map(str, array.columns)) for array in arrays if hasattr(array, "columns")]
    if any(one != columns[0] for one in columns):
        raise ValueError("the data frames have different columns: give each the same, in the same order")
    sets = []
    for name, array in zip(names, arrays, strict=True):
        points = as_points(array, f"the points of distribution {name!r}")
        if points.shape[0] == 0:
            raise ValueError(f"distribution {name!r} is empty: drop it or give it at least one point")
        sets.append(points)
    widths = {points.shape[1] for points in sets}
    if len(widths) > 1:
        raise ValueError(f"arrays have {sorted(widths)} features: all need the same")
    points = sparse.vstack(sets, format="csr") if any(map(sparse.issparse, sets)) else np.vstack(sets)
    samples = [name for name, points in zip(names, sets, strict=True) for _ in range(points.shape[0])]
    return points, samples, columns[0] if features is None and columns else features


def number_samples(samples: Iterable[Hashable]) -> tuple[list[Hashable], np.ndarray]:
    """Names in order of first appearance, and the place of each entry's name in that list."""
    refuse_mask(samples, "samples")
    array = np.asarray(samples) if isinstance(samples, np.ndarray) else None
    if array is None and hasattr(samples, "to_numpy"):  # pandas
        array = samples.to_numpy()
    if array is not None and array.ndim != 1:
        raise ValueError(f"samples has shape {array.shape}: expected one entry per point, e.g. a single column")
    if array is not None and array.dtype != object:
        values, first, codes = np.unique(array, return_index=True, return_inverse=True)
        rank = np.empty(values.size, np.intp)
        rank[np.argsort(first)] = np.arange(values.size)
        values = values[np.argsort(first)]
        names, codes = list(values) if values.dtype.kind in "mM" else values.tolist(), rank[codes]  # dates stay dates
    else:
        place: dict[Hashable, int] = {}
        codes = np.fromiter((place.setdefault(sample, len(place)) for sample in samples), np.intp)
        names = list(place)
    for name in names:
        if is_missing(name):
            raise ValueError(f"samples contain a missing value ({name!r}): every point needs a distribution")
    return names, codes


def check_features(features: Sequence[str] | None, n_features: int) -> list[str] | None:
    """Names of the features as text, each once: whoever looks one up by its name must find the right column."""
    if features is None:
        return None
    features = [str(feature) for feature in features]
    if len(features) != n_features:
        raise ValueError(f"{len(features)} feature names for {n_features} features: one is needed per column")
    if len(set(features)) < n_features:
        repeated = [name for name, count in Counter(features).items() if count > 1]
        raise ValueError(
            f"{len(repeated)} feature names occur more than once, e.g. {repeated[0]!r}: make them unique, those of an "
            "AnnData with adata.var_names_make_unique()"
        )
    return features


def moments(points: Any, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of every feature, in double precision and without a copy of the points."""
    if sparse.issparse(points):
        from sklearn.utils.sparsefuncs import mean_variance_axis

        found = mean_variance_axis(points, axis=0, weights=None if weights is None else weights.astype(points.dtype))
        return found[0].astype(np.float64), found[1].astype(np.float64)
    # Deviations from the first point rather than from zero: a constant feature comes out with variance 0 exactly.
    origin = points[0].astype(np.float64)
    total, squares = np.zeros(points.shape[1]), np.zeros(points.shape[1])
    rows = max(1, _ENTRIES // points.shape[1])
    for low in range(0, points.shape[0], rows):
        deviation = points[low : low + rows] - origin
        if weights is None:
            total += deviation.sum(axis=0)
            squares += np.einsum("pf,pf->f", deviation, deviation)
        else:
            total += weights[low : low + rows] @ deviation
            squares += weights[low : low + rows] @ deviation**2
    mass = points.shape[0] if weights is None else weights.sum()
    shift = total / mass
    return origin + shift, np.maximum(squares / mass - shift**2, 0.0)


def lost_variance(points: Any, variances: np.ndarray) -> np.ndarray:
    """Which features have a variance of 0 although they vary: by so little that the squares are no numbers above 0."""
    lost, still = np.zeros(variances.size, bool), np.flatnonzero(variances == 0)
    if still.size:
        some = points[:, still]
        lowest, highest = some.min(axis=0), some.max(axis=0)
        apart = (highest - lowest).toarray().ravel() if sparse.issparse(some) else highest - lowest
        lost[still] = (apart > 0) & (apart < _LEAST)
    return lost
