"""The single door to the exact solver: costs and masses in, a plan with its proof out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import real_array
from .forests import first_forest
from .masses import equal_masses, integer_masses
from .plan import Basis, Plan, Status
from .simplex import optimise, shipping_cost


def solve(
    cost: Any, a: Any = None, b: Any = None, *, start: Basis | None = None, max_pivots: int | None = None
) -> Plan:
    """Exact optimal transport between the masses `a` and `b` at the given costs.

    Parameters
    ----------
    cost : array of shape (n, m)
    a, b : masses of the n sources and the m sinks, optional
        Not negative, with equal sums. Default: equal masses that sum to 1.
    start : Basis, optional
        The basis of an earlier plan with the same masses: a short way to the new optimum when the costs have changed
        little. It is not modified.
    max_pivots : int, optional
        Where to stop; the default is never reached in practice. `plan.status` says if it was.

    Returns
    -------
    Plan

    >>> import groundmetric as gm
    >>> plan = gm.transport.solve([[0.0, 2.0], [2.0, 1.0]])
    >>> plan.value, plan.rows.tolist(), plan.cols.tolist()
    (0.5, [0, 1], [0, 1])
    >>> gm.transport.solve([[0.0, 3.0], [2.0, 1.0]], start=plan.basis).pivots
    0
    """
    cost = _check_cost(cost)
    units_a, units_b, total = _check_masses(a, b, cost.shape)
    rows, cols = np.flatnonzero(units_a), np.flatnonzero(units_b)
    whole = rows.size == cost.shape[0] and cols.size == cost.shape[1]
    inner = cost if whole else np.ascontiguousarray(cost[np.ix_(rows, cols)])
    n, m = inner.shape
    parent, potential = _first_basis(inner, units_a[rows], units_b[cols], start)
    flow = np.empty(n + m + 1, np.int64)
    limit = 2000 * (n + m) if max_pivots is None else max_pivots
    pivots, optimal, feasible = optimise(inner, units_a[rows], units_b[cols], parent, flow, potential, limit)
    if not feasible:
        raise ValueError("start does not fit these masses: use the basis of a plan with the same masses, or none")
    units = float(units_a.sum())
    u, v = -potential[:n], potential[n : n + m].copy()
    value = shipping_cost(inner, parent, flow) / units
    proved = _is_proved(value, units_a[rows] / units, u, units_b[cols] / units, v, inner)
    tails, heads, shipped = _shipments(parent, flow, n)
    return Plan(
        value=float(value * total),
        rows=rows[tails],
        cols=cols[heads],
        mass=shipped / units * total,
        potentials=(u, v) if whole and optimal else _feasible_potentials(cost, v, cols),
        basis=Basis(parent, potential, n),
        status=Status.PIVOT_LIMIT if not optimal else Status.OPTIMAL if proved else Status.IMPRECISE,
        pivots=int(pivots),
    )


def _check_cost(cost: Any) -> np.ndarray:
    cost = real_array(cost, "cost")
    if cost.ndim != 2 or 0 in cost.shape:
        raise ValueError(f"cost has shape {cost.shape}: expected (sources, sinks), at least one of each")
    # The solver is compiled for writable arrays in C order.
    cost = np.require(cost, np.float64, ["C", "A", "W"])
    with np.errstate(over="ignore", invalid="ignore"):
        suspect = not np.isfinite(cost.sum())
    if suspect and not np.isfinite(cost).all():
        i, j = np.argwhere(~np.isfinite(cost))[0]
        raise ValueError(f"cost contains NaN or infinity: {cost[i, j]} at ({i}, {j}); use a large number to bar an arc")
    return cost


def _check_masses(a: Any, b: Any, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, float]:
    """Masses in integer units that balance, and the total mass that all units together stand for."""
    float32 = np.float32 in (getattr(a, "dtype", None), getattr(b, "dtype", None))
    a, b = _check_side(a, "a", shape[0]), _check_side(b, "b", shape[1])
    with np.errstate(over="ignore"):
        total_a, total_b = float(a.sum()), float(b.sum())
    if not np.isfinite(total_a + total_b):
        raise ValueError("masses are too large: their sum is infinite; scale them down")
    if abs(total_a - total_b) > (1e-6 if float32 else 1e-9) * max(total_a, total_b):
        raise ValueError(f"masses do not balance: a sums to {total_a!r}, b to {total_b!r}; scale them to the same sum")
    if np.all(a == a[0]) and np.all(b == b[0]):
        per_source, per_sink = equal_masses(*shape)
        return np.full(shape[0], per_source, np.int64), np.full(shape[1], per_sink, np.int64), total_a
    return integer_masses(a), integer_masses(b), total_a


def _check_side(mass: Any, name: str, size: int) -> np.ndarray:
    if mass is None:
        return np.full(size, 1.0 / size)
    mass = real_array(mass, name).astype(np.float64, copy=False)
    if mass.shape != (size,):
        raise ValueError(f"{name} has shape {mass.shape}, but cost asks for ({size},)")
    bad = ~np.isfinite(mass) | (mass < 0)
    if bad.any():
        k = int(np.argmax(bad))
        raise ValueError(f"{name}[{k}] is {mass[k]}: masses must be finite and not negative")
    if not np.any(mass > 0):
        raise ValueError(f"{name} sums to 0: at least one mass must be positive")
    return mass


def _first_basis(cost: np.ndarray, a: np.ndarray, b: np.ndarray, start: Basis | None) -> tuple[np.ndarray, np.ndarray]:
    n, m = cost.shape
    if start is None:
        parent = np.empty(n + m + 1, np.int32)
        first_forest(cost, a, b, parent)
        return parent, np.zeros(n + m + 1)
    if start.parent.size != n + m + 1 or start.n_sources != n:
        raise ValueError(
            f"start is a basis of {start.n_sources} × {start.parent.size - 1 - start.n_sources} points with mass, "
            f"but this problem has {n} × {m}"
        )
    return start.parent.copy(), start.potential.copy()


def _is_proved(value: float, a: np.ndarray, u: np.ndarray, b: np.ndarray, v: np.ndarray, cost: np.ndarray) -> bool:
    """Do the potentials prove the value, to 8 digits or to 10⁻¹³ of a typical cost?

    Potentials can be far larger than the value, where some costs are huge; their rounding then hides it.
    """
    level = a @ u  # taken out, a common level of all potentials drowns nothing
    rounding = 2.0**-50 * (a @ np.abs(u - level) + b @ np.abs(v + level))
    gap = abs(value - (a @ (u - level) + b @ (v + level)))
    if gap > 1e-8 * abs(value) + rounding:
        return False
    return bool(rounding <= 1e-8 * abs(value) or rounding <= 1e-13 * np.median(np.abs(cost)))


def _shipments(parent: np.ndarray, flow: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Senders, receivers and amounts of the arcs that carry flow, by sender and then receiver."""
    used = np.flatnonzero(flow[:-1] > 0)
    above = parent[used]
    tails, heads = np.minimum(used, above), np.maximum(used, above) - n
    order = np.lexsort((heads, tails))
    return tails[order], heads[order], flow[used][order]


def _feasible_potentials(cost: np.ndarray, v: np.ndarray, cols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Potentials for every point from those of the sinks with mass: the largest that the costs allow."""
    u = (cost[:, cols] - v).min(axis=1)
    full = (cost - u[:, None]).min(axis=0)
    full[cols] = v
    return u, full
