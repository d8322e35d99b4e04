"""Distributions: a cohort of weighted point sets in one feature space that can be sliced like an array."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from ._internal.tables import listed
from ._internal.types import LabelsLike, PointsLike, RandomState
from ._internal.validation import (
    NameIndex,
    ParameterError,
    align_by_name,
    check_features,
    check_number,
    is_missing,
    keyed_generator,
    keyed_uniform,
    real_array,
    refuse_mask,
    resolve_seed,
)

# Rows that are searched for NaN at a time.
_BLOCK = 8192
# Entries of points whose squares are summed at a time: 2 MB.
_BLOCK_ENTRIES = 2**18
# Squares of smaller numbers are 0 or have lost digits.
_LEAST_DIFFERENCE = 1e-150


class SmallSampleWarning(UserWarning):
    """The distributions `names` have fewer than the `n` points that all distributions are compared with."""

    def __init__(self, names: list[Hashable], n: int) -> None:
        super().__init__(names, n)
        self.names, self.n = names, n

    def __str__(self) -> str:
        shown = listed(list(map(repr, self.names)), 5)
        count = "1 distribution has" if len(self.names) == 1 else f"{len(self.names)} distributions have"
        return (
            f"{count} fewer than {self.n} points ({shown}), which makes distances to all others larger: exclude small "
            f"distributions, D[D.sizes >= {self.n}], or compare all by fewer points"
        )


class Distributions:
    """A cohort of distributions: patients as sets of cells, documents as sets of words, shapes as sets of points.

    If `points` (or else `samples`) has a pandas index, then `samples`, `weights` and `annotations` with an index are
    matched by it; without an index they are matched by position.

    Parameters
    ----------
    points : array or sparse matrix of shape (n_points, n_features), or sequence of these
        All points of all distributions, in any row order. float32 stays float32, other types become float64.
        Without `samples`: a list with an array of points for each distribution, or one array of shape
        (n_distributions, n_points, n_features).
    samples : sequence of length n_points or None, default=None
        Distribution of each point, as any hashable value. Required if `points` is a single table.
    weights : sequence of length n_points or None, default=None
        Mass of each point, scaled to a sum of 1 in every distribution. None means equal masses.
    features : sequence of str or None, default=None
        Names of the features. None takes the column names of a data frame.
    annotations : dict of str to sequences of length n_points or None, default=None
        Further values of each point, such as cell types. Learning ignores them; slices include them.
    **other : Any
        Refused with a TypeError; for `groups`, the error recommends `samples`.

    Attributes
    ----------
    names : list
        Names of the distributions in order of first appearance, to which labels with names (a Series, a dict) are
        matched; labels without names are in this order.
    points : array or CSR matrix
        The points; points of one distribution are in consecutive rows.
    bounds : array of shape (n_distributions + 1,)
        Distribution d has the rows ``bounds[d]:bounds[d + 1]`` of `points`.
    order : array of shape (n_points,)
        Input row of each row of `points`.
    uniform : array of bool of shape (n_distributions,)
        Whether all points of a distribution have the same mass.
    weights, features, annotations : array, list of str or None, dict of arrays
        As above, in the order of `points`.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0, 1.0], [5.0, 5.0], [2.0, 3.0]], samples=["ann", "bob", "ann"])
    >>> D.names, D.sizes.tolist()
    (['ann', 'bob'], [2, 1])
    >>> D[[1, 0]].names
    ['bob', 'ann']
    """

    # False if the names are only row numbers of an array without an index: labels with names are then not matched.
    _named = True

    def __init__(
        self,
        points: PointsLike | Sequence[PointsLike],
        samples: Iterable[Hashable] | None = None,
        *,
        weights: ArrayLike | None = None,
        features: Sequence[str] | None = None,
        annotations: Mapping[str, LabelsLike] | None = None,
        **other: Any,
    ) -> None:
        if "groups" in other:
            problem = "takes no groups (patients that a split keeps together)"
            raise TypeError(f"Distributions {problem}: the distribution of each row is `samples`")
        if other:
            raise TypeError(f"Distributions got an unexpected keyword argument {next(iter(other))!r}")
        if isinstance(points, Distributions):
            raise TypeError("points is already an object of class Distributions: use it directly")
        if samples is None:
            if not _are_sets(points):
                problem = "samples are missing: give the distribution of each point"
                raise TypeError(f"{problem}, or a list of arrays, one for each")
            points, samples, features = _stack(list(points), None, features)  # type: ignore[arg-type]
        if features is None and hasattr(points, "columns"):
            features = [str(column) for column in points.columns]
        name_index = NameIndex.of(points, samples, items="points")
        points = _as_points(points)
        names, codes = _number_samples(align_by_name(samples, name_index, "samples"))
        if codes.size != points.shape[0]:
            raise ValueError(f"samples has {codes.size} entries for {points.shape[0]} points: one is needed per point")
        if points.shape[0] == 0:
            raise ValueError("no points: at least one distribution with one point is needed")
        order = np.arange(codes.size)
        if np.any(np.diff(codes) < 0):  # points that are already grouped are not copied
            order = np.argsort(codes, kind="stable")
            points = points[order]
        self.names: list[Hashable] = names
        # Rows in the cohorts from which this one was sliced; see `NameIndex`.
        self._numberings: list[np.ndarray] | None = []
        self.points: Any = points  # array or CSR matrix
        self.order = order
        self.bounds = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(names)))])
        self.features = check_features(features, points.shape[1])
        self._check_finite()
        self.weights, self.uniform = self._normalise(align_by_name(weights, name_index, "weights"))
        self.annotations = {
            key: self._per_point(key, align_by_name(values, name_index, key))
            for key, values in (annotations or {}).items()
        }

    @classmethod
    def from_arrays(
        cls,
        arrays: Sequence[PointsLike],
        names: Sequence[Hashable] | None = None,
        *,
        features: Sequence[str] | None = None,
    ) -> Distributions:
        """Return one distribution of each of `arrays`, with equal masses.

        Each array has at least one point, and all have the same number of features. `names` are unique; None: 0, 1, ….
        """
        if names is not None:
            names = list(names)
            if len(names) != len(arrays):
                raise ValueError(f"{len(names)} names for {len(arrays)} arrays: one is needed per array")
            if len(set(names)) < len(names):
                raise ValueError("names are not unique: each array is a distribution of its own")
        if not len(arrays):
            raise ValueError("no arrays: at least one distribution with one point is needed")
        points, samples, features = _stack(list(arrays), names, features)
        return cls(points, samples, features=features)

    @property
    def sizes(self) -> np.ndarray:
        """Number of points of each distribution."""
        return np.diff(self.bounds)

    @property
    def shape(self) -> tuple[int, int]:
        """(number of distributions, number of features); scikit-learn counts and slices distributions by it."""
        return len(self.names), self.points.shape[1]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, indices: Any) -> Distributions:
        """Select distributions by integers, a slice, or a mask; a mask with names is aligned by name."""
        if isinstance(indices, tuple):  # scikit-learn evaluates X[indices, ...]
            indices = indices[0]
        refuse_mask(indices, "indices")
        if str(getattr(indices, "dtype", "")) in ("bool", "boolean") or isinstance(indices, Mapping):
            indices = np.asarray(align_by_name(indices, self.name_index, "indices"), dtype=bool)
        selected = np.atleast_1d(np.arange(len(self))[indices])
        part = copy.copy(self)
        part.annotations = dict(self.annotations)
        if np.array_equal(selected, np.arange(len(self))):  # points are not copied
            return part
        rows: slice | np.ndarray
        if np.all(np.diff(selected) == 1) and selected.size:  # a slice of rows is not copied
            rows = slice(self.bounds[selected[0]], self.bounds[selected[-1] + 1])
        else:
            ranges = [np.arange(self.bounds[d], self.bounds[d + 1]) for d in selected]
            rows = np.concatenate([np.empty(0, np.intp), *ranges])
        part._take_rows(rows)
        part.names, part.uniform = [self.names[d] for d in selected], self.uniform[selected]
        part.bounds = np.concatenate([[0], np.cumsum(self.sizes[selected])])
        if self._numberings is not None:
            part._numberings = [selected, *(numbering[selected] for numbering in self._numberings)]
        return part

    def _take_rows(self, rows: slice | np.ndarray) -> None:
        """Keep these rows of everything that has an entry per point."""
        self.points, self.order, self.weights = self.points[rows], self.order[rows], self.weights[rows]
        self.annotations = {key: values[rows] for key, values in self.annotations.items()}

    def __repr__(self) -> str:
        return f"Distributions({len(self)} distributions, {self.points.shape[0]} points, {self.shape[1]} features)"

    @property
    def name_index(self) -> NameIndex:
        """Names in order, to which labels, groups and weights with names are aligned."""
        return NameIndex(self.names, self._numberings) if self._named else NameIndex(None, None, n=len(self))

    def __array__(self, *arguments: Any, **options: Any) -> np.ndarray:
        """Raise: one array of all points would lose the distribution of each point."""
        raise TypeError(
            "Distributions cannot be converted to an array: wrap a scikit-learn step that works on points, such as "
            "StandardScaler(), as PointwiseTransformer(StandardScaler()); `.points` has the points of all distributions"
        )

    def with_points(self, points: PointsLike, features: Sequence[str] | None = None) -> Distributions:
        """Return distributions with other coordinates; names, masses and annotations stay the same.

        Parameters
        ----------
        points : array or sparse matrix of shape (n_points, n_features)
            New coordinates, one row for each row of `self.points`; the number of features may differ.
        features : sequence of str or None, default=None
            Names of the new features. None: features without names.
        """
        part = self[:]
        points = _as_points(points)
        if points.shape[0] != self.points.shape[0]:
            raise ValueError(f"{points.shape[0]} points in place of {self.points.shape[0]}: one is needed for each")
        part.points, part.features = points, check_features(features, points.shape[1])
        part._check_finite()
        return part

    def with_mass(self) -> Distributions:
        """Return distributions without points of zero mass (below 2⁻⁶⁰), which take no part in transport.

        If all points have mass, the object itself is returned.
        """
        keep = np.flatnonzero(self.weights >= 2.0**-60)  # masses are whole multiples of 2⁻⁶⁰ in the exact solver
        return self if keep.size == self.weights.size else self._keep_rows(keep)

    def subsample(self, n: int, *, random_state: RandomState = None) -> Distributions:
        """Return distributions of at most `n` points each, drawn at random without replacement.

        The draw of a distribution depends on the seed `random_state`, its name and its points only. Drawn points keep
        their order, and masses are scaled to a sum of 1.
        """
        check_number("n", n, low=1, whole=True)
        seed, directions = resolve_seed(random_state), self._directions()
        drawn = []
        for d, (low, high) in enumerate(pairwise(self.bounds)):
            rows = np.arange(low, high)
            if rows.size > n:
                selected = keyed_generator(seed, self.names[d]).permutation(rows.size)[:n]
                rows = np.sort(self._canonical_rows(d, directions)[selected])
            drawn.append(rows)
        part = self._keep_rows(np.concatenate(drawn))
        totals = np.add.reduceat(part.weights, part.bounds[:-1])
        empty = np.flatnonzero(totals <= 0.0)
        if empty.size:
            raise ValueError(f"the points drawn from {self.names[empty[0]]!r} have zero mass: use `with_mass()` first")
        part.weights = part.weights / np.repeat(totals, part.sizes)
        return part

    @property
    def effective_sizes(self) -> np.ndarray:
        """Kish's effective sample size of each distribution; with equal masses, its number of points."""
        squares = np.add.reduceat(np.square(self.weights), self.bounds[:-1])
        return np.where(self.uniform, self.sizes, np.minimum(1.0 / squares, self.sizes))

    def common_size(self, max_points: int | None = None) -> int:
        """Return a number of points, at most `max_points`, that all distributions can be compared with.

        Empirical Wasserstein distances grow as distributions have fewer points. Distributions of different sizes are
        therefore compared by equal numbers of points: the smallest (effective) size. One distribution, or a tenth of
        them, may be smaller than the result if the result is at most 10 and half the median size. If more were smaller,
        for example because one class has few points, the number of points would act as a feature.
        """
        sizes = np.sort(np.floor(self.effective_sizes + 1e-6))
        n_smaller = min(max(1, len(sizes) // 10), len(sizes) - 1)
        size = max(int(sizes[0]), int(min(10, np.median(sizes) // 2, sizes[n_smaller])), 1)
        return size if max_points is None else min(size, int(max_points))

    def equalize(self, n: int | None = None, *, random_state: RandomState = 0) -> Distributions:
        """Return distributions of `n` points each (None: `common_size()`), which makes their distances comparable.

        Points of equal mass are drawn without replacement; a distribution of fewer points keeps all. Where masses
        differ, a point is drawn with a probability proportional to its mass (systematic sampling), and drawn points
        have equal masses. The draw of a distribution depends on the seed `random_state`, its name and its points only;
        the order of the drawn points does not depend on the order of the rows.
        """
        n = self.common_size() if n is None else n
        check_number("n", n, low=1, whole=True)
        seed, directions = resolve_seed(random_state), self._directions()
        drawn, masses, uniform, effective_sizes = [], [], [], self.effective_sizes
        for d in range(len(self)):
            rows = self._canonical_rows(d, directions)
            random = keyed_generator(seed, self.names[d])
            if self.uniform[d]:
                if rows.size > n:
                    rows = rows[np.sort(random.permutation(rows.size)[:n])]
                mass = np.full(rows.size, 1.0 / rows.size)
            elif effective_sizes[d] <= n:
                mass = self.weights[rows]
            else:
                # Systematic sampling: `n` equidistant levels on the cumulated masses of the points in random order.
                shuffled = random.permutation(rows.size)
                levels = (random.random() + np.arange(n)) / n
                ends = np.cumsum(self.weights[rows[shuffled]])
                counts = np.zeros(rows.size)
                np.add.at(counts, shuffled[np.minimum(np.searchsorted(ends, levels), rows.size - 1)], 1.0)
                rows, mass = rows[counts > 0], counts[counts > 0] / n
            drawn.append(rows)
            masses.append(mass)
            uniform.append(bool(np.all(mass == mass[0])))
        part = self._keep_rows(np.concatenate(drawn))
        part.weights, part.uniform = np.concatenate(masses), np.array(uniform)
        return part

    def _directions(self) -> np.ndarray:
        """Return a coefficient for each feature (by its name, if any) of the projection that orders points."""
        return keyed_uniform(self.features if self.features is not None else range(self.shape[1]), "direction") - 0.5

    def _canonical_rows(self, d: int, directions: np.ndarray) -> np.ndarray:
        """Return the rows of a distribution in an order that depends on its points, not on the order of the rows."""
        low, high = self.bounds[d], self.bounds[d + 1]
        return low + np.argsort(self.points[low:high] @ directions, kind="stable")

    def _keep_rows(self, rows: np.ndarray) -> Distributions:
        """Return the same distributions with these rows of `points` only, at least one of each."""
        part = self[:]
        owner = np.repeat(np.arange(len(self)), self.sizes)[rows]
        part._take_rows(rows)
        part.bounds = np.searchsorted(owner, np.arange(len(self) + 1))
        return part

    def means(self) -> np.ndarray:
        """Return the mean of the points of each distribution, weighted by mass: (n_distributions, n_features)."""
        means = np.empty(self.shape)
        for d, (low, high) in enumerate(pairwise(self.bounds)):
            weights, points = self.weights[low:high], self.points[low:high]
            means[d] = weights @ points if sparse.issparse(points) else np.einsum("p,pf->f", weights, points)
        return means

    def moments(self, *, weighted: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of every feature over all points, in double precision.

        Points are `weighted` by their mass times the number of points of their distribution, which is 1 if all points
        of the distribution have the same mass; otherwise every point has weight 1. The variance of a constant feature
        is exactly 0. The points are not copied.
        """
        weights = None if not weighted or self.uniform.all() else self.weights * np.repeat(self.sizes, self.sizes)
        with np.errstate(over="ignore", invalid="ignore"):
            means, variances = _moments(self.points, weights)
        underflow, constant = np.zeros(variances.size, bool), np.flatnonzero(variances == 0)
        if constant.size:  # a variance of 0 is wrong if features differ, but by less than the root of the least number
            columns = self.points[:, constant]
            extent = columns.max(axis=0) - columns.min(axis=0)
            extent = extent.toarray().ravel() if sparse.issparse(columns) else extent
            underflow[constant] = (extent > 0) & (extent < _LEAST_DIFFERENCE)
        for is_bad, remedy in ((~np.isfinite(variances), "divide"), (underflow, "multiply")):
            if is_bad.any():
                name = self._feature_name(int(np.argmax(is_bad)))
                raise ValueError(f"the variance of {name} is out of the range of numbers: {remedy} it by a constant")
        return means, variances

    def _per_point(self, key: str, values: Any) -> np.ndarray:
        """Return an input with one entry per point in the order of `points`."""
        refuse_mask(values, key)
        values = np.asarray(values)
        if values.shape != (self.order.size,):
            raise ValueError(f"{key} has shape {values.shape} for {self.order.size} points: one is needed per point")
        return values[self.order]

    def _name_of_row(self, row: int) -> Hashable:
        return self.names[int(np.searchsorted(self.bounds, row, side="right")) - 1]

    def _feature_name(self, column: int) -> str:
        return f"feature {self.features[column]!r}" if self.features else f"feature {column}"

    def _check_finite(self) -> None:
        """Raise if a coordinate is NaN or infinite."""
        # A finite sum proves that all entries are finite. An infinite sum may be an overflow, so blocks are searched.
        with np.errstate(over="ignore", invalid="ignore"):
            stored = self.points.data if sparse.issparse(self.points) else self.points
            if np.isfinite(np.sum(stored, dtype=np.float64)):
                return
        for low in range(0, self.points.shape[0], _BLOCK):
            block = self.points[low : low + _BLOCK]
            is_bad = ~np.isfinite(block.toarray() if sparse.issparse(block) else block)
            if is_bad.any():
                row, column = np.argwhere(is_bad)[0] + [low, 0]
                raise ValueError(
                    f"points contain NaN or infinity: {self.points[row, column]} at row {self.order[row]}, "
                    f"{self._feature_name(column)}, of distribution {self._name_of_row(row)!r}; drop the point or fill "
                    "the value"
                )

    def _normalise(self, weights: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return masses with sum 1 in every distribution, and the mask of distributions with equal masses."""
        starts, sizes = self.bounds[:-1], self.sizes
        if weights is None:
            return np.repeat(1.0 / sizes, sizes), np.ones(len(self), bool)
        weights = self._per_point("weights", real_array(weights, "weights")).astype(np.float64)
        is_bad = ~np.isfinite(weights) | (weights < 0)
        if is_bad.any():
            row = int(np.argmax(is_bad))
            where = f"row {self.order[row]} of distribution {self._name_of_row(row)!r}"
            raise ValueError(f"weights must be finite and not negative: {weights[row]} at {where}")
        largest = np.maximum.reduceat(weights, starts)
        uniform = largest == np.minimum.reduceat(weights, starts)
        weights = weights / np.repeat(np.where(largest > 0, largest, 1.0), sizes)  # prevents overflow of the sums
        totals = np.add.reduceat(weights, starts)
        if not np.all(totals > 0):
            name = self.names[int(np.argmin(totals > 0))]
            raise ValueError(f"distribution {name!r} has zero total weight: drop it or give one of its points a mass")
        return weights / np.repeat(totals, sizes), uniform


def resolve_n_points(n_points: int | str | None, D: Distributions) -> int | None:
    """Return the number of points per distribution for "equal" (`common_size`), a number, or None (all points)."""
    if n_points is None:
        return None
    if isinstance(n_points, str):
        if n_points != "equal":
            raise ParameterError("n_points", n_points, ": expected 'equal', a whole number of at least 1 or None")
        return D.with_mass().common_size()
    check_number("n_points", n_points, low=1, whole=True)
    return int(n_points)


def with_equal_points(
    D: Distributions, n: int | None, *, random_state: RandomState = 0, warn: bool = True, stacklevel: int = 2
) -> Distributions:
    """Return the distributions with `n` points each, drawn by `Distributions.equalize`; None: all points.

    If all distributions have `n` points, the object itself is returned. A SmallSampleWarning names smaller ones.
    """
    if n is None:
        return D
    D = D.with_mass()
    sizes = np.floor(D.effective_sizes + 1e-6)
    small = np.flatnonzero(sizes < n)
    if small.size and warn:
        warnings.warn(SmallSampleWarning([D.names[d] for d in small], n), stacklevel=stacklevel + 1)
    return D if np.all(sizes <= n) else D.equalize(n, random_state=random_state)


def as_distributions(X: Any) -> Distributions:
    """Return Distributions unchanged; convert several arrays, or the rows of a 2-D array, to one distribution each."""
    X = gathered(X)
    if isinstance(X, Distributions):
        return X
    D = Distributions(X, np.arange(X.shape[0] if hasattr(X, "shape") else len(X)))
    return named_rows(D, NameIndex.of(X))


def gathered(X: Any) -> Any:
    """Convert a list of 2-D arrays or a 3-D array to Distributions without names; return other input unchanged."""
    if isinstance(X, Distributions) or not _are_sets(X):
        return X
    D = Distributions.from_arrays(list(X))
    D._named = False
    return D


def named_rows(D: Distributions, name_index: NameIndex) -> Distributions:
    """Give distributions of one row each the names of the rows, which may repeat."""
    D._named = name_index.names is not None
    if name_index.names is not None:
        D.names = list(name_index.names)
    D._numberings = None  # callers may have sliced the array or data frame
    return D


def _as_points(points: Any, name: str = "points") -> Any:
    """Return a 2-D array or CSR matrix of float32 or float64; copy only if necessary."""
    if sparse.issparse(points):
        points = points.tocsr()
        points = sparse.csr_matrix((real_array(points.data, name), points.indices, points.indptr), points.shape)
    else:
        points = np.ascontiguousarray(real_array(points, name))
    if points.ndim != 2:
        raise ValueError(f"{name} have shape {points.shape}: expected two dimensions, (n_points, n_features)")
    if points.shape[1] == 0:
        raise ValueError(f"{name} have 0 features: at least one is needed")
    return points


def _are_sets(X: Any) -> bool:
    """Return whether X is a list of point sets (or a 3-D array) rather than a single table of points."""
    if getattr(X, "ndim", None) == 3:
        return True
    if not isinstance(X, list | tuple) and str(getattr(X, "dtype", "")) != "object":
        return False
    if not len(X) or getattr(X, "ndim", 1) != 1 or hasattr(X, "iloc"):
        return False
    first = X[0]
    nested = isinstance(first, list | tuple) and len(first) > 0 and isinstance(first[0], list | tuple | np.ndarray)
    return getattr(first, "ndim", None) == 2 or nested


def _stack(arrays: list[Any], names: list[Hashable] | None, features: Any) -> tuple[Any, list[Hashable], Any]:
    """Return the points of all arrays, the name of the array of each point, and the names of the features."""
    names = list(range(len(arrays))) if names is None else names
    columns = [list(map(str, array.columns)) for array in arrays if hasattr(array, "columns")]
    if any(names != columns[0] for names in columns):
        raise ValueError("the data frames have different columns: give each the same, in the same order")
    sets = []
    for name, array in zip(names, arrays, strict=True):
        points = _as_points(array, f"the points of distribution {name!r}")
        if points.shape[0] == 0:
            raise ValueError(f"distribution {name!r} is empty: drop it or give it at least one point")
        sets.append(points)
    widths = {points.shape[1] for points in sets}
    if len(widths) > 1:
        raise ValueError(f"arrays have {sorted(widths)} features: all need the same")
    points = sparse.vstack(sets, format="csr") if any(map(sparse.issparse, sets)) else np.vstack(sets)
    samples = [name for name, points in zip(names, sets, strict=True) for _ in range(points.shape[0])]
    return points, samples, columns[0] if features is None and columns else features


def _number_samples(samples: Iterable[Hashable]) -> tuple[list[Hashable], np.ndarray]:
    """Return names in order of first appearance, and the position of each entry's name in this list."""
    refuse_mask(samples, "samples")
    array = samples.to_numpy() if hasattr(samples, "to_numpy") else samples
    if isinstance(array, np.ndarray) and array.ndim != 1:
        raise ValueError(f"samples has shape {array.shape}: expected one entry per point, e.g. a single column")
    if isinstance(array, np.ndarray) and array.dtype != object:  # numpy is faster for millions of points
        values, first, codes = np.unique(array, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(values.size, np.intp)
        rank[order] = np.arange(values.size)
        values, codes = values[order], rank[codes]
        names = list(values) if values.dtype.kind in "mM" else values.tolist()  # tolist turns dates into numbers
    else:
        number_of: dict[Hashable, int] = {}
        codes = np.fromiter((number_of.setdefault(sample, len(number_of)) for sample in samples), np.intp)
        names = list(number_of)
    for name in names:
        if is_missing(name):
            raise ValueError(f"samples contain a missing value ({name!r}): every point needs a distribution")
    return names, codes


def _moments(points: Any, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of every feature, in double precision and without a copy of the points."""
    if sparse.issparse(points):
        from sklearn.utils.sparsefuncs import mean_variance_axis

        weights = None if weights is None else weights.astype(points.dtype)
        mean, variance = mean_variance_axis(points, axis=0, weights=weights)
        return mean.astype(np.float64), variance.astype(np.float64)
    # Deviations from the first point rather than from zero: the variance of a constant feature is exactly 0.
    origin = points[0].astype(np.float64)
    total, squares = np.zeros(points.shape[1]), np.zeros(points.shape[1])
    rows = max(1, _BLOCK_ENTRIES // points.shape[1])
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
