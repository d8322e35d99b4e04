"""Transport problems and distributions of every kind, ties above all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.spatial.distance import cdist

import groundmetric as gm


@dataclass(frozen=True)
class Problem:
    """Points on both sides and their masses, which sum to 1; the cost is the Euclidean distance."""

    x: np.ndarray
    y: np.ndarray
    a: np.ndarray
    b: np.ndarray

    @property
    def cost(self):
        return cdist(self.x, self.y)

    def shifted(self, step):
        return replace(self, x=self.x + step, y=self.y + step)

    def transposed(self):
        return Problem(self.y, self.x, self.b, self.a)

    def permuted(self, rows, cols):
        return Problem(self.x[rows], self.y[cols], self.a[rows], self.b[cols])

    def split(self, i):
        """Source i as two sources at the same place, each with half its mass."""
        halves = self.a.copy()
        halves[i] /= 2
        return replace(self, x=np.vstack([self.x, self.x[i]]), a=np.append(halves, halves[i]))

    def solve(self, **options):
        return gm.transport.solve(self.cost, self.a, self.b, **options)


def lattice_points(n, k):
    """Few places: points coincide and distances tie."""
    return arrays.arrays(np.float64, (n, k), elements=st.integers(-2, 2).map(float))


def scattered_points(n, k):
    return arrays.arrays(np.float64, (n, k), elements=st.floats(-10, 10, allow_subnormal=False))


def random_points(n, k):
    """Points in general position, cheap to draw."""
    return st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed).normal(size=(n, k)))


def points(n, k):
    return st.one_of(lattice_points(n, k), scattered_points(n, k), random_points(n, k))


def masses(n):
    """Masses that sum to 1: equal, small multiples of one unit with some of them 0, or anything."""
    complete = arrays.arrays(np.float64, n, elements=st.integers(0, 4).map(float))
    anything = arrays.arrays(np.float64, n, elements=st.floats(1e-12, 1.0))
    return st.one_of(st.just(np.ones(n)), complete, anything).map(_of_sum_one)


def _of_sum_one(mass):
    mass = mass if mass.sum() > 0 else np.ones(mass.size)
    return mass / mass.sum()


@st.composite
def problems(draw, max_size=12):
    n, m = draw(st.integers(1, max_size)), draw(st.integers(1, max_size))
    k = draw(st.integers(1, 3))
    return Problem(draw(points(n, k)), draw(points(m, k)), draw(masses(n)), draw(masses(m)))


@st.composite
def moving_problems(draw):
    """A problem, and the same masses after the points have moved."""
    before = draw(problems())
    step = draw(st.sampled_from([1e-9, 1e-3, 1.0, 100.0]))
    x, y = (draw(points(*side.shape)) for side in (before.x, before.y))
    return before, replace(before, x=before.x + step * x, y=before.y + step * y)


@st.composite
def cohorts(draw, n_distributions=3, max_size=6):
    """Distributions in one space, each with points and masses of its own kind."""
    k = draw(st.integers(1, 3))
    sizes = [draw(st.integers(1, max_size)) for _ in range(n_distributions)]
    positions = np.vstack([draw(points(size, k)) for size in sizes])
    weights = np.concatenate([draw(masses(size)) for size in sizes])
    return gm.Distributions(positions, np.repeat(np.arange(n_distributions), sizes), weights=weights)
