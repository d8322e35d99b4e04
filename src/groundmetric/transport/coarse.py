"""Coarsened transport: nearby points are grouped and their masses summed, with a certain bound on the error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from .exact import solve_exact
from .grouping import group_points
from .line import ship_in_order
from .masses import TOTAL, integer_masses
from .plan import Plan, Status
from .solver import Cloud, Distances, Solver, check_number


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
    n_groups : int
        Per distribution; one with no more points than that is taken as it is.
    max_pivots : int, optional
    """

    n_groups: int = 100
    max_pivots: int | None = None

    name: ClassVar[str] = "coarse"
    on_points: ClassVar[bool] = True

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


def _share_out(side: Groups, shipped: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which point takes part in which shipment, and with how many units; shipments are sorted by group."""
    order = np.argsort(side.groups, kind="stable")
    points, shipments, amounts = ship_in_order(integer_masses(side.masses)[order], shipped)
    return order[points], shipments, amounts
