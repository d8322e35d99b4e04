"""The nearest of those that an anchor may have as neighbours, under the present metric."""

from __future__ import annotations

import numpy as np

from ..parallel import Threads
from ..point_distances import Cost
from ..transport.masses import Masses
from ..transport.search import Finder, nearest
from ..triplets import Supervision
from ..triplets.choosing import candidates


def nearest_candidates(
    masses: Masses,
    z: np.ndarray,
    known: Supervision,
    held_out: np.ndarray,
    n_neighbors: int,
    threads: Threads,
    *,
    cost: Cost = Cost.EUCLIDEAN,
) -> np.ndarray:
    """Distances of every distribution to its nearest candidates of each level, infinite where they were not needed.

    Lower bounds rule most pairs out without a solve. Distributions that are held out are not looked for.
    """
    finder = Finder(masses, z, threads, cost=cost)
    n = len(masses)
    rows, cols = np.triu_indices(n, 1)
    lower = np.full((n, n), np.inf)
    lower[rows, cols] = lower[cols, rows] = finder.lower(rows, cols)
    distances = np.full((n, n), np.inf)
    for wanted in _by_place(known, held_out, n):
        exact = nearest(np.where(wanted, lower, np.inf), min(n_neighbors, n), finder.solve, finder.sharpen)
        np.minimum(distances, exact, out=distances)
    return distances


def _by_place(known: Supervision, held_out: np.ndarray, n: int) -> list[np.ndarray]:
    """Masks (anchor, candidate): the first levels of all anchors, the second ones, and so on."""
    masks: dict[tuple, np.ndarray] = {}
    for label, target in enumerate(known.targets):
        for some in candidates(target, held_out, known.strata):
            sides = {"near": some.near} if some.far is some.near else {"near": some.near, "far": some.far}
            for side, pools in sides.items():
                for place, pool in enumerate(pools):
                    mask = masks.setdefault((label, side, place), np.zeros((n, n), bool))
                    mask[some.anchor, pool.all()] = True
    return list(masks.values())
