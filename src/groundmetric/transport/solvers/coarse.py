"""Coarsened transport: nearby points are grouped and their masses summed, with a certain bound on the error.

`Coarse` compares two distributions so; `coarsen` groups a whole cohort, for any code that takes distributions.
"""

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
from .exact import Cloud, Distances, Solver, check_number, solve_exact

_ROUNDS = 5
# Groups are looked for in so many dimensions at most: which they are, is free to choose; what it costs, is measured.
_MOST_AXES = 20


def group_points(points: np.ndarray, masses: np.ndarray, n_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """At most so many groups of nearby points: their centres (weighted means), and each point's group.

    Nothing is drawn at random: the same points have the same groups. Points that coincide stay together.

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
        groups = np.unique(nearest, return_inverse=True)[1]  # a group that lost all its points is gone
    return centres_of(points, masses, groups), groups


def centres_of(points: np.ndarray, masses: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Weighted mean of each group; a single point is its own centre, to the last bit."""
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(groups.max() + 1))
    anchors = points[order[starts]]
    steps = (points - anchors[groups])[order] * masses[order][:, None]
    return anchors + np.add.reduceat(steps, starts, axis=0) / np.add.reduceat(masses[order], starts)[:, None]


class Groups(NamedTuple):
    """A distribution and its groups."""

    points: np.ndarray
    masses: np.ndarray
    centres: np.ndarray  # (n_groups, n_components)
    weights: np.ndarray  # (n_groups,) mass of each group
    groups: np.ndarray  # (n_points,) each point's group
    away: np.ndarray  # (n_points,) how far each point is from its centre

    @property
    def radius(self) -> float:
        """Mean distance of the mass from its centres: the distance between the distribution and its groups, at most."""
        return float(self.masses @ self.away)

    @property
    def mean(self) -> np.ndarray:
        return self.masses @ self.points


@dataclass(frozen=True)
class Coarse(Solver):
    """Exact transport between the centres of groups of points.

    The triangle inequality bounds the error: |W(X, Y) - W(X', Y')| ≤ W(X, X') + W(Y, Y'), and no point of X is farther
    from X' than from the centre of its group. The plan is spread over the points of the groups, which gives a better
    upper bound; the distance between means gives another lower one.

    Parameters
    ----------
    n_groups : int, default=100
        Number of groups per distribution, at most; one with no more points than that is taken as it is.
    max_pivots : int or None, default=None
        Pivots of the network simplex after which to stop, and `status` says so; the default is never reached in
        practice.

    Examples
    --------
    >>> import groundmetric as gm
    >>> x, y = [[0.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [3.0, 2.0]]
    >>> plan = gm.transport.solve_points(x, y, solver=gm.transport.Coarse(n_groups=1))
    >>> plan.value, plan.bounds
    (3.0, (3.0, 3.0))
    """

    n_groups: int = 100
    max_pivots: int | None = None

    name: ClassVar[str] = "coarse"
    on_points = True

    def __post_init__(self) -> None:
        check_number(self, "n_groups", low=1, whole=True)
        check_number(self, "max_pivots", low=0, whole=True)

    def prepare(self, cloud: Cloud, distances: Distances) -> Groups:
        points = np.ascontiguousarray(cloud.points, dtype=np.float64)
        centres, groups = points, np.arange(len(points))
        if len(points) > self.n_groups:
            centres, groups = group_points(points, cloud.masses, self.n_groups)
        away = np.linalg.norm(points - centres[groups], axis=1)
        return Groups(points, cloud.masses, centres, np.bincount(groups, cloud.masses), groups, away)

    def compare(self, x: Groups, y: Groups, distances: Distances) -> Plan:
        cost = np.ascontiguousarray(distances(x.centres, y.centres))
        between = solve_exact(cost, x.weights, y.weights, max_pivots=self.max_pivots)
        radius = x.radius + y.radius
        rows, cols, mass = spread_over_points(between, x, y)
        priced = float(mass @ np.linalg.norm(x.points[rows] - y.points[cols], axis=1))
        low = max(between.bounds[0] - radius, float(np.linalg.norm(x.mean - y.mean)))
        high = min(between.value + radius, priced)
        assert between.potentials is not None
        u, v = between.potentials
        return replace(
            between,
            rows=rows,
            cols=cols,
            mass=mass,
            # By the triangle inequality, no pair of points costs less than these add up to.
            potentials=(u[x.groups] - x.away, v[y.groups] - y.away),
            basis=None,
            status=Status.APPROXIMATE if between.optimal and radius > 0.0 else between.status,
            solver=self.name,
            bounds=between.bounds if radius == 0.0 else (min(low, high), high),
        )


def spread_over_points(between: Plan, x: Groups, y: Groups) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The shipments of a plan between groups as shipments between their points: senders, receivers, masses.

    Every group hands its shipments to its points in order, so there are few more than points.
    """
    shipped = integer_masses(between.mass)
    leaving, arriving = np.lexsort((between.cols, between.rows)), np.lexsort((between.rows, between.cols))
    senders, _, sent = _share_out(x, shipped[leaving])
    receivers, received_with, received = _share_out(y, shipped[arriving])
    # Both sides in the order of the shipments as they leave.
    place = np.empty(leaving.size, np.int64)
    place[leaving] = np.arange(leaving.size)
    order = np.argsort(place[arriving[received_with]], kind="stable")
    tails, heads, amounts = ship_in_order(sent, received[order])
    some = amounts > 0
    return senders[tails[some]], receivers[order][heads[some]], amounts[some] / TOTAL


def ship_in_order(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return senders, receivers and amounts when integer masses of equal sums are shipped in order."""
    shipments = np.empty((3, a.size + b.size - 1), np.int64)
    senders, receivers, amounts = shipments[:, : _core.fill_shipments(a, b, *shipments)]
    return senders, receivers, amounts


