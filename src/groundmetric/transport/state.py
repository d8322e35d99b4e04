"""Arrays that the C++ core reads and writes: points, pairs, bases and answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Points(NamedTuple):
    """Projected points of all distributions, and their masses."""

    z: np.ndarray  # (n_points, n_components)
    bounds: np.ndarray  # distribution d has the rows bounds[d]:bounds[d + 1]
    units: np.ndarray  # int64, the smallest integers with the ratios of the masses; see `balancing_factors`
    rounded: np.ndarray  # int64 masses rounded to a common total; empty if no pair needs them
    shares: np.ndarray  # masses as floats that sum to 1 in every distribution
    uniform: np.ndarray  # bool: distributions with equal masses
    cost: int  # a `Cost`


class Pairs(NamedTuple):
    """The distributions of each pair, and the factors that make their units balance; 0: use `rounded`."""

    first: np.ndarray
    second: np.ndarray
    times_first: np.ndarray
    times_second: np.ndarray


class Bases(NamedTuple):
    """Where each pair's last solve ended."""

    offset: np.ndarray  # (n_pairs,) start in the arrays below; a pair of n and m points takes n + m + 1 numbers
    parent: np.ndarray
    flow: np.ndarray
    potential: np.ndarray
    warm: np.ndarray  # (n_pairs,) bool: the pair has a basis to start from


class Answers(NamedTuple):
    """Results of solves, by pair."""

    value: np.ndarray
    pivots: np.ndarray  # -1 if the basis to start from is not feasible for the masses
    optimal: np.ndarray
    bound: np.ndarray  # bool: the value is a lower bound, which was enough


def no_answers(n_pairs: int) -> Answers:
    """Return the answers of pairs that have not been solved."""
    flags = np.ones(n_pairs, bool), np.zeros(n_pairs, bool)
    return Answers(np.full(n_pairs, np.nan), np.zeros(n_pairs, np.int64), *flags)
