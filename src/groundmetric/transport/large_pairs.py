"""Pairs that are too large for a matrix of their costs. Runs on any machine, with the same bits."""

from __future__ import annotations

import numpy as np

from ..point_distances import Cost
from .large import solve_points
from .pair_kernels import Answers, Points
from .plan import Status


def solve_large_pairs(
    which: np.ndarray, first: np.ndarray, second: np.ndarray, points: Points, max_pivots: int, answers: Answers
) -> None:
    """Values of these pairs, one after another, in memory that grows with the points; as `solve_pairs`, without bases.

    `points` need no shares where all masses are equal.
    """
    limit = None if max_pivots < 0 else max_pivots
    for pair in which:
        (x, a), (y, b) = (_side(points, distribution) for distribution in (first[pair], second[pair]))
        plan = solve_points(x, y, a, b, cost=Cost(points.cost), max_pivots=limit)
        answers.value[pair], answers.pivots[pair] = plan.value, plan.pivots
        answers.optimal[pair] = plan.status is Status.OPTIMAL


def _side(points: Points, distribution: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The points of a distribution and their masses; None where these are equal, which is all that has to be known."""
    here = slice(points.bounds[distribution], points.bounds[distribution + 1])
    return points.z[here], None if points.uniform[distribution] else points.shares[here]
