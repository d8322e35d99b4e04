"""Compiled work on lists of pairs of distributions, in many dimensions or on a line, without the GIL.

The bases of all pairs lie one behind the other in three long arrays; `offset[p]` says where pair p's begins.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np

from ..problem import equal_masses, raised_masses
from .costs import MANHATTAN, SQUARED, slope_divisor, step_cost
from .scan import step_prices
from .simplex import optimise, shipping_cost
from .tree import first_forest, plant


@numba.njit(nogil=True, cache=True)
def line_value(x, a, y, b, cost):
    """Transport cost between sorted points x, y on a line with integer masses a, b of equal total; mass 1 in all.

    Shipping in order is optimal for every convex cost of the step: the distance, and its square.
    """
    i, j = 0, 0
    left, room = a[0], b[0]
    moved, total = 0.0, 0
    while True:
        amount = min(left, room)
        step = abs(x[i] - y[j])
        moved += amount * (step * step if cost == SQUARED else step)
        total += amount
        left -= amount
        room -= amount
        if left == 0:
            i += 1
            if i == x.size:
                return moved / total
            left = a[i]
        if room == 0:
            j += 1
            if j == y.size:
                return moved / total
            room = b[j]


@numba.njit(nogil=True, cache=True)
def line_pull(x, a, y, b, cost, coefficient, pull_x, pull_y):
    """Add coefficient times the gradient of `line_value` to pull_x and pull_y (in the sorted order)."""
    i, j = 0, 0
    left, room = a[0], b[0]
    total = a.sum()
    while True:
        amount = min(left, room)
        if x[i] != y[j]:
            share = coefficient * amount / total
            share *= 2.0 * (x[i] - y[j]) if cost == SQUARED else (1.0 if x[i] > y[j] else -1.0)
            pull_x[i] += share
            pull_y[j] -= share
        left -= amount
        room -= amount
        if left == 0:
            i += 1
            if i == x.size:
                return
            left = a[i]
        if room == 0:
            j += 1
            if j == y.size:
                return
            room = b[j]


@numba.njit(nogil=True, cache=True)
def ship_in_order(a, b):
    """Senders, receivers and amounts when integer masses of equal sums ship in order."""
    limit = a.size + b.size - 1
    senders, receivers = np.empty(limit, np.int64), np.empty(limit, np.int64)
    amounts = np.empty(limit, np.int64)
    i, j, count = 0, 0, 0
    left, room = a[0], b[0]
    while True:
        amount = min(left, room)
        senders[count], receivers[count], amounts[count] = i, j, amount
        count += 1
        left -= amount
        room -= amount
        if left == 0:
            i += 1
        if room == 0:
            j += 1
        if i == a.size or j == b.size:
            return senders[:count], receivers[:count], amounts[:count]
        if left == 0:
            left = a[i]
        if room == 0:
            room = b[j]


class Points(NamedTuple):
    """Projected points of all distributions, and their masses."""

    z: np.ndarray  # (n_points, n_components)
    bounds: np.ndarray  # distribution d has the rows bounds[d]:bounds[d + 1]
    units: np.ndarray  # int64 masses, the smallest that have the ratios of the masses; see `raised_masses`
    shares: np.ndarray  # the same masses as floats that sum to 1
    uniform: np.ndarray  # which distributions have equal masses
    cost: int  # what a step costs: a `Cost`


class Bases(NamedTuple):
    """Where each pair's last solve ended."""

    offset: np.ndarray  # (n_pairs,) place in the arrays below; a pair of n and m points takes n + m + 1
    parent: np.ndarray
    flow: np.ndarray
    potential: np.ndarray
    warm: np.ndarray  # (n_pairs,) bool: is there something to start from?


class Answers(NamedTuple):
    """What a solve writes, by pair."""

    value: np.ndarray
    pivots: np.ndarray
    optimal: np.ndarray


