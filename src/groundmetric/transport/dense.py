"""One transport problem as a pair for the kernel of many: between points, or with a matrix of costs."""

from __future__ import annotations

import numpy as np

from ._kernels import pairs as kernels
from ._kernels.scan import MATRIX

# Entries of a matrix that tell what is typical.
_SAMPLE = 100
# No lower bound is enough in place of the value.
_EXACTLY = np.array([np.inf])

Basis = tuple[np.ndarray, np.ndarray, np.ndarray]  # parent, flow and potential of all nodes, see `simplex`


def solve_matrix(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, basis: Basis, max_pivots: int, *, warm: bool
) -> tuple[int, bool]:
    """Take a basis between integer masses a and b, which balance, to optimality in place, at these costs (n, m).

    `warm`: there is a basis to start from. Returns the number of pivots (-1: the basis does not fit the masses) and
    whether it has become optimal.
    """
    pairs, points, bases, answers = _problem(np.empty((0, 0)), a, b, MATRIX, basis, warm)
    room = kernels.room_for(cost.size, a.size + b.size + 1, 0)
    scale = 1.0 / typical_entry(cost)
    kernels.solve_pairs(np.array([0]), _EXACTLY, pairs, points, bases, cost, scale, max_pivots, room, answers)
    return int(answers.pivots[0]), bool(answers.optimal[0])


def solve_steps(
    x: np.ndarray, y: np.ndarray, cost: int, a: np.ndarray, b: np.ndarray, basis: Basis, max_pivots: int
) -> tuple[int, bool]:
    """`solve_matrix`, from nothing, at the costs of the steps between points."""
    z = np.vstack([x, y])
    z = np.ascontiguousarray(z[:, z.any(axis=0)])  # components that nothing uses cost no time
    pairs, points, bases, answers = _problem(z, a, b, cost, basis, False)
    room = kernels.room_for(a.size * b.size, a.size + b.size + 1, z.shape[1])
    kernels.solve_any(np.array([0]), _EXACTLY, pairs, points, bases, max_pivots, room, answers)
    return int(answers.pivots[0]), bool(answers.optimal[0])


def _problem(
    z: np.ndarray, a: np.ndarray, b: np.ndarray, cost: int, basis: Basis, warm: bool
) -> tuple[kernels.Pairs, kernels.Points, kernels.Bases, kernels.Answers]:
    """A problem as the only pair."""
    bounds, units = np.array([0, a.size, a.size + b.size]), np.concatenate([a, b])
    no_shares, no_flags = np.empty(0), np.empty(0, bool)
    points = kernels.Points(z, bounds, units, np.empty(0, np.int64), no_shares, no_flags, int(cost))
    one = np.array([1])
    bases = kernels.Bases(np.array([0]), *basis, np.array([warm]))
    return kernels.Pairs(np.array([0]), one, one, one), points, bases, kernels.no_answers(1)


def typical_entry(exact: np.ndarray) -> float:
    """A middling cost of those that are not 0; what is far larger or far smaller may leave the range of float32."""
    sample = np.abs(exact.ravel()[:: max(1, exact.size // _SAMPLE)])
    sample = np.sort(sample[sample > 0.0])
    if not sample.size:
        return 1.0
    middle = sample[(sample.size - 1) // 2], sample[sample.size // 2]  # `np.median` takes as long as some solves
    return max(float(middle[0] + middle[1]) / 2.0, 1e-290)
