"""Sinkhorn's iterations in the logarithmic domain: transport blurred by entropy.

The potentials (f, g) are kept, and a kernel exp((f + g - c)/ε) around them; scalings of the kernel are what iterations
change, at the cost of one pass over the kernel each and no exponential. They are taken into the potentials now and
then, so nothing overflows however small ε is. ε falls by steps to its end, each from the potentials of the last.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np

# Iterations before the kernel is built anew around the present potentials: at the end, on the way down, and where
# masses have a price, because their level is set between rounds.
_ROUND = 50
_STEP_ROUND = 10
_PRICED_ROUND = 10
_FALL = 4.0
# Scalings beyond this factor are taken into the potentials.
_STRETCHED = 1e30
_FARTHEST = 1.98


class Ended(NamedTuple):
    """Where the iterations ended."""

    f: np.ndarray
    g: np.ndarray
    iterations: int
    converged: bool


def sinkhorn(
    cost: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    epsilon: float,
    *,
    price: float = math.inf,
    tol: float,
    max_iter: int,
) -> Ended:
    """Potentials of the plan a b exp((f + g - cost)/epsilon) between positive masses.

    `price` is the weight of the divergence of the plan's marginals from a and b; infinite: they are met, to `tol` of
    the mass.
    """
    f, g = np.zeros(a.size), np.zeros(b.size)
    iterations, converged = _iterate(cost, a, b, f, g, float(epsilon), float(price), float(tol), int(max_iter))
    _finish(cost, a, b, f, g, float(epsilon), float(price))
    return Ended(f, g, int(iterations), bool(converged))


def own_value(cost: np.ndarray, a: np.ndarray, epsilon: float, *, tol: float, max_iter: int) -> tuple[float, bool]:
    """The entropic value of a distribution to itself, and whether the iterations converged.

    Both sides have the same potential, so half of every step can be taken: that converges in tens of iterations.
    """
    f = np.zeros(a.size)
    _, converged = _iterate_alone(cost, a, f, float(epsilon), float(tol), int(max_iter))
    return float(2.0 * (a @ f)), bool(converged)


def entropic_plan(cost: np.ndarray, a: np.ndarray, b: np.ndarray, epsilon: float, ended: Ended) -> np.ndarray:
    """The plan that belongs to the potentials; its marginals are nearly a and b."""
    plan = ended.f[:, None] - cost
    plan += ended.g
    plan /= epsilon
    np.exp(plan, out=plan)
    plan *= a[:, None]
    plan *= b
    return plan


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


def feasible(cost: np.ndarray, g: np.ndarray, cols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Potentials u + v <= cost, as large as they can be, from those of the sinks `cols`."""
    u = (cost[:, cols] - g).min(axis=1)
    return u, (cost - u[:, None]).min(axis=0)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _iterate(cost, a, b, f, g, epsilon, price, tol, max_iter):
    """Take f and g to the end, in place. Returns (iterations, converged)."""
    kernel = np.empty_like(cost)
    step = max(epsilon, cost.max())
    iterations, reach, before = 0, 1.0, np.inf
    while True:
        last = step <= epsilon
        step = max(step, epsilon)
        damping = 1.0 if price == np.inf else price / (price + step)
        _soften(cost, b, g, step, damping, f)
        _soften_columns(cost, a, f, step, damping, g)
        if damping < 1.0:
            balance(a, b, f, g, price)
        budget = min(_round_length(last, damping), max_iter - iterations)
        first, error, done = _round(cost, a, b, f, g, step, damping, reach, kernel, tol if last else 1e-3, budget)
        iterations += done
        if last and error <= tol:
            return iterations, True
        if iterations >= max_iter:
            return iterations, False
        if last and damping == 1.0:
            reach = _farther(reach, first, error, done, before)
            before = first
        if not last:
            step /= _FALL


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _finish(cost, a, b, f, g, epsilon, price):
    """One plain step at the last ε, in place: wherever the iterations stopped, the plan's columns now fit."""
    damping = 1.0 if price == np.inf else price / (price + epsilon)
    _soften(cost, b, g, epsilon, damping, f)
    _soften_columns(cost, a, f, epsilon, damping, g)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _farther(reach, first, error, done, before):
    """By what factor to lengthen every step, from how fast the error fell in a round.

    Where plain steps shrink the error by a factor of r each, over-relaxation by 2/(1 + √(1 - r)) is best close to the
    end (Thibault et al. 2021): thousands of iterations become hundreds. Where it did harm, less
    of it is done; where it did little, more.
    """
    if reach > 1.0:
        if first >= before:
            return 1.0 + (reach - 1.0) / 2
        return reach if first < before / 2 else min(reach + (2.0 - reach) / 3, _FARTHEST)
    rate = min((error / first) ** (1.0 / done), 0.9999)
    return min(2.0 / (1.0 + math.sqrt(1.0 - rate)), _FARTHEST)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _round_length(last, damping):
    if last:
        return _ROUND if damping == 1.0 else _PRICED_ROUND
    return _STEP_ROUND


