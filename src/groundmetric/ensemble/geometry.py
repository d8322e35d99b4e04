"""Geometry of a cohort: everything an ensemble computes from the points without using a label.

Every distribution is represented by the same number of points, drawn once and keyed by its name: empirical Wasserstein
distances grow as samples get smaller, so unequal numbers of points would act as a feature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.utils.extmath import randomized_svd

from .._internal.files import Damaged
from .._internal.validation import keyed_generator, keyed_uniform
from ..distributions import Distributions
from ..transport import pairwise

# Largest cohort in which all pairs of distributions are compared, and landmarks of larger cohorts. Their kernels have a
# column per landmark (Nyström approximation; Williams & Seeger 2001), and other distances are interpolated.
MAX_EXACT, N_LANDMARKS = 256, 128
# Interpolated distances shrink an axis of variance v by v / (v + this times the mean variance), because axes of little
# variance are noise. On two cohorts of 400 and 634 distributions, 0.3 to 1 had the smallest errors.
_SHRINKAGE = 0.5
# Points per distribution in means, standard deviations and quantile functions, which are cheap.
_MAX_MARGINAL_POINTS = 1000
# Quantiles that describe a feature of a distribution.
_N_QUANTILES = 20
# Principal components for Euclidean transport between points of more features.
MAX_EUCLIDEAN_COMPONENTS = 50
# Points from which principal components and the width of mean embeddings are estimated.
_MAX_ESTIMATION_POINTS = 4000
# Clusters of points whose proportions describe a distribution, and steps of k-means.
_N_CLUSTERS, _CLUSTER_STEPS = 20, 20
# Bandwidths of mean embeddings, in units of the median distance between points, and random features of each.
BANDWIDTHS = (0.25, 0.5, 1.0, 2.0)
_N_FREQUENCIES = 200
# Distributions that each distribution is compared with by 1-D distances, and entries of their array (400 MB), at most.
_MAX_PARTNERS, _MAX_MARGINAL_ENTRIES = 256, 10**8
# Features whose quantiles are computed at a time.
_BLOCK = 256
# Points of a large cohort that are standardised and projected at a time: all dense points may exceed the memory.
_MAX_DENSE_POINTS = 10_000


@dataclass(frozen=True)
class Scaling:
    """Label-free transformation of points, by which training and new distributions become comparable."""

    seed: int  # of the subsamples
    n_points: int  # points per distribution in transport
    n_marginal_points: int  # points per distribution in statistics of single features
    centre: np.ndarray  # mean of each feature over the subsamples
    scale: np.ndarray  # standard deviation of each feature; infinite for a constant feature
    # Principal axes of the standardised features for Euclidean transport, (n_components, n_features); None: the
    # features themselves.
    axes: np.ndarray | None
    width: float  # median distance between points in that space, the unit of the bandwidths of mean embeddings
    clusters: np.ndarray  # centres of clusters of points in that space (k-means)

    @classmethod
    def fit(cls, D: Distributions, seed: int, max_points: int) -> Scaling:
        """Estimate the transformation from training distributions."""
        n_marginal_points = D.common_size(_MAX_MARGINAL_POINTS)
        drawn = D.equalize(n_marginal_points, random_state=seed)
        centre, variance = drawn.moments(weighted=False)
        scale = np.where(variance > 0, np.sqrt(variance), np.inf)
        n_rows = drawn.points.shape[0]
        rows = np.linspace(0, n_rows - 1, min(_MAX_ESTIMATION_POINTS, n_rows)).astype(np.intp)
        points = standardise(drawn.points[rows], centre, scale)
        axes = None
        if points.shape[1] > MAX_EUCLIDEAN_COMPONENTS:
            n_components = min(MAX_EUCLIDEAN_COMPONENTS, *points.shape)
            # Contiguous like an array from a file: products of matrices may differ in the last bit by layout.
            axes = np.ascontiguousarray(randomized_svd(points - points.mean(axis=0), n_components, random_state=0)[2])
        z = points if axes is None else points @ axes.T
        # Random pairs of points, in an order that depends neither on that of the rows nor on units of features.
        random = keyed_generator(seed, "width")
        z = z[np.argsort(points @ random.normal(size=points.shape[1]), kind="stable")][random.permutation(len(z))]
        gaps = np.linalg.norm(z - np.roll(z, 1, axis=0), axis=1)
        width = float(np.median(gaps)) or 1.0
        from sklearn.cluster import kmeans_plusplus  # takes 0.1 s, and predictions do not need it

        # k-means in own code: the same bits for any number of threads.
        n_clusters = min(_N_CLUSTERS, max(1, len(z) // 5))
        random_state = np.random.RandomState(int(keyed_generator(seed, "clusters").integers(2**31)))
        clusters = kmeans_plusplus(z, n_clusters, random_state=random_state)[0]
        for _ in range(_CLUSTER_STEPS):
            nearest = np.argmin(cdist(z, clusters, "sqeuclidean"), axis=1)
            members = nearest == np.arange(n_clusters)[:, None]
            used = members.any(axis=1)
            clusters[used] = (members[used] @ z) / members[used].sum(axis=1, keepdims=True)
        return cls(seed, D.common_size(max_points), n_marginal_points, centre, scale, axes, width, clusters)

    @property
    def n_components(self) -> int:
        """Dimensions of the points for Euclidean transport."""
        return self.scale.size if self.axes is None else len(self.axes)

    def describe(self, D: Distributions) -> Description:
        """Return the description of training or new distributions, each independent of the other distributions."""
        drawn = D.equalize(self.n_marginal_points, random_state=self.seed)
        # Points for transport are a subset of the points for single features.
        return Description(self, drawn, drawn.equalize(self.n_points, random_state=self.seed), D.sizes)

    def pack(self, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        """Add the arrays of the transformation, and return the numbers that JSON holds."""
        arrays |= {f"{prefix}.{name}": getattr(self, name) for name in ("centre", "scale", "clusters")}
        if self.axes is not None:
            arrays[f"{prefix}.axes"] = self.axes
        return {name: getattr(self, name) for name in ("seed", "n_points", "n_marginal_points", "width")}

    @classmethod
    def unpack(cls, reader: ArrayReader, entry: Mapping[str, Any], prefix: str, n_features: int | None) -> Scaling:
        """Return the validated transformation from the output of `pack`."""
        centre = reader.numbers(f"{prefix}.centre", n_features)
        scale = reader.scales(f"{prefix}.scale", centre.size)
        axes = reader.numbers(f"{prefix}.axes", None, centre.size) if f"{prefix}.axes" in reader.arrays else None
        n_points, n_marginal_points = (int(entry[name]) for name in ("n_points", "n_marginal_points"))
        width = positive(entry["width"], "the width")
        if min(n_points, n_marginal_points) < 1:
            raise Damaged("numbers of points are not positive")
        clusters = reader.numbers(f"{prefix}.clusters", None, centre.size if axes is None else len(axes))
        return cls(int(entry["seed"]), n_points, n_marginal_points, centre, scale, axes, width, clusters)


class Description:
    """Equal-sized subsamples of distributions, and the features of distributions that views use.

    `drawn` are points for statistics of single features, `transported` for transport; `sizes` the numbers before.
    """

    def __init__(self, scaling: Scaling, drawn: Distributions, transported: Distributions, sizes: np.ndarray) -> None:
        self.scaling, self.drawn, self.transported, self.sizes = scaling, drawn, transported, sizes

    def __len__(self) -> int:
        return len(self.transported)

    def subset(self, rows: np.ndarray) -> Description:
        """Return the description of some distributions; features of single distributions are not computed again."""
        part = Description(self.scaling, self.drawn[rows], self.transported[rows], self.sizes[rows])
        for name in ("means", "deviations", "embedding", "composition", "quantiles"):
            setattr(part, name, getattr(self, name)[rows])
        return part

    @property
    def small(self) -> np.ndarray:
        """Indices of distributions with fewer than `scaling.n_points` points."""
        return np.flatnonzero(self.sizes < self.scaling.n_points)

    def pack(self, used: np.ndarray, rows: np.ndarray, prefix: str, arrays: dict[str, np.ndarray]) -> None:
        """Add the arrays of these features and distributions (ascending indices) that `StoredDescription` reads."""
        arrays |= {f"{prefix}.used": used, f"{prefix}.quantiles": self.quantiles_of(used)[rows]}
        pack_distributions(self.part(rows, used), prefix, arrays)

    def part(self, rows: np.ndarray, columns: np.ndarray) -> Distributions:
        """Return the points for transport of some distributions, with some standardised features."""
        scaling, D = self.scaling, self.transported[rows]
        return D.with_points(standardise(D.points[:, columns], scaling.centre[columns], scaling.scale[columns]))

    @cached_property
    def euclidean(self) -> Distributions:
        """Points for transport, standardised and projected to the principal axes."""
        scaling, points = self.scaling, self.transported.points
        step = points.shape[0] if len(self) <= MAX_EXACT else _MAX_DENSE_POINTS
        blocks = []
        for low in range(0, points.shape[0], step):
            block = standardise(points[low : low + step], scaling.centre, scaling.scale)
            blocks.append(block if scaling.axes is None else block @ scaling.axes.T)
        return self.transported.with_points(np.vstack(blocks))

    @cached_property
    def means(self) -> np.ndarray:
        """Standardised means, (n_distributions, n_features)."""
        return (self.drawn.means() - self.scaling.centre) / self.scaling.scale

    @cached_property
    def deviations(self) -> np.ndarray:
        """Standard deviations in units of the scale, (n_distributions, n_features)."""
        variances = [self.drawn[[d]].moments()[1] for d in range(len(self))]
        return np.sqrt(variances) / self.scaling.scale

    @property
    def moments(self) -> np.ndarray:
        """Means and standard deviations side by side, (n_distributions, 2 n_features)."""
        return np.hstack([self.means, self.deviations])

    @cached_property
    def embedding(self) -> np.ndarray:
        """Kernel mean embeddings by random Fourier features, at all bandwidths, (n_distributions, n_columns)."""
        step = max(MAX_EXACT, _MAX_DENSE_POINTS // self.scaling.n_points)
        parts = []
        for low in range(0, len(self), step):
            z = self.euclidean[low : low + step]
            columns = []
            for bandwidth in BANDWIDTHS:
                random = keyed_generator(self.scaling.seed, "frequencies", bandwidth)
                frequencies = random.normal(size=(z.shape[1], _N_FREQUENCIES)) / (self.scaling.width * bandwidth)
                phases = z.points @ frequencies
                columns += [z.with_points(np.cos(phases)).means(), z.with_points(np.sin(phases)).means()]
            parts.append(np.hstack(columns))
        return np.vstack(parts)

    @cached_property
    def composition(self) -> np.ndarray:
        """Centred log-ratios of the proportions of clusters of points, (n_distributions, n_clusters)."""
        D, clusters = self.euclidean, self.scaling.clusters
        parts = np.split(D.points, D.bounds[1:-1])
        nearest = np.concatenate([np.argmin(cdist(part, clusters, "sqeuclidean"), axis=1) for part in parts])
        shares = D.with_points((nearest[:, None] == np.arange(len(clusters))).astype(np.float64)).means()
        # Half a point is added to each count: a logarithm needs positive proportions.
        logs = np.log(shares + 0.5 / self.scaling.n_points)
        return logs - logs.mean(axis=1, keepdims=True)

    @cached_property
    def quantiles(self) -> np.ndarray:
        """Quantile functions of standardised features, float32 of shape (n_distributions, n_quantiles, n_features)."""
        return self.quantiles_of(np.arange(self.drawn.shape[1]))

    def quantiles_of(self, columns: np.ndarray) -> np.ndarray:
        """Return the quantile functions of the features `columns`."""
        if "quantiles" in vars(self):
            return self.quantiles[:, :, columns]
        levels = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
        D, scaling = self.drawn, self.scaling
        quantiles = np.empty((len(D), _N_QUANTILES, columns.size), dtype=np.float32)
        for d in range(len(D)):
            rows = slice(D.bounds[d], D.bounds[d + 1])
            masses = None if D.uniform[d] else D.weights[rows]
            for low in range(0, columns.size, _BLOCK):
                block = columns[low : low + _BLOCK]
                values = standardise(D.points[rows][:, block], scaling.centre[block], scaling.scale[block])
                if masses is None:
                    of_block = np.quantile(values, levels, axis=0, method="hazen")
                else:
                    order = np.argsort(values, axis=0)
                    below = np.cumsum(masses[order], axis=0) / masses.sum()
                    ranks = np.stack([np.argmax(below >= level - 1e-12, axis=0) for level in levels])
                    of_block = np.take_along_axis(np.take_along_axis(values, order, axis=0), ranks, axis=0)
                quantiles[d, :, low : low + _BLOCK] = of_block
        return quantiles


class StoredDescription(Description):
    """Training distributions from a file: standardised points and quantiles of the features `used` by members."""

    def __init__(self, scaling: Scaling, used: np.ndarray, points: Distributions, quantiles: np.ndarray) -> None:
        super().__init__(scaling, points, points, points.sizes)
        self.used, self.used_quantiles = used, quantiles

    def part(self, rows: np.ndarray, columns: np.ndarray) -> Distributions:
        D = self.transported[rows]
        return D.with_points(D.points[:, np.searchsorted(self.used, columns)])

    def quantiles_of(self, columns: np.ndarray) -> np.ndarray:
        return self.used_quantiles[:, :, np.searchsorted(self.used, columns)]

    @classmethod
    def unpack(cls, reader: ArrayReader, scaling: Scaling, prefix: str, n: int) -> StoredDescription | None:
        """Return the validated description from the output of `Description.pack`; None without members."""
        if f"{prefix}.used" not in reader.arrays:
            return None
        used = reader.indices(f"{prefix}.used", scaling.scale.size)
        if np.any(np.diff(used) <= 0):
            raise Damaged("features of members are not in ascending order")
        quantiles = reader.numbers(f"{prefix}.quantiles", n, None, used.size)
        return cls(scaling, used, reader.distributions(prefix, n, used.size), quantiles)


class Geometry:
    """The training distributions of an ensemble without their labels.

    `D` has the order of the names. `seed` decides the subsamples, of at most `max_points` points per distribution in
    transport. With `strata`, statistics of single features are relative to the mean of the stratum.
    """

    def __init__(
        self, D: Distributions, seed: int, max_points: int, strata: np.ndarray | None = None, n_jobs: int | None = None
    ) -> None:
        self.names, self.features, self.strata, self.n_jobs = list(D.names), D.features, strata, n_jobs
        # No label decides, so the choice is valid for every cross-validation fold.
        self.landmarks = choose_landmarks(self.names, seed)
        self.scaling = Scaling.fit(D, seed, max_points)
        self.description = self.scaling.describe(D)
        # Variance of each feature over the subsamples.
        self.variances = np.where(np.isfinite(self.scaling.scale), self.scaling.scale**2, 0.0)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def n_features(self) -> int:
        return self.scaling.scale.size

    def subset(self, rows: np.ndarray) -> Geometry:
        """Return the geometry of some distributions (ascending indices), with the scaling and subsamples of all."""
        part = copy(self)
        for name in ("euclidean_distances", "quantiles", "marginals"):
            vars(part).pop(name, None)
        part.names = [self.names[d] for d in rows]
        part.strata = None if self.strata is None else self.strata[rows]
        part.description = self.description.subset(rows)
        part.landmarks = np.flatnonzero(np.isin(rows, self.landmarks))
        columns = np.searchsorted(self.landmarks, rows[part.landmarks])
        part.euclidean_distances = self.euclidean_distances[np.ix_(rows, columns)]
        if self.marginals.partners.shape[1] == len(self) - 1:  # all pairs
            partners, shape = self.marginals.partners[rows], (rows.size, rows.size - 1)
            selected = np.isin(partners, rows)
            values = self.marginals.values[rows][selected].reshape(*shape, -1)
            part.marginals = Marginals(np.searchsorted(rows, partners[selected]).reshape(shape), values)
        return part

    @cached_property
    def euclidean_distances(self) -> np.ndarray:
        """Euclidean transport distances of the training distributions (rows) to the landmarks (columns)."""
        D = self.description.euclidean
        if self.landmarks.size == len(D):
            return pairwise(D, n_jobs=self.n_jobs).distances
        return pairwise(D, D[self.landmarks], n_jobs=self.n_jobs).distances

    @cached_property
    def quantiles(self) -> np.ndarray:
        """Quantile functions of the training distributions, relative to the mean of their stratum."""
        quantiles = self.description.quantiles
        return quantiles if self.strata is None else centre_within(quantiles, self.strata)

    @cached_property
    def marginals(self) -> Marginals:
        """1-D transport distances of single features between the training distributions."""
        n, _, n_features = self.quantiles.shape
        count = min(n - 1, _MAX_PARTNERS, max(2, _MAX_MARGINAL_ENTRIES // (n * n_features)))
        partners, values = np.empty((n, count), dtype=np.intp), np.empty((n, count, n_features), dtype=np.float32)
        for i in range(n):
            chosen = np.delete(np.arange(n), i)
            if count < n - 1:
                random = keyed_generator(self.scaling.seed, "partners", self.names[i])
                chosen = np.sort(random.choice(chosen, count, replace=False))
            partners[i] = chosen
            values[i] = np.abs(self.quantiles[chosen] - self.quantiles[i]).mean(axis=1)
        return Marginals(partners, values)


@dataclass(frozen=True)
class Marginals:
    """1-D transport distances of each feature from every distribution to its partners."""

    partners: np.ndarray  # (n_distributions, n_partners): all others or, in large cohorts, a subset keyed by name
    values: np.ndarray  # float32, (n_distributions, n_partners, n_features)


def choose_landmarks(names: Sequence[Any], seed: int, n_landmarks: int = N_LANDMARKS) -> np.ndarray:
    """Return the indices of the landmarks: of at most `MAX_EXACT` names all, otherwise a draw by seed and name."""
    if len(names) <= MAX_EXACT:
        return np.arange(len(names))
    return np.sort(np.argsort(keyed_uniform(names, seed, "landmark"), kind="stable")[:n_landmarks])


def complete_distances(columns: np.ndarray, landmarks: np.ndarray) -> np.ndarray:
    """Return all distances between distributions from their distances to the landmarks (columns).

    The others are interpolated by the Nyström approximation of the kernel -d / 2, centred, as in landmark
    multidimensional scaling (de Silva & Tenenbaum 2004). A landmark is compared with itself by the distance to its
    nearest landmark: a kernel with zeros on the diagonal cannot be interpolated smoothly.
    """
    n, n_landmarks = columns.shape
    if n == n_landmarks:
        return columns
    diagonal = landmarks, np.arange(n_landmarks)
    values = columns.copy()
    values[diagonal] = np.inf
    values[diagonal] = values[landmarks].min(axis=1)
    by_row, by_column, overall = values.mean(axis=1), values[landmarks].mean(axis=0), float(values[landmarks].mean())
    centred = -0.5 * (values - by_row[:, None] - by_column + overall)
    block = 0.5 * (centred[landmarks] + centred[landmarks].T)
    variances, axes = np.linalg.eigh(block)
    positive = variances > 0
    shrunk = np.sqrt(1.0 / (variances[positive] + _SHRINKAGE * float(np.trace(block)) / n_landmarks))
    x = centred @ (axes[:, positive] * shrunk)
    # No pair is nearer than the nearest measured pair: interpolated distances may be negative.
    distances = np.maximum(by_row[:, None] + by_row - overall - 2.0 * (x @ x.T), values.min())
    distances[:, landmarks] = columns
    distances[landmarks] = columns.T
    np.fill_diagonal(distances, 0.0)
    return distances


def centre_within(rows: np.ndarray, strata: np.ndarray | None = None) -> np.ndarray:
    """Subtract the mean of all rows or, with strata, of the rows of the same stratum.

    >>> centre_within(np.array([1.0, 3.0, 10.0]), np.array([0, 0, 1])).tolist()
    [-1.0, 1.0, 0.0]
    """
    if strata is None:
        return rows - rows.mean(axis=0)
    centred = np.array(rows, dtype=np.result_type(rows, np.float32))
    for stratum in np.unique(strata):
        centred[strata == stratum] -= rows[strata == stratum].mean(axis=0)
    return centred


def standardise(points: Any, centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return dense float64 points in units of the scale, 0 for constant features (infinite scale)."""
    dense = points.toarray() if sparse.issparse(points) else points
    standardised = np.subtract(dense, centre, dtype=np.float64)
    standardised /= scale
    return standardised


