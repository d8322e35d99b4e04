"""Solver for functions of POT, with bounds of the exact value."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..plan import Plan, Status, embedded
from .exact import Cloud, Distances, Solver, dual_value


class POT(Solver):
    """Transport by a function of POT (Python Optimal Transport), or by any function with the same signature.

    Functions with a parameter ``M`` receive the costs (`ot.solve`, `ot.sinkhorn`). Others receive the points of the two
    distributions as first two arguments and need a Euclidean ground metric (`ot.solve_sample`,
    `ot.sliced_wasserstein_distance`). Masses are passed as ``a`` and ``b``, or as ``ws`` and ``wt``; both sides sum to
    1, and points without mass are excluded.

    The bounds contain the value of exact transport: the cost of the returned plan, rounded to fit the masses, and the
    dual value of the potentials, made feasible (an option ``reg`` is the strength of entropic regularisation).

    Parameters
    ----------
    function : callable
        Function of POT. It must return a number, a matrix (the plan) or an OTResult.
    **options : Any
        Further arguments of the function. An integer ``seed`` gives the same random numbers for every pair.

    Examples
    --------
    >>> import groundmetric as gm
    >>> import ot
    >>> plan = gm.transport.solve([[0.0, 2.0], [2.0, 1.0]], solver=gm.transport.POT(ot.sinkhorn, reg=0.5))
    >>> round(plan.value, 3), [round(bound, 3) for bound in plan.bounds]  # the exact value is 0.5
    (0.571, [0.5, 0.571])
    >>> sliced = gm.transport.POT(ot.sliced_wasserstein_distance, p=1, seed=0)
    >>> gm.transport.solve_points([[0.0], [1.0]], [[5.0], [6.0]], solver=sliced).value
    5.0
    """

    name: ClassVar[str] = "pot"

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        parameters = inspect.signature(function).parameters
        unknown = sorted(set(options) - set(parameters))
        if unknown and all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
            raise TypeError(f"{function.__name__} has no option {unknown[0]!r}: its parameters are {list(parameters)}")
        self.function, self.options = function, options
        self.on_points = "M" not in parameters
        self._masses = next((names for names in (("a", "b"), ("ws", "wt")) if names[0] in parameters), None)

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        if self.on_points:
            return super().solve(cost, a, b)
        rows, cols, total = np.flatnonzero(a), np.flatnonzero(b), float(a.sum())
        inner = np.ascontiguousarray(cost[np.ix_(rows, cols)])
        p, q = a[rows] / total, b[cols] / b.sum()
        plan = self._plan(p, q, (-np.inf, np.inf), lambda: inner, M=inner)
        return embedded(plan, rows, cols, total)

    def compare(self, x: Cloud, y: Cloud, distances: Distances) -> Plan:
        if not self.on_points:
            return super().compare(x, y, distances)
        points = [np.ascontiguousarray(side.points, np.float64) for side in (x, y)]
        # Bounds from means and variances: Jensen's inequality, and the independent coupling.
        means = x.masses @ x.points, y.masses @ y.points
        variances = (
            side.masses @ np.sum((side.points - m) ** 2, axis=1) for side, m in zip((x, y), means, strict=True)
        )
        shift = float(np.linalg.norm(means[0] - means[1]))
        bounds = shift, float(np.sqrt(shift**2 + sum(variances)))
        return self._plan(x.masses, y.masses, bounds, lambda: distances(x.points, y.points), *points)

    def _plan(
        self,
        p: np.ndarray,
        q: np.ndarray,
        bounds: tuple[float, float],
        make_cost: Callable[[], np.ndarray],
        *points: np.ndarray,
        **costs: np.ndarray,
    ) -> Plan:
        """Return the answer of the function as a Plan between masses of sum 1; its bounds improve on `bounds`."""
        options, name = dict(self.options), self.function.__name__
        if isinstance(options.get("seed"), int):
            # POT would use an integer to seed the global generator, which all threads share.
            options["seed"] = np.random.RandomState(options["seed"])
        if self._masses == ("a", "b"):
            options |= {"a": p, "b": q}
        elif self._masses is not None:
            options |= {"ws": p[:, None], "wt": q[:, None]}
        elif np.ptp(p) > 0 or np.ptp(q) > 0:
            raise ValueError(f"{name} does not accept masses, but the masses of the points differ")
        with np.errstate(all="ignore"):
            answer = self.function(*points, **costs, **options)
        if isinstance(answer, tuple):
            raise TypeError(f"{name} returned a tuple: leave out `log`")
        plan = answer if np.ndim(answer) == 2 else getattr(answer, "plan", None)
        potentials = getattr(answer, "potentials", None)
        # Between points, the cost matrix is needed only to evaluate a returned plan.
        cost = make_cost() if plan is not None or not self.on_points else None
        value = getattr(answer, "value", answer)
        if plan is answer or value is None:
            value = np.vdot(plan, cost)  # type: ignore[arg-type]
        if not np.isfinite(value) or (plan is not None and not np.isfinite(plan).all()):
            raise FloatingPointError(
                f"{name} of POT gives NaN or infinity: scale costs or points to a size of about 1, raise the "
                "regularisation, or use solver='exact'"
            )
        low, high = bounds
        if cost is not None:
            # Every plan with these marginals costs at least the optimal value, including the independent coupling p qᵀ.
            upper = p @ cost @ q if plan is None else np.vdot(rounded(plan, p, q), cost)
            high = min(high, float(upper))
            # Any v gives a lower bound: u becomes the largest feasible potentials for v, then v those for u.
            starts = [np.zeros(q.size)]
            if potentials is not None:
                starts.append(np.nan_to_num(potentials[1]))
            if plan is not None and self.options.get("reg"):
                # An entropic plan P satisfies reg · log P + cost = u + v. The units of the potentials of POT depend on
                # the function, so v is computed from P.
                starts.append(p @ (cost + self.options["reg"] * np.log(np.maximum(plan, 1e-300))))
            for v in starts:
                u = (cost - v).min(axis=1)
                low = max(low, dual_value(p, q, (u, (cost - u[:, None]).min(axis=0))))
            low = min(low, high)
        rows, cols = (np.empty(0, np.int64), np.empty(0, np.int64)) if plan is None else np.nonzero(plan)
        mass = np.empty(0) if plan is None else plan[rows, cols]
        return Plan(float(value), rows, cols, mass, None, None, Status.APPROXIMATE, 0, self.name, (low, high))

    def __str__(self) -> str:
        return f"POT({', '.join([self.function.__name__, *(f'{k}={v!r}' for k, v in self.options.items())])})"


def rounded(plan: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Round a plan to the marginals a and b (Altschuler, Weed & Rigollet 2017)."""
    sent = plan.sum(axis=1)
    plan = plan * np.minimum(a / np.where(sent > 0, sent, 1.0), 1.0)[:, None]
    received = plan.sum(axis=0)
    plan *= np.minimum(b / np.where(received > 0, received, 1.0), 1.0)
    missing_a, missing_b = np.maximum(a - plan.sum(axis=1), 0.0), np.maximum(b - plan.sum(axis=0), 0.0)
    total = missing_b.sum()
    return plan + missing_a[:, None] * (missing_b / total) if total > 0 else plan
