"""What a solve returns."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np


class Status(enum.Enum):
    """How a solve ended; the text is the advice."""

    OPTIMAL = ""
    IMPRECISE = "not proved optimal: the costs span too many orders of magnitude; scale or cap the largest"
    PIVOT_LIMIT = "stopped at the pivot limit before the plan was optimal; raise `max_pivots`"


@dataclass(frozen=True)
class Basis:
    """Where a solve ended, to start another one from: the spanning tree and the potentials of its nodes.

    It fits every problem with the same masses, whatever its costs.
    """

    parent: np.ndarray  # (n + m + 1,) the parent of each node; see transport.simplex
    potential: np.ndarray  # (n + m + 1,)
    n_sources: int


@dataclass(frozen=True)
class Plan:
    """A transport plan with its proof of optimality.

    Attributes
    ----------
    value : cost of the plan; an upper bound where `status` is not OPTIMAL
    rows, cols, mass : the shipments, sparse: `mass[k]` goes from `rows[k]` to `cols[k]`
    potentials : (u, v) with ``u[i] + v[j] <= cost[i, j]``; ``a @ u + b @ v`` is a lower bound of the optimal value and
        equals `value` where `status` is OPTIMAL
    basis : start for another solve with the same masses
    status : Status
    pivots : steps of the simplex that were needed
    """

    value: float
    rows: np.ndarray
    cols: np.ndarray
    mass: np.ndarray
    potentials: tuple[np.ndarray, np.ndarray]
    basis: Basis
    status: Status
    pivots: int

    @property
    def optimal(self) -> bool:
        return self.status is Status.OPTIMAL
