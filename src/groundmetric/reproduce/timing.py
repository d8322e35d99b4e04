"""The paper's Table 3: time of an epoch by neighbours and rank, on Synth 200D."""

from __future__ import annotations

import time
from typing import Any

from ..estimators import GroundMetricLearner
from . import paper
from .keeping import finish
from .protocol import Plan, synthetic

DATA = "Synth 200D"


def run(plan: Plan) -> dict[str, Any]:
    """CPU seconds per epoch, a row per number of neighbours and a column per rank."""
    neighbours, ranks = list(paper.TIMING), list(paper.RANKS)
    n_epochs = 1 if plan.quick else 3
    tasks = {
        f"{t}/{rank}": (_seconds, (t, rank, n_epochs, plan.seed, plan.quick)) for t in neighbours for rank in ranks
    }
    plan.log(f"timing: {len(neighbours)} numbers of neighbours × {len(ranks)} ranks, {n_epochs} epochs each")
    # One after the other: several at a time would share caches and memory.
    answers = finish(tasks, plan.work / "timing", n_jobs=1, title="timing", verbose=plan.verbose)
    return {
        "n_epochs": n_epochs,
        "neighbours": neighbours,
        "ranks": ranks,
        "seconds": [[answers[f"{t}/{rank}"] for rank in ranks] for t in neighbours],
    }


def _seconds(n_neighbors: int, rank: int, n_epochs: int, seed: int, quick: bool) -> float:
    """CPU time of one thread per epoch, the first (cold) one included: it does not depend on who else is computing."""
    D, y = synthetic(DATA, seed, quick)
    learner = GroundMetricLearner(
        rank, n_neighbors=n_neighbors, max_epochs=n_epochs, tol=0.0, n_jobs=1, random_state=seed
    )
    learner.fit(D[::6], y[::6])  # what is compiled on first use is not counted
    start = time.process_time()
    learner.fit(D, y)
    return (time.process_time() - start) / learner.n_iter_