@numba.njit(nogil=True, cache=True, error_model="numpy")
def balance(a, b, f, g, price):
    """Shift f against g, in place, so that as much mass is sent as received.

    At a high price, iterations alone would take as many rounds as the price is above ε to find that level.
    """
    low_f, low_g = f.min(), g.min()  # taken out, so that no exponential overflows
    sent = math.log(np.sum(a * np.exp((low_f - f) / price))) - low_f / price
    received = math.log(np.sum(b * np.exp((low_g - g) / price))) - low_g / price
    shift = price * (sent - received) / 2
    f += shift
    g -= shift


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _round(cost, a, b, f, g, epsilon, damping, reach, kernel, tol, budget):
    """Iterations on one kernel, in place: the share of the mass that the first and the last moved, and their number."""
    n, m = cost.shape
    for i in range(n):
        for j in range(m):
            kernel[i, j] = math.exp((f[i] + g[j] - cost[i, j]) / epsilon)
    # With damping, new potentials are damped as a whole, not only by what is new in them.
    hold_f, hold_g = np.exp((damping - 1.0) * f / epsilon), np.exp((damping - 1.0) * g / epsilon)
    s, t = np.ones(n), np.ones(m)
    into, out = b.copy(), np.empty(m)
    mass = a.sum()
    done, error, first = 0, np.inf, np.inf
    while done < budget and error > tol:
        error = 0.0
        out[:] = 0.0
        for i in range(n):
            sent = _dot(kernel[i], into)
            new = hold_f[i] * sent**-damping if damping < 1.0 else 1.0 / sent
            error += a[i] * abs(s[i] / new - 1.0)
            s[i] = new if reach == 1.0 else s[i] * (new / s[i]) ** reach
            _add(kernel[i], s[i] * a[i], out)
        if done == 0:
            first = error / mass
            if first <= tol:
                error = first
                break
        for j in range(m):
            new = hold_g[j] * out[j] ** -damping if damping < 1.0 else 1.0 / out[j]
            if reach > 1.0:  # else the columns fit once the rows do
                error += b[j] * abs(t[j] / new - 1.0)
                new = t[j] * (new / t[j]) ** reach
            t[j] = new
            into[j] = new * b[j]
        error /= mass
        done += 1
        stretched = max(s.max(), t.max(), 1.0 / s.min(), 1.0 / t.min())
        if not stretched < _STRETCHED:
            break
    if _sound(s) and _sound(t):
        f += epsilon * np.log(s)
        g += epsilon * np.log(t)
    return first, error, max(done, 1)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _sound(scaling):
    return np.isfinite(scaling).all() and scaling.min() > 0.0


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _dot(x, y):
    total = 0.0
    for j in range(x.size):
        total += x[j] * y[j]
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _add(x, factor, out):
    for j in range(x.size):
        out[j] += factor * x[j]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _soften(cost, b, g, epsilon, damping, f):
    """The soft minimum over the columns: f = -damping ε log Σ b exp((g - cost)/ε)."""
    for i in range(f.size):
        lowest = np.inf
        for j in range(g.size):
            lowest = min(lowest, cost[i, j] - g[j])
        total = 0.0
        for j in range(g.size):
            total += b[j] * math.exp((lowest - cost[i, j] + g[j]) / epsilon)
        f[i] = damping * (lowest - epsilon * math.log(total))


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _soften_columns(cost, a, f, epsilon, damping, g):
    """`_soften` over the rows, row by row so that memory is read in order."""
    m = g.size
    lowest, total = np.full(m, np.inf), np.zeros(m)
    for i in range(f.size):
        for j in range(m):
            lowest[j] = min(lowest[j], cost[i, j] - f[i])
    for i in range(f.size):
        for j in range(m):
            total[j] += a[i] * math.exp((lowest[j] - cost[i, j] + f[i]) / epsilon)
    for j in range(m):
        g[j] = damping * (lowest[j] - epsilon * math.log(total[j]))


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _iterate_alone(cost, a, f, epsilon, tol, max_iter):
    """`_iterate` between a distribution and itself: one potential, moved half way each time."""
    soft = np.empty_like(f)
    step = max(epsilon, cost.max())
    iterations = 0
    while True:
        step = max(step, epsilon)
        error = 0.0
        _soften(cost, a, f, step, 1.0, soft)
        for i in range(f.size):
            error += a[i] * abs(math.expm1((f[i] - soft[i]) / step))
            f[i] = (f[i] + soft[i]) / 2
        iterations += 1
        if step <= epsilon and error <= tol * a.sum():
            return iterations, True
        if iterations >= max_iter:
            return iterations, False
        step /= _FALL
