"""Members of an ensemble: what all share, parts of a cohort to learn from, and the metrics that are learned there."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ..distances import distances_of_pairs, pairwise_distances
from ..distributions import Distributions
from ..learning.features import (
    FeatureDistances,
    feature_ratios,
    quantile_functions,
    strongest_features,
    within_strata,
)
from ..learning.penalties import has_vanished
from ..metrics.base import GroundMetric
from ._averages import reference_metric
from .learner import GroundMetricLearner

KINDS = ("univariate", "anova", "learned")
# Bytes up to which all draws of sparse points are kept as plain arrays.
_MOST_DENSE = 100_000_000


@dataclass(frozen=True)
class Member:
    """A metric, which distributions it was learned from, and distances under it in units of their mean.

    Attributes
    ----------
    kind : str
        How it was learned.
    metric : GroundMetric
        The metric, in units in which the mean distance between distributions is 1.
    inside : array of bool of shape (n_distributions,)
        Distributions that it was learned from.
    distances : array of shape (n_distributions, n_distributions)
        Distances between draws of the training distributions; NaN between two that it was learned from.
    """

    kind: str
    metric: GroundMetric
    inside: np.ndarray
    distances: np.ndarray


class Geometry:
    """What does not depend on labels: scales, draws of points, quantile functions, Euclidean distances, means.

    One computation serves all members, and all permutations of the labels. Quantile functions of single features are
    taken relative to the mean of their stratum, where there are strata.
    """

    def __init__(
        self,
        D: Distributions,
        max_points: int,
        n_draws: int,
        random: np.random.RandomState,
        strata: np.ndarray | None = None,
    ) -> None:
        self.D, self.max_points = D, max_points
        _, self.variances = D.moments(weighted=False)
        self.scale = np.where(self.variances > 0, np.sqrt(self.variances), 1.0)
        self.seeds = random.randint(2**31, size=n_draws)
        quantiles = quantile_functions(D, self.scale)
        self.quantiles = quantiles if strata is None else within_strata(quantiles, strata)
        self.features = FeatureDistances(self.quantiles, random)
        self.draws = self._draws()
        self.euclidean = reference_metric(D, "standardised")
        self.euclidean_distances = pairwise_distances(self.draws[0], metric=self.euclidean)
        means = D.means() / self.scale
        self.centre, spread = means.mean(axis=0), means.std(axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)
        self.own_means = (means - self.centre) / self.spread

    def _draws(self) -> list[Distributions]:
        if self.D.sizes.max() <= self.max_points:
            return [_dense(self.D, 1)] * self.seeds.size
        drawn = [self.D.subsample(self.max_points, random_state=int(seed)) for seed in self.seeds]
        return [_dense(some, len(drawn)) for some in drawn]

    def standardised_means(self, D: Distributions) -> np.ndarray:
        """Means of each feature, in units of how much they vary between training distributions."""
        return (D.means() / self.scale - self.centre) / self.spread


def _dense(D: Distributions, times: int) -> Distributions:
    """The distributions as a plain array, out of which members take columns, where so many of them have room."""
    if not sparse.issparse(D.points) or times * D.points.dtype.itemsize * np.prod(D.points.shape) > _MOST_DENSE:
        return D
    return D.with_points(D.points.toarray(), D.features)


@dataclass(frozen=True)
class Labels:
    """What is known of the distributions beside their points.

    Attributes
    ----------
    codes : array of shape (n_distributions,)
        Classes as whole numbers, or numbers of mean 0 and variance 1.
    groups : array of shape (n_distributions,)
        Outer group (patient) as a number.
    strata : array of shape (n_distributions,) or None
        Stratum (batch) as a number; labels are compared within it.
    """

    codes: np.ndarray
    groups: np.ndarray
    strata: np.ndarray | None = None

    @property
    def are_classes(self) -> bool:
        """Whether the codes are classes, not numbers."""
        return self.codes.dtype.kind in "iu"

    def kind_of(self, which: np.ndarray) -> tuple[Any, ...]:
        """Classes and strata that occur among some distributions."""
        classes = tuple(np.unique(self.codes[which])) if self.are_classes else ()
        return classes if self.strata is None else (classes, tuple(np.unique(self.strata[which])))

    def learnable(self, inside: np.ndarray) -> bool:
        """Whether a metric can be learned from a part: two of each class, or three values; unlike ones in a stratum."""
        codes = self.codes[inside]
        enough = np.unique(codes).size >= 3
        if self.are_classes:
            counts = np.bincount(codes, minlength=int(self.codes.max()) + 1)
            enough = bool(np.all(counts[np.unique(self.codes)] >= 2))
        return enough and (self.strata is None or self.comparable(inside))

    def comparable(self, inside: np.ndarray) -> bool:
        """Whether a stratum has unlike distributions."""
        assert self.strata is not None
        strata = [inside & (self.strata == stratum) for stratum in np.unique(self.strata)]
        return any(np.unique(self.codes[which]).size >= 2 for which in strata)


def parts(labels: Labels, n_parts: int, random: np.random.RandomState) -> list[np.ndarray]:
    """Masks of distributions to learn from: halves of the groups and their complements, each class on both sides.

    With strata, those of each are halved. Where a half would have a class with fewer than two distributions, or strata
    of one class each, one group of each kind is left out instead.
    """
    groups = labels.groups
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for group in np.unique(groups):
        kinds.setdefault(labels.kind_of(groups == group), []).append(group)
    found: list[np.ndarray] = []
    while len(found) < n_parts:
        sides: tuple[list[int], list[int]] = ([], [])
        larger = int(random.randint(2))
        for members in kinds.values():
            order = random.permutation(members)
            half = (order.size + larger) // 2
            sides[0].extend(order[:half])
            sides[1].extend(order[half:])
            larger = 1 - larger if order.size % 2 else larger
        for side in sides:
            inside = np.isin(groups, side)
            found.append(inside if labels.learnable(inside) else _all_but_few(labels, kinds, random))
    return found[:n_parts]


def _all_but_few(labels: Labels, kinds: dict[tuple[Any, ...], list[int]], random: np.random.RandomState) -> np.ndarray:
    inside = np.ones(labels.codes.size, dtype=bool)
    for members in kinds.values():
        trial = inside & (labels.groups != random.choice(members))
        inside = trial if labels.learnable(trial) else inside
    return inside


def learn_member(
    geometry: Geometry, labels: Labels, kind: str, draw: int, inside: np.ndarray, max_epochs: int, seed: int
) -> Member:
    """A metric of one kind from one part of the distributions, and the distances under it of all others."""
    weights = _weights(geometry, labels, kind, inside)
    used = np.flatnonzero(weights)
    points = geometry.draws[draw]
    components = np.zeros((used.size, weights.size))
    components[np.arange(used.size), used] = weights[used] / geometry.scale[used]
    if kind == "learned":
        # Entries of standardised features are as large as those that learning starts from otherwise.
        components *= np.sqrt(used.size) / 16.0 / np.linalg.norm(weights)
        components = _refine(components, used, points, labels, inside, max_epochs, seed + draw)
    outside = _outside(inside)
    distances = _weighted_distances(points, components, outside)
    unit = float(distances[outside].mean()) or 1.0  # mean distance
    metric = GroundMetric(components / unit, geometry.D.features, variances=geometry.variances)
    return Member(kind, metric, inside, distances / unit)


def _weighted_distances(D: Distributions, components: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Distances of these pairs under components of one feature each, of which most are used by none."""
    which, used = np.nonzero(components)
    assert np.array_equal(which, np.unique(which)), "a component has several features"
    if not used.size:
        return np.zeros((len(D), len(D)))
    points = D.points[:, used]
    z = (points.toarray() if sparse.issparse(points) else points) * components[which, used]
    return distances_of_pairs(D.with_points(z), pairs)


