"""Entropic, sliced, Gaussian and mixture transport, computed by POT (extra `pot`).

They are for comparison with the literature: exact and coarsened transport are faster, or closer to the exact value. POT
gives a plan or a number; what is certain about it is worked out here. POT is imported when a solver runs. Its functions
that warn are called only where they do not: to catch a warning in one thread is to catch those of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..._internal.validation import need
from ..plan import Plan, Status
from .coarse import Coarse, Groups, spread_over_points
from .exact import Cloud, Distances, Solver, check_number, dual_value, solve_exact

# Up to costs of this many epsilon, kernels exp(-cost / epsilon) and their scalings stay within the range of floats.
LARGEST_EXPONENT = 500.0
# POT's root of a matrix is NaN where rounding makes an eigenvalue negative: each is at least this share of their sum.
_SMALLEST_VARIANCE = 1e-7


class Blurred(NamedTuple):
    """A distribution and its entropic cost to itself (0 where that is not asked for)."""

    points: Any
    masses: np.ndarray
    own: float
    converged: bool


@dataclass(frozen=True)
class Entropic(Solver):
    """Transport with `epsilon` times the entropy of the plan on top of its cost, by Sinkhorn's iterations of POT.

    The plan is rounded to one that fits the masses, so its cost, which is `value`, bounds the exact value from above;
    the potentials, made feasible, bound it from below. Both hold wherever the iterations end.

    Parameters
    ----------
    epsilon : float or None, default=None
        Strength of the entropy, in units of the costs; the smaller, the closer to exact transport and the slower, by
        far where it is below a 500th of the largest cost. None: a twentieth of a typical cost (of the cohort, in
        `pairwise_distances`).
    debiased : bool, default=False
        Give the Sinkhorn divergence as `value`: the entropic value, less the mean of both distributions' values to
        themselves. Not negative, 0 for equal distributions. Needs points, not costs.
    tol : float, default=1e-3
        Share of the mass that may be in the wrong place at the end, before the plan is rounded. Plain iterations, as
        POT's are, can need ten times as many for a tenth of it.
    max_iter : int, default=5000
        Iterations after which to stop; `status` says if they were too few.

    Examples
    --------
    >>> import groundmetric as gm
    >>> plan = gm.transport.solve([[0.0, 2.0], [2.0, 1.0]], solver="entropic", epsilon=0.5)
    >>> round(plan.value, 3)  # the exact value is 0.5
    0.571
    """

    epsilon: float | None = None
    debiased: bool = False
    tol: float = 1e-3
    max_iter: int = 5000

    name: ClassVar[str] = "entropic"

    def __post_init__(self) -> None:
        check_number(self, "epsilon", low=0.0, open_low=True)
        check_number(self, "tol", low=0.0, open_low=True)
        check_number(self, "max_iter", low=1, whole=True)

    def at_scale(self, typical: Callable[[], float]) -> Entropic:
        return self if self.epsilon is not None else replace(self, epsilon=0.05 * typical() or 1.0)

    def solve(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> Plan:
        if self.debiased:
            raise ValueError(
                "debiased=True needs the costs within each side too: use `transport.solve_points` or "
                "`pairwise_distances`"
            )
        return self._plan(cost, a, b)[0]

    def prepare(self, cloud: Cloud, distances: Distances) -> Blurred:
        if not self.debiased:
            return Blurred(*cloud, 0.0, True)
        plan, own = self._plan(distances(cloud.points, cloud.points), cloud.masses, cloud.masses)
        return Blurred(*cloud, own, plan.status is Status.APPROXIMATE)

    def compare(self, x: Blurred, y: Blurred, distances: Distances) -> Plan:
        plan, entropic_value = self._plan(distances(x.points, y.points), x.masses, y.masses)
        if not self.debiased:
            return plan
        divergence = max(entropic_value - (x.own + y.own) / 2, 0.0)
        converged = x.converged and y.converged
        return replace(plan, value=divergence, status=plan.status if converged else Status.ITERATION_LIMIT)

    def _plan(self, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[Plan, float]:
        """The rounded plan, and the entropic value, which the potentials give."""
        rows, cols = np.flatnonzero(a), np.flatnonzero(b)
        inner = cost[np.ix_(rows, cols)]
        p, q = a[rows] / a.sum(), b[cols] / b.sum()
        epsilon = self.epsilon or 0.05 * float(p @ np.abs(inner) @ q) or 1.0
        ended = sinkhorn(inner, p, q, epsilon, tol=self.tol, max_iter=self.max_iter)
        plan = rounded(ended.plan, p, q)
        u, v = c_transforms(cost, ended.g, cols)
        value = float(np.vdot(plan, inner))
        lower = min(dual_value(p, q, (u[rows], v[cols])), value)
        senders, receivers = np.nonzero(plan)
        total = float(a.sum())
        result = Plan(
            value=value * total,
            rows=rows[senders],
            cols=cols[receivers],
            mass=plan[senders, receivers] * total,
            potentials=(u, v),
            basis=None,
            status=Status.APPROXIMATE if ended.converged else Status.ITERATION_LIMIT,
            pivots=ended.iterations,
            solver=self.name,
            bounds=(lower * total, value * total),
        )
        return result, dual_value(p, q, (ended.f, ended.g)) * total


@dataclass(frozen=True)
class Sliced(Solver):
    """The mean, over random directions, of the exact distance along each: never more than the exact distance.

    The largest of them bounds the exact distance from below. There is no plan.

    Parameters
    ----------
    n_projections : int, default=50
        Number of directions.
    random_state : int, default=0
        Seed of the directions, which are the same for all pairs.

    Examples
    --------
    >>> import groundmetric as gm
    >>> gm.transport.solve_points([[0.0], [1.0]], [[5.0], [6.0]], solver="sliced").value
    5.0
    """

    n_projections: int = 50
    random_state: int = 0

    name: ClassVar[str] = "sliced"
    on_points: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number(self, "n_projections", low=1, whole=True)
        check_number(self, "random_state", low=0, high=2**32 - 1, whole=True)

    def compare(self, x: Cloud, y: Cloud, distances: Distances) -> Plan:
        random = np.random.RandomState(self.random_state)  # from a number, POT would seed what threads share
        options = {"n_projections": self.n_projections, "seed": random, "p": 1, "log": True}
        sliced = import_pot(self.name).sliced_wasserstein_distance
        value, log = sliced(np.float64(x.points), np.float64(y.points), x.masses, y.masses, **options)
        low, high = moment_bounds(x, y)
        low = max(low, float(np.max(log["projected_emds"])))
        return without_plan(self.name, float(value), (low, max(low, high)))


class Fitted(NamedTuple):
    """A distribution in groups, with the covariance of each."""

    groups: Groups
    covariances: np.ndarray  # (n_groups, n_components, n_components)


@dataclass(frozen=True)
class Gaussian(Solver):
    """The Bures-Wasserstein distance (W₂) between the Gaussians of the same means and covariances.

    It is a lower bound of the W₂ distance between the distributions (Gelbrich). The exact distance (W₁) lies between
    the distance of the means and the root mean square distance of independent points, which are the `bounds`. There is
    no plan. Where a covariance lacks full rank, it is widened by 10⁻⁷ of its trace.

    Examples
    --------
    >>> import groundmetric as gm
    >>> plan = gm.transport.solve_points([[0.0], [2.0]], [[4.0], [10.0]], solver="gaussian")
    >>> round(plan.value**2, 9)  # means 6 apart, standard deviations 1 and 3
    40.0
    """

    name: ClassVar[str] = "gaussian"
    on_points: ClassVar[bool] = True

    def prepare(self, cloud: Cloud, distances: Distances) -> Fitted:
        return fit_gaussians(Coarse(1).prepare(cloud, distances))

    def compare(self, x: Fitted, y: Fitted, distances: Distances) -> Plan:
        value = float(np.sqrt(bures_squared(x, y, self.name)[0, 0]))
        return without_plan(self.name, value, moment_bounds(x.groups, y.groups))


@dataclass(frozen=True)
class Mixture(Solver):
    """Transport between the components of Gaussian mixtures at their squared Bures distances; the root of its value.

    Components are groups of nearby points. One component is `Gaussian`; a component per point is the W₂ distance
    (Delon & Desolneux 2020). The plan is spread over the points, where it bounds the exact distance from above.

    Parameters
    ----------
    n_components : int, default=10
        Number of components per distribution, at most; one with no more points than that has a component per point.
    max_pivots : int or None, default=None
        Pivots of the transport between components after which to stop, and `status` says so; the default is never
        reached in practice.

    Examples
    --------
    >>> import groundmetric as gm
    >>> x, y = [[0.0], [1.0], [9.0]], [[2.0], [3.0], [11.0]]
    >>> round(gm.transport.solve_points(x, y, solver="mixture", n_components=2).value, 6)
    2.0
    """

    n_components: int = 10
    max_pivots: int | None = None

    name: ClassVar[str] = "mixture"
    on_points: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number(self, "n_components", low=1, whole=True)
        check_number(self, "max_pivots", low=0, whole=True)

    def prepare(self, cloud: Cloud, distances: Distances) -> Fitted:
        return fit_gaussians(Coarse(self.n_components).prepare(cloud, distances))

    def compare(self, x: Fitted, y: Fitted, distances: Distances) -> Plan:
        squared = bures_squared(x, y, self.name)
        between = solve_exact(squared, x.groups.weights, y.groups.weights, max_pivots=self.max_pivots)
        rows, cols, mass = spread_over_points(between, x.groups, y.groups)
        apart = np.linalg.norm(x.groups.points[rows] - y.groups.points[cols], axis=1)
        low, high = moment_bounds(x.groups, y.groups)
        return replace(
            between,
            value=float(np.sqrt(max(between.value, 0.0))),
            rows=rows,
            cols=cols,
            mass=mass,
            potentials=None,
            basis=None,
            status=Status.APPROXIMATE if between.optimal else between.status,
            solver=self.name,
            bounds=(low, max(low, min(high, float(mass @ apart)))),
        )


def import_pot(solver: str) -> Any:
    """POT, or an error that says how to install it."""
    need("ot", f"solver {solver!r}, which POT computes", extra="pot")
    import ot

    return ot


def without_plan(solver: str, value: float, bounds: tuple[float, float]) -> Plan:
    """The result of a solver that finds a number only."""
    nothing = np.empty(0, np.int64)
    return Plan(value, nothing, nothing, np.empty(0), None, None, Status.APPROXIMATE, 0, solver, bounds)


class Ended(NamedTuple):
    """Where Sinkhorn's iterations ended, between masses of sum 1."""

    plan: np.ndarray  # (n, m)
    f: np.ndarray  # (n,) potentials
    g: np.ndarray  # (m,)
    iterations: int
    converged: bool