@numba.njit(nogil=True, cache=True)
def move_points(d, z, points, means):
    """Put distribution d's points to the places z, set its mean, and return how far its mass travelled on average.

    Far in the metric between distributions that obeys the triangle inequality: the mean distance, or for squared costs
    the root of the mean square.
    """
    low = points.bounds[d]
    means[d] = 0.0
    travelled = 0.0
    for i in range(z.shape[0]):
        squared, absolute = 0.0, 0.0
        for c in range(z.shape[1]):
            step = z[i, c] - points.z[low + i, c]
            squared += step * step
            absolute += abs(step)
            points.z[low + i, c] = z[i, c]
            means[d, c] += points.shares[low + i] * z[i, c]
        if points.cost == MANHATTAN:
            travelled += points.shares[low + i] * absolute
        elif points.cost == SQUARED:
            travelled += points.shares[low + i] * squared
        else:
            travelled += points.shares[low + i] * math.sqrt(squared)
    return math.sqrt(travelled) if points.cost == SQUARED else travelled


@numba.njit(nogil=True, cache=True)
def pair_masses(points, d, other):
    """Integer masses of distribution d when compared with `other`: the smallest that balance, exactly, if they can."""
    low, high = points.bounds[d], points.bounds[d + 1]
    start, end = points.bounds[other], points.bounds[other + 1]
    if points.uniform[d] and points.uniform[other]:
        per_point, _ = equal_masses(high - low, end - start)
        return np.full(high - low, per_point, np.int64)
    return raised_masses(points.units[low:high], points.units[start:end].sum())


@numba.njit(nogil=True, cache=True)
def solve_pairs(todo, first, second, points, bases, max_pivots, buffer, answers):
    """Solve the pairs `todo` exactly, each from its own basis where it has one; `buffer` holds float32."""
    for p in todo:
        d, e = first[p], second[p]
        x = points.z[points.bounds[d] : points.bounds[d + 1]]
        y = points.z[points.bounds[e] : points.bounds[e + 1]]
        n, m = x.shape[0], y.shape[0]
        prices = step_prices(x, y, points.cost, buffer[: n * m].reshape(n, m))
        a, b = pair_masses(points, d, e), pair_masses(points, e, d)
        here = slice(bases.offset[p], bases.offset[p] + n + m + 1)
        parent, flow = bases.parent[here], bases.flow[here]
        potential = bases.potential[here]
        if not bases.warm[p]:
            first_forest(prices.rough.costs, a, b, parent)
            potential[:] = 0.0
        limit = max_pivots if max_pivots >= 0 else 2000 * (n + m)
        pivots, optimal, _ = optimise(prices, a, b, parent, flow, potential, limit)
        bases.warm[p] = True
        answers.value[p] = shipping_cost(prices, n, parent, flow) / a.sum()
        answers.pivots[p] = pivots
        answers.optimal[p] = optimal and np.isfinite(answers.value[p])  # coordinates beyond 10¹⁵⁰ overflow


@numba.njit(nogil=True, cache=True)
def price_old_plans(todo, first, second, points, bases, values):
    """What the plans of the last solves cost at the points' present places: an upper bound of each new value."""
    for k in range(todo.size):
        p = todo[k]
        if not bases.warm[p]:
            values[k] = np.inf
            continue
        start, end, n, nodes = _extent(p, first, second, points)
        flow = bases.flow[bases.offset[p] : bases.offset[p] + nodes]
        moved = 0.0
        for x in range(nodes):
            if flow[x] > 0:
                i, j = _ends(x, bases.parent[bases.offset[p] + x], n, start, end)
                moved += flow[x] * step_cost(points.z, i, j, points.cost)
        values[k] = moved / flow.sum()


@numba.njit(nogil=True, cache=True)
def _extent(p, first, second, points):
    """First rows of both distributions of a pair, the first one's size, and the number of nodes."""
    start, end = points.bounds[first[p]], points.bounds[second[p]]
    n = points.bounds[first[p] + 1] - start
    return start, end, n, n + points.bounds[second[p] + 1] - end


