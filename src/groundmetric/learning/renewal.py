"""Other points in every epoch: what is learned from a few at a time is learned from many in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..distributions import Distributions

# Gives points of the same distributions, in the same order and with the same features, for an epoch from 1 on.
Fresh = Callable[[int], Distributions]


def renew(run: Any, fresh: Fresh) -> None:
    """Between two epochs, go on with fresh points.

    Triplets, units and the optimiser stay: it is the same loss, estimated from another draw. Where the solves of the
    old points ended says nothing of the new ones, so that every pair starts anew.
    """
    if run.batches or run.finished:
        return
    triplets, unit, old = run.objective.triplets, run.objective.unit, (run.D.names, run.D.shape)
    del run.objective, run.D  # so that there are never two draws in memory
    D = fresh(len(run.history["loss"]))
    if (D.names, D.shape) != old:
        raise ValueError(
            f"fresh points are {D!r}, which begin with {D.names[:3]}: expected {old[1][0]} distributions with "
            f"{old[1][1]} features, all with a label, and in their order, which begins with {old[0][:3]}"
        )
    run.D = D
    run.use(triplets)
    run.objective.unit = unit
