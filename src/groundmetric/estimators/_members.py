"""Members of an ensemble: what all share, parts of a cohort to learn from, and the metrics that are learned there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..distances import pairwise_distances
from ..distributions import Distributions
from ..learning.features import FeatureDistances, feature_ratios, quantile_functions, strongest_features
from ..metrics.base import GroundMetric
from .grid import reference_metric
from .learner import GroundMetricLearner

KINDS = ("univariate", "anova", "learned")


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
        Distances between draws of the training distributions.
    """

    kind: str
    metric: GroundMetric
    inside: np.ndarray
    distances: np.ndarray


class Geometry:
    """What does not depend on labels: scales, draws of points, quantile functions, Euclidean distances, means.

    One computation serves all members, and all permutations of the labels.
    """

    def __init__(self, D: Distributions, max_points: int, n_draws: int, random: np.random.RandomState) -> None:
        self.D, self.max_points = D, max_points
        _, self.variances = D.moments(weighted=False)
        self.scale = np.where(self.variances > 0, np.sqrt(self.variances), 1.0)
        self.seeds = random.randint(2**31, size=n_draws)
        self.quantiles = quantile_functions(D, self.scale)
        self.features = FeatureDistances(self.quantiles, random)
        self.draws = [self._draw(int(seed)) for seed in self.seeds]
        self.euclidean = reference_metric(D, "standardised")
        self.euclidean_distances = pairwise_distances(self.draws[0], metric=self.euclidean)
        self.means = D.means() / self.scale
        self.centre, spread = self.means.mean(axis=0), self.means.std(axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)

    def _draw(self, seed: int) -> Distributions:
        few = self.D.sizes.max() <= self.max_points
        return self.D if few else self.D.subsample(self.max_points, random_state=seed)

    def standardised_means(self, D: Distributions) -> np.ndarray:
        """Means of each feature, in units of how much they vary between training distributions."""
        return (D.means() / self.scale - self.centre) / self.spread


def parts(codes: np.ndarray, groups: np.ndarray, n_parts: int, random: np.random.RandomState) -> list[np.ndarray]:
    """Masks of distributions to learn from: halves of the groups and their complements, each class on both sides.

    Where a half would have a class with fewer than two distributions, one group of each kind is left out instead.
    """
    kinds: dict[tuple, list[int]] = {}
    for group in np.unique(groups):
        kinds.setdefault(tuple(np.unique(codes[groups == group])) if codes.dtype.kind in "iu" else (), []).append(group)
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
            found.append(inside if _learnable(codes, inside) else _all_but_few(codes, groups, kinds, random))
    return found[:n_parts]


def _learnable(codes: np.ndarray, inside: np.ndarray) -> bool:
    if codes.dtype.kind not in "iu":
        return bool(np.unique(codes[inside]).size >= 3)
    return bool(np.all(np.bincount(codes[inside], minlength=int(codes.max()) + 1)[np.unique(codes)] >= 2))


def _all_but_few(
    codes: np.ndarray, groups: np.ndarray, kinds: dict[tuple, list[int]], random: np.random.RandomState
) -> np.ndarray:
    inside = np.ones(codes.size, dtype=bool)
    for members in kinds.values():
        trial = inside & (groups != random.choice(members))
        inside = trial if _learnable(codes, trial) else inside
    return inside


def learn_member(
    geometry: Geometry, codes: np.ndarray, kind: str, draw: int, inside: np.ndarray, max_epochs: int, seed: int
) -> Member:
    """A metric of one kind from one part of the distributions, and all distances under it."""
    weights = _weights(geometry, codes, kind, inside)
    used = np.flatnonzero(weights)
    points = geometry.draws[draw]
    components = np.zeros((used.size, weights.size))
    components[np.arange(used.size), used] = weights[used] / geometry.scale[used]
    if kind == "learned":
        # Entries of standardised features are as large as those that learning starts from otherwise.
        components *= np.sqrt(used.size) / 16.0 / np.linalg.norm(weights)
        components = _refine(components, used, points, codes, inside, max_epochs, seed + draw)
    metric = GroundMetric(components, geometry.D.features, variances=geometry.variances)
    distances = pairwise_distances(points, metric=metric)
    unit = _unit(distances, inside)
    metric = GroundMetric(components / unit, geometry.D.features, variances=geometry.variances)
    return Member(kind, metric, inside, distances / unit)


def _weights(geometry: Geometry, codes: np.ndarray, kind: str, inside: np.ndarray) -> np.ndarray:
    if kind == "anova":
        ratios, spread = feature_ratios(geometry.quantiles[inside], codes[inside])
        spread = spread + np.median(spread)
        return strongest_features(ratios / np.where(spread > 0, spread, 1.0))
    return strongest_features(geometry.features.statistics(codes, inside, moderated=True))


def _refine(
    start: np.ndarray, used: np.ndarray, D: Distributions, codes: np.ndarray, inside: np.ndarray, epochs: int, seed: int
) -> np.ndarray:
    """Weights that triplets of the distributions inside have moved; the start where nothing is left of them."""
    part = D[np.flatnonzero(inside)]
    few = part.with_points(part.points[:, used])
    first = start[np.arange(used.size), used]
    learner = GroundMetricLearner(
        form="diagonal", init=first, strength=0.01, max_epochs=epochs, random_state=seed % 2**31,
        target="classes" if codes.dtype.kind in "iu" else "ordered",
    )  # fmt: skip
    found = learner.fit(few, codes[inside]).metric_.components
    if not np.any(found):
        return start
    components = np.zeros((len(found), start.shape[1]))
    components[:, used] = found
    return components


def _unit(distances: np.ndarray, inside: np.ndarray) -> float:
    """Mean distance between pairs of which at least one was not learned from."""
    outside = ~(inside[:, None] & inside[None]) & ~np.eye(inside.size, dtype=bool)
    chosen = distances[outside if outside.any() else ~np.eye(inside.size, dtype=bool)]
    return float(chosen.mean()) or 1.0


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