def _weights(geometry: Geometry, labels: Labels, kind: str, inside: np.ndarray) -> np.ndarray:
    codes, strata = labels.codes, labels.strata
    if kind == "anova":
        own = None if strata is None else strata[inside]
        ratios, spread = feature_ratios(geometry.quantiles[inside], codes[inside], own)
        spread = spread + np.median(spread)
        return strongest_features(ratios / np.where(spread > 0, spread, 1.0))
    return strongest_features(geometry.features.statistics(codes, inside, moderated=True))


def _refine(
    start: np.ndarray, used: np.ndarray, D: Distributions, labels: Labels, inside: np.ndarray, epochs: int, seed: int
) -> np.ndarray:
    """Weights that triplets of the distributions inside have moved; the start where nothing is left of them."""
    part = D[np.flatnonzero(inside)]
    few = part.with_points(part.points[:, used])
    first = start[np.arange(used.size), used]
    strata = None if labels.strata is None else labels.strata[inside]
    learner = GroundMetricLearner(
        form="diagonal", init=first, strength=0.01, max_epochs=epochs, random_state=seed % 2**31,
        target="classes" if labels.codes.dtype.kind in "iu" else "ordered",
    )  # fmt: skip
    with warnings.catch_warnings():  # that some cannot be compared across strata is said of the whole cohort
        warnings.filterwarnings("ignore", message=".*strata")
        # Where the penalty outweighs the labels, or has set all weights to 0, the member keeps its start.
        warnings.filterwarnings("ignore", message=".*lower `strength`")
        found = learner.fit(few, labels.codes[inside], strata=strata).metric_.components
    if not np.any(found) or has_vanished(learner.history_, learner.margin, learner.strength):
        return start
    components = np.zeros((len(found), start.shape[1]))
    components[:, used] = found
    return components


def _outside(inside: np.ndarray) -> np.ndarray:
    """Pairs of which at least one was not learned from; all pairs where there are none of these."""
    apart = ~np.eye(inside.size, dtype=bool)
    outside = ~(inside[:, None] & inside[None]) & apart
    return outside if outside.any() else apart


def out_of_bag(members: list[Member], unlabelled: np.ndarray) -> np.ndarray:
    """Distances averaged over the members that were not learned from both.

    Of a distribution that no member has left out (in a class of two), and of a pair that all have learned from, they
    are the `unlabelled` ones in units of their mean: in learned ones its own label would show.
    """
    total = np.zeros_like(members[0].distances)
    count = np.zeros(total.shape)
    for member in members:
        outside = ~(member.inside[:, None] & member.inside[None])
        total += np.where(outside, member.distances, 0.0)
        count += outside
    left_out = ~np.all([member.inside for member in members], axis=0)
    known = (count > 0) & left_out[:, None] & left_out[None]
    apart = ~np.eye(len(total), dtype=bool)
    unit = float(unlabelled[apart].mean()) or 1.0
    return np.where(known, total / np.maximum(count, 1), unlabelled / unit) * apart
