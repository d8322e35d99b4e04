"""Coarsened transport: nearby points are grouped and their masses summed, with a proved bound on the error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from ...distributions import Distributions
from ...metrics.base import Cost, GroundMetric
from .. import _core
from ..cohort import is_projection
from ..plan import Plan, Status
from ..problem import TOTAL, integer_masses
from .exact import Cloud, Distances, Solver, solve_exact

# Rounds of Lloyd's algorithm after the initial split.
_ROUNDS = 5
# Largest number of dimensions in which points are grouped. Any grouping is valid, because `radii` measures its error.
_MOST_AXES = 20


def group_points(points: np.ndarray, masses: np.ndarray, n_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the centres (weighted means) of at most `n_groups` groups of nearby points, and the group of each point.

    The algorithm is deterministic, and identical points are in the same group.

    >>> centres, groups = group_points(np.array([[0.0], [9.0], [1.0]]), np.ones(3), 2)
    >>> centres.ravel().tolist(), groups.tolist()
    ([0.5, 9.0], [0, 1, 0])
    """
    points = np.require(points, np.float64, ["C", "A"])
    masses = np.require(masses, np.float64, ["C", "A"])
    groups = np.empty(points.shape[0], np.int64)
    _core.split(points, masses, n_groups, groups)
    for _ in range(_ROUNDS if points.shape[0] > n_groups else 0):
        centres = centres_of(points, masses, groups)
        nearest = np.empty(points.shape[0], np.int64)
        _core.nearest_centres(points, centres, nearest)
        if np.array_equal(nearest, groups):
            break
        groups = np.unique(nearest, return_inverse=True)[1]  # renumber, because a group may have lost all its points
    return centres_of(points, masses, groups), groups


