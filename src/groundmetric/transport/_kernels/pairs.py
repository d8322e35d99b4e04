"""Compiled work on lists of pairs of distributions, without the GIL: solves, prices of plans, and pulls on points.

The bases of all pairs lie one behind the other in three long arrays; `offset[p]` says where pair p's begins.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .compiled import behind, glued, inner, kernel, larger, pointer
from .costs import FEW_COMPONENTS, MANHATTAN, SQUARED, fill_costs, reach_of, step_cost
from .forest import first_forest
from .scan import MATRIX, PIECE, ROUNDING, Prices, fill_rough_matrix, fill_rough_steps, lift_potentials, width_of
from .simplex import ROWS, Entering, optimise, paid_costs
from .tree import TREE_ROOM, plant, tree_at


class Points(NamedTuple):
    """Projected points of all distributions, and their masses."""

    z: np.ndarray  # (n_points, n_components)
    bounds: np.ndarray  # distribution d has the rows bounds[d]:bounds[d + 1]
    units: np.ndarray  # int64 masses, the smallest that have the ratios of the masses; see `balancing_factors`
    rounded: np.ndarray  # the same masses rounded to one total, where some pair needs them
    shares: np.ndarray  # the same masses as floats that sum to 1
    uniform: np.ndarray  # which distributions have equal masses
    cost: int  # what a step costs: a `Cost`; or MATRIX


class Pairs(NamedTuple):
    """The distributions of each pair, and what their units are multiplied by so that they balance; 0: use `rounded`."""

    first: np.ndarray
    second: np.ndarray
    times_first: np.ndarray
    times_second: np.ndarray


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
    pivots: np.ndarray  # -1 where the basis to start from does not fit the masses
    optimal: np.ndarray
    bound: np.ndarray  # whether the value is only a lower bound, which was enough


def no_answers(n_pairs: int) -> Answers:
    """Answers of pairs that have not been solved."""
    flags = np.ones(n_pairs, bool), np.zeros(n_pairs, bool)
    return Answers(np.full(n_pairs, np.nan), np.zeros(n_pairs, np.int64), *flags)


# Where points have costs.
NO_MATRIX = np.empty((0, 0))


def is_plain(n_components: int, cost: int) -> bool:
    """Whether `solve_pairs` fills in the costs itself: Euclidean distances, or their squares, of few components."""
    return cost != MANHATTAN and 0 < n_components <= FEW_COMPONENTS


class Room(NamedTuple):
    """Room for one solve at a time; see `room_for`."""

    costs: np.ndarray  # float32
    nodes: np.ndarray  # int32
    units: np.ndarray  # int64
    points: np.ndarray  # float64


def room_for(work: int, nodes: int, n_components: int) -> Room:
    """Room for pairs of up to so many entries of costs, nodes, and components."""
    return Room(
        _at_cache_line(work + PIECE * (nodes + n_components + 3) + 2 * nodes * (n_components + 1)),
        np.empty(TREE_ROOM * nodes, np.int32),
        np.empty(2 * nodes + 2 * ROWS, np.int64),
        np.empty(ROWS),
    )


def _at_cache_line(size: int) -> np.ndarray:
    """Room for so many float32. A vector that lies in two cache lines takes longer to read."""
    room = np.empty(size + 16, np.float32)
    start = -room.ctypes.data % 64 // 4
    return room[start : start + size]


@kernel
def solve_pairs(todo, enough, pairs, points, bases, exact, scale, max_pivots, room, answers):
    """Solve the pairs `todo` exactly, each from its own basis where it has one.

    A pair is left as it is, but for its potentials, where these prove that its value is at least `enough`.

    Euclidean distances of few components, or their squares, are filled in here, and `scale` is 0. Other pairs come one
    at a time: with steps whose rough costs, of this scale, `fill_rough` has left in the room; or with the cost MATRIX,
    where `exact` (n, m) holds what arcs cost and `scale` is about one over a typical entry.
    """
    k, z, bounds = points.z.shape[1], pointer(points.z), pointer(points.bounds)
    units, rounded = pointer(points.units), pointer(points.rounded)
    longs, floats = pointer(room.units), pointer(room.points)
    entering = Entering(longs, behind(longs, ROWS), floats)
    for place in range(todo.size):
        p = todo[place]
        d, e = pairs.first[p], pairs.second[p]
        low, start = bounds[d], bounds[e]
        n, m = bounds[d + 1] - low, bounds[e + 1] - start
        a, b = behind(longs, 2 * ROWS), behind(longs, 2 * ROWS + n)
        total = fill_masses(behind(units, low), behind(rounded, low), n, pairs.times_first[p], a)
        fill_masses(behind(units, start), behind(rounded, start), m, pairs.times_second[p], b)
        x, y = behind(z, low * k), behind(z, start * k)
        shape = n, m, k
        prices = _prices(x, y, shape, points.cost, pointer(exact), scale, pointer(room.costs))
        here = bases.offset[p]
        parent, flow = behind(pointer(bases.parent), here), behind(pointer(bases.flow), here)
        potential = behind(pointer(bases.potential), here)
        answers.bound[p] = False
        if bases.warm[p] and enough[place] < np.inf:
            bound = lift_potentials(prices, a, b, total, potential)
            if bound >= enough[place]:
                answers.value[p], answers.bound[p] = bound, True
                continue
        tree = tree_at(parent, flow, n + m + 1, pointer(room.nodes))
        if not bases.warm[p]:
            first_forest(prices, a, b, tree, behind(b, m), prices.spare)
            for node in range(n + m + 1):
                potential[node] = 0.0
        limit = max_pivots if max_pivots >= 0 else 2000 * (n + m)
        pivots, optimal = optimise(tree, prices, a, b, potential, limit, entering)
        bases.warm[p] = True
        value = paid_costs(tree, prices)[0] / total if pivots >= 0 else np.nan
        answers.value[p], answers.pivots[p] = value, pivots
        answers.optimal[p] = optimal and value - value == 0.0  # coordinates beyond 10¹⁵⁰ overflow


@glued
def fill_masses(units, rounded, n, times, out):
    """The masses of n points as integers; returns their sum."""
    total = 0
    for i in range(n):
        out[i] = units[i] * times if times > 0 else rounded[i]
        total += out[i]
    return total


@glued
def _prices(x, y, shape, kind, exact, scale, room):
    """Prices of a matrix, or of the steps between points x (n, k) and y (m, k). Rough ones fill the room."""
    n, m, k = shape
    width, error = width_of(m), ROUNDING * (6.0 + k)
    rough = behind(room, _before_costs(n, m))
    for j in range(m, width):
        room[j] = 0.0
    if kind == MATRIX:
        error = fill_rough_matrix(exact, scale, n, m, width, rough)
    elif scale == 0.0:
        scale = fill_rough_steps(x, y, n, m, k, kind == SQUARED, width, behind(rough, n * width), rough)
    return Prices(rough, room, behind(room, width), scale, error, kind, exact, x, y, n, m, k, width)


@glued
def _before_costs(n, m):
    """Numbers of a room before its costs: levels, and what is spare."""
    return 2 * width_of(m) + width_of(n)


@kernel
def fill_rough(p, pairs, points, costs):
    """Rough costs of the steps of pair p, into the costs of a `Room`; returns their scale.

    For many components, and for Manhattan costs; see `fill_rough_steps`.
    """
    k, z, bounds, cost = points.z.shape[1], pointer(points.z), pointer(points.bounds), points.cost
    d, e = pairs.first[p], pairs.second[p]
    n, m = bounds[d + 1] - bounds[d], bounds[e + 1] - bounds[e]
    x, y, width = behind(z, bounds[d] * k), behind(z, bounds[e] * k), width_of(m)
    rough = behind(pointer(costs), _before_costs(n, m))
    columns = behind(rough, n * width)
    near = behind(columns, width * k)
    reach = larger(reach_of(x, x, n, k, cost) + reach_of(y, x, m, k, cost), 1e-140)
    for i in range(n + m):
        point = behind(x, i * k) if i < n else behind(y, (i - n) * k)
        for c in range(k):
            near[i * k + c] = (point[c] - x[c]) / reach
    fill_costs(near, n, m, k, cost, width, columns, rough)
    return 1.0 / (reach * reach if cost == SQUARED else reach)


def solve_any(
    todo: np.ndarray,
    enough: np.ndarray,
    pairs: Pairs,
    points: Points,
    bases: Bases,
    max_pivots: int,
    room: Room,
    answers: Answers,
) -> None:
    """`solve_pairs` between points of any number of components under any cost."""
    if is_plain(points.z.shape[1], points.cost):
        solve_pairs(todo, enough, pairs, points, bases, NO_MATRIX, 0.0, max_pivots, room, answers)
        return
    for place in range(todo.size):
        scale, one = fill_rough(todo[place], pairs, points, room.costs), slice(place, place + 1)
        solve_pairs(todo[one], enough[one], pairs, points, bases, NO_MATRIX, scale, max_pivots, room, answers)


@kernel
def move_points(d, z, points, means):
    """Put distribution d's points to the places z, set its mean, and return how far its mass travelled on average.

    Far in the metric between distributions that obeys the triangle inequality: the mean distance, or for squared costs
    the root of the mean square.
    """
    low, k = points.bounds[d], z.shape[1]
    old, new, mean = behind(pointer(points.z), low * k), pointer(z), behind(pointer(means), d * k)
    for c in range(k):
        mean[c] = 0.0
    travelled = 0.0
    for i in range(z.shape[0]):
        share = points.shares[low + i]
        travelled += share * step_cost(behind(new, i * k), behind(old, i * k), k, points.cost)
        for c in range(k):
            old[i * k + c] = new[i * k + c]
            mean[c] += share * new[i * k + c]
    return math.sqrt(travelled) if points.cost == SQUARED else travelled


class _Plan(NamedTuple):
    """The last plan of a pair, as pointers."""

    parent: Any
    flow: Any
    x: Any  # (n, k) points
    y: Any
    n: int
    nodes: int  # but for the root
    total: int  # of all flow


@inner
def _plan_of(p, pairs, points, bases):
    k, bounds, here = points.z.shape[1], points.bounds, bases.offset[p]
    start, end = bounds[pairs.first[p]], bounds[pairs.second[p]]
    n, m = bounds[pairs.first[p] + 1] - start, bounds[pairs.second[p] + 1] - end
    x, y = behind(pointer(points.z), start * k), behind(pointer(points.z), end * k)
    flow, total = behind(pointer(bases.flow), here), 0
    for node in range(n + m):
        total += flow[node]
    return _Plan(behind(pointer(bases.parent), here), flow, x, y, n, n + m, total)


@glued
def _ends(node, parent, n):
    """Sender and receiver of the arc between a node and its parent."""
    return (node, parent - n) if node < n else (parent, node - n)


@kernel
def follow_plans(todo, coefficient, pairs, points, bases, values, pull):
    """What the plans of the last solves cost at the points' present places: an upper bound of each new value.

    Where coefficients are given, add each pair's times the gradient of its value with respect to the projected points.
    Mass m sent over the step s costs m|s|, so it pulls its sender along m s/|s| and its receiver the other way: for
    Manhattan costs along m sign(s), for squared ones along 2m s. Points that coincide pull nothing. The plan is
    optimal, so it may be held fixed (Danskin).
    """
    k, cost, pulls = points.z.shape[1], points.cost, coefficient.size > 0
    for place in range(todo.size):
        p = todo[place]
        if not bases.warm[p]:
            values[place] = np.inf
            continue
        plan, moved = _plan_of(p, pairs, points, bases), 0.0
        pull_x = behind(pointer(pull), points.bounds[pairs.first[p]] * k)
        pull_y = behind(pointer(pull), points.bounds[pairs.second[p]] * k)
        for node in range(plan.nodes):
            if plan.flow[node] == 0:
                continue
            i, j = _ends(node, plan.parent[node], plan.n)
            x, y = behind(plan.x, i * k), behind(plan.y, j * k)
            length = step_cost(x, y, k, cost)
            moved += plan.flow[node] * length
            if pulls and length > 0.0:
                share = coefficient[place] * plan.flow[node] / (plan.total * _slope_divisor(length, cost))
                _pull(x, y, share, k, cost, behind(pull_x, i * k), behind(pull_y, j * k))
        values[place] = moved / plan.total


@glued
def _slope_divisor(length, cost):
    """The slope of a step's cost is the step (for Manhattan: its signs) divided by this."""
    if cost == MANHATTAN:
        return 1.0
    return 0.5 if cost == SQUARED else length


@glued
def _pull(x, y, share, k, cost, pull_x, pull_y):
    for c in range(k):
        step = x[c] - y[c]
        if cost == MANHATTAN:
            step = 1.0 if step > 0.0 else -1.0 if step < 0.0 else 0.0
        pull_x[c] += share * step
        pull_y[c] -= share * step


@kernel
def fill_flows(which, nodes, pairs, points, bases, room):
    """The flows that the trees of these pairs imply; they are warm then."""
    units, rounded, a = pointer(points.units), pointer(points.rounded), pointer(room.units)
    for p in which:
        start = bases.offset[p]
        low, end = points.bounds[pairs.first[p]], points.bounds[pairs.second[p]]
        n, m = points.bounds[pairs.first[p] + 1] - low, points.bounds[pairs.second[p] + 1] - end
        fill_masses(behind(units, low), behind(rounded, low), n, pairs.times_first[p], a)
        fill_masses(behind(units, end), behind(rounded, end), m, pairs.times_second[p], behind(a, n))
        parents, flow = behind(pointer(bases.parent), start), behind(pointer(bases.flow), start)
        plant(tree_at(parents, flow, nodes[p], pointer(room.nodes)), n, a, behind(a, n))
        bases.warm[p] = True
