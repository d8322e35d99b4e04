"""Transport problems: validated costs, points and masses, with masses in integer units."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._internal.validation import real_array
from . import _core

if TYPE_CHECKING:
    from ..distributions import Distributions

# Squares of numbers with a binary exponent outside ±400 may overflow or lose digits.
_FAR = 400
# Problems with more than 16 times as many sources as sinks, and more than 4,000 sources, are solved transposed.
_TALL, _MANY = 16, 4000


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
    """Scale points by a power of two, which is exact, if squares of their differences could overflow or underflow.

    Returns the points and the exponent that undoes the scaling; it is 0 for points that need no scaling.
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
        # Constant columns do not change distances, and scaled they could overflow.
        x, y = np.where(constant, 0.0, x), np.where(constant, 0.0, y)
    return np.ldexp(x, -up), np.ldexp(y, -up), up


def check_cost(cost: Any) -> tuple[np.ndarray, tuple[float, float]]:
    """Return valid costs, and the smallest and the largest of them."""
    cost = real_array(cost, "cost")
    if cost.ndim != 2 or 0 in cost.shape:
        raise ValueError(f"cost has shape {cost.shape}: expected (sources, sinks), at least one of each")
    cost = np.require(cost, np.float64, ["C", "A"])
    low, high = _core.finite_range(cost)
    if not low <= high:
        i, j = np.argwhere(~np.isfinite(cost))[0]
        raise ValueError(f"cost contains NaN or infinity: {cost[i, j]} at ({i}, {j}); use a large number to bar an arc")
    return cost, (low, high)


def check_masses(a: Any, b: Any, shape: tuple[int, int], *, balanced: bool = True) -> tuple[np.ndarray, np.ndarray]:
    if a is None and b is None:
        return _check_side(None, "a", shape[0]), _check_side(None, "b", shape[1])
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


def is_tall(n: Any, m: Any) -> Any:
    """Return whether n sources and m sinks are solved faster with sources and sinks exchanged."""
    return (n > _TALL * m) & (n > _MANY)


# Units of all mass: a unit of 2^-60 is smaller than the rounding error of a float (2^-53 of the total), and sums of
# int64 stay below 2^63.
TOTAL = 2**60
_MOST = 2**62
# Relative error of a mass after one or two divisions (the error of one operation is 2^-53).
ROUNDING = 2.0**-50
# Largest mass as a multiple of the unit if the unit is estimated from quotients. With larger multiples, unrelated
# numbers would be accepted as multiples of a common unit.
_MULTIPLE = 2**20


@dataclass(frozen=True)
class Masses:
    """Sizes and weights of distributions, without the coordinates of their points. All weights are positive."""

    bounds: np.ndarray  # distribution d has the points bounds[d]:bounds[d + 1]
    weights: np.ndarray  # sum to 1 in every distribution
    uniform: np.ndarray  # bool: distributions with equal weights

    @classmethod
    def of(cls, *parts: Distributions) -> Masses:
        sizes = np.concatenate([part.sizes for part in parts])
        return cls(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate([part.weights for part in parts]),
            np.concatenate([part.uniform for part in parts]),
        )

    def __len__(self) -> int:
        return self.bounds.size - 1


@dataclass(frozen=True)
class Units:
    """The masses of two sides in integer units; both sides have the same number of units.

    Masses that are whole multiples of one unit are represented exactly. Other masses are rounded to about 2⁻⁶⁰ of the
    total, and the exact solver adds the flows of the residues.
    """

    a: np.ndarray
    b: np.ndarray
    total: float  # mass of all units of a side
    residues: tuple[np.ndarray, np.ndarray] | None = None  # if masses are rounded: masses minus units, in units
    rounding: float = 0.0  # largest relative difference between a mass and the input

    @property
    def number(self) -> int:
        return int(self.a.sum())

    def shares(self) -> tuple[np.ndarray, np.ndarray]:  # masses before rounding, for a total of 1
        number = float(self.number)
        residues_a, residues_b = self.residues or (0.0, 0.0)
        return (self.a + residues_a) / number, (self.b + residues_b) / number

    def of_mass(self, amount: np.ndarray) -> np.ndarray:
        return amount / float(self.number) * self.total


