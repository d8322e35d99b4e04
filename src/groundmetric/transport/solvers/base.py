"""What every way to compare two distributions can do. A choice is an object; its name is only shorthand."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..plan import Plan

Distances = Callable[[Any, Any], np.ndarray]


class Cloud(NamedTuple):
    """One distribution: its points, as the distances between points take them, and their masses."""

    points: Any
    masses: np.ndarray


class Solver:
    """A way to compare two distributions, with its options as fields.

    Those that work on costs define `solve`. Those that work on points define `prepare`, what is worked out once for
    each distribution, and `compare`, what is left to do for a pair.
    """

    name: ClassVar[str]
    balanced: ClassVar[bool] = True  # do both sides need the same mass?
    on_points: ClassVar[bool] = False  # does it need points in a space with Euclidean distances?

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        """Transport plan between masses at given costs; solvers that need points raise ValueError.

        `groundmetric.transport.solve` checks the arguments before it calls this method.

        Parameters
        ----------
        cost : array of shape (n, m)
            Cost of moving a unit of mass from each source to each sink.
        a, b : array of shape (n,) and (m,)
            Masses of the sources and of the sinks.

        Returns
        -------
        Plan
            The plan, and what is certain about its value.
        """
        raise ValueError(
            f"solver {self.name!r} works on points, not on costs: use `transport.solve_points` or `pairwise_distances`"
        )

    def prepare(self, cloud: Cloud, distances: Distances) -> Any:
        """Whatever can be computed for one distribution alone, once for all pairs that it is part of.

        Parameters
        ----------
        cloud : Cloud
            Points with mass, and their masses, which sum to 1.
        distances : callable
            Function of two sets of points that gives the matrix of distances between them.

        Returns
        -------
        object
            The distribution as `compare` takes it.
        """
        return cloud

    def compare(self, x: Any, y: Any, distances: Distances) -> Plan:
        """Transport plan between two distributions.

        Parameters
        ----------
        x, y : object
            Distributions as `prepare` of the same solver returns them.
        distances : callable
            The function that was given to `prepare`.

        Returns
        -------
        Plan
            The plan, and what is certain about its value.
        """
        return self.solve(distances(x.points, y.points), x.masses, y.masses)

    def at_scale(self, typical: Callable[[], float]) -> Solver:
        """The same solver, with options that depend on the size of a typical cost filled in where they are None.

        Parameters
        ----------
        typical : callable
            Function without arguments that gives a typical cost; called only where an option depends on it.

        Returns
        -------
        Solver
            The solver itself where there is nothing to fill in.
        """
        return self

    def __str__(self) -> str:
        options = (f"{option.name}={getattr(self, option.name)!r}" for option in fields(self))  # type: ignore[arg-type]
        return f"{self.name}({', '.join(options)})"


def check_number(
    solver: Any, option: str, *, low: float, high: float = math.inf, whole: bool = False, open_low: bool = False
) -> None:
    """Raise unless an option is a number within its range; None means a default and passes."""
    value = getattr(solver, option)
    if value is None:
        return
    kind = numbers.Integral if whole else numbers.Real
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or not low <= value <= high or (open_low and value == low) or value == math.inf:
        least = f"above {low}" if open_low else f"of at least {low}"
        most = "" if high == math.inf else f" and at most {high}"
        what = "a whole number" if whole else "a number"
        raise ValueError(f"{option} of solver {solver.name!r} is {value!r}: expected {what} {least}{most}")


def require_not_negative(cost: np.ndarray, name: str) -> None:
    if cost.min() < 0:
        i, j = np.unravel_index(np.argmin(cost), cost.shape)
        raise ValueError(f"cost is {cost[i, j]} at ({i}, {j}): solver {name!r} needs costs that are not negative")
