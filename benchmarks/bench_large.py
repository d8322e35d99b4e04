"""Pairs of many points: time and memory without a matrix of costs, against POT. Each case in a process of its own.

python benchmarks/bench_large.py groundmetric 10000 5 0     one case: solver, points on each side, dimensions, tolerance
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from atlas import peak_memory


def exact() -> list[dict]:
    """10,000 against 10,000 points: our solver, POT's lazy one, and POT with the whole matrix."""
    rows = []
    _measure("groundmetric", 3_000, 2, 0.0)  # compiling takes memory too: no process that counts should have to
    for k in (2, 5):
        cases = {who: _measure(who, 10_000, k, 0.0) for who in SOLVERS}
        ours = cases["groundmetric"]
        for who, case in cases.items():
            rows.append(
                {
                    "solver": who,
                    "dimensions": k,
                    "value": f"{case['value']:.12f}",
                    "proved gap": f"{case['gap']:.1e}" if "gap" in case else "",
                    "s": case["seconds"],
                    "times ours": case["seconds"] / ours["seconds"],
                    "MB above a small solve": case["megabytes"],
                    "MB of the whole process": case["whole"],
                }
            )
    return rows


def coarse() -> list[dict]:
    """100,000 against 100,000 points, by way of groups, as far as each tolerance asks."""
    rows = []
    for k, tolerance in ((2, 0.05), (2, 0.0), (5, 0.3), (5, 0.05), (5, 0.0)):
        case = _measure("groundmetric", 100_000, k, tolerance)
        rows.append(
            {
                "dimensions": k,
                "tolerance": tolerance,
                "value": f"{case['value']:.6f}",
                "error at most": f"{case['gap'] / case['value']:.1e} of it",
                "s": case["seconds"],
                "MB above a small solve": case["megabytes"],
                "MB of the whole process": case["whole"],
            }
        )
    return rows


def _measure(*case: str | float) -> dict:
    done = subprocess.run([sys.executable, __file__, *map(str, case)], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{case} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _clouds(n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, k)), rng.normal(size=(n, k)) + 0.5


def _groundmetric(x: np.ndarray, y: np.ndarray, tolerance: float) -> dict:
    from groundmetric.transport import solve_points

    plan = solve_points(x, y, tolerance=tolerance)
    return {"value": plan.value, "gap": plan.gap}


def _pot_lazy(x: np.ndarray, y: np.ndarray, _: float) -> dict:
    import ot

    return {"value": float(ot.lp.emd2_lazy(x, y, metric="euclidean", numItermax=10**9, log=False)[0])}


def _pot_dense(x: np.ndarray, y: np.ndarray, _: float) -> dict:
    import ot

    return {"value": float(ot.emd2([], [], ot.dist(x, y, metric="euclidean"), numItermax=10**9))}


SOLVERS: dict[str, Callable[[np.ndarray, np.ndarray, float], dict]] = {
    "groundmetric": _groundmetric,
    "POT emd2_lazy": _pot_lazy,
    "POT emd2, matrix": _pot_dense,
}


def main(who: str, n: int, k: int, tolerance: float) -> None:
    solve = SOLVERS[who]
    solve(*_clouds(2000, k), 0.0)  # imports, and kernels compiled or read from the cache
    before = 2**20 * peak_memory()
    start = time.process_time()  # of the processor: other work on the machine does not count
    result = solve(*_clouds(n, k), tolerance)
    took = time.process_time() - start
    peak = 2**20 * peak_memory()
    print(json.dumps({**result, "seconds": took, "megabytes": (peak - before) / 1e6, "whole": peak / 1e6}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
