"""Ensemble members (ground metrics learned on unions of cross-validation folds) and views (kernels from members).

A member is a diagonal metric on standardised features. There are three kinds:

- "univariate": the weight of a feature is a moderated t statistic over distributions: how much farther distributions
  are from unlike than from like ones if only this feature is transported.
- "anova": the weight is a moderated F statistic of the quantile functions of the feature.
- "learned": the weights of "univariate" are the start of a `GroundMetricLearner` with a diagonal form.

Members are trained on unions of cross-validation folds, which are keyed by name. For the prediction of fold f, a kernel
entry between samples i and j may only use members that were trained on none of the folds f, F(i) and F(j), where F(i)
is the fold of i. So the design of an ensemble is a list of sets of folds, one per member, such that any three folds are
left out together by at least one member.

A view turns distributions into a kernel, with the same kind of kernel for new distributions. It has a `name`,
`kernel(fold)` between training distributions, `kernel_to(description)` from new ones (rows), and `distances` between
training distributions for maps, in units of their median. `kernel(fold)` is the kernel for predicting that
cross-validation fold: it uses no label of the fold. Views without labels have one kernel for all folds.

`pack` adds the arrays of a view to those of a file and returns the description that JSON holds, `unpack` validates and
restores them. A view from a file has what `kernel_to` needs, without `distances` and `kernel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from .._internal.files import Damaged
from .._internal.validation import keyed_generator, keyed_uniform
from ..distributions import Distributions
from ..metrics.base import GroundMetric
from ..transport import pairwise
from .geometry import (
    ArrayReader,
    Description,
    Geometry,
    Marginals,
    Scaling,
    StoredDescription,
    centre_within,
    pack_distributions,
)
from .stacking import Target

EUCLIDEAN = "euclidean"
# Views of features of single distributions, by attribute of `Description`.
LINEAR = ("means", "moments", "embedding")
MARGINAL = "marginal"

Design = list[tuple[int, ...]]
# Blocks of the Steiner systems S(3, 4, 8) and S(3, 4, 10): sets of four folds such that any three folds are in exactly
# one set. Members train on half (four of eight) or 60 % (six of ten) of the folds.
_STEINER_8: Design = [s for s in combinations(range(8), 4) if s[0] ^ s[1] ^ s[2] ^ s[3] == 0]
_STEINER_10: Design = sorted(
    tuple(sorted((entry + shift) % 10 for entry in block))
    for block in ((0, 1, 2, 6), (0, 1, 3, 4), (0, 2, 4, 7))
    for shift in range(10)
)
# Folds where no Steiner system applies (few or rare groups): members leave out three folds each.
_N_FOLDS = 8


def _triples(n_folds: int) -> Design:
    return list(combinations(range(n_folds), 3))


def designs(n_members: int) -> Iterator[tuple[int, Design]]:
    """Yield numbers of folds and designs, from the smallest that has `n_members` members on.

    The last ones leave out as little as possible, for classes of few groups.

    >>> [(n_folds, len(design)) for n_folds, design in designs(14)]
    [(8, 14), (10, 30), (8, 56)]
    """
    candidates = [(4, _triples(4)), (5, _triples(5)), (8, _STEINER_8), (10, _STEINER_10)]
    large_enough = [(n_folds, design) for n_folds, design in candidates if len(design) >= n_members]
    yield from large_enough or candidates[-1:]
    yield _N_FOLDS, _triples(_N_FOLDS)


def assign_folds(target: Target, groups: np.ndarray, names: Sequence[Any], n_folds: int, seed: int) -> np.ndarray:
    """Return the fold of each distribution: groups undivided, balanced by label, in an order given by (seed, name).

    Parameters
    ----------
    target : Target
        Labels, by which folds are balanced.
    groups : array of int of shape (n_distributions,)
        Group of each distribution, 0, 1, 2, ….
    names : sequence of length n_groups
        Name of each group.
    n_folds : int
        Number of folds; at most the number of groups are used.
    seed : int
        Seed of the order.
    """
    order = keyed_uniform(names, seed, "fold")
    return target.deal(groups, order, min(n_folds, len(names)))[groups]


def choose_design(
    target: Target, groups: np.ndarray, names: Sequence[Any], n_members: int, seed: int, folds: np.ndarray | None = None
) -> tuple[np.ndarray, Design]:
    """Return folds and the design of the members; the design is empty where no member could be trained.

    A member needs two groups of each class (or enough different numbers). Whether all members of a design have them is
    decided for the cohort as a whole: a kernel that lacks members for some samples would reveal their labels.
    """
    n_groups = int(groups.max()) + 1
    if folds is not None:
        n_folds = int(folds.max()) + 1
        given = [design for size, design in designs(n_members) if size == n_folds] + [_triples(n_folds)]
        return folds, next((design for design in given if _trainable(design, folds, target, groups)), [])
    for n_folds, design in designs(n_members):
        if n_folds > n_groups:
            continue
        folds = assign_folds(target, groups, names, n_folds, seed)
        if _trainable(design, folds, target, groups):
            return folds, design
    folds = assign_folds(target, groups, names, _N_FOLDS, seed)
    design = _triples(int(folds.max()) + 1)
    return folds, design if _trainable(design, folds, target, groups) else []


def fallback_design(folds: np.ndarray, target: Target, groups: np.ndarray) -> Design:
    """Return what members leave out where no nested design exists: one fold each or, if a class is too small, nothing.

    Such members give the cohort a metric. They measure samples that they were trained on, so no view uses them.
    """
    single: Design = [(fold,) for fold in range(int(folds.max()) + 1)]
    trainable = all(target.can_train(folds != fold, groups) for fold in range(len(single)))
    return single if trainable and len(single) > 2 else [()]


def _trainable(design: Design, folds: np.ndarray, target: Target, groups: np.ndarray) -> bool:
    if not design or int(folds.max()) < 3:
        return False
    return all(target.can_train(~np.isin(folds, left_out), groups) for left_out in design)


KINDS = ("univariate", "anova", "learned")
# Features that a member uses at least and at most.
_MIN_FEATURES, _MAX_FEATURES = 3, 50
# Residual variances are moderated by this share of their median: a feature that hardly varies among a few distributions
# may do so among others.
_VARIANCE_FLOOR = 0.05

# From the distributions a member is trained on (its features only), their target and strata, starting weights and a
# seed to learned weights.
Refine = Callable[[Distributions, Target, np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class Member:
    """A diagonal metric learned on some of the distributions.

    Attributes
    ----------
    kind : str
        How the weights were learned.
    left_out : tuple of int
        Cross-validation folds that the member was not trained on.
    trained_on : array of bool of shape (n_distributions,)
        Distributions that the member was trained on.
    columns : array of int of shape (n_used,)
        Features with a weight.
    weights : array of shape (n_used,)
        Weights of the standardised features.
    """

    kind: str
    left_out: tuple[int, ...]
    trained_on: np.ndarray
    columns: np.ndarray
    weights: np.ndarray

    def metric(self, geometry: Geometry) -> GroundMetric:
        """Return the member as ground metric for points in the units of the input."""
        components = np.zeros((self.columns.size, geometry.n_features))
        components[np.arange(self.columns.size), self.columns] = self.weights / geometry.scaling.scale[self.columns]
        return GroundMetric(components, geometry.features, variances=geometry.variances)

    def squares(self, n_features: int) -> np.ndarray:
        """Return the share of each standardised feature in the squared weights, which is its importance."""
        squares = np.zeros(n_features)
        squares[self.columns] = self.weights**2
        return squares / (squares.sum() or 1.0)


def train_members(
    geometry: Geometry,
    target: Target,
    folds: np.ndarray,
    kinds: Sequence[str],
    left_out: tuple[int, ...],
    refine: Refine,
) -> list[Member]:
    """Train one member of each kind on the folds that are not left out."""
    trained_on = ~np.isin(folds, left_out)
    rows = np.flatnonzero(trained_on)
    known = target.subset(rows)
    members = []
    start = None
    for kind in kinds:
        if kind == "anova":
            weights = _anova_weights(geometry.quantiles[rows], known)
        else:
            if start is None:
                start = strongest_features(separation(geometry.marginals, known, rows, len(geometry)))
            weights = start
        columns = np.flatnonzero(weights)
        values = weights[columns] / np.linalg.norm(weights)
        if kind == "learned":
            seed = int(keyed_generator(geometry.scaling.seed, "member", *left_out).integers(2**31))
            values = refine(geometry.description.columns(columns)[rows], known, values, seed)
            columns, values = columns[values != 0], values[values != 0]
        members.append(Member(kind, left_out, trained_on, columns, values))
    return members


def separation(marginals: Marginals, target: Target, rows: np.ndarray, n: int) -> np.ndarray:
    """Return a moderated t statistic per feature: distance to unlike minus distance to like distributions.

    With numbers, the contrast of a distribution weighs its partners by how much farther apart their labels are, within
    strata where given. The standard error is moderated by adding its median over features (Tusher, Tibshirani & Chu
    2001): of a few distributions, some features have a small error by chance.
    """
    place = np.full(n, -1)
    place[rows] = np.arange(rows.size)
    gains = []
    for i, row in enumerate(rows):
        partners = place[marginals.partners[row]]
        inside = partners >= 0
        contrast = target.contrast(i, partners[inside])
        if contrast is not None:
            values = marginals.values[row] if inside.all() else marginals.values[row][inside]
            gains.append(contrast.astype(np.float32) @ values)
    if len(gains) < 2:
        return np.zeros(marginals.values.shape[2])
    stacked = np.array(gains, dtype=np.float64)
    error = stacked.std(axis=0, ddof=1) / np.sqrt(len(stacked))
    return stacked.mean(axis=0) / (error + np.median(error) + 1e-9)


def _anova_weights(quantiles: np.ndarray, target: Target) -> np.ndarray:
    """Return weights by the variance of the quantile functions that labels explain, over the residual variance."""
    n, n_quantiles, n_features = quantiles.shape
    columns = centre_within(target.regressors(), target.strata)
    basis, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    basis = basis[:, sizes > 1e-9 * max(sizes[0], 1e-300)]
    centred = centre_within(quantiles.reshape(n, -1), target.strata)
    explained = np.square(basis.T.astype(centred.dtype) @ centred).sum(axis=0)
    total = np.einsum("ij,ij->j", centred, centred)
    between, residual = (
        part.reshape(n_quantiles, n_features).sum(axis=0, dtype=np.float64)
        for part in (explained, np.maximum(total - explained, 0.0))
    )
    n_means = 1 if target.strata is None else np.unique(target.strata).size
    residual /= max(n - n_means - basis.shape[1], 1)
    floor = _VARIANCE_FLOOR * float(np.median(residual)) + 1e-12 * max(float(total.max(initial=0.0)), 1e-300)
    ratio = between / max(basis.shape[1], 1) / (residual + floor)
    deviation = np.sqrt(residual / n_quantiles)
    deviation = deviation + np.median(deviation)
    return strongest_features(ratio / np.where(deviation > 0, deviation, 1.0))


def strongest_features(statistics: np.ndarray) -> np.ndarray:
    """Return the statistics as weights: 0 below 0 and beyond the strongest fifty.

    Where fewer than three features have a positive statistic, the best three have equal weights.

    >>> strongest_features(np.array([0.5, -1.0, 2.0, 0.1, 0.0])).tolist()
    [0.5, 0.0, 2.0, 0.1, 0.0]
    >>> strongest_features(np.array([-0.5, -1.0, -2.0, -3.0])).tolist()
    [1.0, 1.0, 1.0, 0.0]
    """
    order = np.argsort(-statistics, kind="stable")
    weights = np.maximum(statistics, 0.0)
    if np.count_nonzero(weights) < min(_MIN_FEATURES, weights.size):
        weights = np.zeros(statistics.size)
        weights[order[:_MIN_FEATURES]] = 1.0
    weights[order[_MAX_FEATURES:]] = 0.0
    return weights


def importance_interval(importance: np.ndarray, refits: np.ndarray, confidence: float = 0.95) -> np.ndarray:
    """Return lower and upper ends of importances, (2, n_features), from their variation over refits or members.

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


