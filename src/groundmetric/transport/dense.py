"""One transport problem as a pair for the kernel of many: between points, or with a matrix of costs."""

from __future__ import annotations

import numpy as np

from ..metrics.base import Cost
from ._kernels import pairs as kernels
from ._kernels.costs import FEW_COMPONENTS
from ._kernels.scan import MATRIX

# Costs of all pairs between points.
NO_MATRIX = np.empty((0, 0))
# Entries of a matrix that tell what is typical.
_SAMPLE = 100


def is_plain(n_components: int, cost: int) -> bool:
    """Whether the kernel of many pairs fills the costs itself: Euclidean distances, or squares, of few components."""
    return cost != Cost.MANHATTAN and 0 < n_components <= FEW_COMPONENTS


def solve_one(
    pairs: kernels.Pairs,
    points: kernels.Points,
    bases: kernels.Bases,
    max_pivots: int,
    room: kernels.Room,
    answers: kernels.Answers,
) -> None:
    """Solve the only pair, between points of any number of components under any cost."""
    z, n = points.z, int(points.bounds[1])
    if z.shape[1] > FEW_COMPONENTS:
        z = np.ascontiguousarray(z[:, z.any(axis=0)])  # components that nothing uses cost no time
    plain = is_plain(z.shape[1], points.cost)
    scale = 0.0 if plain else kernels.fill_rough(z, n, points.cost, room.costs)
    points = points._replace(z=z)
    kernels.solve_pairs(np.array([0]), pairs, points, bases, NO_MATRIX, scale, max_pivots, room, answers)


def solve_masses(
    problem: np.ndarray | tuple[np.ndarray, np.ndarray, int],
    a: np.ndarray,
    b: np.ndarray,
    basis: tuple[np.ndarray, np.ndarray, np.ndarray],
    max_pivots: int,
    *,
    warm: bool,
) -> tuple[int, bool]:
    """Take a basis between integer masses a and b, which balance, to optimality in place.

    Parameters
    ----------
    problem : array of shape (n, m), or tuple
        Costs; or points x and y, and a `Cost`.
    a, b : array of int64
    basis : tuple of arrays
        Parent, flow and potential of all nodes, see `simplex`.
    max_pivots : int
    warm : bool
        Whether there is a basis to start from.

    Returns
    -------
    pivots : int
        Number of pivots; -1 where the basis does not fit the masses.
    optimal : bool
    """
    n, m = a.size, b.size
    by_matrix = isinstance(problem, np.ndarray)
    z, cost = (np.empty((0, 0)), MATRIX) if by_matrix else (np.vstack(problem[:2]), int(problem[2]))
    nothing, one = np.empty(0), np.array([1])
    points = kernels.Points(
        z, np.array([0, n, n + m]), np.concatenate([a, b]), np.empty(0, np.int64), nothing, nothing > 0, cost
    )
    pairs = kernels.Pairs(np.array([0]), one, one, one)
    bases = kernels.Bases(np.array([0]), *basis, np.array([warm]))
    answers = kernels.Answers(np.empty(1), np.zeros(1, np.int64), np.zeros(1, bool))
    room = kernels.room_for(n * m, n + m + 1, z.shape[1])
    if by_matrix:
        scale = 1.0 / typical_entry(problem)
        kernels.solve_pairs(np.array([0]), pairs, points, bases, problem, scale, max_pivots, room, answers)
    else:
        solve_one(pairs, points, bases, max_pivots, room, answers)
    return int(answers.pivots[0]), bool(answers.optimal[0])


def typical_entry(exact: np.ndarray) -> float:
    """A middling cost of those that are not 0; what is far larger or far smaller may leave the range of float32."""
    sample = np.abs(exact.ravel()[:: max(1, exact.size // _SAMPLE)])
    sample = np.sort(sample[sample > 0.0])
    if not sample.size:
        return 1.0
    middle = sample[(sample.size - 1) // 2], sample[sample.size // 2]  # `np.median` takes as long as some solves
    return max(float(middle[0] + middle[1]) / 2.0, 1e-290)
