"""Random transport problems with all kinds of costs and masses, compared with integer arithmetic or with POT.

Wanted: the optimal value lies within `plan.bounds`, always; and where the status is OPTIMAL, `plan.value` is right to
8 digits, or to 10⁻¹³ of a typical cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import ot
from exact import exact_value
from scipy.spatial.distance import cdist
from tally import Tally, check, random_of

import groundmetric as gm

SHARE = 0.4
ROWS = ("small problems, compared with integer arithmetic", "larger problems, compared with POT")
DIGITS, TYPICAL = 1e-8, 1e-13


@dataclass(frozen=True)
class Problem:
    """Floats for the solver, and the exact masses that they represent."""

    cost: np.ndarray
    a: np.ndarray
    b: np.ndarray
    meant_a: list[Fraction]
    meant_b: list[Fraction]
    kind: str

    def truth(self, cost: np.ndarray | None = None) -> Fraction:
        cost = self.cost if cost is None else cost
        return exact_value([[Fraction(x) for x in row] for row in cost.tolist()], self.meant_a, self.meant_b)


def attempt(seed: int, tally: Tally) -> None:
    rng = random_of(seed, "problems")
    if rng.random() < 0.02:
        _against_pot(rng, tally)
        return
    problem = small_problem(rng)
    plan = gm.transport.solve(problem.cost, problem.a, problem.b)
    judge(problem.kind, plan, problem.truth(), problem.cost, problem.a, ROWS[0], tally)


def judge(kind, plan, truth, cost, a, row, tally) -> None:
    """The promise that a plan makes, against the truth."""
    exact, total = float(truth), float(np.sum(a))
    typical = float(np.median(np.abs(cost))) * total
    size = max(abs(exact), TYPICAL / DIGITS * typical) or 1.0  # scale of errors of values near 0
    error = float(abs(Fraction(plan.value) - truth))
    messages = f"{kind}: value {plan.value!r}, truth {exact!r}, bounds {plan.bounds}, {plan.status.name}"
    rounding = 1e-12 * abs(exact) + TYPICAL * typical
    check(
        plan.bounds[0] <= exact + rounding and plan.bounds[1] >= exact - rounding,
        f"truth outside of bounds; {messages}",
    )
    if plan.optimal:
        check(error <= DIGITS * size, f"called optimal, but it is not; {messages}")
    tally.note(row, error / size if plan.optimal else 0.0, plan.status.name.lower())


def small_problem(rng, most: int = 6) -> Problem:
    n, m = rng.integers(1, most + 1, 2)
    costs, masses = rng.choice(list(COSTS)), rng.choice(list(MASSES))
    a, b, meant_a, meant_b = MASSES[masses](rng, n, m)
    scale = 10.0 ** rng.integers(-100, 100) if rng.random() < 0.2 else 1.0
    cost = np.ascontiguousarray(COSTS[costs](rng, n, m) * scale)
    return Problem(cost, a, b, meant_a, meant_b, f"{n} × {m}, costs {costs} × {scale:g}, masses {masses}")


def _plane(rng, n, m):
    return cdist(rng.normal(size=(n, 2)), rng.normal(size=(m, 2)))


def _some(rng, cost, dear):
    return np.where(rng.random(cost.shape) < 0.3, dear, cost)


COSTS = {
    "random": lambda rng, n, m: rng.uniform(size=(n, m)),
    "plane": _plane,
    "squared": lambda rng, n, m: _plane(rng, n, m) ** 2,
    "zero": lambda rng, n, m: np.zeros((n, m)),
    "equal": lambda rng, n, m: np.full((n, m), 0.3),
    "duplicates": lambda rng, n, m: cdist(rng.integers(0, 2, (n, 2)), rng.integers(0, 2, (m, 2))),
    "integers": lambda rng, n, m: rng.integers(0, 4, (n, m)).astype(float),
    "magnitudes": lambda rng, n, m: rng.uniform(0.1, 1.0, (n, m)) * 10.0 ** rng.uniform(-6, 6, (n, m)),
    "row magnitudes": lambda rng, n, m: rng.uniform(0.1, 1.0, (n, m)) * 10.0 ** rng.uniform(-6, 6, (n, 1)),
    "signs": lambda rng, n, m: rng.normal(size=(n, m)),
    "shifted": lambda rng, n, m: _plane(rng, n, m) + 1e6,
    "barred by 1e6": lambda rng, n, m: _some(rng, _plane(rng, n, m), 1e6),
    "barred by 1e12": lambda rng, n, m: _some(rng, _plane(rng, n, m), 1e12),
    "barred by 1e15": lambda rng, n, m: _some(rng, rng.integers(0, 3, (n, m)), 1e15),
}


def _divided(rng, total, parts, *, zeros=False):
    """Split a whole number into `n` parts, positive unless zeros are allowed."""
    free = total if zeros else total - parts
    cuts = np.sort(rng.integers(0, free + 1, parts - 1)).tolist()
    steps = [end - start for start, end in zip([0, *cuts], [*cuts, free], strict=True)]
    return steps if zeros else [step + 1 for step in steps]


def _whole(rng, n, m, total, *, divided_by=1, zeros=False):
    """Both sides divide one whole number; the floats are rounded, the exact masses are not."""
    sides = [_divided(rng, total, size, zeros=zeros) for size in (n, m)]
    meant = [[Fraction(part, divided_by) for part in side] for side in sides]
    return *(np.array([float(part) for part in side]) for side in meant), *meant


def _uneven(rng, n, m, small):
    """Large and very small masses together, which are fractions of two and so exact as floats."""
    unit = 2.0 ** round(np.log2(small))
    a = [Fraction(unit if rng.random() < 0.4 else float(rng.integers(1, 4))) for _ in range(n)]
    b = [Fraction(unit if rng.random() < 0.4 else float(rng.integers(1, 4))) for _ in range(m)]
    more = sum(a) - sum(b)
    side = b if more > 0 else a
    side[0] += abs(more)  # a sum of few bits far apart: a float still holds it, as `small` is above 2^-50
    return np.array([float(x) for x in a]), np.array([float(x) for x in b]), a, b


def _any(rng, n, m):
    """Random floats, whose sums differ in their last bits; the exact masses are the floats scaled to one sum."""
    a, b = rng.uniform(0.1, 1.0, n), rng.uniform(0.1, 1.0, m)
    a, b = a / a.sum(), b / b.sum()
    meant_a, meant_b = [Fraction(x) for x in a], [Fraction(x) for x in b]
    share = sum(meant_a) / sum(meant_b)
    return a, b, meant_a, [x * share for x in meant_b]


MASSES = {
    "equal": lambda rng, n, m: (
        np.full(n, 1.0 / n), np.full(m, 1.0 / m), [Fraction(1, int(n))] * n, [Fraction(1, int(m))] * m
    ),
    "integers": lambda rng, n, m: _whole(rng, n, m, int(rng.integers(12, 40))),
    "some zero": lambda rng, n, m: _whole(rng, n, m, int(rng.integers(1, 20)), zeros=True),
    "sevenths": lambda rng, n, m: _whole(rng, n, m, int(rng.integers(12, 40)), divided_by=7),
    "large integers": lambda rng, n, m: _whole(rng, n, m, int(rng.integers(2**40, 2**52))),
    "fractions of 1e9": lambda rng, n, m: _whole(rng, n, m, 10**9, divided_by=10**9),
    "uneven to 1e-6": lambda rng, n, m: _uneven(rng, n, m, 1e-6),
    "uneven to 1e-12": lambda rng, n, m: _uneven(rng, n, m, 1e-12),
    "random": _any,
}  # fmt: skip


def _against_pot(rng, tally: Tally) -> None:
    """Where POT is at its best: costs of size 1 and ordinary masses."""
    n, m = rng.integers(20, 150, 2)
    kind = rng.choice(["random", "plane", "squared", "duplicates", "integers", "signs"])
    cost, (a, b, *_) = np.ascontiguousarray(COSTS[kind](rng, n, m), float), _any(rng, n, m)
    if rng.random() < 0.5:
        a, b = np.full(n, 1.0 / n), np.full(m, 1.0 / m)
    expected, plan = ot.emd2(a, b, cost, numItermax=10**7), gm.transport.solve(cost, a, b)
    size = float(np.abs(cost).max())
    error = abs(plan.value - expected) / size
    u, v = plan.potentials
    sent = np.bincount(plan.rows, plan.mass, n) - a, np.bincount(plan.cols, plan.mass, m) - b
    messages = f"{n} × {m}, costs {kind}"
    check(error < 1e-10, f"{messages}: value {plan.value!r}, POT {expected!r}")
    check(plan.optimal, f"{messages}: {plan.status.name}")
    check(max(np.abs(side).max() for side in sent) < 1e-14, f"{messages}: the plan does not move the masses")
    check((u[:, None] + v - cost).max() < 1e-12 * size, f"{messages}: potentials above the costs")
    tally.note(ROWS[1], error)
