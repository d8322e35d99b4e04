"""Stages of work on one file, each in a process of its own: its time and its peak memory.

A script defines its stages, functions of the file's path that say what came out; it is started anew for each of them,
and `answer` runs the one that is asked for.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

Stages = dict[str, Callable[[Path], str]]


def answer(stages: Stages, arguments: list[str]) -> bool:
    """If this process was started for a stage (--stage NAME FILE), run it and print what it took."""
    if arguments[:1] != ["--stage"]:
        return False
    name, path = arguments[1:]
    started = time.perf_counter()
    found = stages[name](Path(path))
    taken = {"seconds": time.perf_counter() - started, "cpu": time.process_time()}
    print(json.dumps({**taken, "megabytes": peak_memory(), "found": found}))
    return True


def peak_memory() -> float:
    """Megabytes that this process ever held; `ru_maxrss` would count those of the process that started it, too."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def measure(script: str, stage: str, path: Path) -> dict:
    """Run a stage in a fresh process; its peak is all memory that the process ever held."""
    command = [sys.executable, script, "--stage", stage, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{stage} failed")
    result = json.loads(done.stdout.splitlines()[-1])
    return {
        "stage": stage,
        "seconds": result["seconds"],
        "of the processor": result["cpu"],
        "peak memory, MB": round(result["megabytes"]),
        "what came out": result["found"],
    }


def measure_all(script: str, stages: Iterable[str], path: Path) -> list[dict]:
    """Rows of a table, each of which is printed as soon as it is there."""
    rows = []
    for stage in stages:
        rows.append(measure(script, stage, path))
        numbers = (value if isinstance(value, str | int) else f"{value:.1f}" for value in rows[-1].values())
        if len(rows) == 1:
            print("| " + " | ".join(rows[0]) + " |\n" + "| --- " * len(rows[0]) + "|")
        print("| " + " | ".join(map(str, numbers)) + " |", flush=True)
    return rows


def check_limit(rows: list[dict], megabytes: int) -> bool:
    """Say whether all stages stayed below the limit."""
    highest = max(row["peak memory, MB"] for row in rows)
    print(f"highest peak: {highest} MB, {'below' if highest < megabytes else 'ABOVE'} the {megabytes} MB allowed")
    return highest < megabytes