def _share_out(side: Groups, shipped: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which point takes part in which shipment, and with how many units; shipments are sorted by group."""
    order = np.argsort(side.groups, kind="stable")
    points, shipments, amounts = ship_in_order(integer_masses(side.masses)[order], shipped)
    return order[points], shipments, amounts


@dataclass(frozen=True)
class Coarsened:
    """A cohort whose points were grouped; the result of `coarsen`.

    Parameters
    ----------
    distributions : Distributions
        The centres of the groups, weighted by their masses.
    source : Distributions
        The distributions that were coarsened, without points of no mass.
    groups : array of shape (n_points,)
        For every row of `source.points`, the row of `distributions.points` that is the centre of its group.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D = gm.Distributions([[0.0], [1.0], [8.0], [5.0]], samples=["a", "a", "a", "b"])
    >>> coarse = gm.transport.coarsen(D, 2)
    >>> coarse.distributions.points.ravel().tolist(), coarse.groups.tolist()
    ([0.5, 8.0, 5.0], [0, 0, 1, 2])
    >>> coarse.radii().round(3).tolist()
    [0.333, 0.0]
    """

    distributions: Distributions
    source: Distributions
    groups: np.ndarray

    def radii(self, metric: GroundMetric | None = None) -> np.ndarray:
        """How far each distribution is from its coarsened one, at most: the mean distance of its mass from the centres.

        For any two distributions, |W(X, Y) - W(X', Y')| is at most the sum of their radii.

        Parameters
        ----------
        metric : GroundMetric or None, default=None
            Ground metric of the distances; None: Euclidean between the features as they are. Squared costs and
            metrics other than a cost of the step between projected points raise ValueError.

        Returns
        -------
        array of shape (n_distributions,)
            Radii.
        """
        metric = GroundMetric.euclidean(self.source.shape[1]) if metric is None else metric
        if not is_projection(metric) or metric.cost is Cost.SQUARED:
            raise ValueError(f"metric is {metric!r}: radii need a distance between projected points, not squared")
        steps = metric.project(self.source.points) - metric.project(self.distributions.points)[self.groups]
        return np.add.reduceat(self.source.weights * metric.cost.norm(steps), self.source.bounds[:-1])


def coarsen(D: Distributions, n_groups: int, *, metric: GroundMetric | None = None) -> Coarsened:
    """Every distribution with its points in at most so many groups, their masses summed at their means.

    Learning and comparing then take a fraction of the time; `radii` bound what that changes. The means of the
    distributions do not change. Nothing is drawn at random.

    Parameters
    ----------
    D : Distributions
        The cohort.
    n_groups : int
        Number of groups per distribution, at most; distributions with no more points keep them all.
    metric : GroundMetric or None, default=None
        Metric under which the points of a group are close. None: Euclidean between standardised features, reduced
        to 20 dimensions by a truncated singular value decomposition where there are more.

    Returns
    -------
    Coarsened
        The coarsened distributions, and which point went into which group.

    Examples
    --------
    >>> import groundmetric as gm
    >>> D, y = gm.datasets.synth_2d(random_state=0)
    >>> coarse = gm.transport.coarsen(D, 20)
    >>> int(coarse.distributions.sizes.max()), coarse.radii().shape == y.shape
    (20, True)
    """
    Coarse(n_groups)  # checks the number
    D = D.with_mass()
    places = metric.project(D.points) if metric is not None else _standardised(D.points)
    groups = np.empty(D.weights.size, np.int64)
    counts = np.empty(len(D), np.int64)
    for d, (low, high) in enumerate(zip(D.bounds[:-1], D.bounds[1:], strict=True)):
        here = np.arange(high - low)
        if here.size > n_groups:
            here = group_points(places[low:high], D.weights[low:high], n_groups)[1]
        counts[d] = here.max() + 1
        groups[low:high] = counts[:d].sum() + here
    masses = np.bincount(groups, D.weights)
    averaging = sparse.csr_matrix((D.weights / masses[groups], (groups, np.arange(groups.size))))
    centres = (averaging @ D.points).astype(D.points.dtype, copy=False)
    owners = np.repeat(np.arange(len(D)), counts)
    coarse = Distributions(centres, owners, weights=masses, features=D.features)
    coarse.names = list(D.names)
    return Coarsened(coarse, D, groups)


def _standardised(points: Any) -> np.ndarray:
    """Features in units of their spread, or the leading principal axes of them."""
    if sparse.issparse(points):
        mean = np.asarray(points.mean(axis=0)).ravel()
        variance = np.asarray(points.multiply(points).mean(axis=0)).ravel() - mean**2
    else:
        mean, variance = points.mean(axis=0, dtype=np.float64), points.var(axis=0, dtype=np.float64)
    spread = np.sqrt(np.maximum(variance, 0.0))
    factor = 1.0 / np.where(spread > 0, spread, 1.0)
    if sparse.issparse(points):
        scaled = (points @ sparse.diags(factor)).tocsr()
    else:
        scaled = (points - mean) * factor
    if points.shape[1] > _MOST_AXES:
        from sklearn.decomposition import TruncatedSVD  # 10 MB that others do without

        return TruncatedSVD(_MOST_AXES, random_state=0).fit_transform(scaled)
    return np.asarray(scaled.toarray() if sparse.issparse(scaled) else scaled, dtype=np.float64)
