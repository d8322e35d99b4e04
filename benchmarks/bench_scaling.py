"""Time and memory of learning as the cohort grows: both should be linear.

Each size runs in a process of its own, in an environment with the package and what it needs alone: of what else is
installed, scikit-learn loads pandas (33 MB) by itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import rival_env

HERE = Path(__file__).resolve().parent
SIZES = (20, 40, 80, 160)
POINTS, FEATURES = 500, 1000


def run() -> list[dict]:
    rows = []
    python = rival_env.environment(HERE / ".venv-plain", [f"-e {HERE.parent}"], "a minute")
    for n in (SIZES[0], *SIZES):  # once more at first, so that no process that counts has to compile kernels
        done = subprocess.run([str(python), __file__, str(n)], check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout.strip().splitlines()[-1]))
    del rows[0]
    for row in rows:
        for name, time in (("s", "s per epoch"), ("s of one step", "s per epoch of one step")):
            smallest = rows[0][time] / rows[0]["distributions"]
            row[f"{name} per distribution, against the smallest"] = row[time] / row["distributions"] / smallest
    return rows


def peak_memory() -> int:
    """Most bytes that this process held; unlike getrusage's figure, it does not begin with the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def _median_epoch(D: object, y: object, **options: int) -> tuple[float, float]:
    """Seconds and pairs of an epoch: medians of three fits."""
    from bench_training import our_epochs

    return tuple(np.median([our_epochs(D, y, 8, **options)[:2] for _ in range(3)], axis=0).tolist())


def measure(n: int) -> dict:
    """Seconds per epoch, and the most memory that the process ever held beside what the input needs."""
    from cohorts import modes_2000d

    import groundmetric as gm

    gm.GroundMetricLearner(max_epochs=1).fit(*modes_2000d(4, 20, 30))  # kernels are read from the cache
    before = peak_memory() / 1e6
    D, y = modes_2000d(n, POINTS, FEATURES)
    epoch, pairs = _median_epoch(D, y)
    peak = peak_memory() / 1e6
    one_step, one_pairs = _median_epoch(D, y, batch_size=10**9)
    size = D.points.nbytes / 1e6
    return {
        "distributions": n,
        "s per epoch": epoch,
        "pairs per epoch": pairs,
        "s per epoch of one step": one_step,
        "its pairs": one_pairs,
        "input MB": size,
        "MB before the data": before,
        "peak MB": peak,
        "peak less before, in inputs": (peak - before) / size,
        "allowed MB (1.5 × input + 200)": 1.5 * size + 200.0,
    }


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    print(json.dumps(measure(int(sys.argv[1]))))