def centres_of(points: np.ndarray, masses: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the weighted mean of each group; the centre of a single point equals the point bit by bit."""
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(groups.max() + 1))
    anchors = points[order[starts]]
    steps = (points - anchors[groups])[order] * masses[order][:, None]
    return anchors + np.add.reduceat(steps, starts, axis=0) / np.add.reduceat(masses[order], starts)[:, None]


class Groups(NamedTuple):  # a distribution and its groups
    points: np.ndarray
    masses: np.ndarray
    centres: np.ndarray  # (n_groups, n_components)
    weights: np.ndarray  # (n_groups,) mass of each group
    groups: np.ndarray  # (n_points,) group of each point
    away: np.ndarray  # (n_points,) distance of each point from its centre


@dataclass(frozen=True)
class Coarse(Solver):
    """Exact transport between the centres of groups of points.

    The error is at most the mean distance of the points from the centres of their groups (triangle inequality), summed
    over both distributions. The cost of the plan, distributed over the points of the groups, is a better upper bound;
    the distance between the means is a second lower bound.

    Parameters
    ----------
    n_groups : int, default=100
        Largest number of groups per distribution; distributions with at most `n_groups` points are not grouped.

    Examples
    --------
    >>> import groundmetric as gm
    >>> x, y = [[0.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [3.0, 2.0]]
    >>> plan = gm.transport.solve_points(x, y, solver=gm.transport.Coarse(n_groups=1))
    >>> plan.value, plan.bounds
    (3.0, (3.0, 3.0))
    """

    n_groups: int = 100

    name: ClassVar[str] = "coarse"
    on_points = True

    def __post_init__(self) -> None:
        self._check("n_groups", low=1, whole=True)

    def prepare(self, cloud: Cloud, distances: Distances) -> Groups:
        points = np.ascontiguousarray(cloud.points, dtype=np.float64)
        centres, groups = points, np.arange(len(points))
        if len(points) > self.n_groups:
            centres, groups = group_points(points, cloud.masses, self.n_groups)
        away = np.linalg.norm(points - centres[groups], axis=1)
        return Groups(points, cloud.masses, centres, np.bincount(groups, cloud.masses), groups, away)

    def compare(self, x: Groups, y: Groups, distances: Distances) -> Plan:
        cost = np.ascontiguousarray(distances(x.centres, y.centres))
        group_plan = solve_exact(cost, x.weights, y.weights)
        # Mean distance of the mass from its centres: upper bound of the distance between a distribution and its groups.
        radius = float(x.masses @ x.away) + float(y.masses @ y.away)
        # Distribute the plan over the points of the groups, which share the shipments of their group in order. Then the
        # number of shipments is at most the number of points on both sides plus that of shipments between groups.
        shipped = integer_masses(group_plan.mass)
        leaving = np.lexsort((group_plan.cols, group_plan.rows))
        arriving = np.lexsort((group_plan.rows, group_plan.cols))
        parts = []  # of each side: points, positions of shipments sorted by group, and units
        for side, order in ((x, leaving), (y, arriving)):
            by_group = np.argsort(side.groups, kind="stable")
            points, shipments, units = ship_in_order(integer_masses(side.masses)[by_group], shipped[order])
            parts.append((by_group[points], shipments, units))
        (senders, _, sent), (receivers, received_with, received) = parts
        # Sort the receiving side by the order in which shipments leave the senders.
        rank = np.empty(leaving.size, np.int64)
        rank[leaving] = np.arange(leaving.size)
        order = np.argsort(rank[arriving[received_with]], kind="stable")
        tails, heads, amounts = ship_in_order(sent, received[order])
        rows, cols, mass = senders[tails], receivers[order][heads], amounts / TOTAL
        priced = float(mass @ np.linalg.norm(x.points[rows] - y.points[cols], axis=1))
        low = max(group_plan.bounds[0] - radius, float(np.linalg.norm(x.masses @ x.points - y.masses @ y.points)))
        high = min(group_plan.value + radius, priced)
        assert group_plan.potentials is not None
        u, v = group_plan.potentials
        return replace(
            group_plan,
            rows=rows,
            cols=cols,
            mass=mass,
            # Feasible by the triangle inequality: u + v is at most the distance of each pair of points.
            potentials=(u[x.groups] - x.away, v[y.groups] - y.away),
            basis=None,
            status=Status.APPROXIMATE if group_plan.optimal and radius > 0.0 else group_plan.status,
            solver=self.name,
            bounds=group_plan.bounds if radius == 0.0 else (min(low, high), high),
        )


def ship_in_order(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return senders, receivers and amounts when integer masses of equal sums are shipped in order."""
    ends_a, ends_b = np.cumsum(a), np.cumsum(b)
    ends = np.union1d(ends_a[a > 0], ends_b[b > 0])  # a shipment ends where a sender or a receiver does
    return np.searchsorted(ends_a, ends), np.searchsorted(ends_b, ends), np.diff(ends, prepend=0)


@dataclass(frozen=True)
class Coarsened:
    """A cohort whose points were grouped; the result of `coarsen`.

    Parameters
    ----------
    distributions : Distributions
        Centres of the groups, weighted by their masses.
    source : Distributions
        Original distributions, restricted to points with positive mass.
    groups : array of shape (n_points,)
        Row of `distributions.points` with the centre of the group, for every row of `source.points`.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [1.0], [8.0], [5.0]], samples=["a", "a", "a", "b"])
    >>> coarse = gm.transport.coarsen(D, 2)
    >>> coarse.groups.tolist(), coarse.radii().round(3).tolist()
    ([0, 0, 1, 2], [0.333, 0.0])
    """

    distributions: Distributions
    source: Distributions
    groups: np.ndarray

    def radii(self, metric: GroundMetric | None = None) -> np.ndarray:
        """Return the mean distance of points from their centres, by distribution; two bound the error of a distance.

        `metric` is a distance between projected points, not squared; None: Euclidean between the unscaled features.
        """
        metric = GroundMetric.euclidean(self.source.shape[1]) if metric is None else metric
        if not is_projection(metric) or metric.cost is Cost.SQUARED:
            raise ValueError(f"metric is {metric!r}: radii need a distance between projected points, not squared")
        steps = metric.project(self.source.points) - metric.project(self.distributions.points)[self.groups]
        return np.add.reduceat(self.source.weights * metric.cost.norm(steps), self.source.bounds[:-1])


def coarsen(D: Distributions, n_groups: int, *, metric: GroundMetric | None = None) -> Coarsened:
    """Replace the points of every distribution by the weighted means of at most `n_groups` groups.

    Learning and distances then take a fraction of the time, and `radii` bounds the change of distances. The means of
    the distributions do not change.

    Parameters
    ----------
    D : Distributions
        The cohort.
    n_groups : int
        Largest number of groups per distribution; distributions with at most `n_groups` points keep all points.
    metric : GroundMetric or None, default=None
        Metric under which the points of a group are close. None: Euclidean between standardised features, reduced to 20
        dimensions by a truncated singular value decomposition.

    Returns
    -------
    Coarsened
        The coarsened distributions, and the group of each point.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> int(gm.transport.coarsen(D, 20).distributions.sizes.max())
    20
    """
    Coarse(n_groups)  # raises if `n_groups` is invalid
    D = D.with_mass()
    coordinates = metric.project(D.points) if metric is not None else _standardised(D.points)
    groups = np.empty(D.weights.size, np.int64)
    counts = np.empty(len(D), np.int64)
    for d, (low, high) in enumerate(zip(D.bounds[:-1], D.bounds[1:], strict=True)):
        members = np.arange(high - low)
        if members.size > n_groups:
            members = group_points(coordinates[low:high], D.weights[low:high], n_groups)[1]
        counts[d] = members.max() + 1
        groups[low:high] = counts[:d].sum() + members
    masses = np.bincount(groups, D.weights)
    averaging = sparse.csr_matrix((D.weights / masses[groups], (groups, np.arange(groups.size))))
    centres = (averaging @ D.points).astype(D.points.dtype, copy=False)
    owners = np.repeat(np.arange(len(D)), counts)
    coarse = Distributions(centres, owners, weights=masses, features=D.features)
    coarse.names = list(D.names)
    return Coarsened(coarse, D, groups)


def _standardised(points: Any) -> np.ndarray:
    """Return features divided by their standard deviation, reduced to at most `_MOST_AXES` principal axes."""
    is_sparse = sparse.issparse(points)
    if is_sparse:
        mean = np.asarray(points.mean(axis=0)).ravel()
        variance = np.asarray(points.multiply(points).mean(axis=0)).ravel() - mean**2
    else:
        mean, variance = points.mean(axis=0, dtype=np.float64), points.var(axis=0, dtype=np.float64)
    spread = np.sqrt(np.maximum(variance, 0.0))
    factor = 1.0 / np.where(spread > 0, spread, 1.0)
    scaled = (points @ sparse.diags(factor)).tocsr() if is_sparse else (points - mean) * factor
    if points.shape[1] > _MOST_AXES:
        from sklearn.decomposition import TruncatedSVD  # imported here, because it needs 10 MB of memory

        return TruncatedSVD(_MOST_AXES, random_state=0).fit_transform(scaled)
    return np.asarray(scaled.toarray() if is_sparse else scaled, dtype=np.float64)
