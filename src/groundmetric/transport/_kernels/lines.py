"""Compiled transport between points on a line, where shipping in order is optimal."""

from __future__ import annotations

import numpy as np

from .compiled import behind, inner, kernel, pointer
from .costs import SQUARED
from .pairs import fill_masses


@inner
def line_value(x, a, n, y, b, m, cost):
    """Transport cost between n and m sorted points with integer masses a, b of equal total; mass 1 in all.

    Shipping in order is optimal for every convex cost of the step: the distance, and its square.
    """
    i, j = 0, 0
    left, room = a[0], b[0]
    moved, total = 0.0, 0
    while True:
        amount = left if left < room else room
        step = abs(x[i] - y[j])
        moved += amount * (step * step if cost == SQUARED else step)
        total += amount
        left -= amount
        room -= amount
        if left == 0:
            i += 1
            if i == n:
                return moved / total
            left = a[i]
        if room == 0:
            j += 1
            if j == m:
                return moved / total
            room = b[j]


@inner
def line_pull(x, a, n, y, b, m, cost, coefficient, total, pull_x, pull_y):
    """Add coefficient times the gradient of `line_value` to pull_x and pull_y (in the sorted order)."""
    i, j = 0, 0
    left, room = a[0], b[0]
    while True:
        amount = left if left < room else room
        if x[i] != y[j]:
            share = coefficient * amount / total
            share *= 2.0 * (x[i] - y[j]) if cost == SQUARED else (1.0 if x[i] > y[j] else -1.0)
            pull_x[i] += share
            pull_y[j] -= share
        left -= amount
        room -= amount
        if left == 0:
            i += 1
            if i == n:
                return
            left = a[i]
        if room == 0:
            j += 1
            if j == m:
                return
            room = b[j]


@inner
def _masses(p, pairs, points, room):
    """Fill the room with the masses of a pair; returns where its distributions begin, their sizes, and their total."""
    bounds, units, rounded = points.bounds, pointer(points.units), pointer(points.rounded)
    low, start = bounds[pairs.first[p]], bounds[pairs.second[p]]
    n, m = bounds[pairs.first[p] + 1] - low, bounds[pairs.second[p] + 1] - start
    total = fill_masses(behind(units, low), behind(rounded, low), n, pairs.times_first[p], room)
    fill_masses(behind(units, start), behind(rounded, start), m, pairs.times_second[p], behind(room, n))
    return low, start, n, m, total


@kernel
def solve_lines(todo, pairs, points, room, answers):
    """The exact values of pairs whose points, sorted within each distribution, lie on a line.

    `room`: int64, as many as the points of a pair.
    """
    z, a = pointer(points.z), pointer(room)
    for p in todo:
        low, start, n, m, _ = _masses(p, pairs, points, a)
        answers.value[p] = line_value(behind(z, low), a, n, behind(z, start), behind(a, n), m, points.cost)
        answers.optimal[p] = True


@kernel
def pull_on_lines(todo, coefficient, pairs, points, room, pull):
    """The pull of `follow_plans`, for pairs on a line."""
    z, a, out = pointer(points.z), pointer(room), pointer(pull)
    for k in range(todo.size):
        low, start, n, m, total = _masses(todo[k], pairs, points, a)
        x, y, b = behind(z, low), behind(z, start), behind(a, n)
        pulled = behind(out, low), behind(out, start)
        line_pull(x, a, n, y, b, m, points.cost, coefficient[k], total, pulled[0], pulled[1])


def ship_in_order(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Senders, receivers and amounts when integer masses of equal sums ship in order."""
    shipments = np.empty((3, a.size + b.size - 1), np.int64)
    senders, receivers, amounts = shipments[:, : fill_shipments(a, b, *shipments)]
    return senders, receivers, amounts


@kernel
def fill_shipments(a, b, senders, receivers, amounts):
    """`ship_in_order`, into arrays that are long enough; returns how many shipments there are."""
    i, j, count = 0, 0, 0
    left, room = a[0], b[0]
    while True:
        amount = left if left < room else room
        senders[count], receivers[count], amounts[count] = i, j, amount
        count += 1
        left -= amount
        room -= amount
        if left == 0:
            i += 1
        if room == 0:
            j += 1
        if i == a.size or j == b.size:
            return count
        if left == 0:
            left = a[i]
        if room == 0:
            room = b[j]
