"""What an epoch learns from: nearest neighbours under the present metric, mini-batches, and fresh points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._internal.executor import Threads
from ..distributions import Distributions
from ..metrics.base import Cost
from ..supervision import Supervision, Triplets
from ..supervision.triplets import candidates
from ..transport.cache import cohort_digest
from ..transport.neighbors import Finder, nearest
from ..transport.problem import Masses


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


def by_anchor(triplets: Triplets, chosen: np.ndarray) -> list[np.ndarray]:
    """The chosen triplets, those of one anchor together: they share pairs, so a batch of them needs few solves."""
    order = chosen[np.argsort(triplets.j[chosen], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(triplets.j[order])) + 1)


def mini_batches(anchors: list[np.ndarray], size: int, random: np.random.RandomState) -> list[np.ndarray]:
    """Mini-batches of about `size` triplets: whole anchors in random order."""
    order = [anchors[place] for place in random.permutation(len(anchors))]
    ends = np.cumsum([anchor.size for anchor in order])
    n_batches = max(1, int(np.ceil(ends[-1] / size)))
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, n_batches) / n_batches)
    parts = np.split(np.arange(len(order)), np.unique(cuts))
    return [np.concatenate([order[place] for place in part]) for part in parts if part.size]


# Gives points of the same distributions, in the same order and with the same features, for an epoch from 1 on.
Fresh = Callable[[int], Distributions]


def renew(run: Any, fresh: Fresh | None) -> None:
    """Between two epochs, go on with fresh points, if there are any.

    Triplets, units and the optimiser stay: it is the same loss, estimated from another draw. Where the solves of the
    old points ended says nothing of the new ones, so that every pair starts anew.
    """
    if fresh is None or run.batches or run.finished:
        return
    triplets, unit = run.objective.triplets, run.objective.unit
    del run.objective  # which has the old points
    _take(run, fresh, len(run.history["loss"]))
    run.use(triplets)
    run.objective.unit = unit


def take_again(run: Any, fresh: Fresh | None, n_epochs: int, drawn: str | None) -> None:
    """Give a run the points that it had after so many epochs; `drawn` is what they are recognised by."""
    if fresh is None or n_epochs == 0:
        return
    _take(run, fresh, n_epochs)
    if run.drawn != drawn:
        raise ValueError(
            f"the fresh points after {n_epochs} epochs are not those of the checkpoint: the data have changed since, "
            "or what gives fresh points gives others every time; delete the checkpoint to start anew"
        )


def _take(run: Any, fresh: Fresh, n_epochs: int) -> None:
    names, shape = run.D.names, run.D.shape
    del run.D  # so that there are never two fresh draws in memory
    D = fresh(n_epochs)
    if (D.names, D.shape) != (names, shape):
        raise ValueError(
            f"fresh points are {D!r}, which begin with {D.names[:3]}: expected {shape[0]} distributions with "
            f"{shape[1]} features, all with a label, and in their order, which begins with {names[:3]}"
        )
    run.D, run.drawn = D, cohort_digest(D).hex()
