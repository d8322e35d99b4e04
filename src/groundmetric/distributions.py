"""Distributions: many weighted point sets over one feature space, ready to be sliced like an array."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from ._internal.types import LabelsLike, PointsLike, RandomState
from ._internal.validation import (
    NameIndex,
    ParameterError,
    align_by_name,
    are_sets,
    as_points,
    check_features,
    check_number,
    first_not_finite,
    keyed_generator,
    keyed_uniform,
    lost_variance,
    moments,
    number_samples,
    real_array,
    refuse_groups,
    refuse_mask,
    resolve_seed,
    stack,
)

# Points of which the means are taken at a time, about.
_BLOCK = 8192
# Names that a warning shows.
_NAMED = 5
# Distributions of fewer points do not lower the number of points that all are compared with.
_LEAST_COMMON = 10
# Share of the distributions that may have fewer points than the common number.
_SHARE_SMALLER = 0.1


class SmallSampleWarning(UserWarning):
    """Distributions have fewer points than the number that all are compared with.

    Parameters
    ----------
    names : list
        Names of these distributions.
    n : int
        Number of points that the others are compared with.

    Examples
    --------
    >>> SmallSampleWarning(["ann"], 30).names
    ['ann']
    """

    def __init__(self, names: list[Hashable], n: int) -> None:
        super().__init__(names, n)
        self.names, self.n = names, n

    def __str__(self) -> str:
        more = len(self.names) - _NAMED
        shown = ", ".join(repr(name) for name in self.names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        count = "1 distribution has" if len(self.names) == 1 else f"{len(self.names)} distributions have"
        return (
            f"{count} fewer than {self.n} points ({shown}), which makes distances to all others larger: exclude small "
            f"distributions, D[D.sizes >= {self.n}], or compare all by fewer points"
        )


class Distributions:
    """A cohort of distributions: patients as sets of cells, documents as sets of words, shapes as sets of points.

    Parameters
    ----------
    points : array or sparse matrix of shape (n_points, n_features), or sequence of these
        All points of all distributions, in any row order. float32 stays float32, everything else becomes float64.
        Without `samples`: the points of each distribution, as a list of arrays of shape (n_i, n_features) or one array
        of shape (n_distributions, n_points, n_features); see `from_arrays`.
    samples : sequence of length n_points or None, default=None
        Distribution that each point belongs to, as any hashable value. Required where `points` are one table.
    weights : sequence of length n_points or None, default=None
        Mass of each point, scaled so that every distribution has mass 1. None means equal masses.
    features : sequence of str or None, default=None
        Names of the features. None takes the names of the columns where `points` is a data frame.
    annotations : dict of str to sequences of length n_points or None, default=None
        Further values of each point (the type of a cell, say). Learning ignores them; slices include them.
    **other : Any
        Refused with a TypeError; for `groups`, the error says that `samples` is meant.

    Attributes
    ----------
    names : list
        The samples, in the order in which they first appear. Labels with names (a Series, a dict) are matched to these,
        labels without names are in this order.
    points : array or CSR matrix
        The points, those of one distribution in consecutive rows.
    bounds : array of shape (n_distributions + 1,)
        Distribution d has the rows ``bounds[d]:bounds[d + 1]`` of `points`.
    weights : array of shape (n_points,)
        Masses; those of one distribution sum to 1.
    order : array of shape (n_points,)
        Row of the input that each row of `points` comes from.
    uniform : array of bool of shape (n_distributions,)
        True for distributions whose points are known to have the same mass.
    features : list of str or None
        Names of the features.
    annotations : dict of arrays
        Annotations in the order of `points`.

    Notes
    -----
    Where `points` (or else `samples`) has a pandas index, those of `samples`, `weights` and `annotations` that have an
    index too are matched by it; without an index they are matched by position.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0, 1.0], [5.0, 5.0], [2.0, 3.0]], samples=["ann", "bob", "ann"])
    >>> D.names, D.sizes.tolist()
    (['ann', 'bob'], [2, 1])
    >>> D[[1, 0]].names
    ['bob', 'ann']
    >>> gm.Distributions([[[0.0, 1.0], [2.0, 3.0]], [[5.0, 5.0]]]).sizes.tolist()  # a distribution in each
    [2, 1]
    """

    # Whether the names are somebody's, so that labels with names go by them; not of rows of an array without an index.
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
        refuse_groups(other, "Distributions")
        if isinstance(points, Distributions):
            raise TypeError("points are Distributions already: pass them on as they are")
        if samples is None:
            points, samples, features = _stacked(points, features)
        if features is None and hasattr(points, "columns"):
            features = [str(column) for column in points.columns]
        name_index = NameIndex.of(points, samples, items="points")
        points = as_points(points)
        names, codes = number_samples(align_by_name(samples, name_index, "samples"))
        if codes.size != points.shape[0]:
            raise ValueError(f"samples has {codes.size} entries for {points.shape[0]} points: one is needed per point")
        if points.shape[0] == 0:
            raise ValueError("no points: at least one distribution with one point is needed")
        sizes = np.bincount(codes, minlength=len(names))
        order = np.arange(codes.size)
        if np.any(np.diff(codes) < 0):  # points already together are not copied
            order = np.argsort(codes, kind="stable")
            points = points[order]
        self.names: list[Hashable] = names
        self._numberings: list[np.ndarray] | None = []
        self.points: Any = points  # array or CSR matrix
        self.order = order
        self.bounds = np.concatenate([[0], np.cumsum(sizes)])
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
        """Make one distribution of each array, all of its points with the same mass.

        Parameters
        ----------
        arrays : sequence of arrays or sparse matrices of shape (n_points, n_features)
            Points of each distribution: at least one, and the same number of features in all.
        names : sequence of hashable values or None, default=None
            Name of each distribution, without repetition. None names them 0, 1, 2, ….
        features : sequence of str or None, default=None
            Names of the features. None takes the names of the columns where the arrays are data frames.

        Returns
        -------
        Distributions
            The distributions in the order of the arrays.

        Examples
        --------
        >>> import numpy as np
        >>> len(Distributions.from_arrays([np.zeros((3, 2)), np.ones((5, 2))]))
        2
        """
        if names is not None:
            names = list(names)
            if len(names) != len(arrays):
                raise ValueError(f"{len(names)} names for {len(arrays)} arrays: one is needed per array")
            if len(set(names)) < len(names):
                raise ValueError("names are not unique: each array is a distribution of its own")
        if not len(arrays):
            raise ValueError("no arrays: at least one distribution with one point is needed")
        points, samples, features = stack(list(arrays), names, features)
        return cls(points, samples, features=features)

    @property
    def sizes(self) -> np.ndarray:
        """Number of points of each distribution."""
        return np.diff(self.bounds)

    @property
    def shape(self) -> tuple[int, int]:
        """(number of distributions, number of features), so that scikit-learn counts and slices distributions."""
        return len(self.names), self.points.shape[1]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, indices: Any) -> Distributions:
        """The distributions at these places (integers, a slice, or a mask, which may carry names), in that order."""
        if isinstance(indices, tuple):  # scikit-learn asks for X[indices, ...]
            indices = indices[0]
        chosen = np.atleast_1d(np.arange(len(self))[self._as_places(indices)])
        rows = self._rows(chosen)
        part = object.__new__(Distributions)
        part.names, part._named = [self.names[d] for d in chosen], self._named
        whole = np.array_equal(chosen, np.arange(len(self)))  # a sparse matrix would be copied all the same
        part._numberings = self._numberings if whole else self._sliced_numberings(chosen)
        part.points = self.points if whole else self.points[rows]
        part.order = self.order[rows]
        part.bounds = np.concatenate([[0], np.cumsum(self.sizes[chosen])])
        part.features = self.features
        part.weights = self.weights[rows]
        part.uniform = self.uniform[chosen]
        part.annotations = {key: values[rows] for key, values in self.annotations.items()}
        return part

    def __repr__(self) -> str:
        return f"Distributions({len(self)} distributions, {self.points.shape[0]} points, {self.shape[1]} features)"

    @property
    def name_index(self) -> NameIndex:
        """The names in their order: what `validation.align_by_name` asks for."""
        return NameIndex(self.names, self._numberings) if self._named else NameIndex(None, None, n=len(self))

    def __array__(self, *arguments: Any, **options: Any) -> np.ndarray:
        """Refused: one array of all points would not say which distribution they are of."""
        raise TypeError(
            "Distributions are no array: a step of scikit-learn that works on points, such as StandardScaler(), takes "
            "them as PointwiseTransformer(StandardScaler()); all points together are in `.points`"
        )

    def with_points(self, points: PointsLike, features: Sequence[str] | None = None) -> Distributions:
        """Replace the coordinates of all points; names, masses and annotations stay the same.

        Parameters
        ----------
        points : array or sparse matrix of shape (n_points, n_features)
            New coordinates, one row for each row of the present `points`; the number of features may differ.
        features : sequence of str or None, default=None
            Names of the new features. None means that they have no names.

        Returns
        -------
        Distributions
            New distributions; the present ones are not changed.
        """
        part = self[:]
        points = as_points(points)
        if points.shape[0] != self.points.shape[0]:
            raise ValueError(f"{points.shape[0]} points in place of {self.points.shape[0]}: one is needed for each")
        part.points, part.features = points, check_features(features, points.shape[1])
        part._check_finite()
        return part

    def with_mass(self) -> Distributions:
        """Remove points of zero mass (below 2⁻⁶⁰), which take no part in transport.

        Returns
        -------
        Distributions
            The distributions without these points; the object itself where there are none.
        """
        keep = np.flatnonzero(self.weights >= 2.0**-60)
        return self if keep.size == self.weights.size else self._keep_rows(keep)

    def subsample(self, n: int, *, random_state: RandomState = None) -> Distributions:
        """Draw at most `n` points of each distribution at random, without replacement.

        The masses of the drawn points are scaled so that every distribution has mass 1 again. The draw of a
        distribution depends on the seed, its name and its points only: not on the order of the rows, nor on the other
        distributions.

        Parameters
        ----------
        n : int
            Points per distribution; a distribution of fewer points keeps all.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        Distributions
            The same distributions with the points that were drawn, in the order that they had.

        See Also
        --------
        equalize : The same number of points for all distributions.

        Examples
        --------
        >>> Distributions([[0.0], [1.0], [2.0]], samples=["a", "a", "b"]).subsample(1, random_state=0).sizes.tolist()
        [1, 1]
        """
        if not isinstance(n, numbers.Integral) or n < 1:
            raise ValueError(f"n is {n!r}: a whole number of at least 1 is needed")
        seed, directions = resolve_seed(random_state), self._directions()
        drawn = []
        for d, (low, size) in enumerate(zip(self.bounds[:-1], self.sizes, strict=True)):
            rows = np.arange(low, low + size)
            if size > n:
                chosen = keyed_generator(seed, self.names[d]).permutation(size)[:n]
                rows = np.sort(self._canonical_rows(d, directions)[chosen])
            drawn.append(rows)
        part = self._keep_rows(np.concatenate(drawn))
        totals = np.add.reduceat(part.weights, part.bounds[:-1])
        empty = np.flatnonzero(totals <= 0.0)
        if empty.size:
            raise ValueError(f"the points drawn from {self.names[empty[0]]!r} have no mass: use `with_mass()` first")
        part.weights = part.weights / np.repeat(totals, part.sizes)
        return part

    @property
    def effective_sizes(self) -> np.ndarray:
        """Kish's effective sample size of each distribution: its number of points where all have the same mass."""
        squares = np.add.reduceat(np.square(self.weights), self.bounds[:-1])
        return np.where(self.uniform, self.sizes, np.minimum(1.0 / squares, self.sizes))

    def common_size(self, max_points: int | None = None) -> int:
        """Return a number of points that all distributions can be compared with.

        Empirical Wasserstein distances grow as distributions have fewer points, so that distributions of different
        sizes are compared by equal numbers of points. This is the smallest (effective) size, except that one
        distribution, or a tenth of them, may be smaller than the result if it is at most 10 and half the median size:
        a few very small distributions do not decide for all. If more were smaller, as when one class has few points,
        their number of points would act as a feature.

        Parameters
        ----------
        max_points : int or None, default=None
            Upper limit.

        Returns
        -------
        int
            Number of points.

        Examples
        --------
        >>> D = Distributions(np.zeros((130, 1)), np.repeat(["a", "b"], [30, 100]))
        >>> D.common_size(), D.common_size(max_points=20)
        (30, 20)
        """
        sizes = np.sort(np.floor(self.effective_sizes + 1e-6))
        n_smaller = min(max(1, int(_SHARE_SMALLER * len(sizes))), len(sizes) - 1)
        size = max(int(sizes[0]), int(min(_LEAST_COMMON, np.median(sizes) // 2, sizes[n_smaller])), 1)
        return size if max_points is None else min(size, int(max_points))

    def equalize(self, n: int | None = None, *, random_state: RandomState = 0) -> Distributions:
        """Draw the same number of points from each distribution, so that their distances are comparable.

        Points of equal mass are drawn without replacement. Where masses differ, a point is drawn with a probability
        proportional to its mass (systematic sampling), and drawn points have equal masses. The draw of a distribution
        depends on the seed, its name and its points only.

        Parameters
        ----------
        n : int or None, default=None
            Points per distribution; a distribution of fewer points keeps all. None: `common_size()`.
        random_state : int, RandomState or None, default=0
            Seed of the draw.

        Returns
        -------
        Distributions
            The same distributions with the drawn points, in an order that does not depend on that of the rows.

        Examples
        --------
        >>> D = Distributions(np.arange(130.0)[:, None], np.repeat(["a", "b"], [30, 100]))
        >>> D.equalize().sizes.tolist()
        [30, 30]
        """
        n = self.common_size() if n is None else n
        if not isinstance(n, numbers.Integral) or n < 1:
            raise ValueError(f"n is {n!r}: a whole number of at least 1 is needed")
        seed, directions = resolve_seed(random_state), self._directions()
        drawn, masses, uniform = [], [], []
        for d in range(len(self)):
            rows = self._canonical_rows(d, directions)
            if self.uniform[d]:
                if rows.size > n:
                    rows = rows[np.sort(keyed_generator(seed, self.names[d]).permutation(rows.size)[:n])]
                mass = np.full(rows.size, 1.0 / rows.size)
            elif self.effective_sizes[d] <= n:
                mass = self.weights[rows]
            else:
                random = keyed_generator(seed, self.names[d])
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
        """Return one number for each feature, by its name where it has one, that orders points (see below)."""
        return keyed_uniform(self.features if self.features is not None else range(self.shape[1]), "direction") - 0.5

    def _canonical_rows(self, d: int, directions: np.ndarray) -> np.ndarray:
        """Return the rows of a distribution in an order that depends on its points, not on the order of the rows."""
        low, high = self.bounds[d], self.bounds[d + 1]
        return low + np.argsort(self.points[low:high] @ directions, kind="stable")

    def _keep_rows(self, rows: np.ndarray) -> Distributions:
        """The same distributions with these rows of `points` only, at least one of each."""
        part = self[:]
        owner = np.repeat(np.arange(len(self)), self.sizes)[rows]
        part.points, part.order, part.weights = self.points[rows], self.order[rows], self.weights[rows]
        part.bounds = np.searchsorted(owner, np.arange(len(self) + 1))
        part.annotations = {key: values[rows] for key, values in self.annotations.items()}
        return part

    def means(self) -> np.ndarray:
        """Mean of the points of each distribution, weighted by their masses.

        Returns
        -------
        array of shape (n_distributions, n_features)
            A row for each distribution.
        """
        means = np.empty(self.shape)
        if not sparse.issparse(self.points):
            for d, (low, high) in enumerate(pairwise(self.bounds)):
                np.einsum("p,pf->f", self.weights[low:high], self.points[low:high], out=means[d])
            return means
        # Some at a time: a product makes a copy of the points in double precision.
        cuts = np.flatnonzero(np.diff(self.bounds[:-1] // _BLOCK)) + 1
        for low, high in pairwise([0, *cuts.tolist(), len(self)]):
            start, stop = self.bounds[low], self.bounds[high]
            weights = self.weights[start:stop], np.arange(stop - start), self.bounds[low : high + 1] - start
            product = sparse.csr_matrix(weights, (high - low, stop - start)) @ self.points[start:stop]
            means[low:high] = product.toarray()
        return means

    def moments(self, *, weighted: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of every feature over all points, in double precision and without a copy of the points.

        Parameters
        ----------
        weighted : bool, default=True
            A point counts as its mass times the number of points of its distribution: as one where all of these have
            the same mass. False: every point counts as one.

        Returns
        -------
        means : array of shape (n_features,)
            Mean of each feature.
        variances : array of shape (n_features,)
            Variance of each feature; exactly 0 for a constant one.

        Examples
        --------
        >>> means, variances = Distributions([[0.0], [2.0], [4.0]], samples=["a", "a", "b"]).moments()
        >>> means.tolist(), variances.round(3).tolist()
        ([2.0], [2.667])
        """
        weights = None if not weighted or self.uniform.all() else self.weights * np.repeat(self.sizes, self.sizes)
        with np.errstate(over="ignore", invalid="ignore"):
            means, variances = moments(self.points, weights)
        for bad, remedy in ((~np.isfinite(variances), "divide"), (lost_variance(self.points, variances), "multiply")):
            if bad.any():
                name = self._feature_name(int(np.argmax(bad)))
                raise ValueError(f"the variance of {name} is out of the range of numbers: {remedy} it by a constant")
        return means, variances

    def _as_places(self, indices: Any) -> Any:
        """A mask with names goes by these: ``D[y == "ill"]`` for a `y` that is sorted by name."""
        refuse_mask(indices, "indices")
        if str(getattr(indices, "dtype", "")) in ("bool", "boolean") or isinstance(indices, Mapping):
            return np.asarray(align_by_name(indices, self.name_index, "indices"), dtype=bool)
        return indices

    def _sliced_numberings(self, chosen: np.ndarray) -> list[np.ndarray] | None:
        """Rows that the chosen ones have here, and had before: an index of these means position (see `NameIndex`)."""
        if self._numberings is None:
            return None
        return [chosen, *(rows[chosen] for rows in self._numberings)]

    def _rows(self, chosen: np.ndarray) -> slice | np.ndarray:
        """Rows of the chosen distributions; a slice where they are consecutive, so that nothing is copied."""
        if chosen.size and np.all(np.diff(chosen) == 1):
            return slice(self.bounds[chosen[0]], self.bounds[chosen[-1] + 1])
        parts = [np.arange(self.bounds[d], self.bounds[d + 1]) for d in chosen]
        return np.concatenate(parts) if parts else np.empty(0, np.intp)

    def _per_point(self, key: str, values: Any) -> np.ndarray:
        """An input with one entry per point, in the order of `points`."""
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
        where = first_not_finite(self.points)
        if where is None:
            return
        row, column = where
        feature, name = self._feature_name(column), self._name_of_row(row)
        raise ValueError(
            f"points contain NaN or infinity: {self.points[row, column]} at row {self.order[row]}, {feature}, of "
            f"distribution {name!r}; drop the point or fill the value"
        )

    def _normalise(self, weights: Any) -> tuple[np.ndarray, np.ndarray]:
        """Masses that sum to 1 in every distribution, and which distributions have equal masses."""
        starts, sizes = self.bounds[:-1], self.sizes
        if weights is None:
            return np.repeat(1.0 / sizes, sizes), np.ones(len(self), bool)
        weights = self._per_point("weights", real_array(weights, "weights")).astype(np.float64)
        bad = ~np.isfinite(weights) | (weights < 0)
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(
                f"weights must be finite and not negative: {weights[row]} at row {self.order[row]} of distribution "
                f"{self._name_of_row(row)!r}"
            )
        largest = np.maximum.reduceat(weights, starts)
        uniform = largest == np.minimum.reduceat(weights, starts)
        weights = weights / np.repeat(np.where(largest > 0, largest, 1.0), sizes)  # so that no sum overflows
        totals = np.add.reduceat(weights, starts)
        if not np.all(totals > 0):
            name = self.names[int(np.argmin(totals > 0))]
            raise ValueError(f"distribution {name!r} has zero total weight: drop it or give one of its points a mass")
        return weights / np.repeat(totals, sizes), uniform


def resolve_n_points(n_points: int | str | None, D: Distributions) -> int | None:
    """Return the number of points per distribution that a parameter `n_points` means for a cohort.

    "equal" is `common_size()` of the distributions without points of zero mass, None all points.

    >>> D = Distributions(np.zeros((130, 1)), np.repeat(["a", "b"], [30, 100]))
    >>> resolve_n_points("equal", D), resolve_n_points(20, D), resolve_n_points(None, D)
    (30, 20, None)
    """
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
    """Return the distributions with `n` points each, drawn by `Distributions.equalize`; as given where n is None.

    Distributions that have `n` points each are returned as they are. A SmallSampleWarning names those with fewer.

    >>> D = Distributions(np.arange(130.0)[:, None], np.repeat(["a", "b"], [30, 100]))
    >>> drawn = with_equal_points(D, 20)
    >>> drawn.sizes.tolist(), with_equal_points(drawn, 20) is drawn
    ([20, 20], True)
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
    """X itself; a distribution of each of several arrays; or of each row of a 2-D array, named by its index if any."""
    X = gathered(X)
    if isinstance(X, Distributions):
        return X
    D = Distributions(X, np.arange(X.shape[0] if hasattr(X, "shape") else len(X)))
    return named_rows(D, NameIndex.of(X))


def gathered(X: Any) -> Any:
    """Distributions of a list of 2-D arrays or a 3-D array, which go by position; anything else as it is."""
    if isinstance(X, Distributions) or not are_sets(X):
        return X
    D = Distributions.from_arrays(list(X))
    D._named = False
    return D


def _stacked(points: Any, features: Sequence[str] | None) -> tuple[Any, Any, Any]:
    """All points of several arrays, the number of the array of each, and names of the features."""
    if not are_sets(points):
        raise TypeError(
            "samples are missing: say which distribution each point belongs to, or give a list of arrays, one for each"
        )
    return stack(list(points), None, features)


def named_rows(D: Distributions, name_index: NameIndex) -> Distributions:
    """Distributions of one row each, in the order of the rows, with the names of these, which may repeat."""
    D._named = name_index.names is not None
    if name_index.names is not None:
        D.names = list(name_index.names)
    D._numberings = None  # others slice arrays and data frames, and leave no trace
    return D
