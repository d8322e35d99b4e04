"""Transport problems with known answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import ot
from scipy.spatial.distance import cdist


@dataclass(frozen=True)
class Problem:
    cost: np.ndarray
    a: np.ndarray
    b: np.ndarray
    value: float

    @property
    def scale(self):
        """Size of the numbers that a value is made of."""
        return np.abs(self.cost).max() * self.a.sum()


def oracle(cost, a, b):
    """Return the optimal value by POT, which is most accurate for masses of sum 1 and costs up to 1."""
    size, total = np.abs(cost).max() or 1.0, a.sum()
    return size * total * ot.emd2(a / total, b / b.sum(), np.ascontiguousarray(cost / size), numItermax=10**7)


def planted(rng, n, m, slack=1.0, barred=None):
    """Return costs for a given optimal plan and potentials: no solver is needed to compute the optimal value.

    `barred` replaces the cost of about half of the arcs, except arcs of the plan.
    """
    a, b = rng.uniform(0.1, 1.0, n), rng.uniform(0.1, 1.0, m)
    b *= a.sum() / b.sum()
    u, v = rng.normal(size=n), rng.normal(size=m)
    cost = u[:, None] + v + slack * rng.integers(0, 4, (n, m))
    if barred is not None:
        cost[rng.random((n, m)) < 0.5] = barred
    rows, cols = north_west_corner(a, b)
    cost[rows, cols] = u[rows] + v[cols]
    return Problem(cost, a, b, float(a @ u + b @ v))


def north_west_corner(a, b):
    """Return the arcs with flow when mass is shipped in order."""
    ends_a, ends_b = np.cumsum(a)[:-1], np.cumsum(b)[:-1]
    cuts = np.sort(np.concatenate([[0.0], ends_a, ends_b]))
    return np.searchsorted(ends_a, cuts, side="right"), np.searchsorted(ends_b, cuts, side="right")


def _in_the_plane(rng, n, m):
    return cdist(rng.normal(size=(n, 2)), rng.normal(size=(m, 2)))


def _with_duplicates(rng, n, m):
    positions = rng.normal(size=(4, 2))
    return cdist(positions[rng.integers(0, 4, n)], positions[rng.integers(0, 4, m)])


def _of_many_magnitudes(rng, n, m):
    return rng.uniform(0.1, 1.0, (n, m)) * 10.0 ** rng.uniform(-3, 3, (n, m))


def _rows_of_many_magnitudes(rng, n, m):
    return rng.uniform(0.1, 1.0, (n, m)) * 10.0 ** rng.uniform(-3, 3, (n, 1))


COSTS = {
    "random": lambda rng, n, m: rng.uniform(size=(n, m)),
    "plane": _in_the_plane,
    "squared": lambda rng, n, m: _in_the_plane(rng, n, m) ** 2,
    "zero": lambda rng, n, m: np.zeros((n, m)),
    "equal": lambda rng, n, m: np.full((n, m), 0.3),
    "duplicates": _with_duplicates,
    "integers": lambda rng, n, m: rng.integers(0, 4, (n, m)).astype(float),
    "tiny": lambda rng, n, m: 1e-9 * _in_the_plane(rng, n, m),
    "huge": lambda rng, n, m: 1e9 * _in_the_plane(rng, n, m),
    "magnitudes": _of_many_magnitudes,
    "row magnitudes": _rows_of_many_magnitudes,
    "signs": lambda rng, n, m: rng.normal(size=(n, m)),
    "negative": lambda rng, n, m: -1.0 - rng.uniform(size=(n, m)),
}


def _some(rng, size, small):
    """Random masses, every third of them `small`."""
    mass = rng.uniform(0.1, 1.0, size)
    mass[1::3] = small
    return mass


def _single(rng, size):
    mass = np.zeros(size)
    mass[rng.integers(size)] = 1.0
    return mass


MASSES = {
    "equal": lambda rng, size: np.ones(size),
    "random": lambda rng, size: rng.uniform(0.1, 1.0, size),
    "multiples": lambda rng, size: rng.integers(1, 4, size).astype(float),
    "1e-12": lambda rng, size: _some(rng, size, 1e-12),
    "some zero": lambda rng, size: _some(rng, size, 0.0),
    "all but one zero": _single,
}


def problem(costs, masses, shape, total=1.0, seed=0):
    """Return costs and masses of the given kinds, with the optimal value from POT."""
    rng = np.random.default_rng([seed, *shape])
    cost = COSTS[costs](rng, *shape)
    a, b = (MASSES[masses](rng, size) for size in shape)
    a, b = a * (total / a.sum()), b * (total / b.sum())
    return Problem(cost, a, b, oracle(cost, a, b))
