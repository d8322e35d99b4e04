"""Ensemble members (ground metrics learned on unions of cross-validation folds) and views (kernels from members).

For the prediction of fold f, a kernel entry between samples i and j may only use members that were trained on none of
the folds f, F(i) and F(j), where F(i) is the fold of i. So the design of an ensemble is a list of sets of folds, one
per member, such that any three folds are left out together by at least one member.

A view turns distributions into a kernel. Views of a `group` share a prior weight in stacking. `landmarks` are the
training distributions that kernels have a column for, all of them in small cohorts. `kernel(fold)` is the kernel
between training distributions (rows) and landmarks, without labels of that fold; `kernel_to(description)` between new
distributions and landmarks. `distances` between all training distributions, in units of their median, are for maps.
A view that `unpack` restores from a file has `kernel_to`, but neither `kernel` nor `distances`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import euclidean_distances

from .._internal.files import Damaged
from .._internal.parallel import Threads
from .._internal.validation import keyed_generator, keyed_uniform
from ..distributions import Distributions
from ..learning.objective import Adam
from ..metrics.base import GroundMetric
from ..transport import BoundedDistances, pairwise
from ..transport.pairs import pair_transport
from ..transport.problem import Masses
from .geometry import (
    ArrayReader,
    Description,
    Geometry,
    Marginals,
    Scaling,
    StoredDescription,
    centre_within,
    complete_distances,
    pack_distributions,
    positive,
)
from .stacking import Classes, Target, run_all

EUCLIDEAN = "euclidean"
# Views of features of single distributions, by attribute of `Description`.
SUMMARIES = ("means", "moments", "embedding", "composition")
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
# Folds in cohorts of few or rare groups, where no Steiner system applies: members leave out three folds each.
_N_FOLDS = 8


def _triples(n_folds: int) -> Design:
    return list(combinations(range(n_folds), 3))


def designs(n_members: int) -> Iterator[tuple[int, Design]]:
    """Yield numbers of folds and designs of at least `n_members` members, smallest first."""
    candidates = [(4, _triples(4)), (5, _triples(5)), (8, _STEINER_8), (10, _STEINER_10)]
    large_enough = [(n_folds, design) for n_folds, design in candidates if len(design) >= n_members]
    yield from large_enough or candidates[-1:]
    yield _N_FOLDS, _triples(_N_FOLDS)  # for classes of few groups


def assign_folds(target: Target, groups: np.ndarray, names: Sequence[Any], n_folds: int, seed: int) -> np.ndarray:
    """Return the fold of each distribution: `groups` (with `names`) undivided, balanced by label, keyed by name."""
    order = keyed_uniform(names, seed, "fold")
    return target.deal(groups, order, min(n_folds, len(names)))[groups]


def choose_design(
    target: Target, groups: np.ndarray, names: Sequence[Any], n_members: int, seed: int, folds: np.ndarray | None = None
) -> tuple[np.ndarray, Design]:
    """Return folds and the design of the members; the design is empty if no design has trainable members.

    This is decided for the whole cohort: a kernel that lacks members for individual samples would reveal their labels.
    """
    if folds is None:
        n_groups = int(groups.max()) + 1
        sizes = [(n_folds, design) for n_folds, design in designs(n_members) if n_folds <= n_groups]
        candidates = [(assign_folds(target, groups, names, n_folds, seed), design) for n_folds, design in sizes]
        last = assign_folds(target, groups, names, _N_FOLDS, seed)
    else:
        candidates = [(folds, design) for n_folds, design in designs(n_members) if n_folds == folds.max() + 1]
        last = folds
    candidates.append((last, _triples(int(last.max()) + 1)))
    for assigned, design in candidates:
        # Three folds are left out together, and a member needs another one to train on.
        trained = [~np.isin(assigned, left_out) for left_out in design]
        if assigned.max() >= 3 and all(target.can_train(rows, groups) for rows in trained):
            return assigned, design
    return last, []


def fallback_design(folds: np.ndarray, target: Target, groups: np.ndarray) -> Design:
    """Return a design without nesting: members leave out one fold each or, if a class is too small, no fold."""
    single: Design = [(fold,) for fold in range(int(folds.max()) + 1)]
    trainable = all(target.can_train(folds != fold, groups) for fold in range(len(single)))
    return single if trainable and len(single) > 2 else [()]


# Kinds of members with a weight for each feature, and all kinds.
DIAGONAL = ("univariate", "anova", "learned")
KINDS = (*DIAGONAL, "linear")
# Features that a diagonal member uses at least and at most.
_MIN_FEATURES, _MAX_FEATURES = 3, 50
# Distributions that a "learned" and a "linear" member is trained on at most. An epoch of the triplet loss takes time
# proportional to their number; the likelihood compares all pairs.
_MAX_TRAINING, _MAX_LIKELIHOOD = 128, 40
# Rows of W of a "linear" member, and points per distribution in its training, at most.
_RANK, _MAX_TRAINING_POINTS = 10, 50

# Steps of "linear" members: a longer optimisation fits the training distributions better and new ones worse.
_N_STEPS, _LEARNING_RATE = 30, 0.1
# Weight of the squared norm of the components, relative to its value at the start.
_STRENGTH = 0.1
# Median distance at the start: distributions at the median distance have the weight exp(-2).
_MEDIAN_DISTANCE = 2.0

# Description of a view in a file, and the training distributions of its modality in that file.
Entry = Mapping[str, Any]
Stored = tuple[Scaling, StoredDescription | None]

# Map the distributions that a member is trained on (in the coordinates of the member), their target, starting weights
# and a seed to learned weights.
Refine = Callable[[Distributions, Target, np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class Member:
    """A diagonal metric learned on a subset of the distributions."""

    kind: str  # method by which the weights were learned
    left_out: tuple[int, ...]  # cross-validation folds that the member was not trained on
    # Mask of the distributions of all other folds, whose labels the member has used. The loss of a "learned" member
    # uses at most 128 of them, that of a "linear" member 40.
    trained_on: np.ndarray
    columns: np.ndarray  # features with a weight
    weights: np.ndarray  # weights of these standardised features

    def components(self, scaling: Scaling) -> np.ndarray:
        """Return the components for standardised features."""
        components = np.zeros((self.columns.size, scaling.scale.size))
        components[np.arange(self.columns.size), self.columns] = self.weights
        return components

    def project(self, description: Description, rows: np.ndarray) -> Distributions:
        """Return points for transport of some distributions; the metric is the Euclidean distance between them."""
        D = description.part(rows, self.columns)
        return D.with_points(D.points * self.weights)

    def metric(self, geometry: Geometry) -> GroundMetric:
        """Return the member as ground metric for points in the units of the input."""
        components = self.components(geometry.scaling) / geometry.scaling.scale
        return GroundMetric(components, geometry.features, variances=geometry.variances)

    def squares(self, scaling: Scaling) -> np.ndarray:
        """Return the share of each standardised feature in the squared components, which is its importance."""
        squares = np.square(self.components(scaling)).sum(axis=0)
        return squares / (squares.sum() or 1.0)


@dataclass(frozen=True)
class LinearMember(Member):
    """A low-rank metric; `columns` are all axes of `Description.euclidean`, and `weights` has a row per row of W."""

    def components(self, scaling: Scaling) -> np.ndarray:
        return self.weights if scaling.axes is None else self.weights @ scaling.axes

    def project(self, description: Description, rows: np.ndarray) -> Distributions:
        D = description.euclidean[rows]
        return D.with_points(D.points @ self.weights.T)


def train_members(
    geometry: Geometry, target: Target, folds: np.ndarray, kinds: Sequence[str], design: Design, refine: Refine, *,
    n_jobs: int | None = None, verbose: bool = False,
) -> list[Member]:  # fmt: skip
    """Train a member of each kind for each set of folds in the design that is left out; ordered by kind."""
    members: dict[tuple[str, tuple[int, ...]], Member] = {}
    if "linear" in kinds:  # these members start from the axes of largest variance of the points
        points = geometry.description.euclidean.points
        variances, axes = np.linalg.eigh(np.cov(points, rowvar=False, ddof=0).reshape(points.shape[1], -1))
        axes = np.ascontiguousarray(axes[:, np.argsort(-variances, kind="stable")[:_RANK]].T)
    for left_out in design:
        trained_on = ~np.isin(folds, left_out)
        rows = np.flatnonzero(trained_on)
        subset = target.subset(rows)  # no label of the folds that the member leaves out
        if "univariate" in kinds or "learned" in kinds:
            start = strongest_features(separation(geometry.marginals, subset, rows, len(geometry)))
        for kind in kinds:
            if kind == "linear":
                member: Member = LinearMember(kind, left_out, trained_on, np.arange(axes.shape[1]), axes)
            else:
                weights = _anova_weights(geometry.quantiles[rows], subset) if kind == "anova" else start
                columns = np.flatnonzero(weights)
                member = Member(kind, left_out, trained_on, columns, weights[columns] / np.linalg.norm(weights))
            members[kind, left_out] = member
    starts = [key for key in members if key[0] in ("learned", "linear")]

    def task(number: int) -> Callable[[], np.ndarray]:
        member, base = members[starts[number]], geometry.scaling.seed
        linear = member.kind == "linear"
        rows, most = np.flatnonzero(member.trained_on), _MAX_LIKELIHOOD if linear else _MAX_TRAINING
        if rows.size > most:
            order = keyed_uniform([geometry.names[row] for row in rows], base, "training", *member.left_out)
            if isinstance(target, Classes):
                # The first of each class, then the second of each class, …: equal numbers, as far as they go.
                codes, by_order = target.codes[rows], np.argsort(order, kind="stable")
                for code in np.unique(codes):
                    of_class = by_order[codes[by_order] == code]
                    order[of_class] = np.arange(of_class.size) + order[of_class]
            rows = rows[np.sort(np.argsort(order, kind="stable")[:most])]
        subset = target.subset(rows)
        if linear:
            D = geometry.description.euclidean[rows].equalize(_MAX_TRAINING_POINTS, random_state=base)
            return partial(maximise_likelihood, D, subset, member.weights)
        seed = int(keyed_generator(base, "member", *member.left_out).integers(2**31))
        return partial(refine, geometry.description.part(rows, member.columns), subset, member.weights, seed)

    trained = run_all(task, len(starts), "train ensemble members", "member", n_jobs=n_jobs, verbose=verbose)
    for key, weights in zip(starts, trained, strict=True):
        used = slice(None) if key[0] == "linear" else weights != 0
        members[key] = replace(members[key], columns=members[key].columns[used], weights=weights[used])
    return [members[kind, left_out] for kind in kinds for left_out in design]


def maximise_likelihood(D: Distributions, target: Target, start: np.ndarray) -> np.ndarray:
    """Learn components from `start` that maximise the leave-one-out likelihood, minus a penalty on their norm.

    Each distribution is predicted by all others with the weights exp(-distance), as in neighbourhood components
    analysis (Goldberger et al. 2005) and the supervised word mover's distance (Huang et al. 2016), but with exact
    transport. The derivative holds the optimal plans fixed (Danskin's theorem), and every step starts warm from the
    plans of the last. Components have the shape (n_components, n_features).
    """
    n, points = len(D), D.points
    transport = pair_transport(Masses.of(D), *np.triu_indices(n, 1), len(start), threads=Threads(1))
    first, second, pairs = transport.first, transport.second, np.arange(transport.first.size)

    def distances(components: np.ndarray) -> np.ndarray:
        transport.move_all(points @ components.T)
        return transport.solve(pairs)

    median = float(np.median(distances(start)))
    if median <= 0.0:  # most distributions coincide
        return start
    components = start * (_MEDIAN_DISTANCE / median)
    squared_norm = float(np.square(components).sum())
    size = _LEARNING_RATE * float(np.sqrt(squared_norm / components.size))
    optimiser = Adam(size)
    for step in range(_N_STEPS):
        d = distances(components)
        kernel = np.zeros((n, n))
        kernel[first, second] = kernel[second, first] = np.exp(d.min() - d)
        slopes = target.leave_one_out(kernel)[1]
        gradient = transport.pull(pairs, (slopes + slopes.T)[first, second]).T @ points
        optimiser.learning_rate = size * 0.5 * (1.0 + np.cos(np.pi * step / _N_STEPS))
        components = optimiser.step(components, gradient + 2.0 * _STRENGTH / squared_norm * components)
    return components


def separation(marginals: Marginals, target: Target, rows: np.ndarray, n: int) -> np.ndarray:
    """Return a moderated t statistic per feature: distance to unlike minus distance to like distributions.

    The standard error is moderated by adding its median over features (Tusher, Tibshirani & Chu 2001): with a small
    number of distributions, individual features have a small error by chance.
    """
    position = np.full(n, -1)
    position[rows] = np.arange(rows.size)
    gains = []
    for i, row in enumerate(rows):
        partners = position[marginals.partners[row]]
        training = partners >= 0
        contrast = target.contrast(i, partners[training])
        if contrast is not None:
            values = marginals.values[row] if training.all() else marginals.values[row][training]
            gains.append(contrast.astype(np.float32) @ values)
    if len(gains) < 2:
        return np.zeros(marginals.values.shape[2])
    stacked = np.array(gains, dtype=np.float64)
    error = stacked.std(axis=0, ddof=1) / np.sqrt(len(stacked))
    return stacked.mean(axis=0) / (error + np.median(error) + 1e-9)


def _anova_weights(quantiles: np.ndarray, target: Target) -> np.ndarray:
    """Return weights by the ratio of explained to residual variance of the quantile functions.

    The residual variance is moderated by adding its median over features, as the standard error in `separation`.
    """
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
    floor = float(np.median(residual)) + 1e-12 * max(float(total.max(initial=0.0)), 1e-300)
    ratio = between / max(basis.shape[1], 1) / (residual + floor)
    deviation = np.sqrt(residual / n_quantiles)
    deviation = deviation + np.median(deviation)
    return strongest_features(ratio / np.where(deviation > 0, deviation, 1.0))


def strongest_features(statistics: np.ndarray) -> np.ndarray:
    """Return the statistics as weights: 0 for negative statistics and for all but the strongest fifty."""
    order = np.argsort(-statistics, kind="stable")
    weights = np.maximum(statistics, 0.0)
    if np.count_nonzero(weights) < min(_MIN_FEATURES, weights.size):  # the best three have equal weights
        weights = np.zeros(statistics.size)
        weights[order[:_MIN_FEATURES]] = 1.0
    weights[order[_MAX_FEATURES:]] = 0.0
    return weights


def importance_interval(importance: np.ndarray, refits: np.ndarray, confidence: float = 0.95) -> np.ndarray:
    """Return lower and upper ends of importances, (2, n_features), from their variation over refits or members.

    A refit has fewer different distributions than the cohort, which scatters weight over more features: percentiles of
    refits may lie below the importance of a strong feature. The interval contains the percentiles, and the percentiles
    shifted until their median equals the importance (on the scale of weights, its root). In simulated cohorts of 12
    distributions it covered the mean importance of strong features in 72 to 89 %, the percentiles alone in 62 to 80 %.
    """
    ends = [0.5 - confidence / 2, 0.5, 0.5 + confidence / 2]
    low, middle, high = np.quantile(np.sqrt(refits), ends, axis=0)
    weight = np.sqrt(importance)
    lowest = np.minimum(low, np.maximum(weight - (middle - low), 0.0)) ** 2
    highest = np.maximum(high, np.minimum(weight + (high - middle), 1.0)) ** 2
    # The importance is in the interval despite rounding errors.
    return np.stack([np.minimum(lowest, importance), np.maximum(highest, importance)])


def median_distance(distances: np.ndarray, landmarks: np.ndarray | None = None) -> float:
    """Return the median distance between distributions and other `landmarks` (columns; None: all); 1 if it is 0."""
    columns, different = np.arange(distances.shape[1]), np.ones(distances.shape, dtype=bool)
    different[columns if landmarks is None else landmarks, columns] = False
    values = distances[different]
    return (float(np.median(values)) or 1.0) if values.size else 1.0


def replace_diagonal(kernel: np.ndarray, landmarks: np.ndarray | None = None) -> np.ndarray:
    """Return the kernel with entries of a distribution with itself replaced by the largest other entry of the row."""
    # These entries are 1, although an independent sample of the same distribution would not be at distance 0. A model
    # would use them to explain training labels and be underconfident about new samples.
    columns = np.arange(kernel.shape[1])
    rows = columns if landmarks is None else landmarks
    replaced = kernel.copy()
    replaced[rows, columns] = 0.0
    replaced[rows, columns] = replaced[rows].max(axis=1)
    return replaced


@dataclass(frozen=True)
class EuclideanView:
    """exp(-distance / median) of Euclidean transport between standardised points, without labels."""

    points: Distributions  # of the landmarks, standardised and projected to the principal axes
    unit: float  # median distance between training distributions and landmarks
    nearest: np.ndarray  # distance from each training distribution to the nearest other landmark, in this unit
    landmarks: np.ndarray
    to_landmarks: np.ndarray  # distances from training distributions to landmarks, in this unit
    name = group = EUCLIDEAN

    @classmethod
    def fit(cls, geometry: Geometry) -> EuclideanView:
        landmarks = geometry.landmarks
        unit = median_distance(geometry.euclidean_distances, landmarks)
        distances = geometry.euclidean_distances / unit
        without_self = distances.copy()
        without_self[landmarks, np.arange(landmarks.size)] = np.inf
        nearest = without_self.min(axis=1)
        return cls(geometry.description.euclidean[landmarks], unit, nearest, landmarks, distances)

    @property
    def distances(self) -> np.ndarray:
        return complete_distances(self.to_landmarks, self.landmarks)

    def kernel(self, fold: int | None = None) -> np.ndarray:
        return replace_diagonal(np.exp(-self.to_landmarks), self.landmarks)

    def distances_to(self, description: Description) -> np.ndarray:
        """Return distances from new distributions (rows) to the landmarks, in units of the median."""
        return pairwise(description.euclidean, self.points).distances / self.unit

    def kernel_to(self, description: Description) -> np.ndarray:
        return np.exp(-self.distances_to(description))

    def pack(self, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        pack_distributions(self.points, prefix, arrays)
        arrays[f"{prefix}.nearest"] = self.nearest
        return {"view": EUCLIDEAN, "unit": self.unit}

    @classmethod
    def unpack(cls, reader: ArrayReader, entry: Entry, prefix: str, training: Stored, n: int) -> EuclideanView:
        nearest = reader.numbers(f"{prefix}.nearest", None)
        if nearest.size < n:
            raise Damaged(f"{nearest.size} distances to nearest landmarks for {n} landmarks")
        points = reader.distributions(prefix, n, training[0].n_components)
        return cls(points, positive(entry["unit"], "a unit"), nearest, np.arange(n), np.empty((0, 0)))


@dataclass(frozen=True)
class SummaryView:
    """Inner products of label-free features, each standardised over the training distributions."""

    name: str  # attribute of `Description` with the features
    mean: np.ndarray  # of each feature over the training distributions
    scale: np.ndarray  # unit of each feature
    x: np.ndarray  # standardised features of the training distributions, (n_distributions, n_columns)
    landmarks: np.ndarray
    group = "summary"

    @classmethod
    def fit(cls, geometry: Geometry, name: str) -> SummaryView:
        x = getattr(geometry.description, name)
        mean, deviation = x.mean(axis=0), x.std(axis=0)
        varies = deviation > 1e-9 * max(float(np.abs(x).max(initial=0.0)), 1e-300)
        scale = np.where(varies, deviation, np.inf) * np.sqrt(x.shape[1])
        return cls(name, mean, scale, (x - mean) / scale, geometry.landmarks)

    @property
    def basis(self) -> np.ndarray:
        """Standardised features of the landmarks."""
        # The same array in small cohorts: numpy multiplies a matrix by its own transpose with other rounding errors.
        return self.x if self.landmarks.size == len(self.x) else self.x[self.landmarks]

    @property
    def distances(self) -> np.ndarray:
        if self.landmarks.size == len(self.x):
            distances = cdist(self.x, self.x)
        else:
            distances = euclidean_distances(self.x)  # faster for thousands of distributions, with rounding errors
        return distances / median_distance(distances)

    def kernel(self, fold: int | None = None) -> np.ndarray:
        return self.x @ self.basis.T

    def kernel_to(self, description: Description) -> np.ndarray:
        return (getattr(description, self.name) - self.mean) / self.scale @ self.basis.T

    def pack(self, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        arrays |= {f"{prefix}.mean": self.mean, f"{prefix}.scale": self.scale, f"{prefix}.x": self.basis}
        return {"view": self.name}

    @classmethod
    def unpack(cls, reader: ArrayReader, entry: Entry, prefix: str, training: Stored, n: int) -> SummaryView:
        name, n_features = entry["view"], training[0].scale.size
        sizes = {"means": n_features, "moments": 2 * n_features, "composition": len(training[0].clusters)}
        mean = reader.numbers(f"{prefix}.mean", sizes.get(name))
        scale, x = reader.scales(f"{prefix}.scale", mean.size), reader.numbers(f"{prefix}.x", n, mean.size)
        return cls(name, mean, scale, x, np.arange(n))


@dataclass(frozen=True)
class MemberView:
    """Kernels of learned metrics, averaged over the members that were trained on none of the samples involved.

    The entry of a new sample and landmark j averages members that leave out the fold of j: training and prediction use
    the same kind of distance. Subclasses define the distances under a member.
    """

    name: str
    members: list[Member]  # of one kind
    units: list[float]  # median distance under each member between distributions that it was not trained on
    description: Description  # the training distributions; at least the features that members use
    landmarks: np.ndarray
    # Distances from training distributions to landmarks under each member, in its unit; entries of distributions that
    # the member was trained on are ignored.
    blocks: list[np.ndarray] = field(default_factory=list, repr=False)

    @classmethod
    def fit(
        cls, name: str, geometry: Geometry, members: Sequence[Member], distances: Sequence[np.ndarray] | None = None
    ) -> MemberView:
        """Return the view of members; `distances` are those of `measure_members`, None for a marginal view."""
        landmarks = geometry.landmarks
        view = cls(name, list(members), [], geometry.description, landmarks)
        for number, member in enumerate(view.members):
            out, columns = np.flatnonzero(~member.trained_on), np.flatnonzero(~member.trained_on[landmarks])
            if distances is None:
                measured = view.member_distances(member, geometry.description, out, landmarks[columns])
            else:
                measured = distances[number]
            block = np.zeros((member.trained_on.size, landmarks.size))
            block[np.ix_(out, columns)] = measured
            view.units.append(median_distance(measured, np.searchsorted(out, landmarks[columns])))
            view.blocks.append(block / view.units[-1])
        return view

    def member_distances(
        self, member: Member, description: Description, rows: np.ndarray, columns: np.ndarray
    ) -> np.ndarray:
        """Return distances from distributions `rows` of a description to the training distributions `columns`."""
        raise NotImplementedError

    @property
    def group(self) -> str:
        return "linear" if self.name == "linear" else "diagonal"

    @property
    def distances(self) -> np.ndarray:
        distances = self._average(self.blocks, None)
        distances[self.landmarks, np.arange(self.landmarks.size)] = 0.0
        return complete_distances(distances, self.landmarks)

    def kernel(self, fold: int | None = None) -> np.ndarray:
        return replace_diagonal(self._average([np.exp(-block) for block in self.blocks], fold), self.landmarks)

    def _average(self, blocks: Sequence[np.ndarray], fold: int | None) -> np.ndarray:
        total, count = np.zeros_like(blocks[0]), np.zeros_like(blocks[0])
        for member, block in zip(self.members, blocks, strict=True):
            if fold is None or fold in member.left_out:
                pairs = np.ix_(~member.trained_on, ~member.trained_on[self.landmarks])
                total[pairs] += block[pairs]
                count[pairs] += 1.0
        return total / np.maximum(count, 1.0)

    def kernel_to(self, description: Description) -> np.ndarray:
        total = np.zeros((len(description), self.landmarks.size))
        count = np.zeros(self.landmarks.size)
        for member, unit in zip(self.members, self.units, strict=True):
            out = np.flatnonzero(~member.trained_on[self.landmarks])
            distances = self.member_distances(member, description, np.arange(len(total)), self.landmarks[out])
            total[:, out] += np.exp(-distances / unit)
            count[out] += 1.0
        return total / count

    def pack(self, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        # One array for all members: in an .h5ad file every array takes about a millisecond.
        if self.name == "linear":
            arrays[f"{prefix}.weights"] = np.stack([member.weights for member in self.members])
        else:
            arrays |= {
                f"{prefix}.{name}": np.concatenate([getattr(member, name) for member in self.members])
                for name in ("columns", "weights")
            }
        arrays[f"{prefix}.trained_on"] = np.stack([member.trained_on[self.landmarks] for member in self.members])
        return {
            "view": MARGINAL if self.name == MARGINAL else "transport",
            "kind": self.members[0].kind,
            "units": [float(unit) for unit in self.units],
            "n_columns": [member.columns.size for member in self.members],
            "left_out": [[int(fold) for fold in member.left_out] for member in self.members],
        }

    @classmethod
    def unpack(cls, reader: ArrayReader, entry: Entry, prefix: str, training: Stored, n: int) -> MemberView:
        stored = training[1]
        if entry["view"] not in (MARGINAL, "transport") or stored is None:
            raise Damaged(f"the view {entry['view']!r} has no members")
        kind, sizes = str(entry["kind"]), entry["n_columns"]
        units = [positive(unit, "a unit") for unit in entry["units"]]
        n_members, linear = len(units), kind == "linear"
        trained_on = reader.array(f"{prefix}.trained_on", "b", n_members, n)
        if np.all(trained_on, axis=0).any():
            raise Damaged("a training distribution is left out by no member")
        left_out = [tuple(map(int, folds)) for folds in entry["left_out"]]
        if linear:
            n_components = stored.scaling.n_components
            columns = [np.arange(n_components)] * n_members
            weights = list(reader.numbers(f"{prefix}.weights", n_members, None, n_components))
        else:
            features = reader.indices(f"{prefix}.columns", stored.scaling.scale.size)
            if not np.isin(features, stored.used).all():
                raise Damaged("a member uses features that are not in the file")
            values = reader.numbers(f"{prefix}.weights", features.size)
            if not np.all(values > 0):
                raise Damaged("weights of a member are not positive")
            if any(size < 0 for size in sizes) or sum(sizes) != features.size:
                raise Damaged(f"members of {sizes} features have {features.size} weights")
            columns, weights = (np.split(array, np.cumsum(sizes)[:-1]) for array in (features, values))
        parts = zip(left_out, trained_on, columns, weights, strict=True)
        members = [(LinearMember if linear else Member)(kind, *part) for part in parts]
        if entry["view"] == MARGINAL:
            return MarginalView(MARGINAL, members, units, stored, np.arange(n))
        return TransportView(kind, members, units, stored, np.arange(n))


@dataclass(frozen=True)
class TransportView(MemberView):
    """exp(-distance / median) of transport under the learned metrics of one kind."""

    def member_distances(
        self, member: Member, description: Description, rows: np.ndarray, columns: np.ndarray
    ) -> np.ndarray:
        training = member.project(self.description, columns)
        return pairwise(member.project(description, rows), training).distances


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


def measure_members(
    geometry: Geometry, members: Sequence[Member], *, n_jobs: int | None = None, verbose: bool = False
) -> list[np.ndarray]:
    """Return the out-of-bag transport distances of each member: from all samples that it leaves out to landmarks."""
    landmarks = geometry.landmarks

    def task(number: int) -> Callable[[], BoundedDistances]:
        member = members[number]
        out = np.flatnonzero(~member.trained_on)
        positions = np.searchsorted(out, landmarks[~member.trained_on[landmarks]])
        D = member.project(geometry.description, out)
        return partial(pairwise, D, None if positions.size == len(D) else D[positions], n_jobs=1)

    results = run_all(task, len(members), "out-of-bag distances", "member", n_jobs=n_jobs, verbose=verbose)
    return [result.distances for result in results]


View = EuclideanView | SummaryView | MemberView
VIEWS: dict[str, type[View]] = {EUCLIDEAN: EuclideanView, **dict.fromkeys(SUMMARIES, SummaryView)}
