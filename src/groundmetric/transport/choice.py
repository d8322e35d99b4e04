"""Solvers by name, and the one that picks by size."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from .coarse import Coarse
from .exact import Exact
from .partial import Partial, Unbalanced
from .plan import Plan
from .pot import Entropic, Gaussian, Mixture, Sliced
from .solver import Solver, check_number

# Seconds of an exact solve of n × m points from nothing: a fit to sizes from 30 to 2000 on one core of a cloud machine.
_CALL, _SECONDS, _GROWTH = 1e-4, 2e-8, 1.05
# A cost matrix larger than this does not fit beside others.
_MOST_COSTS = 4e8


@dataclass(frozen=True)
class Auto(Solver):
    """Exact as long as that is affordable; beyond, coarsened to as many groups as are affordable, with its bound.

    What is affordable is reckoned from sizes alone, never from the clock: the same data give the same answer anywhere.
    Only points under a Euclidean distance can be grouped; costs, and points under other distances, are always compared
    exactly: entropic transport, which could take them, is slower.

    Parameters
    ----------
    seconds : float
        About how long all pairs together may take on one core.
    max_pivots : int, optional
    """

    seconds: float = 60.0
    max_pivots: int | None = None

    name: ClassVar[str] = "auto"
    _fewest: ClassVar[int] = 30

    def __post_init__(self) -> None:
        check_number(self, "seconds", low=0.0, open_low=True)
        check_number(self, "max_pivots", low=0, whole=True)

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        n, m = cost.shape
        return self.pick(np.array([n]), np.array([m]), on_points=False)[0].solve(cost, a, b)

    def pick(self, n: np.ndarray, m: np.ndarray, *, on_points: bool) -> tuple[Solver, str]:
        """The solver for pairs of n and m points, and why. `on_points`: they can be grouped."""
        needed = exact_seconds(n, m)
        largest = int(np.max(n * m, initial=0))
        if needed <= self.seconds and largest <= _MOST_COSTS:
            return Exact(self.max_pivots), f"exact transport takes about {needed:.1g} s of {self.seconds:g}"
        why = f"exact transport would take about {needed:.2g} s of {self.seconds:g}"
        if needed <= self.seconds:
            why = f"the largest pair has {largest:.1g} costs, too many to keep"
        if not on_points:
            return Exact(self.max_pivots), f"{why}, but without Euclidean distances there are no groups of points"
        return Coarse(self._affordable_groups(n, m), self.max_pivots), why

    def _affordable_groups(self, n: np.ndarray, m: np.ndarray) -> int:
        """The most groups whose transport is affordable, by bisection."""
        low, high = self._fewest, int(max(n.max(), m.max(), self._fewest + 1))
        while high - low > 1:
            groups = (low + high) // 2
            sizes = np.minimum(n, groups), np.minimum(m, groups)
            fits = exact_seconds(*sizes) <= self.seconds and np.max(sizes[0] * sizes[1]) <= _MOST_COSTS
            low, high = (groups, high) if fits else (low, groups)
        return low


SOLVERS: dict[str, type[Solver]] = {
    kind.name: kind for kind in (Exact, Partial, Unbalanced, Entropic, Sliced, Gaussian, Mixture, Coarse, Auto)
}


def exact_seconds(n: np.ndarray, m: np.ndarray) -> float:
    """About how long exact solves of pairs of n and m points take together."""
    return float(np.sum(_CALL + _SECONDS * (n * m.astype(np.float64)) ** _GROWTH))


def resolve_solver(solver: Any, options: dict[str, Any]) -> Solver:
    """The solver object from its name and options."""
    if isinstance(solver, Solver):
        given = sorted(name for name, value in options.items() if value is not None)
        if given:
            raise TypeError(f"options {given} beside a solver object: give them to {type(solver).__name__}(…) itself")
        return solver
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise ValueError(f"solver is {solver!r}: expected one of {list(SOLVERS)}, or an object of theirs")
    kind = SOLVERS[solver]
    known = [option.name for option in fields(kind)]  # type: ignore[arg-type]
    options = {name: value for name, value in options.items() if name in known or value is not None}
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise TypeError(f"solver {solver!r} has no option {unknown[0]!r}: it has {known or 'none'}")
    return kind(**options)