def sinkhorn(cost: np.ndarray, p: np.ndarray, q: np.ndarray, epsilon: float, tol: float, max_iter: int) -> Ended:
    """Sinkhorn's iterations between positive masses: on the kernel, or, a hundred times slower, on logarithms."""
    pot, lowest = import_pot("entropic"), cost.min()
    in_range = cost.max() - lowest <= LARGEST_EXPONENT * epsilon and min(p.min(), q.min()) > 1e-50
    options = {"method": "sinkhorn" if in_range else "sinkhorn_log", "numItermax": max_iter, "warn": False}
    options["stopThr"] = tol / np.sqrt(q.size)  # POT takes the root of a sum of squares, `tol` is a share of the mass
    with np.errstate(all="ignore"):
        plan, log = pot.sinkhorn(p, q, cost - lowest, epsilon, log=True, **options)
        log_u, log_v = (np.log(log["u"]), np.log(log["v"])) if in_range else (log["log_u"], log["log_v"])
    f, g = epsilon * (log_u - np.log(p)) + lowest, epsilon * (log_v - np.log(q))
    require_finite(f"'entropic' at epsilon={epsilon:.3g} and costs up to {cost.max():.3g}", f, g, plan)
    missing = np.abs(plan.sum(axis=0) - q).sum()
    return Ended(plan, f, g, int(log["niter"]) + 1, bool(missing <= tol))