def pack_distributions(D: Distributions, prefix: str, arrays: dict[str, np.ndarray]) -> None:
    """Add the arrays that `ArrayReader.distributions` reads."""
    # "order" holds the input row of each point: a report looks up the cell types of drawn cells.
    for name in ("bounds", "weights", "uniform", "points", "order"):
        arrays[f"{prefix}.{name}"] = np.asarray(getattr(D, name))


def positive(value: Any, name: str) -> float:
    """Return a positive, finite number of a file."""
    if not 0.0 < float(value) < np.inf:
        raise Damaged(f"{name} is {value}")
    return float(value)


class ArrayReader:
    """Arrays of a file; every method validates an array and raises `Damaged` if it is invalid."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = arrays

    def numbers(self, name: str, *shape: int | None) -> np.ndarray:
        """Return finite numbers of this shape."""
        values = self.array(name, "f", *shape)
        if not np.isfinite(values).all():
            raise Damaged(f"{name} are not finite")
        return values

    def scales(self, name: str, n: int) -> np.ndarray:
        """Return n positive numbers, which may be infinite."""
        values = self.array(name, "f", n)
        if not np.all(values > 0):
            raise Damaged(f"{name} are not positive")
        return values

    def indices(self, name: str, limit: int) -> np.ndarray:
        """Return whole numbers from 0 to below the limit."""
        values = self.array(name, "iu", None)
        if not np.all((values >= 0) & (values < limit)):
            raise Damaged(f"{name} are not indices below {limit}")
        return values.astype(np.intp)

    def array(self, name: str, kinds: str, *shape: int | None) -> np.ndarray:
        """Return an array of this shape (None: any length) whose type is of one of the kinds, as in `dtype.kind`."""
        values = self.arrays[name]
        matches = values.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, values.shape, strict=True))
        if not matches or values.dtype.kind not in kinds:
            raise Damaged(f"{name} has {values.dtype} of shape {values.shape}: expected shape {shape}")
        return values

    def distributions(self, prefix: str, n: int, n_features: int) -> Distributions:
        """Return n distributions with this number of features."""
        bounds = self.array(f"{prefix}.bounds", "iu", n + 1)
        if bounds[0] != 0 or np.any(np.diff(bounds) < 1):
            raise Damaged(f"{prefix}.bounds do not divide points into {n} distributions")
        n_points = int(bounds[-1])
        points = self.numbers(f"{prefix}.points", n_points, n_features)
        weights = self.numbers(f"{prefix}.weights", n_points)
        if np.any(weights < 0) or not np.allclose(np.add.reduceat(weights, bounds[:-1]), 1.0):
            raise Damaged(f"{prefix}.weights are not masses of sum 1")
        order = self.indices(f"{prefix}.order", np.iinfo(np.int64).max)
        if order.size != n_points or np.unique(order).size < n_points:
            raise Damaged(f"{prefix}.order are not {n_points} different row numbers")
        D = Distributions(points, np.repeat(np.arange(n), np.diff(bounds)))
        D.weights, D.uniform, D.order = weights, self.array(f"{prefix}.uniform", "b", n), order
        return D
