"""The door to transport: costs and masses in; a plan with its proof, or its bounds, out."""

from __future__ import annotations

from typing import Any

from .checks import check_cost, check_masses
from .choice import resolve_solver
from .exact import Exact, solve_exact
from .plan import Basis, Plan
from .solver import Solver


def solve(
    cost: Any,
    a: Any = None,
    b: Any = None,
    *,
    solver: str | Solver = "exact",
    start: Basis | None = None,
    max_pivots: int | None = None,
    **options: Any,
) -> Plan:
    """Optimal transport between the masses `a` and `b` at the given costs: exact, or a variant.

    Parameters
    ----------
    cost : array of shape (n, m)
    a, b : masses of the n sources and the m sinks, optional
        Not negative, with equal sums (unless the solver is partial or unbalanced). Default: equal masses that sum to 1.
    solver : {"exact", "partial", "unbalanced", "entropic", "auto"}, or an object from `groundmetric.transport`
    start : Basis, optional
        The basis of an earlier exact plan with the same masses: a short way to the new optimum when the costs have
        changed little. It is not modified.
    max_pivots : int, optional
        Where to stop; the default is never reached in practice. `plan.status` says if it was.
    **options : of the solver, e.g. ``share`` of "partial"; see the classes in `groundmetric.transport`

    Returns
    -------
    Plan

    >>> import groundmetric as gm
    >>> plan = gm.transport.solve([[0.0, 2.0], [2.0, 1.0]])
    >>> plan.value, plan.rows.tolist(), plan.cols.tolist()
    (0.5, [0, 1], [0, 1])
    >>> gm.transport.solve([[0.0, 3.0], [2.0, 1.0]], start=plan.basis).pivots
    0
    >>> gm.transport.solve([[0.0, 2.0], [2.0, 1.0]], solver="partial", share=0.5).value
    0.0
    """
    chosen = resolve_solver(solver, {**options, "max_pivots": max_pivots})
    cost = check_cost(cost)
    a, b = check_masses(a, b, cost.shape, balanced=chosen.balanced)
    if not isinstance(start, Basis | None):
        raise TypeError(f"start is a {type(start).__name__}: expected the `basis` of a plan")
    if isinstance(chosen, Exact):
        return solve_exact(cost, a, b, start=start, max_pivots=chosen.max_pivots)
    if start is not None:
        raise ValueError(f"start is for the exact solver, but solver is {chosen.name!r}: leave it out")
    return chosen.solve(cost, a, b)
