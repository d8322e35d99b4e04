"""Sliced transport: the mean over many lines of the exact transport along each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numba
import numpy as np

from ..point_distances import Cost
from .line import line_value, ship_in_order
from .masses import integer_masses
from .plan import Plan, Status
from .solver import Cloud, Distances, Solver, check_number

_EUCLIDEAN = int(Cost.EUCLIDEAN)


class Shadows(NamedTuple):
    """A distribution's places on every line, sorted."""

    points: np.ndarray
    places: np.ndarray  # (n_projections, n_points)
    order: np.ndarray  # (n_projections, n_points) which point is at each place
    units: np.ndarray  # (n_projections, n_points) its mass


@dataclass(frozen=True)
class Sliced(Solver):
    """The mean, over random directions, of the exact distance along each: never more than the exact distance.

    The largest of them bounds the exact distance from below. Shipping in order along a line is a plan in the whole
    space too: the cheapest of these plans bounds the exact distance from above, and is the plan returned.

    Parameters
    ----------
    n_projections : int
    random_state : int
        Of the directions, which are the same for all pairs.
    """

    n_projections: int = 50
    random_state: int = 0

    name: ClassVar[str] = "sliced"
    on_points: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number(self, "n_projections", low=1, whole=True)
        check_number(self, "random_state", low=0, high=2**32 - 1, whole=True)

    def directions(self, n_components: int) -> np.ndarray:
        """Unit vectors, (n_projections, n_components): in blocks at right angles to each other, which spreads them."""
        if n_components == 1:
            return np.ones((1, 1))
        random = np.random.default_rng(self.random_state)
        blocks = -(-self.n_projections // n_components)
        frames = [np.linalg.qr(random.normal(size=(n_components, n_components)))[0].T for _ in range(blocks)]
        return np.vstack(frames)[: self.n_projections]

    def prepare(self, cloud: Cloud, distances: Distances) -> Shadows:
        points = np.ascontiguousarray(cloud.points, dtype=np.float64)
        places = self.directions(points.shape[1]) @ points.T
        order = np.argsort(places, axis=1, kind="stable")
        sorted_places = np.take_along_axis(places, order, axis=1)
        return Shadows(points, sorted_places, order, integer_masses(cloud.masses)[order])

    def compare(self, x: Shadows, y: Shadows, distances: Distances) -> Plan:
        along, priced = np.empty(len(x.places)), np.empty(len(x.places))
        _compare_lines(*x, *y, along, priced)
        best = int(np.argmin(priced))
        senders, receivers, amounts = ship_in_order(x.units[best], y.units[best])
        exact = x.points.shape[1] == 1
        return Plan(
            value=float(along.mean()),
            rows=x.order[best][senders],
            cols=y.order[best][receivers],
            mass=amounts / float(x.units[best].sum()),
            potentials=None,
            basis=None,
            status=Status.OPTIMAL if exact else Status.APPROXIMATE,
            pivots=len(along),
            solver=self.name,
            bounds=(float(along.max()), float(max(priced[best], along.max()))),
        )


@numba.njit(nogil=True, cache=True)
def _compare_lines(x, x_places, x_order, x_units, y, y_places, y_order, y_units, along, priced):
    """For every line, the transport along it, and what its plan costs between the points themselves."""
    for line in range(along.size):
        a, b = x_units[line], y_units[line]
        along[line] = line_value(x_places[line], a, y_places[line], b, _EUCLIDEAN)
        senders, receivers, amounts = ship_in_order(a, b)
        total = 0.0
        for k in range(senders.size):
            i, j = x_order[line, senders[k]], y_order[line, receivers[k]]
            squared = 0.0
            for c in range(x.shape[1]):
                squared += (x[i, c] - y[j, c]) ** 2
            total += amounts[k] * np.sqrt(squared)
        priced[line] = total / a.sum()
