"""Masses as integers, so that flows are exact, ties are ties, and both sides balance to the last unit."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from ..distributions import Distributions

# Far below the rounding of a float that matters (2^-53 of the total), far above what int64 sums could overflow.
TOTAL = 2**60


@dataclass(frozen=True)
class Masses:
    """What transport needs to know of distributions beside where their points are. All points have mass."""

    bounds: np.ndarray  # distribution d has the points bounds[d]:bounds[d + 1]
    weights: np.ndarray  # sum to 1 in every distribution
    uniform: np.ndarray  # which distributions have equal weights

    @classmethod
    def of(cls, *parts: Distributions) -> Masses:
        """The masses of one cohort, or of several one behind the other."""
        sizes = np.concatenate([part.sizes for part in parts])
        return cls(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate([part.weights for part in parts]),
            np.concatenate([part.uniform for part in parts]),
        )

    def __len__(self) -> int:
        return self.bounds.size - 1


def integer_masses(weights: np.ndarray) -> np.ndarray:
    """Weights as integers that sum to TOTAL. Weights below 2^-61 of the total become 0."""
    units = np.rint(weights / weights.sum() * TOTAL).astype(np.int64)
    units[np.argmax(units)] += TOTAL - units.sum()
    return units


@numba.njit(nogil=True, cache=True)
def equal_masses(n, m):
    """The smallest integers that share one total equally among n sources and among m sinks: (per source, per sink)."""
    g, r = n, m
    while r:
        g, r = r, g % r
    return m // g, n // g