@numba.njit(nogil=True, cache=True)
def _ends(x, parent, n, start, end):
    """Rows of the sender and the receiver of the arc between a node and its parent."""
    return (start + x, end + parent - n) if x < n else (start + parent, end + x - n)


@numba.njit(nogil=True, cache=True)
def pull_on_points(todo, coefficient, first, second, points, bases, pull):
    """Add each pair's coefficient times the gradient of its value with respect to the projected points.

    Mass m sent over the step s costs m|s|, so it pulls its sender along m s/|s| and its receiver the other way: for
    Manhattan costs along m sign(s), for squared ones along 2m s. Points that coincide pull nothing. The plan is
    optimal, so it may be held fixed (Danskin).
    """
    for k in range(todo.size):
        p = todo[k]
        start, end, n, nodes = _extent(p, first, second, points)
        flow = bases.flow[bases.offset[p] : bases.offset[p] + nodes]
        total = flow.sum()
        for x in range(nodes):
            if flow[x] == 0:
                continue
            i, j = _ends(x, bases.parent[bases.offset[p] + x], n, start, end)
            length = step_cost(points.z, i, j, points.cost)
            if length > 0.0:
                share = coefficient[k] * flow[x] / (total * slope_divisor(length, points.cost))
                for c in range(points.z.shape[1]):
                    step = points.z[i, c] - points.z[j, c]
                    force = share * (np.sign(step) if points.cost == MANHATTAN else step)
                    pull[i, c] += force
                    pull[j, c] -= force


@numba.njit(nogil=True, cache=True)
def solve_lines(todo, first, second, points, answers):
    """The exact values of pairs whose points, sorted within each distribution, lie on a line."""
    for p in todo:
        d, e = first[p], second[p]
        x = points.z[points.bounds[d] : points.bounds[d + 1], 0]
        y = points.z[points.bounds[e] : points.bounds[e + 1], 0]
        answers.value[p] = line_value(x, pair_masses(points, d, e), y, pair_masses(points, e, d), points.cost)
        answers.optimal[p] = True


@numba.njit(nogil=True, cache=True)
def pull_on_lines(todo, coefficient, first, second, points, pull):
    """`pull_on_points` for pairs on a line."""
    for k in range(todo.size):
        d, e = first[todo[k]], second[todo[k]]
        here, there = slice(points.bounds[d], points.bounds[d + 1]), slice(points.bounds[e], points.bounds[e + 1])
        x, y = points.z[here, 0], points.z[there, 0]
        a, b = pair_masses(points, d, e), pair_masses(points, e, d)
        line_pull(x, a, y, b, points.cost, coefficient[k], pull[here, 0], pull[there, 0])


@numba.njit(nogil=True, cache=True)
def pack(which, nodes, bases, parent, level):
    """Copy the trees of these pairs, and the levels of the nodes below their roots; returns how many levels."""
    place, tops = 0, 0
    for p in which:
        start = bases.offset[p]
        for x in range(nodes[p]):
            parent[place] = bases.parent[start + x]
            if parent[place] == nodes[p] - 1:
                level[tops] = bases.potential[start + x]
                tops += 1
            place += 1
    return tops


@numba.njit(nogil=True, cache=True)
def unpack(which, nodes, parent, level, first, second, points, bases):
    """Put packed bases where their pairs have theirs."""
    place, tops = 0, 0
    for p in which:
        start = bases.offset[p]
        for x in range(nodes[p]):
            bases.parent[start + x] = parent[place]
            bases.potential[start + x] = 0.0
            if parent[place] == nodes[p] - 1:
                bases.potential[start + x] = level[tops]
                tops += 1
            place += 1
        here = slice(start, start + nodes[p])
        a, b = pair_masses(points, first[p], second[p]), pair_masses(points, second[p], first[p])
        plant(bases.parent[here], bases.flow[here], a, b)
        bases.warm[p] = True
