"""What a solve returns."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace

import numpy as np


class Status(enum.Enum):
    """How a solve ended; the text is the advice."""

    OPTIMAL = ""
    IMPRECISE = (
        "not proved optimal: the costs, or costs and masses together, span too many orders of magnitude; scale or cap "
        "the largest. `bounds` hold"
    )
    PIVOT_LIMIT = "stopped at the pivot limit before the plan was optimal; raise `max_pivots`"
    TOLERANCE = "stopped within the tolerance that was asked for; `gap` bounds the error"
    ITERATION_LIMIT = "stopped before the masses fitted; raise `max_iter` or `epsilon`"
    APPROXIMATE = "not exact, by choice of the solver: `bounds` say where the exact value lies"


@dataclass(frozen=True)
class Basis:
    """Where a solve ended, to start another one from: the spanning tree and the potentials of its nodes.

    It fits every problem with the same masses, whatever its costs.
    """

    parent: np.ndarray  # (n + m + 1,) the parent of each node; see transport.simplex
    potential: np.ndarray  # (n + m + 1,)
    n_sources: int

    def scaled(self, up: int) -> Basis:
        """The basis at costs that are 2**up as large."""
        with np.errstate(over="ignore"):
            return replace(self, potential=np.ldexp(self.potential, up))


@dataclass(frozen=True)
class Plan:
    """A transport plan with its proof of optimality, or with bounds on what it misses.

    Attributes
    ----------
    value : what the solver makes of the problem. Exact: the cost of the plan, an upper bound where `status` is not
        OPTIMAL
    rows, cols, mass : the shipments, sparse: `mass[k]` goes from `rows[k]` to `cols[k]`. Whatever the solver, they are
        feasible
    potentials : (u, v) with ``u[i] + v[j] <= cost[i, j]``; exact: ``a @ u + b @ v`` is a lower bound of the optimal
        value and equals `value` where `status` is OPTIMAL. None where the solver has none
    basis : start for another exact solve with the same masses, or None
    status : Status
    pivots : steps of the solver that were needed
    solver : its name
    bounds : two numbers between which, up to rounding, the optimal value certainly lies
    """

    value: float
    rows: np.ndarray
    cols: np.ndarray
    mass: np.ndarray
    potentials: tuple[np.ndarray, np.ndarray] | None
    basis: Basis | None
    status: Status
    pivots: int
    solver: str = "exact"
    bounds: tuple[float, float] = (-math.inf, math.inf)

    @property
    def optimal(self) -> bool:
        return self.status is Status.OPTIMAL

    @property
    def gap(self) -> float:
        """The most by which `value` can differ from the optimal one."""
        return max(self.value - self.bounds[0], self.bounds[1] - self.value)

    def scaled(self, up: int) -> Plan:
        """The plan at costs that are 2**up as large: exact, as long as the numbers stay in range."""
        with np.errstate(over="ignore"):
            value, *bounds = (float(number) for number in np.ldexp([self.value, *self.bounds], up))
            u, v = (None, None) if self.potentials is None else (np.ldexp(side, up) for side in self.potentials)
        if not math.isfinite(value):
            raise ValueError(
                f"the value is {self.value} · 2^{up}, beyond the largest number there is: divide the costs, or the "
                "points, by a constant"
            )
        return replace(
            self,
            value=value,
            potentials=None if u is None or v is None else (u, v),
            basis=None if self.basis is None else self.basis.scaled(up),
            bounds=(bounds[0], bounds[1]),
        )
