"""Costs, points and masses from the outside: as the solvers take them, or an error that names what is wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays import real_array

# Coordinates and steps with a binary exponent beyond this have squares that are out of range, or lose digits there.
_FAR = 400


def check_points(points: Any, name: str) -> np.ndarray:
    points = real_array(points, name)
    if points.ndim != 2 or 0 in points.shape:
        raise ValueError(f"{name} has shape {points.shape}: expected (points, columns), at least one of each")
    bad = ~np.isfinite(points)
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise ValueError(f"{name} contains NaN or infinity: {points[i, j]} at ({i}, {j}); drop or impute the point")
    return np.require(points, np.float64, ["C", "W"])


def points_in_range(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Points times a power of two such that the squares of their steps are in range; and the exponent to undo it.

    Points whose squares are in range as they are pass through. A power of two takes no digits.
    """
    low, high = np.minimum(x.min(axis=0), y.min(axis=0)), np.maximum(x.max(axis=0), y.max(axis=0))
    largest = max(float(high.max()), -float(low.min()))
    constant = high == low
    up = math.frexp(largest)[1]
    if up <= _FAR:
        extent = float(np.max(high - low, initial=0.0))
        up = math.frexp(extent)[1]
        if extent == 0.0 or up >= -_FAR:
            return x, y, 0
        x, y = np.where(constant, 0.0, x), np.where(constant, 0.0, y)  # else they might leave the range upwards
    return np.ldexp(x, -up), np.ldexp(y, -up), up


def check_cost(cost: Any) -> np.ndarray:
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


def check_masses(a: Any, b: Any, shape: tuple[int, int], *, balanced: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Masses of both sides; equal ones by default. `balanced`: they have to have the same sum."""
    float32 = np.float32 in (getattr(a, "dtype", None), getattr(b, "dtype", None))
    a, b = _check_side(a, "a", shape[0]), _check_side(b, "b", shape[1])
    with np.errstate(over="ignore"):
        total_a, total_b = float(a.sum()), float(b.sum())
    if not np.isfinite(total_a + total_b):
        raise ValueError("masses are too large: their sum is infinite; scale them down")
    if balanced and abs(total_a - total_b) > (1e-6 if float32 else 1e-9) * max(total_a, total_b):
        raise ValueError(
            f"masses do not balance: a sums to {total_a!r}, b to {total_b!r}; scale them to the same sum, or use "
            "solver='unbalanced'"
        )
    return a, b


def _check_side(mass: Any, name: str, size: int) -> np.ndarray:
    if mass is None:
        return np.full(size, 1.0 / size)
    mass = real_array(mass, name).astype(np.float64, copy=False)
    if mass.shape != (size,):
        raise ValueError(f"{name} has shape {mass.shape}, but there are {size} points on that side")
    bad = ~np.isfinite(mass) | (mass < 0)
    if bad.any():
        k = int(np.argmax(bad))
        raise ValueError(f"{name}[{k}] is {mass[k]}: masses must be finite and not negative")
    if not np.any(mass > 0):
        raise ValueError(f"{name} sums to 0: at least one mass must be positive")
    return mass
