"""Several runs of training, of which the caller keeps the best."""

from __future__ import annotations

import numpy as np
from tqdm import tqdm

from ..cluster import workers
from ..distributions import Distributions
from ..learning.checkpoints import Checkpoints
from ..learning.models import Model
from ..learning.renewal import Fresh
from ..learning.training import Outcome, Settings, train
from ..triplets import Supervision
from .checkpointing import Saving


def train_all(
    D: Distributions,
    known: Supervision,
    settings: Settings,
    model: Model,
    scale: np.ndarray,
    held_out: np.ndarray,
    random: np.random.RandomState,
    *,
    n_restarts: int,
    n_jobs: int | None,
    verbose: int,
    checkpoints: Checkpoints | None = None,
    fresh: Fresh | None = None,
) -> list[Outcome]:
    """Runs from different starts and triplets, with a progress bar. An interruption ends them, but loses nothing."""
    saving = Saving(checkpoints)
    runs, state = saving.runs, saving.state
    held_out = held_out if saving.held_out is None else saving.held_out
    total = settings.max_epochs * n_restarts
    with (
        saving,
        workers(n_jobs) as threads,
        tqdm(total=total, desc="learning", unit="epoch", disable=None if verbose else True, leave=False) as bar,
    ):

        def show(history: dict[str, list]) -> None:
            bar.set_postfix(loss=f"{history['loss'][-1]:.3f}", active=f"{history['active'][-1]:.0%}", refresh=False)
            bar.update()

        for _ in range(len(runs), n_restarts):
            try:
                run = train(
                    D,
                    known,
                    settings,
                    model=model,
                    scale=scale,
                    held_out=held_out,
                    threads=threads,
                    random=random,
                    on_epoch=show,
                    on_step=saving.after_step,
                    state=state,
                    fresh=fresh,
                )
            except KeyboardInterrupt:  # before this run had a start; an earlier one is still worth keeping
                if not runs:
                    raise
                runs[-1].interrupted = True
                break
            runs.append(run)
            state = None
            if run.interrupted:
                break
    return runs
