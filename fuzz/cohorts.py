"""Cohorts with an outlier, or far from the origin: the distance between other distributions does not change."""

from __future__ import annotations

import numpy as np
from tally import Tally, check, random_of, silence

import groundmetric as gm

SHARE = 0.04
ROWS = ("cohorts with an outlier", "cohorts far from the origin")


def attempt(seed: int, tally: Tally) -> None:
    rng = random_of(seed, "cohorts")
    points = rng.integers(-(2**20), 2**20, (int(rng.integers(6, 60)), int(rng.integers(1, 5)))) / 2.0**20
    owner = np.sort(np.arange(points.shape[0]) % 3)
    alone = _distances(points, owner)
    size = 10.0 ** rng.uniform(1, 15)
    outlier = size * rng.normal(size=(int(rng.integers(1, 4)), points.shape[1]))
    combined = _distances(np.vstack([points, outlier]), np.r_[owner, np.full(len(outlier), 3)])[:3, :3]
    _same(alone, combined, f"an outlier at {size:.2g}", 1e-9, ROWS[0], tally)
    # A shift by a power of two that the points survive without rounding: distances are bit-identical.
    shift = 2.0 ** rng.integers(3, 30)
    _same(alone, _distances(points + shift, owner), f"a shift by {shift:.2g}", 1e-9, ROWS[1], tally)


def _distances(points: np.ndarray, owner: np.ndarray) -> np.ndarray:
    with silence():
        return gm.pairwise_distances(gm.Distributions(points, owner))


def _same(alone, combined, kind: str, allowed: float, row: str, tally: Tally) -> None:
    error = float(np.abs(combined - alone).max() / np.abs(alone).max())
    check(error < allowed, f"{kind} changes distances of others by {error:.2g} of their size")
    tally.note(row, error)
