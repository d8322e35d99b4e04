"""Measurements and tables of all benchmarks: CPU times, simulated data, ggml-ot in its own environment, result files.

Times are CPU seconds (user and system) on one core, which depend little on other programs. Programs that are compared
run alternately in one process, or one after another in one run; medians over repeats are reported.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import groundmetric as gm

FOLDER = Path(__file__).resolve().parent
WORK = FOLDER / "work"
CORE = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
RIVAL = FOLDER / ".venv-ggml-ot"
# torch is installed first and pinned: otherwise pip may choose a build with gigabytes of CUDA for ggml-ot. If the
# index has only such builds, set PIP_EXTRA_INDEX_URL to torch's CPU wheels.
RIVAL_REQUIREMENTS = ["torch==2.13.0", "ggml-ot==0.9.94"]

Sections = dict[str, tuple[str, Callable[[], list[dict]]]]  # title and rows by name


def pin_to_one_core() -> None:
    if CORE is not None:
        os.sched_setaffinity(0, {CORE})


def seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def side_by_side(repeats: int, **functions: Callable[[], Any]) -> dict[str, float]:
    """Return the median seconds of each function; functions alternate, which distributes noise equally."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            times[name].append(seconds(function))
    return {name: statistics.median(values) for name, values in times.items()}


def modes_2000d(n_distributions: int = 40, n_points: int = 1000, n_features: int = 2000, seed: int = 0):
    """Return two classes with ten shared Gaussian modes; class two has one mode shifted along five features."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(10, n_features)) * 2.0
    shifted = centres.copy()
    shifted[0, :5] += 4.0
    y = np.arange(n_distributions) % 2
    points = np.empty((n_distributions * n_points, n_features))
    for d, label in enumerate(y):
        rows = slice(d * n_points, (d + 1) * n_points)
        points[rows] = (shifted if label else centres)[random.integers(0, 10, n_points)]
        for row in points[rows]:  # row by row: noise for all points would double the memory
            row += random.normal(size=n_features)
    return gm.Distributions(points, np.repeat(np.arange(n_distributions), n_points)), y


def save_for_rival(name: str, D: gm.Distributions, y: np.ndarray) -> Path:
    """Write the file that rival_ggml_ot.py reads."""
    WORK.mkdir(exist_ok=True)
    path = WORK / f"{name}.npz"
    np.savez(path, points=D.points, groups=np.repeat(np.arange(len(D)), D.sizes), labels=y)
    return path


def rival(data: Path, *arguments: Any) -> dict[str, Any]:
    """Run ggml-ot in its own environment, with the core and the thread settings of this process."""
    command = [rival_python(), FOLDER / "rival_ggml_ot.py", data, *arguments]
    return json.loads(_run(command).strip().splitlines()[-1])


def rival_python() -> Path:
    """Return the Python of an environment with ggml-ot, which the first call creates."""
    interpreter, complete = RIVAL / "bin" / "python", RIVAL / "complete"
    requirements = "\n".join(RIVAL_REQUIREMENTS) + "\n"
    # `complete` is written last: an interrupted installation is repeated.
    if not complete.exists() or complete.read_text() != requirements:
        print(f"installing {', '.join(RIVAL_REQUIREMENTS)} into {RIVAL.name} (once; 2 GB, minutes)", file=sys.stderr)
        _run([sys.executable, "-m", "venv", "--clear", RIVAL])
        for requirement in RIVAL_REQUIREMENTS:
            _run([interpreter, "-m", "pip", "install", "--quiet", requirement])
        complete.write_text(requirements)
    return interpreter


def _run(command: list[Any]) -> str:
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def table(rows: list[dict]) -> str:
    """Return rows as a Markdown table."""
    cells = [[f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in cells])


def run_sections(sections: Sections, names: list[str], file: str, heading: str, conditions: str) -> None:
    """Run the named sections (default: all), and write `file`.json and `file`.md with the rows of all sections."""
    unknown = set(names) - set(sections)
    if unknown:
        sys.exit(f"unknown sections {sorted(unknown)}: expected some of {list(sections)}")
    stored = FOLDER / f"{file}.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    packages = ", ".join(f"{name} {version(name)}" for name in ("groundmetric", "numpy", "POT"))
    machine = f"{platform.machine()}, Python {platform.python_version()}, {packages}; {conditions}."
    for name in names or sections:
        title, run = sections[name]
        start = time.perf_counter()
        rows = [
            {key: value if isinstance(value, str | int) else float(value) for key, value in row.items()}
            for row in run()
        ]
        results[name] = {"title": title, "machine": machine, "rows": rows}
        print(f"\n## {title} ({time.perf_counter() - start:.0f} s)\n\n{table(rows)}", flush=True)
        stored.write_text(json.dumps(results, indent=1) + "\n")
        write_page(sections, file, heading)


def write_page(sections: Sections, file: str, heading: str) -> None:
    """Write `file`.md from `file`.json."""
    results = json.loads((FOLDER / f"{file}.json").read_text())
    parts = [
        f"## {result['title']}\n\n{result['machine']}\n\n{table(result['rows'])}\n"
        for result in (results[name] for name in sections if name in results)
    ]
    (FOLDER / f"{file}.md").write_text(f"# {heading}\n\n" + "\n".join(parts))
