"""Other points in every epoch: what is learned from a few at a time is learned from many in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..distributions import Distributions
from ..fingerprints import of_cohort

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
    run.D, run.drawn = D, of_cohort(D).hex()