def median_distance(distances: np.ndarray) -> float:
    """Return the median off-diagonal distance; 1 if it is 0."""
    off_diagonal = distances[~np.eye(len(distances), dtype=bool)]
    return (float(np.median(off_diagonal)) or 1.0) if off_diagonal.size else 1.0


def replace_diagonal(kernel: np.ndarray) -> np.ndarray:
    """Return the kernel with the largest other entry of each row on the diagonal.

    A kernel of distances has 1 there, although an independent sample of the same distribution would not be at distance
    0. A model would use these entries to explain training labels and be timid about new samples.
    """
    replaced = kernel.copy()
    np.fill_diagonal(replaced, 0.0)
    np.fill_diagonal(replaced, replaced.max(axis=1))
    return replaced


@dataclass(frozen=True)
class EuclideanView:
    """exp(-distance / median) of Euclidean transport between standardised points.

    Attributes
    ----------
    points : Distributions
        Training points, standardised and projected to the principal axes.
    unit : float
        Median distance between training distributions.
    nearest : array of shape (n_distributions,)
        Distance from each training distribution to the nearest other one, in units of the median.
    """

    points: Distributions
    unit: float
    nearest: np.ndarray
    distances: np.ndarray = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    name: str = EUCLIDEAN

    @classmethod
    def fit(cls, geometry: Geometry) -> EuclideanView:
        unit = median_distance(geometry.euclidean_distances)
        distances = geometry.euclidean_distances / unit
        nearest = (distances + np.diag(np.full(len(distances), np.inf))).min(axis=1)
        return cls(geometry.description.euclidean, unit, nearest, distances)

    def kernel(self, fold: int | None = None) -> np.ndarray:
        return replace_diagonal(np.exp(-self.distances))

    def distances_to(self, description: Description) -> np.ndarray:
        """Return distances from new distributions (rows) to the training distributions, in units of the median."""
        return pairwise(description.euclidean, self.points).distances / self.unit

    def kernel_to(self, description: Description) -> np.ndarray:
        return np.exp(-self.distances_to(description))

    def pack(self, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        pack_distributions(self.points, prefix, arrays)
        arrays[f"{prefix}.nearest"] = self.nearest
        return {"view": EUCLIDEAN, "unit": self.unit}

    @classmethod
    def unpack(
        cls, read: ArrayReader, entry: Mapping[str, Any], prefix: str, scaling: Scaling, n: int
    ) -> EuclideanView:
        n_components = scaling.scale.size if scaling.axes is None else len(scaling.axes)
        points = read.distributions(prefix, n, n_components)
        return cls(points, _positive(entry["unit"]), read.numbers(f"{prefix}.nearest", n))


@dataclass(frozen=True)
class LinearView:
    """Inner products of features of distributions, each standardised over the training distributions.

    Attributes
    ----------
    name : str
        Attribute of `Description` with the features.
    mean, scale : array of shape (n_columns,)
        By which features are standardised.
    x : array of shape (n_distributions, n_columns)
        Standardised features of the training distributions.
    """

    name: str
    mean: np.ndarray
    scale: np.ndarray
    x: np.ndarray

    @classmethod
    def fit(cls, geometry: Geometry, name: str) -> LinearView:
        x = getattr(geometry.description, name)
        mean, deviation = x.mean(axis=0), x.std(axis=0)
        varies = deviation > 1e-9 * max(float(np.abs(x).max(initial=0.0)), 1e-300)
        scale = np.where(varies, deviation, np.inf) * np.sqrt(x.shape[1])
        return cls(name, mean, scale, (x - mean) / scale)

    @property
    def distances(self) -> np.ndarray:
        distances = cdist(self.x, self.x)
        return distances / median_distance(distances)

    def kernel(self, fold: int | None = None) -> np.ndarray:
        return self.x @ self.x.T

    def kernel_to(self, description: Description) -> np.ndarray:
        return (getattr(description, self.name) - self.mean) / self.scale @ self.x.T

    def pack(self, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        arrays |= {f"{prefix}.{part}": getattr(self, part) for part in ("mean", "scale", "x")}
        return {"view": self.name}

    @classmethod
    def unpack(cls, read: ArrayReader, name: str, prefix: str, scaling: Scaling, n: int) -> LinearView:
        mean = read.numbers(f"{prefix}.mean", {"means": 1, "moments": 2}.get(name, 0) * scaling.scale.size or None)
        return cls(name, mean, read.scales(f"{prefix}.scale", mean.size), read.numbers(f"{prefix}.x", n, mean.size))


@dataclass(frozen=True)
class MemberView:
    """Kernels of learned metrics, averaged over the members that were trained on none of the samples involved.

    The entry of training samples i and j averages members that leave out their folds F(i) and F(j) and, for predicting
    fold f, also f. The entry of a new sample and j averages members that leave out F(j): training and prediction see
    the same kind of distance. Subclasses define the distances under a member.

    Attributes
    ----------
    name : str
        Name of the view.
    members : list of Member
        Members of one kind.
    units : list of float
        Median distance under each member between distributions that it was not trained on.
    description : Description
        The training distributions; at least the features that members use.
    blocks : list of array of shape (n_distributions, n_distributions)
        Distances under each member in these units; entries of distributions that it was trained on are ignored.
    """

    name: str
    members: list[Member]
    units: list[float]
    description: Description
    blocks: list[np.ndarray] = field(default_factory=list, repr=False)

    @classmethod
    def fit(cls, name: str, geometry: Geometry, members: Sequence[Member]) -> MemberView:
        view = cls(name, list(members), [], geometry.description)
        for member in view.members:
            out = np.flatnonzero(~member.trained_on)
            block = np.zeros((member.trained_on.size, member.trained_on.size))
            block[np.ix_(out, out)] = within = view.member_distances(member, geometry.description, out, out)
            view.units.append(median_distance(within))
            view.blocks.append(block / view.units[-1])
        return view

    def member_distances(
        self, member: Member, description: Description, rows: np.ndarray, columns: np.ndarray
    ) -> np.ndarray:
        """Return distances from distributions `rows` of a description to the training distributions `columns`."""
        raise NotImplementedError

    @property
    def distances(self) -> np.ndarray:
        distances = self._average(self.blocks, None)
        np.fill_diagonal(distances, 0.0)
        return distances

    def kernel(self, fold: int | None = None) -> np.ndarray:
        return replace_diagonal(self._average([np.exp(-block) for block in self.blocks], fold))

    def _average(self, blocks: Sequence[np.ndarray], fold: int | None) -> np.ndarray:
        total, count = np.zeros_like(blocks[0]), np.zeros_like(blocks[0])
        for member, block in zip(self.members, blocks, strict=True):
            if fold is None or fold in member.left_out:
                pairs = np.ix_(~member.trained_on, ~member.trained_on)
                total[pairs] += block[pairs]
                count[pairs] += 1.0
        return total / np.maximum(count, 1.0)

    def kernel_to(self, description: Description) -> np.ndarray:
        total = np.zeros((len(description), self.members[0].trained_on.size))
        count = np.zeros(total.shape[1])
        for member, unit in zip(self.members, self.units, strict=True):
            out = np.flatnonzero(~member.trained_on)
            distances = self.member_distances(member, description, np.arange(len(description)), out)
            total[:, out] += np.exp(-distances / unit)
            count[out] += 1.0
        return total / count

    def pack(self, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        for m, member in enumerate(self.members):
            arrays |= {f"{prefix}.{part}{m}": getattr(member, part) for part in ("columns", "weights", "trained_on")}
        return {
            "view": MARGINAL if self.name == MARGINAL else "transport",
            "kind": self.members[0].kind,
            "units": [float(unit) for unit in self.units],
            "left_out": [[int(fold) for fold in member.left_out] for member in self.members],
        }

    @classmethod
    def unpack(
        cls, read: ArrayReader, entry: Mapping[str, Any], prefix: str, stored: StoredDescription | None, n: int
    ) -> MemberView:
        if entry["view"] not in (MARGINAL, "transport") or stored is None:
            raise Damaged(f"the view {entry['view']!r} has no members")
        kind, members = str(entry["kind"]), []
        for m, left_out in enumerate(entry["left_out"]):
            columns = read.indices(f"{prefix}.columns{m}", stored.scaling.scale.size)
            if not np.isin(columns, stored.used).all():
                raise Damaged("a member uses features that are not in the file")
            weights, trained_on = (
                read.numbers(f"{prefix}.weights{m}", columns.size),
                read.mask(f"{prefix}.trained_on{m}", n),
            )
            if not np.all(weights > 0):
                raise Damaged("weights of a member are not positive")
            members.append(Member(kind, tuple(map(int, left_out)), trained_on, columns, weights))
        units = [_positive(unit) for unit in entry["units"]]
        if not members or len(units) != len(members) or np.all([m.trained_on for m in members], axis=0).any():
            raise Damaged("a training distribution is left out by no member")
        if entry["view"] == MARGINAL:
            return MarginalView(MARGINAL, members, units, stored)
        return TransportView(kind, members, units, stored)


@dataclass(frozen=True)
class TransportView(MemberView):
    """exp(-distance / median) of transport under the learned metrics of one kind."""

    def member_distances(
        self, member: Member, description: Description, rows: np.ndarray, columns: np.ndarray
    ) -> np.ndarray:
        training = _weighted(self.description, member, columns)
        if description is self.description and rows is columns:
            return pairwise(training).distances
        return pairwise(_weighted(description, member, rows), training).distances


@dataclass(frozen=True)
class MarginalView(MemberView):
    """exp(-distance / median) of the weighted sum of 1-D transport distances of single features."""

    def member_distances(
        self, member: Member, description: Description, rows: np.ndarray, columns: np.ndarray
    ) -> np.ndarray:
        # The sum of weighted 1-D distances is the Manhattan distance between weighted quantile functions.
        new, training = (
            (part.quantiles_of(member.columns)[chosen] * member.weights).reshape(chosen.size, -1)
            for part, chosen in ((description, rows), (self.description, columns))
        )
        return cdist(new, training, "cityblock")


def _weighted(description: Description, member: Member, rows: np.ndarray) -> Distributions:
    D = description.columns(member.columns)[rows]
    return D.with_points(D.points * member.weights)


View = EuclideanView | LinearView | MemberView


def unpack_view(
    read: ArrayReader, entry: Mapping[str, Any], prefix: str, scaling: Scaling, stored: StoredDescription | None, n: int
) -> View:
    """Return the view of n training distributions that `pack` was given; raise `Damaged` where something is wrong."""
    if entry["view"] == EUCLIDEAN:
        return EuclideanView.unpack(read, entry, prefix, scaling, n)
    if entry["view"] in LINEAR:
        return LinearView.unpack(read, entry["view"], prefix, scaling, n)
    return MemberView.unpack(read, entry, prefix, stored, n)


def _positive(value: Any) -> float:
    number = float(value)
    if not (np.isfinite(number) and number > 0):
        raise Damaged(f"a unit of distances is {number}")
    return number