def common_units(a: np.ndarray, b: np.ndarray) -> Units:
    """Convert masses of nearly equal sums to integer units of equal sums, exactly if both have a common unit."""
    total = float(a.sum())
    if np.all(a == a[0]) and np.all(b == b[0]):
        common = math.gcd(a.size, b.size)
        return Units(np.full(a.size, b.size // common), np.full(b.size, a.size // common), total)
    units_a, units_b = whole_masses(a), whole_masses(b)
    if units_a is not None and units_b is not None:
        number_a, number_b = int(units_a.sum()), int(units_b.sum())
        common = math.lcm(number_a, number_b)
        if common < _MOST:
            exact = all(np.all(side == np.rint(side)) for side in (a, b))
            units_a, units_b = units_a * (common // number_a), units_b * (common // number_b)
            return Units(units_a, units_b, total, rounding=0.0 if exact else ROUNDING)
    # Round masses to units of the same size on both sides, which keeps equal masses equal; those of b are scaled to the
    # sum of a. Corrections and residues are stored separately: added to the masses, they would be lost to rounding.
    up = 60 - int(np.frexp(total)[1])
    mass_a, mass_b = np.ldexp(a, up), np.ldexp(b, up)
    added = mass_b * (math.fsum([*mass_a.tolist(), *(-mass_b).tolist()]) / mass_b.sum())
    residues_a = mass_a - np.rint(mass_a)
    residues_b = (mass_b - np.rint(mass_b)) + (added - np.rint(added))
    units_a = np.rint(mass_a).astype(np.int64)
    units_b = np.rint(mass_b).astype(np.int64) + np.rint(added).astype(np.int64)
    largest, surplus = np.argmax(units_b), units_a.sum() - units_b.sum()
    units_b[largest] += surplus
    residues_b[largest] -= surplus
    return Units(units_a, units_b, total, residues=(residues_a, residues_b), rounding=ROUNDING)


def whole_masses(weights: np.ndarray) -> np.ndarray | None:
    """Return the smallest integers with the ratios of the weights, up to float rounding, or None."""
    if np.all(weights == np.rint(weights)) and weights.sum() < 2.0**62:
        units = weights.astype(np.int64)
        return units // np.gcd.reduce(units)
    shares = weights / weights.max()
    multiple = 1
    while True:
        units = np.rint(shares * multiple)
        off = np.abs(shares * multiple - units) > ROUNDING * units
        if not off.any():
            return units.astype(np.int64) // np.gcd.reduce(units.astype(np.int64))
        # The denominator of the first continued fraction that equals the number up to float rounding.
        number = float(shares[np.argmax(off)] * multiple)
        top, bottom = number.as_integer_ratio()
        before, denominator = 1, 0
        while bottom and denominator <= _MULTIPLE:
            digit, remainder = divmod(top, bottom)
            before, denominator = denominator, digit * denominator + before
            if abs(number * denominator - round(number * denominator)) <= ROUNDING * number * denominator:
                break
            top, bottom = bottom, remainder
        multiple *= denominator
        if multiple > _MULTIPLE:
            return None


def integer_masses(weights: np.ndarray) -> np.ndarray:
    """Return weights as integers that sum to TOTAL. Weights below 2^-61 of the total become 0."""
    units = np.rint(weights / weights.sum() * TOTAL).astype(np.int64)
    units[np.argmax(units)] += TOTAL - units.sum()
    return units


def smallest_masses(weights: np.ndarray) -> np.ndarray:
    """Return the smallest integers with the ratios of the weights (`whole_masses`), otherwise `integer_masses`."""
    units = whole_masses(weights)
    return integer_masses(weights) if units is None else units


def balancing_factors(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest factors that make units with the sums `first` and `second` balance, for each pair.

    Factors are 0 for pairs whose integer sums could overflow; these pairs use `rounded_masses`.
    """
    common = np.gcd(first, second)
    times_first, times_second = second // common, first // common
    fits = times_first <= _MOST // first
    return np.where(fits, times_first, 0), np.where(fits, times_second, 0)


def rounded_masses(units: np.ndarray) -> np.ndarray:
    number = units.sum()
    if number == TOTAL:
        return units
    rounded = np.rint(units * (TOTAL / number)).astype(np.int64)
    rounded[np.argmax(rounded)] += TOTAL - rounded.sum()
    return rounded


# Arrays that the C++ core reads and writes.
class Points(NamedTuple):  # projected points of all distributions, and their masses
    z: np.ndarray  # (n_points, n_components)
    bounds: np.ndarray  # distribution d has the rows bounds[d]:bounds[d + 1]
    units: np.ndarray  # int64, the smallest integers with the ratios of the masses; see `balancing_factors`
    rounded: np.ndarray  # int64 masses rounded to a common total; empty if no pair needs them
    shares: np.ndarray  # masses as floats that sum to 1 in every distribution
    uniform: np.ndarray  # bool: distributions with equal masses
    cost: int  # a `Cost`


class Pairs(NamedTuple):  # pairs, and the factors that make their units balance; 0: use `rounded`
    first: np.ndarray
    second: np.ndarray
    times_first: np.ndarray
    times_second: np.ndarray


class Bases(NamedTuple):  # bases of the last solve of each pair, concatenated
    offset: np.ndarray  # (n_pairs,) start in the arrays below; a pair of n and m points takes n + m + 1 numbers
    parent: np.ndarray
    flow: np.ndarray
    potential: np.ndarray
    warm: np.ndarray  # (n_pairs,) bool: the pair has a basis for a warm start


class Answers(NamedTuple):  # results of solves, by pair
    value: np.ndarray
    pivots: np.ndarray  # -1 if the basis of the warm start is infeasible for the masses
    optimal: np.ndarray
    bound: np.ndarray  # bool: the value is a lower bound that reached `enough`, where the solve stopped


def no_answers(n_pairs: int) -> Answers:  # of pairs that have not been solved
    flags = np.ones(n_pairs, bool), np.zeros(n_pairs, bool)
    return Answers(np.full(n_pairs, np.nan), np.zeros(n_pairs, np.int64), *flags)