def require_finite(where: str, *found: np.ndarray) -> None:
    if not all(np.isfinite(array).all() for array in found):
        raise FloatingPointError(
            f"POT gives NaN or infinity for solver {where}: scale costs or points to a size of about 1, raise epsilon "
            "where there is one, or use solver='exact'"
        )


def rounded(plan: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A plan with the marginals a and b near one that nearly has them (Altschuler, Weed & Rigollet 2017)."""
    sent = plan.sum(axis=1)
    plan = plan * np.minimum(a / np.where(sent > 0, sent, 1.0), 1.0)[:, None]
    received = plan.sum(axis=0)
    plan *= np.minimum(b / np.where(received > 0, received, 1.0), 1.0)
    left_a, left_b = np.maximum(a - plan.sum(axis=1), 0.0), np.maximum(b - plan.sum(axis=0), 0.0)
    total = left_b.sum()
    if total > 0:
        plan += left_a[:, None] * (left_b / total)
    return plan


def c_transforms(cost: np.ndarray, g: np.ndarray, cols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Potentials u + v <= cost, as large as they can be, from those of the sinks `cols`."""
    u = (cost[:, cols] - g).min(axis=1)
    return u, (cost - u[:, None]).min(axis=0)


def fit_gaussians(groups: Groups) -> Fitted:
    """The covariance of each group of points, of full rank unless it is 0."""
    steps = groups.points - groups.centres[groups.groups]
    steps *= np.sqrt(groups.masses / groups.weights[groups.groups])[:, None]
    inside = (steps[groups.groups == g] for g in range(len(groups.centres)))
    values, axes = np.linalg.eigh(np.stack([some.T @ some for some in inside]))
    values = np.maximum(values, _SMALLEST_VARIANCE * values.sum(axis=1, keepdims=True))
    return Fitted(groups, (axes * values[:, None, :]) @ axes.swapaxes(1, 2))


def bures_squared(x: Fitted, y: Fitted, solver: str) -> np.ndarray:
    """Squared W₂ distances between Gaussians."""
    origin = x.groups.mean  # far from it, squares lose digits
    means = x.groups.centres - origin, y.groups.centres - origin
    with np.errstate(all="ignore"):
        squared = import_pot(solver).gmm.dist_bures_squared(*means, x.covariances, y.covariances)
    require_finite(f"{solver!r} on these Gaussians", squared)
    return squared


def moment_bounds(x: Cloud | Groups, y: Cloud | Groups) -> tuple[float, float]:
    """Bounds of the exact distance from means and variances: Jensen, and the plan that couples independently."""
    means = x.masses @ x.points, y.masses @ y.points
    variances = (side.masses @ np.sum((side.points - m) ** 2, axis=1) for side, m in zip((x, y), means, strict=True))
    shift = float(np.linalg.norm(means[0] - means[1]))
    return shift, float(np.sqrt(shift**2 + sum(variances)))
