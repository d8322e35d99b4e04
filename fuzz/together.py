"""Two processes on one file at a time: both come to the right result or to a clear error, and the file stays whole."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from files import _cohort
from tally import Tally, check, quiet_output, random_of, silence

import groundmetric as gm

SHARE = 0.05
ROWS = ("two processes, one cache of distances", "two processes, one checkpoint", "two processes, one metric file")
REFUSED = 3


def attempt(seed: int, tally: Tally) -> None:
    rng = random_of(seed, "together")
    with tempfile.TemporaryDirectory() as folder:
        rng.choice(np.array([_distances, _checkpoint, _metric], object))(rng, Path(folder), tally)


def _distances(rng, folder: Path, tally: Tally) -> None:
    D, _ = _cohort()
    stored, expected = folder / "kept", gm.pairwise_distances(D)

    def task() -> bool:
        return np.array_equal(gm.pairwise_distances(D, keep=stored), expected)

    _both(rng, task, task, ROWS[0], tally)
    size = stored.stat().st_size
    check(task(), f"{ROWS[0]}: another value is read afterwards")
    check(stored.stat().st_size == size, f"{ROWS[0]}: distances were lost, and computed anew")


def _checkpoint(rng, folder: Path, tally: Tally) -> None:
    D, y = _cohort()

    def learn(path: Path | None) -> np.ndarray:
        options = {"max_epochs": 3, "stopping": gm.learning.EarlyStopping(tol=0.0), "random_state": 0}
        checkpoint = None if path is None else gm.learning.Checkpoint(path, every=0.0)
        return gm.GroundMetricLearner(**options, checkpoint=checkpoint).fit(D, y).components_

    with silence():
        expected = learn(None)

    def task() -> bool:
        return np.array_equal(learn(folder / "state"), expected)

    _both(rng, task, task, ROWS[1], tally)
    with silence():
        check(task(), f"{ROWS[1]}: learning continues to another metric afterwards")
    remaining = {path.name for path in folder.iterdir()} - {"state", "state.before"}
    check(not [name for name in remaining if name.endswith(".part")], f"{ROWS[1]}: left over: {sorted(remaining)}")


def _metric(rng, folder: Path, tally: Tally) -> None:
    path, sizes = folder / "metric.gm", (2, 200)
    metrics = [gm.GroundMetric(np.full((1, size), float(size))) for size in sizes]
    metrics[0].save(path)

    def write() -> bool:
        for k in range(20):
            metrics[k % 2].save(path)
        return True

    def read() -> bool:
        result = [gm.GroundMetric.load(path).components for _ in range(40)]
        return all(len(set(first.ravel())) == 1 and first.shape == (1, first[0, 0]) for first in result)

    _both(rng, write, read, ROWS[2], tally)


def _both(rng, first: Callable[[], bool], second: Callable[[], bool], row: str, tally: Tally) -> None:
    """Run two tasks at the same time, one of them a little later; both must be right, or refuse with an error."""
    children = [_fork(first, 0.0), _fork(second, float(rng.choice([0.0, 0.001, 0.01, 0.05])))]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    check(set(codes) <= {0, REFUSED} and 0 in codes, f"{row}: the processes ended with {codes}")
    tally.note(row, ended="rejected" if REFUSED in codes else "correct")


def _fork(task: Callable[[], bool], wait: float) -> int:
    """0: right, 1: wrong, 2: an error that is not ours, 3: a clear error."""
    child = os.fork()
    if child:
        return child
    code = 2
    try:
        time.sleep(wait)
        with quiet_output(), silence():
            code = 0 if task() else 1
    except (ValueError, RuntimeError):
        code = REFUSED
    finally:
        os._exit(code)
