"""The optimal value in whole numbers: an independent solver that cannot round, for problems of a few points.

Costs and masses are fractions; multiplied by their denominators they are integers of any length, which Python adds and
compares exactly. Successive shortest paths find the optimum, and its own potentials prove it before it is returned.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm


def exact_value(cost: list[list[Fraction]], a: list[Fraction], b: list[Fraction]) -> Fraction:
    """The least cost of moving masses a to b; both must have exactly the same sum."""
    if sum(a) != sum(b):
        raise ValueError(f"masses do not balance: {float(sum(a))!r} and {float(sum(b))!r}")
    cost_unit, mass_unit = _unit(x for row in cost for x in row), _unit([*a, *b])
    whole_cost = [[int(x * cost_unit) for x in row] for row in cost]
    paid = _shortest_paths(whole_cost, [int(x * mass_unit) for x in a], [int(x * mass_unit) for x in b])
    return Fraction(paid, cost_unit * mass_unit)


def _unit(numbers) -> int:
    return lcm(*(number.denominator for number in numbers))


def _shortest_paths(cost: list[list[int]], supply: list[int], demand: list[int]) -> int:
    n, m = len(supply), len(demand)
    flow = [[0] * m for _ in range(n)]
    remaining, want = supply.copy(), demand.copy()
    # cost[i][j] - u[i] - v[j] >= 0 everywhere, and 0 on arcs with flow, which proves optimality.
    u = [min(row) for row in cost]
    v = [min(cost[i][j] - u[i] for i in range(n)) for j in range(m)]
    for source in range(n):
        while remaining[source]:
            sink, above_source, above_sink = _nearest_sink(source, cost, flow, want, u, v)
            _augment(source, sink, above_source, above_sink, flow, remaining, want)
    _prove(cost, flow, supply, demand, u, v)
    return sum(cost[i][j] * flow[i][j] for i in range(n) for j in range(m))


def _nearest_sink(source, cost, flow, want, u, v):
    """Dijkstra in the residual graph, to the nearest sink that still wants mass; moves the potentials along."""
    n, m = len(cost), len(cost[0])
    to_source: list[int | None] = [None] * n
    to_sink: list[int | None] = [None] * m
    above_source, above_sink = [-1] * n, [-1] * m
    done_sources, done_sinks = {source}, set()
    to_source[source] = 0
    newest = source
    while True:
        for j in range(m):
            if j not in done_sinks:
                length = to_source[newest] + cost[newest][j] - u[newest] - v[j]
                if to_sink[j] is None or length < to_sink[j]:
                    to_sink[j], above_sink[j] = length, newest
        # Among all sinks that are reached, the nearest; sources are reached through them at no further length.
        sink = min((j for j in range(m) if j not in done_sinks), key=lambda j: to_sink[j])
        done_sinks.add(sink)
        if want[sink]:
            break
        hidden = [i for i in range(n) if flow[i][sink] and i not in done_sources]
        for i in hidden:
            to_source[i], above_source[i] = to_sink[sink], sink
            done_sources.add(i)
            for j in range(m):
                if j not in done_sinks:
                    length = to_source[i] + cost[i][j] - u[i] - v[j]
                    if to_sink[j] is None or length < to_sink[j]:
                        to_sink[j], above_sink[j] = length, i
    total = to_sink[sink]
    for i in done_sources:
        u[i] += total - to_source[i]
    for j in done_sinks:
        v[j] -= total - to_sink[j]
    return sink, above_source, above_sink


def _augment(source, sink, above_source, above_sink, flow, remaining, want) -> None:
    """Send as much as fits along the path that was found."""
    path, j = [], sink
    while True:
        i = above_sink[j]
        path.append((i, j, 1))
        if i == source:
            break
        j = above_source[i]
        path.append((i, j, -1))
    amount = min([remaining[source], want[sink], *(flow[i][j] for i, j, sign in path if sign < 0)])
    for i, j, sign in path:
        flow[i][j] += sign * amount
    remaining[source] -= amount
    want[sink] -= amount


def _prove(cost, flow, supply, demand, u, v) -> None:
    """Raise unless the plan is feasible and its cost equals the bound of the potentials."""
    pairs = [(i, j) for i in range(len(supply)) for j in range(len(demand))]
    feasible = [sum(row) for row in flow] == supply and [sum(column) for column in zip(*flow, strict=True)] == demand
    slack = all(cost[i][j] >= u[i] + v[j] and (not flow[i][j] or cost[i][j] == u[i] + v[j]) for i, j in pairs)
    if not (feasible and slack and all(flow[i][j] >= 0 for i, j in pairs)):
        raise AssertionError("the exact solver did not prove its own plan")
