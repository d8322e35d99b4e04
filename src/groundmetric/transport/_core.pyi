"""Kernels of exact transport in C++; the sources are in `_core/`.

All arrays must have exactly the types below, in C order; arrays that are written must be writable. Others raise
TypeError, sizes and indices that do not fit ValueError. The GIL is released while a kernel runs.
"""

import numpy as np
from numpy.typing import NDArray

from .problem import Answers, Bases, Pairs, Points

_Floats = NDArray[np.float64]
_Integers = NDArray[np.int64]
_Nodes = NDArray[np.int32]

def instruction_set() -> str:
    """Return the instruction set in use: "baseline", "avx2" or "avx512"."""

class Workspace:
    """Scratch buffers of one thread."""

def solve_pairs(
    workspace: Workspace,
    todo: _Integers,
    enough: _Floats,
    points: Points,
    pairs: Pairs,
    bases: Bases,
    max_pivots: int,
    answers: Answers,
) -> None:
    """Solve the pairs `todo` exactly, each from its own basis if it has one.

    If potentials prove that the value of a pair is at least `enough`, before the first pivot or between rounds of
    pivots, the answer is that bound. A negative `max_pivots` means 2000 pivots per point.
    """

def fill_flows(todo: _Integers, points: Points, pairs: Pairs, bases: Bases) -> None:
    """Set the flows that the trees of these pairs imply, and mark the pairs as warm."""

def follow_plans(
    todo: _Integers,
    coefficient: _Floats,
    points: Points,
    pairs: Pairs,
    bases: Bases,
    values: _Floats,
    gradient: _Floats,
) -> None:
    """Fill `values` with the costs of the last plans at the present points; infinite for pairs without a plan.

    If coefficients are given, add each pair's coefficient times the gradient of its value to `gradient`.
    """

def move_points(distribution: int, z: _Floats, points: Points, means: _Floats) -> float:
    """Move the points of a distribution to z, set its mean, and return the distance that its mass travelled."""

def follow_lines(
    todo: _Integers, coefficient: _Floats, points: Points, pairs: Pairs, values: _Floats, gradient: _Floats
) -> None:
    """As `follow_plans` with optimal plans, for points with one component, sorted within each distribution.

    Values are NaN if the masses of a pair do not balance.
    """

def bound_pairs(
    todo: _Integers,
    first: _Integers,
    second: _Integers,
    z: _Floats,
    bounds: _Integers,
    weights: _Floats,
    means: _Floats,
    cost: int,
    values: _Floats,
) -> None:
    """Fill `values` with lower bounds of the values of the pairs `todo`, from feasible potentials."""

def solve_matrix(
    cost: _Floats,
    range: tuple[float, float],
    a: _Integers,
    b: _Integers,
    parent: _Nodes,
    flow: _Integers,
    potential: _Floats,
    warm: bool,
    max_pivots: int,
) -> tuple[int, bool]:
    """Optimise a basis in place at costs (n, m), which lie within `range`.

    Returns the number of pivots (-1: the masses do not balance, or the basis to start from is not feasible for them)
    and whether the basis is optimal.
    """

def solve_points(
    x: _Floats,
    y: _Floats,
    cost: int,
    a: _Integers,
    b: _Integers,
    parent: _Nodes,
    flow: _Integers,
    potential: _Floats,
    warm: bool,
    max_pivots: int,
) -> tuple[int, bool]:
    """Optimise a basis in place at the costs of the steps between points, as `solve_matrix`."""

def fill_tree_flows(parent: _Nodes, flow: NDArray[np.int64] | NDArray[np.float64]) -> bool:
    """Turn the masses of all nodes into the flows of a tree, in place; returns False if `parent` is no tree."""

def finite_range(numbers: _Floats) -> tuple[float, float]:
    """Return the smallest and the largest number of a matrix; (inf, -inf) if any is not finite."""

class PointBlocks:
    """Points in blocks of 64 with balls around them."""

    def __init__(self, points: _Floats, cost: int) -> None: ...

class Candidates:
    """Arcs that may enter the basis, up to `capacity` per source."""

    def __init__(self, n_sources: int, capacity: int) -> None: ...
    def add(
        self,
        z: _Floats,
        blocks: PointBlocks,
        potential: _Floats,
        width: int,
        only_negative: bool,
        allowed: _Floats,
    ) -> int:
        """Add up to `width` cheapest arcs per source, only those of negative reduced cost if asked.

        z holds the points of all sources, then of all sinks, which are those of the blocks. `allowed` becomes the
        largest potential that the sinks allow each source (or its own, if that is not larger). Returns the number of
        arcs that were added.
        """

    def optimise(
        self,
        z: _Floats,
        cost: int,
        a: _Integers,
        b: _Integers,
        parent: _Nodes,
        flow: _Integers,
        potential: _Floats,
        max_pivots: int,
    ) -> int:
        """Optimise a basis over the candidates, in place; returns the number of pivots."""

def allowed_potentials(points: _Floats, blocks: PointBlocks, heights: _Floats, allowed: _Floats) -> None:
    """Fill `allowed` with the largest potentials at `points` that the potentials of the blocks' points allow."""

def project(points: NDArray[np.float32] | NDArray[np.float64], components: _Floats, products: _Floats) -> None:
    """Fill `products` (n, k) with the products of points (n, features) and components (k, features)."""

def split(points: _Floats, masses: _Floats, n_groups: int, groups: _Integers) -> None:
    """Fill `groups` by splitting the group of largest scatter at its mean until there are `n_groups`."""

def nearest_centres(points: _Floats, centres: _Floats, nearest: _Integers) -> None:
    """Fill `nearest` with the index of each point's nearest centre."""

# For tests.

class RoughCosts32:
    """Rough costs in float32, (cost - offset) * scale, and the pricing on them."""

    def __init__(self, *arguments: object) -> None: ...
    @property
    def scale(self) -> float: ...
    @property
    def error(self) -> float: ...
    def fill(self, costs: np.ndarray) -> None: ...
    def set_levels(self, sinks: _Floats) -> None: ...
    def best(self, i: int, potential: float) -> tuple[float, int]: ...
    def near(self, i: int, potential: float) -> list[int]: ...

class RoughCosts16(RoughCosts32):
    """Rough costs in int16."""

def scan_row(costs: np.ndarray, levels: np.ndarray, limit: float) -> tuple[float, int, int, list[int]]:
    """Return the smallest difference of a row, its block and position, and all positions up to the limit."""

def fill_costs(x: _Floats, y: _Floats, cost: int, costs: _Floats) -> None:
    """Fill `costs` with the exact costs of all steps, one at a time."""
