"""How times are taken: both sides in turn in one process or one run, medians over repeats, one core.

Seconds are those of the CPU (user and system): what else runs on the machine counts as little as possible.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rival_env

CORE = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def pin_to_one_core() -> None:
    if CORE is not None:
        os.sched_setaffinity(0, {CORE})


def seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def side_by_side(repeats: int, **functions: Callable[[], Any]) -> dict[str, float]:
    """Median seconds of each function; they take turns, so that a noisy minute hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            times[name].append(seconds(function))
    return {name: statistics.median(values) for name, values in times.items()}


def rival(data: Path, *arguments: Any) -> dict[str, Any]:
    """Run ggml-ot on the same core in its own environment; it inherits the pinning and the thread settings."""
    script = Path(__file__).resolve().parent / "rival_ggml_ot.py"
    command = [str(rival_env.python()), str(script), str(data), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ggml-ot failed on {data.name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])
